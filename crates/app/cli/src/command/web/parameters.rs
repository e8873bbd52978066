//! The values of a request's parameters, which mean what the command's options of the same names
//! mean, and are refused in the same words.

use heapprof_analysis::{Granularity, Query};
use heapprof_web::ApiRefusal;

use crate::question::{check_wrappers, parse_percent};

/// The values of the parameters of a command.
pub(super) struct ParameterValues {
    /// The query. It has no granularity, because the default depends on the command.
    pub(super) query: Query,
    pub(super) granularity: Option<Granularity>,
    /// The expression to find in functions' names.
    pub(super) regex: String,
    /// The smallest share of the total that a node has, in percent.
    pub(super) min_percent: f64,
    pub(super) is_wide: bool,
    pub(super) is_reverse: bool,
    pub(super) is_full: bool,
    pub(super) is_normalized: bool,
}

impl ParameterValues {
    /// Parses parameters that the command has. Switches among them are on.
    pub(super) fn parse(own: &[(&str, &str)]) -> Result<Self, ApiRefusal> {
        let mut values = Self {
            query: Query::default(),
            granularity: None,
            regex: String::new(),
            min_percent: 1.0,
            is_wide: false,
            is_reverse: false,
            is_full: false,
            is_normalized: false,
        };
        for (key, value) in own {
            values.set(key, value).map_err(|why| {
                let option = option_of(key);
                wrong_value(&format!("invalid value '{value}' for '{option}': {why}"))
            })?;
        }
        if values.query.all_frames && values.query.wrappers.is_some() {
            // The parameter that comes first is named first.
            let both = own.iter().map(|(key, _)| *key);
            let both = both.filter(|key| ["all_frames", "wrappers"].contains(key));
            let both: Vec<String> = both.map(|key| format!("'{}'", option_of(key))).collect();
            let what = format!("the argument {}", both.join(" cannot be used with "));
            return Err(wrong_value(&what));
        }
        Ok(values)
    }

    /// Sets the value of a parameter. The error says what is wrong with the value.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let text = || Some(value.to_string());
        let keys = || value.split(',').map(str::to_string).collect();
        let query = &mut self.query;
        let filters = &mut query.filters;
        match key {
            "sample_type" => query.sample_type = text(),
            "granularity" => self.granularity = Some(value.parse()?),
            "sort" => query.sort = value.parse()?,
            "limit" => {
                let limit: usize = value.parse().map_err(|error| format!("{error}"))?;
                query.limit = Some(limit).filter(|&limit| limit != 0);
            }
            "min_percent" => self.min_percent = parse_percent(value)?,
            "regex" => self.regex = value.to_string(),
            "wrappers" => {
                check_wrappers(value)?;
                query.wrappers = text();
            }
            "focus" => filters.focus = text(),
            "ignore" => filters.ignore = text(),
            "hide" => filters.hide = text(),
            "show" => filters.show = text(),
            "show_from" => filters.show_from = text(),
            "prune_from" => filters.prune_from = text(),
            "tag_focus" => filters.tag_focus = text(),
            "tag_ignore" => filters.tag_ignore = text(),
            "tag_root" => filters.tag_root = keys(),
            "tag_leaf" => filters.tag_leaf = keys(),
            "tag_show" => filters.tag_show = text(),
            "tag_hide" => filters.tag_hide = text(),
            "no_inlines" => query.no_inlines = true,
            "own_code" => query.own_code = true,
            "all_frames" => query.all_frames = true,
            "relative_percentages" => query.relative_percentages = true,
            "wide" => self.is_wide = true,
            "reverse" => self.is_reverse = true,
            "full" => self.is_full = true,
            "normalize" => self.is_normalized = true,
            _ => return Err("it has no meaning".to_string()),
        }
        Ok(())
    }

    /// Returns the query of a command whose rows are `default` unless it is said otherwise.
    pub(super) fn query_by(&self, default: Granularity) -> Query {
        Query {
            granularity: self.granularity.unwrap_or(default),
            ..self.query.clone()
        }
    }
}

/// Whether a switch is on.
pub(super) fn parse_switch(key: &str, value: &str) -> Result<bool, ApiRefusal> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => {
            let what = format!("{key} is a switch, not {value:?}");
            Err(ApiRefusal::new(400, what, "Say 1 or 0"))
        }
    }
}

/// Returns the option of a parameter, as the help of the command shows it.
fn option_of(key: &str) -> String {
    let value = match key {
        "sort" => " <ORDER>",
        "limit" => " <ROWS>",
        "granularity" => " <LEVEL>",
        "min_percent" => " <PERCENT>",
        "wrappers" => " <REGEX>",
        _ => "",
    };
    format!("--{}{value}", key.replace('_', "-"))
}

/// Returns the refusal of a value. What it says is one line, whatever the value is.
fn wrong_value(said: &str) -> ApiRefusal {
    let first = said.split("\n\n").next().unwrap_or_default();
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let help = "heapprof --help says what values there are";
    ApiRefusal::new(400, line, help)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    /// The command line refuses the same values in the same words.
    #[test]
    fn values_are_refused_as_on_the_command_line() {
        for own in [
            &[("sort", "size")][..],
            &[("sort", "a\n b\n\nc")],
            &[("granularity", "atoms")],
            &[("limit", "-1")],
            &[("limit", "x"), ("sort", "size")],
            &[("limit", "99999999999999999999999")],
            &[("wrappers", "(")],
            &[("wrappers", "(?x)a # b")],
            &[("wrappers", "x"), ("all_frames", "1")],
            &[("all_frames", "1"), ("wrappers", "x")],
        ] {
            let refused = ParameterValues::parse(own).err().expect("a refusal");
            let words = own.iter().map(|(key, value)| match *key {
                "all_frames" => "--all-frames".to_string(),
                key => format!("--{}={value}", key.replace('_', "-")),
            });
            let words = ["heapprof".to_string(), "top".to_string()]
                .into_iter()
                .chain(words);
            let said = Cli::try_parse_from(words).unwrap_err().to_string();
            let said = said.split("\n\n").next().unwrap_or_default();
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(format!("error: {}", refused.what), said);
        }
        let refused = ParameterValues::parse(&[("min_percent", "x")]).err();
        let words = ["heapprof", "tree", "--min-percent=x"];
        let said = Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(said.contains(&refused.expect("a refusal").what), "{said}");
    }

    #[test]
    fn values_are_what_options_are() {
        let own = [
            ("limit", "0"),
            ("tag_root", "a,,b"),
            ("min_percent", "5%"),
            ("own_code", "1"),
        ];
        let Ok(values) = ParameterValues::parse(&own) else {
            panic!("refused");
        };
        assert_eq!(values.query.limit, None);
        assert_eq!(values.query.filters.tag_root, ["a", "", "b"]);
        assert_eq!(values.min_percent, 5.0);
        assert!(values.query.own_code);
        assert_eq!(
            values.query_by(Granularity::Lines).granularity,
            Granularity::Lines
        );
    }
}
