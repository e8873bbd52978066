//! Function names as jeprof shortens them, by three patterns.
//!
//! Filters and the list of allocators match the shortened names, so shorter or longer names would
//! change the numbers of a report.

use anyhow::Result;
use regex::Regex;

/// Removes argument types, template arguments and a leading type from each name.
pub(super) fn shorten_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let arguments = Regex::new(r"\([^()]*\)(\s*const)?")?;
    let templates = Regex::new(r"<[^<>]*>")?;
    let leading_type = Regex::new(r"^.*\s+(\w+::)")?;
    let without = |pattern: &Regex, name: &mut String| {
        while pattern.is_match(name) {
            *name = pattern.replace_all(name, "").into_owned();
        }
    };
    let cut = |name: &str| {
        let mut name = name.to_string();
        // The receiver of Go's `main.(*Tree).insert` is not an argument.
        if !name.contains(".(") {
            without(&arguments, &mut name);
            without(&templates, &mut name);
            name = leading_type.replace(&name, "$1").into_owned();
        }
        name
    };
    Ok(names.map(cut).collect())
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
            assert_eq!(shorten_names([name].into_iter()).unwrap(), [expected]);
        }
    }
}
