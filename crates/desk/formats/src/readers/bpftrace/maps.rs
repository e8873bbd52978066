//! The maps of a file, with the entries of all their prints.

use foldhash::{HashMap, HashMapExt};

use super::MapValue;
use crate::error::FormatError;
use crate::reading::{FormatReadOptions, PartSelector};

/// Maximum number of maps. Scripts have a handful, and each map takes memory for a value of every
/// stack.
const MAX_MAPS: usize = 64;

#[derive(Default)]
pub(super) struct BpftraceMaps {
    map: Vec<BpftraceMap>,
}

struct BpftraceMap {
    name: String,
    entries: Vec<BpftraceEntry>,
    has_counts: bool,
    /// Number of times that the map was printed. The next fields are the number and sum of the
    /// largest print so far, the sum of the current print, and the last value of the current print.
    prints: u32,
    largest: (u32, i128),
    sum: i128,
    last: i64,
    /// For each sample, the number of the last print that contains the sample.
    seen: HashMap<u32, u32>,
}

struct BpftraceEntry {
    print: u32,
    sample: u32,
    value: MapValue,
}

/// A sample type: the values of a map, or the counts of a map that has both counts and totals.
pub(super) struct BpftraceColumn {
    pub(super) name: String,
    pub(super) unit: String,
    map: usize,
    is_count: bool,
    print: u32,
}

impl BpftraceMaps {
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the index of the map with this name. A new map is added.
    pub(super) fn map(&mut self, name: &[u8]) -> Result<usize, FormatError> {
        let name = String::from_utf8_lossy(name).into_owned();
        if let Some(known) = self.map.iter().position(|map| map.name == name) {
            return Ok(known);
        }
        if self.map.len() == MAX_MAPS {
            return Err(FormatError::TooMuch(format!("{MAX_MAPS} maps")));
        }
        self.map.push(BpftraceMap {
            name,
            entries: Vec::new(),
            has_counts: false,
            prints: 0,
            largest: (0, i128::MIN),
            sum: 0,
            last: i64::MAX,
            seen: HashMap::new(),
        });
        Ok(self.map.len() - 1)
    }

    /// Adds an entry, which may begin a new print of its map.
    pub(super) fn push(
        &mut self,
        map: usize,
        sample: u32,
        value: MapValue,
    ) -> Result<(), FormatError> {
        let map = &mut self.map[map];
        let (size, rank) = match value {
            MapValue::One(size) => (size, size),
            // bpftrace orders such entries by their averages.
            MapValue::CountAndTotal(count, total) => {
                (total, total.checked_div(count).unwrap_or(total))
            }
        };
        map.has_counts |= matches!(value, MapValue::CountAndTotal(..));
        let again = map.seen.get(&sample) == Some(&map.prints);
        if map.prints == 0 || rank < map.last || again {
            map.end_print();
            map.prints = map.prints.saturating_add(1);
        }
        map.last = rank;
        map.sum += i128::from(size);
        map.seen.insert(sample, map.prints);
        map.entries.push(BpftraceEntry {
            print: map.prints,
            sample,
            value,
        });
        Ok(())
    }

    /// Returns the sample types of all maps. If bpftrace printed a map several times, the options
    /// select the print whose values are used.
    pub(super) fn columns(
        &self,
        options: &FormatReadOptions,
    ) -> Result<Vec<BpftraceColumn>, FormatError> {
        let mut columns = Vec::new();
        for (number, map) in self.map.iter().enumerate() {
            let print = map.print(options.part)?;
            let name = match map.name.as_str() {
                "" => "samples",
                name => name,
            };
            let mut column = |name: String, unit: &str, is_count| {
                columns.push(BpftraceColumn {
                    name,
                    unit: unit.to_string(),
                    map: number,
                    is_count,
                    print,
                });
            };
            if map.has_counts {
                column(format!("{name}_count"), "count", true);
            }
            let lower = name.to_ascii_lowercase();
            let bytes = ["byte", "size", "space"]
                .iter()
                .any(|word| lower.contains(word));
            column(
                name.to_string(),
                if bytes { "bytes" } else { "count" },
                false,
            );
        }
        if let Some(values) = &options.values {
            let [column] = &mut columns[..] else {
                let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                let reason = format!(
                    "has several values, {}, and a single name fits only one of them",
                    names.join(", ")
                );
                return Err(FormatError::ValuesKnown(reason));
            };
            column.name.clone_from(&values.r#type);
            column.unit.clone_from(&values.unit);
        }
        Ok(columns)
    }

    /// Writes the values of the columns into a table with a row for each sample.
    pub(super) fn fill(&self, columns: &[BpftraceColumn], table: &mut [i64]) {
        let width = columns.len();
        for (at, column) in columns.iter().enumerate() {
            for entry in &self.map[column.map].entries {
                let cell = table.get_mut(entry.sample as usize * width + at);
                if entry.print == column.print
                    && let Some(cell) = cell
                {
                    *cell = match entry.value {
                        MapValue::One(value) if !column.is_count => value,
                        MapValue::One(_) => 0,
                        MapValue::CountAndTotal(count, _) if column.is_count => count,
                        MapValue::CountAndTotal(_, total) => total,
                    };
                }
            }
        }
    }

    /// Describes which print was read; `None` if each map was printed only once.
    pub(super) fn which(&self, options: &FormatReadOptions) -> Result<Option<String>, FormatError> {
        let most = self.map.iter().map(|map| map.prints).max().unwrap_or(0);
        if most < 2 {
            return Ok(None);
        }
        let part = options.part.unwrap_or(PartSelector::Last);
        Ok(Some(format!(
            "print: {part}; maps were printed up to {most} times; choose another as FILE#N, from 1"
        )))
    }
}

impl BpftraceMap {
    fn end_print(&mut self) {
        if self.prints > 0 && self.sum > self.largest.1 {
            self.largest = (self.prints, self.sum);
        }
        self.sum = 0;
    }

    /// Returns the number of the print that `part` selects.
    fn print(&self, part: Option<PartSelector>) -> Result<u32, FormatError> {
        let peak = match self.sum > self.largest.1 {
            true => self.prints,
            false => self.largest.0,
        };
        let part = part.unwrap_or(PartSelector::Last);
        let noun = format!("print of @{}", self.name);
        let index = part.choose(
            &noun,
            self.prints as usize,
            (peak as usize).saturating_sub(1),
        )?;
        Ok(index as u32 + 1)
    }
}
