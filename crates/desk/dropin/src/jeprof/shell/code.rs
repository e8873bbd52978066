//! Reports about code: the routines of a profile that match, one after the other.

use anyhow::{Result, anyhow};
use heapprof_totals::pattern::regex_error;
use regex::Regex;

use super::binutils::{self, Routine};
use super::objects::MappedObject;
use super::values::AddressValues;
use crate::jeprof::names::{NameShortener, remove_all};
use crate::jeprof::report::JeprofMeasure;
use crate::jeprof::tool::PerlTool;

/// The data of a report about code.
pub(super) struct CodeReport<'a> {
    pub(super) objects: &'a [MappedObject],
    pub(super) values: &'a AddressValues,
    pub(super) measure: JeprofMeasure,
    pub(super) tool: PerlTool,
    pub(super) names: NameShortener,
}

/// A routine with values, and where it is.
pub(super) struct FoundRoutine<'a> {
    pub(super) object: &'a MappedObject,
    pub(super) routine: Routine,
    /// Whether nm finds the function `_fini` in the object's file. jeprof then also finds inlined
    /// functions.
    pub(super) has_fini: bool,
}

impl CodeReport<'_> {
    /// Returns the routines that match and have values, in the order of the scripts. An empty
    /// pattern matches nothing.
    pub(super) fn routines(&self, pattern: &str) -> Result<Vec<FoundRoutine<'_>>> {
        let mut found = Vec::new();
        if pattern.is_empty() {
            return Ok(found);
        }
        let wanted =
            Regex::new(pattern).map_err(|error| anyhow!("{pattern:?}: {}", regex_error(&error)))?;
        for object in self.objects {
            let table = binutils::routines(&object.file, &wanted, &self.names)?;
            let in_process = |address: u64| address.wrapping_add(object.bias);
            found.extend(
                (table.routines.into_iter())
                    .filter(|r| self.values.has_any(in_process(r.begin), in_process(r.end)))
                    .map(|routine| FoundRoutine {
                        object,
                        routine,
                        has_fini: table.has_fini,
                    }),
            );
        }
        Ok(found)
    }

    /// Returns a value as text; `zero` for 0.
    pub(super) fn show_or(&self, value: i128, zero: &str) -> String {
        match value {
            0 => zero.to_string(),
            value => self.measure.show(value),
        }
    }
}

/// The patterns that shorten instructions, compiled.
pub(super) struct InstructionCleaner {
    arguments: Regex,
    templates: Regex,
}

impl InstructionCleaner {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            // Registers in parentheses are no arguments.
            arguments: Regex::new(r"\([^()%]*\)(\s*const)?")?,
            templates: Regex::new(r"(\w+)<[^<>]*>")?,
        })
    }

    /// Removes argument types and template arguments from the names in an instruction.
    pub(super) fn clean(&self, instruction: &str) -> String {
        let mut text = instruction.to_string();
        remove_all(&self.arguments, &mut text);
        while self.templates.is_match(&text) {
            text = self.templates.replace_all(&text, "$1").into_owned();
        }
        text
    }
}

/// Returns a file name as the scripts show it.
pub(super) fn clean_file_name(file: &str) -> &str {
    let file = file.strip_prefix("/proc/self/cwd/").unwrap_or(file);
    file.strip_prefix("./").unwrap_or(file)
}

/// Returns the address of an instruction in its file; empty for 0.
pub(super) fn address_in_file(address: u64, object: &MappedObject) -> String {
    match address.wrapping_sub(object.bias) {
        0 => String::new(),
        address => format!("{address:x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_shortened() {
        let cleaner = InstructionCleaner::new().unwrap();
        for (instruction, expected) in [
            ("push   %rbp", "push   %rbp"),
            ("mov    0x8(%rax),%rdi", "mov    0x8(%rax),%rdi"),
            (
                "call   12 <std::vector<int, std::allocator<int> >::at(unsigned long) const+0x10>",
                "call   12 <std::vector::at+0x10>",
            ),
            ("jmp    12 <main+0x4>", "jmp    12 <main+0x4>"),
        ] {
            assert_eq!(cleaner.clean(instruction), expected);
        }
    }

    #[test]
    fn names_of_files() {
        for (file, expected) in [
            ("./a.c", "a.c"),
            ("/proc/self/cwd/./a.c", "a.c"),
            ("/a.c", "/a.c"),
        ] {
            assert_eq!(clean_file_name(file), expected);
        }
    }
}
