//! Names of addresses from the list that nm prints, without files and lines.

use std::path::Path;
use std::time::Instant;

use crate::tool_process::{MAX_SYMBOL_BYTES, ToolCommand};

/// Types of symbols that are data.
const DATA_TYPES: &str = "bBdDrRvVW";

struct NamedRange {
    start: u64,
    size: u64,
    name: String,
    is_data: bool,
}

/// The symbols of an object file in ascending order of addresses.
pub(super) struct AddressNames(Vec<NamedRange>);

impl AddressNames {
    /// Reads the symbols of a file. `base` is added to their addresses. nm is ended at the
    /// deadline.
    pub(super) fn read(
        nm: &Path,
        file: &Path,
        base: u64,
        deadline: Option<Instant>,
    ) -> Result<Self, String> {
        let mut command = ToolCommand::new(nm);
        command.deadline(deadline);
        for argument in ["--numeric-sort", "--print-size", "--format=posix"] {
            command.arg(argument);
        }
        command.file(file);
        let mut names = Self(Vec::new());
        command.run(MAX_SYMBOL_BYTES, &mut |line| names.add(line, base))?;
        Ok(names)
    }

    /// Adds a line: the name, the type, the address and the size. Other lines are ignored.
    fn add(&mut self, line: &str, base: u64) {
        let fields: Vec<&str> = line.trim().split(' ').collect();
        let [name, kind, start, size] = fields[..] else {
            return;
        };
        let number = |text| u64::from_str_radix(text, 16).ok();
        if let (Some(start), Some(size)) = (number(start), number(size)) {
            self.0.push(NamedRange {
                start: start.wrapping_add(base),
                size,
                name: name.to_string(),
                is_data: kind.contains(|c| DATA_TYPES.contains(c)),
            });
        }
    }

    /// Returns the name of the symbol at an address, or before it. Only data must contain the
    /// address.
    pub(super) fn find(&self, address: u64) -> Option<&str> {
        let end = |range: &NamedRange| range.start.wrapping_add(range.size);
        if self.0.last().is_none_or(|last| address >= end(last)) {
            return None;
        }
        let found = self.before(address)?;
        let is_beyond = found.is_data && address >= end(found);
        (!is_beyond).then_some(found.name.as_str())
    }

    /// Finds the symbol by halves, so that of several symbols at an address, the same one is taken
    /// as in pprof.
    fn before(&self, address: u64) -> Option<&NamedRange> {
        if self.0.first()?.start > address {
            return None;
        }
        let (mut low, mut high) = (0, self.0.len());
        while low + 1 < high {
            let middle = low.midpoint(high);
            let start = self.0.get(middle)?.start;
            if start == address {
                return self.0.get(middle);
            }
            match start < address {
                true => low = middle,
                false => high = middle,
            }
        }
        self.0.get(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names() {
        let mut names = AddressNames(Vec::new());
        for line in [
            "abort U         ",
            "f T 1000 10\n",
            "g T 1020 10",
            "h T 1020 10",
            "data D 2000 8",
            "end B 2010 4",
            "bad T x 1",
        ] {
            names.add(line, 0x5000);
        }
        for (address, expected) in [
            (0x5fff, None),
            (0x6000, Some("f")),
            (0x601f, Some("f")),
            (0x6020, Some("h")),
            (0x6fff, Some("h")),
            (0x7007, Some("data")),
            (0x7008, None),
            (0x7013, Some("end")),
            (0x7014, None),
        ] {
            assert_eq!(names.find(address), expected, "{address:x}");
        }
        assert_eq!(AddressNames(Vec::new()).find(1), None);
    }
}
