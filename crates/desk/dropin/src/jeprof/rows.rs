//! The rows of a report: what one row is, and how it is called.

use heapprof_profile::Location;

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
