//! The rows of a report: what one row is, and how it is called.

use std::collections::HashMap;

use heapprof_profile::{Function, FunctionIndex, Line, Location, LocationIndex, Profile, StringId};

use super::options::JeprofArguments;
use super::stacks::JeprofStacks;

/// What a row of a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowGranularity {
    Functions,
    Lines,
    Addresses,
    Files,
}

/// What a row of a report is, and how it is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowStyle {
    pub(super) granularity: RowGranularity,
    /// Whether functions and lines are followed by their address.
    shows_addresses: bool,
}

impl RowStyle {
    /// Returns the style that the options choose.
    pub(super) fn new(typed: &JeprofArguments) -> Self {
        let granularities = [
            ("addresses", RowGranularity::Addresses),
            ("lines", RowGranularity::Lines),
            ("files", RowGranularity::Files),
        ];
        let chosen = granularities.iter().find(|(name, _)| typed.is_on(name));
        Self {
            granularity: chosen.map_or(RowGranularity::Functions, |&(_, chosen)| chosen),
            shows_addresses: typed.is_on("show_addresses"),
        }
    }

    /// Returns this style with a row for each line, unless each address has a row.
    pub(super) fn by_line(self) -> Self {
        match self.granularity {
            RowGranularity::Addresses => self,
            _ => Self {
                granularity: RowGranularity::Lines,
                ..self
            },
        }
    }
}

/// A report row that counts the values of a location.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JeprofRow {
    pub(super) key: String,
    /// The printed text, if it differs from the key.
    pub(super) shown: Option<String>,
}

impl JeprofRow {
    fn new(key: String) -> Self {
        Self { key, shown: None }
    }
}

impl JeprofStacks {
    /// Returns a profile with one function for each row of the report. The function's name is the
    /// text to print. Its linker name identifies the row, and rows are sorted by it.
    pub(super) fn into_row_profile(mut self, style: RowStyle) -> Profile {
        let rows: Vec<Vec<JeprofRow>> = (self.profile.location.iter())
            .map(|location| self.rows(location, style))
            .collect();
        let profile = &mut self.profile;
        profile.function.clear();
        profile.line.clear();
        let mut known = HashMap::new();
        for (location, rows) in profile.location.iter_mut().zip(rows) {
            location.address = 0;
            location.mapping = None;
            let start = profile.line.len() as u32;
            for JeprofRow { key, shown } in rows {
                let key = profile.strings.intern(&key);
                let name = shown.map_or(key, |shown| profile.strings.intern(&shown));
                let table = &mut profile.function;
                let function = *known.entry(key).or_insert_with(|| {
                    table.push(Function {
                        id: table.len() as u64 + 1,
                        name,
                        system_name: key,
                        filename: StringId::EMPTY,
                        start_line: 0,
                    });
                    FunctionIndex(table.len() as u32 - 1)
                });
                profile.line.push(Line {
                    function,
                    line: 0,
                    column: 0,
                });
            }
            location.line = start..profile.line.len() as u32;
        }
        // A location without a row is left out of stacks.
        let empty: Vec<bool> = profile.location.iter().map(|l| l.line.is_empty()).collect();
        if empty.contains(&true) {
            profile.samples.rewrite(|stack, _, _, kept| {
                kept.extend(stack.iter().filter(|&&LocationIndex(l)| !empty[l as usize]));
                true
            });
        }
        self.profile
    }

    /// Returns the report rows that count the values of a location, beginning with the innermost
    /// function.
    pub(super) fn rows(&self, location: &Location, style: RowStyle) -> Vec<JeprofRow> {
        // Addresses in the upper half, which belongs to the kernel, come from damaged stacks.
        if location.address > i64::MAX as u64 {
            return Vec::new();
        }
        let address = Self::address(location);
        let frames: Vec<(&str, String)> = self.frames(location).collect();
        if frames.is_empty() {
            // Name and place are both unknown, so a text made of them ends in a blank.
            return vec![JeprofRow::new(match style.granularity {
                RowGranularity::Addresses => format!("{address} {address} "),
                RowGranularity::Lines => format!("{address} "),
                RowGranularity::Functions | RowGranularity::Files => address,
            })];
        }
        let behind = match style.shows_addresses {
            true => format!(" ({address})"),
            false => String::new(),
        };
        let of_frame = |(i, (name, place)): (usize, &(&str, String))| {
            let inline = match i + 1 < frames.len() {
                true => " (inline)",
                false => "",
            };
            let named = match *name {
                "" => "??".to_string(),
                name => format!("{name}{inline}"),
            };
            match style.granularity {
                RowGranularity::Addresses => JeprofRow::new(format!("{address} {named} {place}")),
                RowGranularity::Lines => JeprofRow::new(format!("{named} {place}{behind}")),
                RowGranularity::Functions => JeprofRow::new(match *name {
                    "" => address.clone(),
                    _ => format!("{named}{behind}"),
                }),
                RowGranularity::Files => match place.rsplit_once(':') {
                    // Each address has its own row, ordered by the address, with all known facts
                    // about it.
                    Some(("??", "0")) => JeprofRow {
                        key: address.clone(),
                        shown: Some(format!("{named} {place}")),
                    },
                    Some((file, line)) if line.bytes().all(|b| b.is_ascii_digit()) => {
                        JeprofRow::new(file.to_string())
                    }
                    _ => JeprofRow::new(place.clone()),
                },
            }
        };
        frames.iter().enumerate().map(of_frame).collect()
    }
}
