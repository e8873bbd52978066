//! The message of `record --follow-lines` about a line that has grown.

use heapprof_analysis::CodePlace;
use heapprof_text::{printable, shorten_one};
use serde_json::json;

use crate::json;
use crate::measure::UnitFormatter;
use crate::names::MAX_INLINE_NAME_COLUMNS;

/// A source line whose memory in use has grown.
#[derive(Clone, Copy, Debug)]
pub struct LineGrowth<'a> {
    /// The pid of the process.
    pub process: u32,
    /// The user whose process sent the message, if it is another user than heapprof's own.
    pub user: Option<u32>,
    /// The place where the memory was allocated.
    pub place: &'a CodePlace,
    /// The number of bytes by which the memory in use has grown since the last message about the
    /// line.
    pub bytes: i64,
    /// Whether the number of bytes is exact, and not an estimate.
    pub is_exact: bool,
    /// The time since the recording began, in seconds.
    pub seconds: f64,
}

impl LineGrowth<'_> {
    /// Returns the growth as one line of text: process, file and line, bytes, function. A long name
    /// is shortened.
    pub fn text(&self) -> String {
        let place = self.place;
        let file = place.file.as_deref().filter(|file| !file.is_empty());
        let at = match (file, place.line.filter(|&line| line != 0)) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.to_string(),
            (None, _) => "(no line)".to_string(),
        };
        let grown = UnitFormatter::new("bytes", None).map_or_else(
            |_| format!("{:+}", self.bytes),
            |measure| measure.show_signed(self.bytes),
        );
        let about = if self.is_exact { "" } else { "about " };
        let function = shorten_one(&place.function, MAX_INLINE_NAME_COLUMNS);
        let process = match self.user {
            None => self.process.to_string(),
            Some(user) => format!("{} (user {user})", self.process),
        };
        printable(&format!("{process}, {at}, {about}{grown}, {function}")).into_owned()
    }

    /// Returns the growth as a JSON object in one line. Programs rely on the shape of the object.
    pub fn json(&self) -> String {
        let mut object = serde_json::Map::new();
        object.insert("seconds".into(), json!(self.seconds));
        object.insert("pid".into(), json!(self.process));
        if let Some(user) = self.user {
            object.insert("user".into(), json!(user));
        }
        object.extend(json::place(self.place));
        object.insert("bytes".into(), json!(self.bytes));
        object.insert("exact".into(), json!(self.is_exact));
        // An object of texts and numbers can always be written, so there is no error here.
        let text = json::text(object).unwrap_or_default();
        text.trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_in_both_forms() {
        let place = |file: &str, line| CodePlace {
            function: "Shop::take".to_string(),
            file: Some(file.to_string()),
            line: Some(line),
            ..CodePlace::default()
        };
        let known = place("shop.pl", 11);
        let mut growth = LineGrowth {
            process: 7,
            user: None,
            place: &known,
            bytes: 3 << 19,
            is_exact: true,
            seconds: 0.5,
        };
        assert_eq!(growth.text(), "7, shop.pl:11, +1.50MiB, Shop::take");
        assert_eq!(
            growth.json(),
            "{\"seconds\":0.5,\"pid\":7,\"function\":\"Shop::take\",\"file\":\"shop.pl\",\
             \"line\":11,\"bytes\":1572864,\"exact\":true}"
        );
        let odd = place("a\u{9b}31m.pl", 11);
        growth.place = &odd;
        assert!(!growth.json().contains('\u{9b}') && !growth.text().contains('\u{9b}'));
        let unknown = place("", 0);
        (growth.place, growth.is_exact) = (&unknown, false);
        growth.user = Some(1000);
        assert_eq!(
            growth.text(),
            "7 (user 1000), (no line), about +1.50MiB, Shop::take"
        );
        assert!(growth.json().contains("\"pid\":7,\"user\":1000,"));
    }
}
