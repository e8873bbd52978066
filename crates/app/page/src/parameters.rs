//! The values of a request's parameters. They have the meaning of the command's options with the
//! same names, and wrong values are refused with the same messages.

use heapprof_analysis::{Granularity, Query};
use heapprof_web::{ApiRefusal, ApiRequest};

use crate::host::PageHost;
use crate::question::{check_wrappers, parse_percent};

/// The parameters that choose the profiles of a question.
pub(crate) const CHOICE_PARAMETERS: [&str; 2] = ["profile", "base"];

/// The values of the parameters of a command.
pub struct ParameterValues {
    /// The query about the profiles. It has no granularity, because the default depends on the
    /// command.
    pub(crate) query: Query,
    pub(crate) granularity: Option<Granularity>,
    /// The regular expression that functions' names must match.
    pub(crate) regex: String,
    /// The smallest share of the total that a node of the tree must have, in percent.
    pub(crate) min_percent: f64,
    /// Whether functions of libraries are rows, too, instead of their callers.
    pub(crate) all_code: bool,
    pub(crate) is_wide: bool,
    /// Whether the instructions of lines are shown, too.
    pub(crate) has_assembly: bool,
    pub(crate) is_reverse: bool,
    pub(crate) is_full: bool,
    pub(crate) is_normalized: bool,
}

impl ParameterValues {
    /// Parses the parameters of a request. The caller has checked that the command has all of them,
    /// and that each switch among them is on.
    pub fn parse(own: &[(&str, &str)], host: &dyn PageHost) -> Result<Self, ApiRefusal> {
        let mut values = Self {
            query: Query::default(),
            granularity: None,
            regex: String::new(),
            min_percent: 1.0,
            all_code: false,
            is_wide: false,
            has_assembly: false,
            is_reverse: false,
            is_full: false,
            is_normalized: false,
        };
        for (key, value) in own {
            values.set(key, value).map_err(|why| {
                let option = host.parameter_name(key);
                wrong_value(
                    host,
                    &format!("invalid value '{value}' for '{option}': {why}"),
                )
            })?;
        }
        if values.all_code && values.query.own_code {
            let [all, own] = ["all_code", "own_code"].map(|key| host.parameter_name(key));
            let what = format!("the argument '{all}' cannot be used with '{own}'");
            return Err(wrong_value(host, &what));
        }
        if values.query.all_frames && values.query.wrappers.is_some() {
            // The parameter that comes first is named first.
            let both = own.iter().map(|(key, _)| *key);
            let both = both.filter(|key| ["all_frames", "wrappers"].contains(key));
            let both: Vec<String> = both
                .map(|key| format!("'{}'", host.parameter_name(key)))
                .collect();
            let what = format!("the argument {}", both.join(" cannot be used with "));
            return Err(wrong_value(host, &what));
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
            "all_code" => self.all_code = true,
            "all_frames" => query.all_frames = true,
            "relative_percentages" => query.relative_percentages = true,
            "wide" => self.is_wide = true,
            "asm" => self.has_assembly = true,
            "reverse" => self.is_reverse = true,
            "full" => self.is_full = true,
            "normalize" => self.is_normalized = true,
            _ => return Err("it has no meaning".to_string()),
        }
        Ok(())
    }

    /// Returns the query of a command that shows the program's own code, unless the parameters ask
    /// for all code, all frames, or addresses. The granularity is `default` if no parameter gives
    /// one.
    pub(crate) fn query_by(&self, default: Granularity) -> Query {
        let query = self.query_of_all_code(default);
        let has_names = query.granularity != Granularity::Addresses;
        Query {
            own_code: query.own_code || has_names && !self.all_code && !query.all_frames,
            ..query
        }
    }

    /// Returns the query of a command that shows all code, unless the parameters ask for own code.
    /// The granularity is `default` if no parameter gives one.
    pub(crate) fn query_of_all_code(&self, default: Granularity) -> Query {
        Query {
            granularity: self.granularity.unwrap_or(default),
            ..self.query.clone()
        }
    }
}

/// Refuses a parameter that is not in `known` and does not choose profiles.
pub(crate) fn allow(asked: &ApiRequest, known: &[&str]) -> Result<(), ApiRefusal> {
    let is_known = |name: &str| known.contains(&name) || CHOICE_PARAMETERS.contains(&name);
    let unknown = asked.parameters.iter().find(|(name, _)| !is_known(name));
    let Some((name, _)) = unknown else {
        return Ok(());
    };
    Err(unknown_parameter(
        asked,
        name,
        CHOICE_PARAMETERS.iter().chain(known).copied(),
    ))
}

/// Returns the refusal of a parameter that a request does not have.
pub(crate) fn unknown_parameter<'a>(
    asked: &ApiRequest,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> ApiRefusal {
    let known = known.collect::<Vec<_>>().join(", ");
    let what = format!("{} has no parameter {name:?}", asked.path);
    ApiRefusal::new(400, what, format!("It has {known}"))
}

/// Parses the value of a switch. Returns whether the switch is on.
pub(crate) fn parse_switch(key: &str, value: &str) -> Result<bool, ApiRefusal> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => {
            let what = format!("{key} is 1 or 0, not {value:?}");
            Err(ApiRefusal::new(400, what, "Use 1 or 0"))
        }
    }
}

/// Returns the refusal of a value, with a message of one line.
fn wrong_value(host: &dyn PageHost, said: &str) -> ApiRefusal {
    let first = said.split("\n\n").next().unwrap_or_default();
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    ApiRefusal::new(400, line, host.words().values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::TestHost;

    #[test]
    fn values_are_what_options_are() {
        let own = [
            ("limit", "0"),
            ("tag_root", "a,,b"),
            ("min_percent", "5%"),
            ("own_code", "1"),
        ];
        let Ok(values) = ParameterValues::parse(&own, &TestHost) else {
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
