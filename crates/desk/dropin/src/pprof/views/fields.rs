//! The settings of pprof's page: their parameters in its URLs, and their names in its saved
//! configurations.
//!
//! Source of names, order and defaults: google/pprof, internal/driver/config.go.

use crate::pprof::go_numbers::{go_text, parse_float};

/// The kind of value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Bool,
    Int,
    Float,
    Text,
    /// One of these texts, or an empty text as the default.
    Choice(&'static [&'static str]),
}

/// A setting of pprof's page.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigField {
    /// The name in a saved configuration, which is also the name of a flag.
    pub(super) name: &'static str,
    /// The parameter in a URL; empty if URLs do not have this setting.
    pub(super) parameter: &'static str,
    pub(super) kind: FieldKind,
    pub(super) default: &'static str,
    /// Whether saved configurations have this setting.
    pub(super) is_saved: bool,
}

const fn field(
    name: &'static str,
    parameter: &'static str,
    kind: FieldKind,
    default: &'static str,
) -> ConfigField {
    ConfigField {
        name,
        parameter,
        kind,
        default,
        is_saved: true,
    }
}

use FieldKind::{Bool, Choice, Float, Int, Text};

/// The orders of rows.
const SORT_ORDERS: &[&str] = &["cum", "flat"];
/// The granularities of rows.
const GRANULARITIES: &[&str] = &["functions", "filefunctions", "files", "lines", "addresses"];
/// The number of settings.
pub(super) const FIELD_COUNT: usize = 29;

/// All settings, in the order of a saved configuration.
#[rustfmt::skip]
pub(super) const CONFIG_FIELDS: [ConfigField; FIELD_COUNT] = [
    field("call_tree", "calltree", Bool, "false"),
    field("relative_percentages", "rel", Bool, "false"),
    field("unit", "unit", Text, "minimum"),
    field("compact_labels", "compact", Bool, "false"),
    field("intel_syntax", "intel", Bool, "false"),
    field("mean", "mean", Bool, "false"),
    ConfigField { is_saved: false, ..field("sample_index", "si", Text, "") },
    field("normalize", "norm", Bool, "false"),
    field("sort", "sort", Choice(SORT_ORDERS), "flat"),
    field("tagroot", "", Text, ""),
    field("tagleaf", "", Text, ""),
    field("drop_negative", "dropneg", Bool, "false"),
    field("nodecount", "n", Int, "-1"),
    field("nodefraction", "nf", Float, "0.005"),
    field("edgefraction", "ef", Float, "0.001"),
    field("trim", "trim", Bool, "true"),
    field("focus", "f", Text, ""),
    field("ignore", "i", Text, ""),
    field("prune_from", "prunefrom", Text, ""),
    field("hide", "h", Text, ""),
    field("show", "s", Text, ""),
    field("show_from", "sf", Text, ""),
    field("tagfocus", "tf", Text, ""),
    field("tagignore", "ti", Text, ""),
    field("tagshow", "ts", Text, ""),
    field("taghide", "th", Text, ""),
    field("noinlines", "noinlines", Bool, "false"),
    field("showcolumns", "showcolumns", Bool, "false"),
    field("granularity", "g", Choice(GRANULARITIES), ""),
];

/// The values of all settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ViewConfig {
    /// The value of each of [`CONFIG_FIELDS`], written as Go prints it.
    values: [String; FIELD_COUNT],
}

impl ViewConfig {
    /// Returns pprof's defaults.
    pub(super) fn defaults() -> Self {
        Self {
            values: CONFIG_FIELDS.map(|field| field.default.to_string()),
        }
    }

    /// Returns a configuration without any value: no text, no number, nothing on.
    pub(super) fn empty() -> Self {
        Self {
            values: CONFIG_FIELDS.map(|field| match field.kind {
                Bool => "false".to_string(),
                Int | Float => "0".to_string(),
                Text | Choice(_) => String::new(),
            }),
        }
    }

