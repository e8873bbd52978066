//! Function names as jeprof shortens them, by three patterns.
//!
//! Filters and the list of allocators match the shortened names, so shorter or longer names would
//! change the numbers of a report.

use anyhow::Result;
use regex::Regex;

/// The patterns that shorten names, compiled.
#[derive(Debug)]
pub(super) struct NameShortener {
    arguments: Regex,
    /// Pattern of template arguments. `None` keeps them.
    templates: Option<Regex>,
    leading_type: Regex,
}

impl NameShortener {
    /// Compiles the patterns. With `keeps_templates`, template arguments stay in names.
    pub(super) fn new(keeps_templates: bool) -> Result<Self> {
        let templates = (!keeps_templates).then(|| Regex::new(r"<[^<>]*>"));
        Ok(Self {
            arguments: Regex::new(r"\([^()]*\)(\s*const)?")?,
            templates: templates.transpose()?,
            leading_type: Regex::new(r"^.*\s+(\w+::)")?,
        })
    }

    /// Removes argument types, template arguments and a leading type from a name.
    pub(super) fn shorten(&self, name: &str) -> String {
        let mut name = name.to_string();
        // The receiver of Go's `main.(*Tree).insert` is not an argument.
        if !name.contains(".(") {
            remove_all(&self.arguments, &mut name);
            if let Some(templates) = &self.templates {
                remove_all(templates, &mut name);
            }
            name = self.leading_type.replace(&name, "$1").into_owned();
        }
        name
    }
}

/// Removes matches of a pattern until there are none.
pub(super) fn remove_all(pattern: &Regex, text: &mut String) {
    while pattern.is_match(text) {
        *text = pattern.replace_all(text, "").into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left() {
        for (name, expected) in [
            ("main", "main"),
            (
                "shop::Shelf::picture(unsigned long)",
                "shop::Shelf::picture",
            ),
            (
                "shop::Item& std::vector<shop::Item>::emplace_back<shop::Item>(shop::Item&&)",
                "std::vector::emplace_back",
            ),
            (
                "std::error_code::default_error_condition() const",
                "std::error_code::default_error_condition",
            ),
            (
                "main::{lambda()#1}::operator()() const",
                "main::{lambda#1}::operator",
            ),
            ("main.(*Tree).insert", "main.(*Tree).insert"),
            ("int twice<int>(int)", "int twice"),
            ("", ""),
        ] {
            assert_eq!(NameShortener::new(false).unwrap().shorten(name), expected);
        }
    }

    #[test]
    fn templates_stay_if_wanted() {
        let names = NameShortener::new(true).unwrap();
        let name = "shop::Item& std::vector<shop::Item>::back<int>(int)";
        assert_eq!(names.shorten(name), "std::vector<shop::Item>::back<int>");
    }
}
