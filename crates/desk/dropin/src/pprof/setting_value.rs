//! The values of settings that pprof's shell and its page read alike.

use super::go_numbers::{go_text, parse_float};
use crate::kind::FlagKind;

/// Reads the value of a setting, and returns it as Go prints it; `None` if it does not fit the
/// kind. No text at all turns a setting on.
pub(super) fn written_as_go(kind: FlagKind, text: &str) -> Option<String> {
    match kind {
        FlagKind::Bool => match text.to_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "1" | "" => Some("true".to_string()),
            "false" | "f" | "no" | "n" | "0" => Some("false".to_string()),
            _ => None,
        },
        FlagKind::Int => text.parse().ok().map(|number: i64| number.to_string()),
        FlagKind::Float => parse_float(text).map(go_text),
        FlagKind::Text | FlagKind::Regex => Some(text.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_each_kind() {
        for (kind, text, expected) in [
            (FlagKind::Bool, "Y", Some("true")),
            (FlagKind::Bool, "", Some("true")),
            (FlagKind::Bool, "0", Some("false")),
            (FlagKind::Bool, "maybe", None),
            (FlagKind::Int, "+07", Some("7")),
            (FlagKind::Int, "1.5", None),
            (FlagKind::Float, "1e-5", Some("1e-05")),
            (FlagKind::Float, "much", None),
            (FlagKind::Text, " a ", Some(" a ")),
            (FlagKind::Regex, "(", Some("(")),
        ] {
            assert_eq!(written_as_go(kind, text).as_deref(), expected, "{text:?}");
        }
    }
}
