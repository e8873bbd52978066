//! The settings of pprof's page: their parameters in its URLs, and their names in its saved
//! configurations.
//!
//! Source of names, order and defaults: google/pprof, internal/driver/config.go.

use crate::kind::FlagKind;
use crate::pprof::flag_table::{FlagGroup, find_flag, flags_in_group};
use crate::pprof::setting_value::written_as_go;

/// A setting of pprof's page.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigField {
    /// The name in a saved configuration. A setting that is no choice is the flag of this name.
    pub(super) name: &'static str,
    /// The parameter in a URL; empty if URLs do not have this setting.
    pub(super) parameter: &'static str,
    /// The group of flags of which the setting chooses one, and the flag that it chooses at first;
    /// empty if it chooses none.
    choice: Option<(FlagGroup, &'static str)>,
    /// Whether saved configurations have this setting.
    pub(super) is_saved: bool,
}

const fn field(name: &'static str, parameter: &'static str) -> ConfigField {
    ConfigField {
        name,
        parameter,
        choice: None,
        is_saved: true,
    }
}

const fn choice(
    name: &'static str,
    parameter: &'static str,
    group: FlagGroup,
    default: &'static str,
) -> ConfigField {
    ConfigField {
        choice: Some((group, default)),
        ..field(name, parameter)
    }
}

/// The number of settings.
pub(super) const FIELD_COUNT: usize = 29;

/// All settings, in the order of a saved configuration.
#[rustfmt::skip]
pub(super) const CONFIG_FIELDS: [ConfigField; FIELD_COUNT] = [
    field("call_tree", "calltree"),
    field("relative_percentages", "rel"),
    field("unit", "unit"),
    field("compact_labels", "compact"),
    field("intel_syntax", "intel"),
    field("mean", "mean"),
    ConfigField { is_saved: false, ..field("sample_index", "si") },
    field("normalize", "norm"),
    choice("sort", "sort", FlagGroup::Sort, "flat"),
    field("tagroot", ""),
    field("tagleaf", ""),
    field("drop_negative", "dropneg"),
    field("nodecount", "n"),
    field("nodefraction", "nf"),
    field("edgefraction", "ef"),
    field("trim", "trim"),
    field("focus", "f"),
    field("ignore", "i"),
    field("prune_from", "prunefrom"),
    field("hide", "h"),
    field("show", "s"),
    field("show_from", "sf"),
    field("tagfocus", "tf"),
    field("tagignore", "ti"),
    field("tagshow", "ts"),
    field("taghide", "th"),
    field("noinlines", "noinlines"),
    field("showcolumns", "showcolumns"),
    choice("granularity", "g", FlagGroup::Granularity, ""),
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
            values: CONFIG_FIELDS.map(|field| field.default_value().to_string()),
        }
    }

    /// Returns a configuration without any value: no text, no number, nothing on.
    pub(super) fn empty() -> Self {
        Self {
            values: CONFIG_FIELDS.map(|field| match field.kind() {
                FlagKind::Bool => "false".to_string(),
                FlagKind::Int | FlagKind::Float => "0".to_string(),
                FlagKind::Text | FlagKind::Regex => String::new(),
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
            let value = match field.kind() {
                _ if value == field.default_value() => "",
                FlagKind::Bool => &value[..1],
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

    /// Returns the kind of value; that of a choice is a text.
    pub(super) fn kind(&self) -> FlagKind {
        find_flag(self.name).map_or(FlagKind::Text, |flag| flag.kind)
    }

    /// Returns the value that the setting has at first.
    pub(super) fn default_value(&self) -> &'static str {
        match self.choice {
            Some((_, default)) => default,
            None => find_flag(self.name).map_or("", |flag| flag.default),
        }
    }

    /// Parses a value, and returns it as Go prints it.
    fn parse(&self, value: &str) -> Result<String, String> {
        let name = self.name;
        if let Some((group, _)) = self.choice {
            let mut choices: Vec<&str> = flags_in_group(group).map(|flag| flag.name).collect();
            if choices.contains(&value) {
                return Ok(value.to_string());
            }
            choices.sort_unstable();
            let choices = choices.join(", ");
            return Err(format!("{name} is one of {choices}, not {value:?}"));
        }
        let kind = self.kind();
        let written = written_as_go(kind, value);
        // The page compares with a number, which must be one.
        let is_number = |text: &String| text.parse().is_ok_and(f64::is_finite);
        match kind {
            FlagKind::Float => written.filter(is_number),
            _ => written,
        }
        .ok_or_else(|| {
            let what = match kind {
                FlagKind::Bool => "t or f",
                FlagKind::Int => "a whole number",
                _ => "a number",
            };
            format!("{name} is {what}, not {value:?}")
        })
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
            ("g", "atoms", "granularity is one of addresses, "),
        ] {
            let why = ViewConfig::defaults().apply(&pairs(&[(key, value)]));
            let why = why.unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
    }
}
