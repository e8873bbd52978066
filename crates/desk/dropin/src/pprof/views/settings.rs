//! The saved configurations of pprof's page: the content of its file `settings.json`.
//!
//! The content is the same as pprof's, byte for byte: google/pprof, internal/driver/settings.go. Of
//! a file that another version of pprof has written, members that are not settings are lost, as in
//! pprof.

use serde_json::Value;

use super::fields::{ConfigField, ViewConfig};
use crate::kind::FlagKind;
use crate::pprof::go_numbers::go_json;

/// A named configuration.
#[derive(Clone, Debug)]
struct SavedConfig {
    name: String,
    config: ViewConfig,
}

/// The saved configurations, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct SavedConfigs(Vec<SavedConfig>);

impl SavedConfigs {
    /// Parses the content of the file. The error says what is wrong with it.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        let wrong = |what: &str| format!("could not parse settings: {what}");
        let content: Value =
            serde_json::from_slice(content).map_err(|error| wrong(&error.to_string()))?;
        let list = match content.get("configs") {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) if content.is_object() => return Ok(Self::default()),
            _ => return Err(wrong("there is no list of configurations")),
        };
        let mut configs = Vec::new();
        for one in list {
            if !one.is_object() {
                return Err(wrong("a configuration is no object"));
            }
            let name = one.get("name").and_then(Value::as_str).unwrap_or_default();
            let mut config = ViewConfig::empty();
            for (key, value) in one.as_object().into_iter().flatten() {
                if key != "name" && !value.is_null() {
                    set_member(&mut config, key, value)
                        .map_err(|why| wrong(&format!("{key}: {why}")))?;
                }
            }
            let name = name.to_string();
            configs.push(SavedConfig { name, config });
        }
        Ok(Self(configs))
    }

    /// Returns the content of the file.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut text = "{\n  \"configs\": [".to_string();
        for (i, SavedConfig { name, config }) in self.0.iter().enumerate() {
            text += if i == 0 { "\n    {" } else { ",\n    {" };
            text += &format!("\n      \"name\": {}", json_text(name));
            for (field, value) in config.fields() {
                if let Some(value) = member_text(field, value) {
                    text += &format!(",\n      \"{}\": {value}", field.name);
                }
            }
            text += "\n    }";
        }
        text += if self.0.is_empty() { "]" } else { "\n  ]" };
        (text + "\n}").into_bytes()
    }

    /// Sets the configuration `name`, which is added at the end if it is new.
    pub(super) fn set(&mut self, name: &str, config: ViewConfig) {
        match self.0.iter_mut().find(|saved| saved.name == name) {
            Some(saved) => saved.config = config,
            None => self.0.push(SavedConfig {
                name: name.to_string(),
                config,
            }),
        }
    }

    /// Removes the configuration `name`. Returns whether it was there.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|saved| saved.name == name);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Returns each configuration with its name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &ViewConfig)> {
        self.0
            .iter()
            .map(|saved| (saved.name.as_str(), &saved.config))
    }
}

/// Sets the setting of a member. A member that is no setting is left out.
fn set_member(config: &mut ViewConfig, key: &str, value: &Value) -> Result<(), String> {
    let mut fields = super::fields::CONFIG_FIELDS.iter();
    let Some(field) = fields.find(|field| field.is_saved && field.name == key) else {
        return Ok(());
    };
    let text = match (field.kind(), value) {
        (FlagKind::Bool, Value::Bool(value)) => value.to_string(),
        (FlagKind::Int | FlagKind::Float, Value::Number(value)) => value.to_string(),
        (FlagKind::Text | FlagKind::Regex, Value::String(value)) => value.clone(),
        _ => return Err("it has a value of another kind".to_string()),
    };
    match text.as_str() {
        "" => Ok(()),
        text => config.set(key, text),
    }
}

/// Returns the value of a member as JSON; `None` if the file has no such member, because the value
/// is empty.
fn member_text(field: &ConfigField, value: &str) -> Option<String> {
    match field.kind() {
        _ if !field.is_saved => None,
        FlagKind::Bool => (value == "true").then(|| value.to_string()),
        FlagKind::Int => (value != "0").then(|| value.to_string()),
        FlagKind::Float => {
            let number: f64 = value.parse().unwrap_or(0.0);
            (number != 0.0).then(|| go_json(number))
        }
        FlagKind::Text | FlagKind::Regex => (!value.is_empty()).then(|| json_text(value)),
    }
}

/// Returns a text as Go's encoding/json writes it.
fn json_text(text: &str) -> String {
    let plain = Value::String(text.to_string()).to_string();
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out += &format!("\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a file that pprof 20260906 wrote after
    /// `saveconfig?config=a<b&f=x&n=7&nf=1e-7&trim=f`.
    #[test]
    fn content_is_that_of_pprof() {
        let mut config = ViewConfig::defaults();
        for (name, value) in [
            ("focus", "x"),
            ("nodecount", "7"),
            ("nodefraction", "1e-7"),
            ("trim", "f"),
            ("sample_index", "inuse_space"),
        ] {
            config.set(name, value).unwrap();
        }
        let mut saved = SavedConfigs::default();
        saved.set("a<b", config);
        let expected = r#"{
  "configs": [
    {
      "name": "a\u003cb",
      "unit": "minimum",
      "sort": "flat",
      "nodecount": 7,
      "nodefraction": 1e-7,
      "edgefraction": 0.001,
      "focus": "x"
    }
  ]
}"#;
        assert_eq!(String::from_utf8(saved.content()).unwrap(), expected);
        let again = SavedConfigs::parse(expected.as_bytes()).unwrap();
        assert_eq!(again.content(), saved.content());
        let (name, config) = again.iter().next().unwrap();
        assert_eq!((name, config.get("trim")), ("a<b", "false"));
        let mut none = again.clone();
        assert!(none.remove("a<b") && !none.remove("a<b"));
        assert_eq!(none.content(), b"{\n  \"configs\": []\n}");
    }

    #[test]
    fn damaged_files_are_refused() {
        for (content, says) in [
            ("", "EOF"),
            ("[]", "no list"),
            (r#"{"configs":3}"#, "no list"),
            (r#"{"configs":[3]}"#, "no object"),
            (
                r#"{"configs":[{"trim":"yes"}]}"#,
                "trim: it has a value of another kind",
            ),
            (
                r#"{"configs":[{"nodecount":1.5}]}"#,
                "nodecount: nodecount is a whole number",
            ),
        ] {
            let why = SavedConfigs::parse(content.as_bytes()).unwrap_err();
            assert!(why.contains(says), "{content}: {why}");
        }
        let empty = SavedConfigs::parse(br#"{"configs":null,"other":1}"#).unwrap();
        assert_eq!(empty.iter().count(), 0);
    }
}