    /// Returns each setting with its value.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static ConfigField, &str)> {
        let values = self.values.iter().map(String::as_str);
        CONFIG_FIELDS.iter().zip(values)
    }

    /// Returns the value of the setting `name`.
    pub(super) fn get(&self, name: &str) -> &str {
        let found = self.fields().find(|(field, _)| field.name == name);
        found.map_or("", |(_, value)| value)
    }

    /// Sets the setting `name`. The error says what is wrong with the value.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(at) = CONFIG_FIELDS.iter().position(|field| field.name == name) else {
            return Ok(());
        };
        self.values[at] = CONFIG_FIELDS[at].parse(value)?;
        Ok(())
    }

    /// Applies the parameters of a URL. A parameter with an empty value counts as not given.
    pub(super) fn apply(&mut self, parameters: &[(String, String)]) -> Result<(), String> {
        for (field, stored) in CONFIG_FIELDS.iter().zip(&mut self.values) {
            let value = field.value_in(parameters);
            if !value.is_empty() {
                *stored = field.parse(value)?;
            }
        }
        Ok(())
    }

    /// Returns `parameters` with the values of this configuration instead of their own.
    pub(super) fn parameters(&self, parameters: &[(String, String)]) -> Vec<(String, String)> {
        let mut changed = parameters.to_vec();
        for (field, value) in self.fields() {
            if field.parameter.is_empty() || !field.is_saved {
                continue;
            }
            let value = match field.kind {
                _ if value == field.default => "",
                Bool => &value[..1],
                _ => value,
            };
            if field.value_in(parameters) != value {
                changed.retain(|(key, _)| key != field.parameter);
                if !value.is_empty() {
                    changed.push((field.parameter.to_string(), value.to_string()));
                }
            }
        }
        changed
    }
}

impl ConfigField {
    /// Returns the value of this setting's parameter; empty if it is not given.
    fn value_in<'a>(&self, parameters: &'a [(String, String)]) -> &'a str {
        let mut given = parameters.iter();
        let given = given.find(|(key, _)| !key.is_empty() && key == self.parameter);
        given.map_or("", |(_, value)| value)
    }

    /// Parses a value, and returns it as Go prints it.
    fn parse(&self, value: &str) -> Result<String, String> {
        let name = self.name;
        match self.kind {
            Text => Ok(value.to_string()),
            Choice(choices) if choices.contains(&value) => Ok(value.to_string()),
            Choice(choices) => {
                let choices = choices.join(", ");
                Err(format!("{name} is one of {choices}, not {value:?}"))
            }
            Bool => match value.to_lowercase().as_str() {
                "true" | "t" | "yes" | "y" | "1" => Ok("true".to_string()),
                "false" | "f" | "no" | "n" | "0" => Ok("false".to_string()),
                _ => Err(format!("{name} is t or f, not {value:?}")),
            },
            Int => match value.parse::<i64>() {
                Ok(number) => Ok(number.to_string()),
                Err(_) => Err(format!("{name} is a whole number, not {value:?}")),
            },
            Float => match parse_float(value) {
                Some(number) if number.is_finite() => Ok(go_text(number)),
                _ => Err(format!("{name} is a number, not {value:?}")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        query.iter().map(owned).collect()
    }

    #[test]
    fn a_url_sets_what_it_names() {
        let mut config = ViewConfig::defaults();
        let query = [
            ("f", "a|b"),
            ("n", "+07"),
            ("trim", "F"),
            ("nf", "1e-5"),
            ("i", ""),
        ];
        config.apply(&pairs(&query)).unwrap();
        let found = [
            "focus",
            "nodecount",
            "trim",
            "nodefraction",
            "ignore",
            "unit",
        ];
        let found = found.map(|name| config.get(name));
        assert_eq!(found, ["a|b", "7", "false", "1e-05", "", "minimum"]);
        // The menu of configurations links to the same settings.
        let link = config.parameters(&pairs(&[("si", "x"), ("h", "y"), ("f", "a|b")]));
        let wanted = [
            ("si", "x"),
            ("f", "a|b"),
            ("n", "7"),
            ("nf", "1e-05"),
            ("trim", "f"),
        ];
        assert_eq!(link, pairs(&wanted));
    }

    #[test]
    fn wrong_values_are_named() {
        for (key, value, says) in [
            ("n", "x", "nodecount is a whole number, not \"x\""),
            ("n", "1.5", "nodecount is a whole number"),
            ("nf", "much", "nodefraction is a number"),
            ("ef", "NaN", "edgefraction is a number"),
            ("trim", "maybe", "trim is t or f, not \"maybe\""),
            ("sort", "name", "sort is one of cum, flat, not \"name\""),
            ("g", "atoms", "granularity is one of functions, "),
        ] {
            let why = ViewConfig::defaults().apply(&pairs(&[(key, value)]));
            let why = why.unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
    }
}
