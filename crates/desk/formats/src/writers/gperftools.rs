//! Writes the heap profile text of gperftools, which pprof, google-pprof and jeprof read.
//!
//! The text holds blocks and bytes, in use and allocated, for stacks of addresses. It has no names,
//! because the tools read them from the binaries. [`GperftoolsForm::Symbolized`] puts a table of
//! names before the text, for google-pprof and jeprof.

use std::io::Write;

use heapprof_profile::{Profile, Unit, UnitFamily};

use super::WriteError;
use super::addresses::LocationAddresses;

/// Form of the text: with or without names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GperftoolsForm {
    /// Text with addresses only, as gperftools' own libraries write it.
    Plain,
    /// Text after a table of names that begins with `--- symbol`, as `google-pprof --raw` writes
    /// it.
    Symbolized,
}

/// Writes a profile. Returns a note for the user if values had to be invented for the format, or if
/// a reader will ignore something.
pub fn write_gperftools(
    profile: &Profile,
    form: GperftoolsForm,
    mut writer: impl Write,
) -> Result<Option<String>, WriteError> {
    let columns = GperftoolsColumns::new(profile)?;
    let addresses = LocationAddresses::new(profile, form == GperftoolsForm::Symbolized);
    if form == GperftoolsForm::Symbolized {
        symbols(profile, &addresses, &mut writer)?;
    }
    let mut totals = [0i128; 4];
    let mut has_negative = false;
    let samples = 0..profile.samples.len();
    for sample in samples.clone() {
        let values = columns.values(profile, sample)?;
        has_negative |= values.iter().any(|&value| value < 0);
        for (total, value) in totals.iter_mut().zip(values) {
            *total += i128::from(value);
        }
    }
    let mut notes: Vec<&str> = Vec::new();
    notes.extend(columns.note);
    if has_negative {
        notes.push("google-pprof and jeprof skip negative values; pprof reads them");
    }
    // The first line can't have a minus sign. Readers only check whether the totals allocated
    // differ from the totals in use.
    let [objects, bytes, all_objects, all_bytes] = totals.map(|total| total.max(0));
    writeln!(
        writer,
        "heap profile: {objects:6}: {bytes:8} [{all_objects:6}: {all_bytes:8}] @ heapprofile"
    )?;
    for sample in samples {
        let values = columns.values(profile, sample)?;
        if values == [0; 4] {
            continue;
        }
        let [objects, bytes, all_objects, all_bytes] = values;
        write!(
            writer,
            "{objects:6}: {bytes:8} [{all_objects:6}: {all_bytes:8}] @"
        )?;
        for location in profile.samples.stack(sample) {
            // Readers subtract one from an address to get the address of the call.
            write!(
                writer,
                " {:#018x}",
                addresses.location[location.index()].saturating_add(1)
            )?;
        }
        writeln!(writer)?;
    }
    writeln!(writer, "\nMAPPED_LIBRARIES:")?;
    for mapping in &addresses.mapping {
        let file = in_a_line(profile.text(mapping.filename));
        if mapping.memory_limit > mapping.memory_start {
            writeln!(
                writer,
                "{:016x}-{:016x} r-xp {:08x} 00:00 0          {file}",
                mapping.memory_start, mapping.memory_limit, mapping.file_offset
            )?;
        }
    }
    Ok((!notes.is_empty()).then(|| notes.join("; ")))
}

/// Makes a name fit in a line: line ends and other control characters become blanks.
fn in_a_line(name: &str) -> String {
    name.replace(char::is_control, " ")
}

/// Writes names by address. Each name is written for the location's address and for the next
/// address. The tools look up the first address of a stack unchanged, and the other addresses minus
/// one.
fn symbols(
    profile: &Profile,
    addresses: &LocationAddresses,
    writer: &mut impl Write,
) -> Result<(), WriteError> {
    writeln!(writer, "--- symbol")?;
    if let Some(main) = profile.mapping.first() {
        writeln!(writer, "binary={}", in_a_line(profile.text(main.filename)))?;
    }
    for (location, &address) in profile.location.iter().zip(&addresses.location) {
        let lines = profile.lines(location).iter().rev();
        let names: Vec<String> = lines
            .map(|line| {
                let name = profile.text(profile.function[line.function.index()].name);
                // `--` separates the names of inlined functions, so it must not be part of a name.
                in_a_line(name).replace("--", "-")
            })
            .filter(|name| !name.is_empty())
            .collect();
        if !names.is_empty() {
            let names = names.join("--");
            writeln!(writer, "{address:#018x} {names}")?;
            writeln!(writer, "{:#018x} {names}", address.saturating_add(1))?;
        }
    }
    writeln!(writer, "---")?;
    Ok(())
}

/// Sample types that become blocks and bytes, in use and allocated.
struct GperftoolsColumns {
    /// Positions of the sample types: objects and bytes in use, then objects and bytes allocated.
    column: [Option<usize>; 4],
    /// Number of bytes in the unit of each column.
    factor: [i64; 4],
    note: Option<&'static str>,
}

impl GperftoolsColumns {
    fn new(profile: &Profile) -> Result<Self, WriteError> {
        let position = |names: &[&str]| {
            let types = profile.sample_type.iter();
            types
                .map(|t| profile.text(t.r#type))
                .position(|name| names.contains(&name))
        };
        let column = [
            position(&["inuse_objects", "objects"]),
            position(&["inuse_space", "space"]),
            position(&["alloc_objects"]),
            position(&["alloc_space"]),
        ];
        let present = || {
            let names = profile.sample_type.iter().map(|t| profile.text(t.r#type));
            names.collect::<Vec<_>>().join(", ")
        };
        if column[1].is_none() && column[3].is_none() {
            return Err(WriteError::Unfit(format!(
                "gperftools text holds inuse_space and alloc_space; the profile has neither, but \
                 {}",
                present()
            )));
        }
        let mut factor = [1; 4];
        for at in [1, 3] {
            let Some(column) = column[at] else { continue };
            let unit = profile.text(profile.sample_type[column].unit);
            factor[at] = match Unit::parse(unit) {
                Some(known) if known.family == UnitFamily::Bytes => known.factor,
                _ => {
                    let reason =
                        format!("gperftools text holds bytes; the profile's are in {unit:?}");
                    return Err(WriteError::Unfit(reason));
                }
            };
        }
        let uncounted =
            |objects: usize, space: usize| column[objects].is_none() && column[space].is_some();
        let note = (uncounted(0, 1) || uncounted(2, 3))
            .then_some("the profile does not count objects; each stack is written as one");
        Ok(Self {
            column,
            factor,
            note,
        })
    }

    fn values(&self, profile: &Profile, sample: usize) -> Result<[i64; 4], WriteError> {
        let unfit = |what: &str| {
            let reason = format!(
                "sample #{} {what}, which gperftools text can't express",
                sample + 1
            );
            WriteError::Unfit(reason)
        };
        let all = profile.samples.values(sample);
        let mut values = [0; 4];
        let columns = self.column.iter().zip(self.factor);
        for (value, (column, factor)) in values.iter_mut().zip(columns) {
            if let Some(column) = *column {
                let product = all[column].checked_mul(factor);
                *value = product.ok_or_else(|| unfit("has more than 2^63 bytes"))?;
            }
        }
        for (objects, space) in [(0, 1), (2, 3)] {
            if self.column[objects].is_none() && values[space] != 0 {
                values[objects] = 1;
            }
            if values[objects] == 0 && values[space] != 0 {
                return Err(unfit("has bytes but no objects"));
            }
        }
        // If values in use or values allocated are not known, the other ones replace them. For
        // readers, equal totals mean that there is only one kind.
        if self.column[3].is_none() {
            if values[0] >= 0 && values[1] >= 0 {
                (values[2], values[3]) = (values[0], values[1]);
            }
        } else if self.column[1].is_none() {
            (values[0], values[1]) = (values[2], values[3]);
        }
        if values[2] < 0 || values[3] < 0 {
            return Err(unfit("has a negative amount allocated"));
        }
        Ok(values)
    }
}
