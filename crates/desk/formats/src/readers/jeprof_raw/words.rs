//! Reads the binary section that `google-pprof --raw` writes for a local heap profile. The section
//! consists of 64-bit words, as in a CPU profile.
//!
//! The words are `0 3 0 period 0`, then for each stack its value, its depth and its addresses. The
//! addresses of callers are addresses of calls, not return addresses. Each stack has one value,
//! which `--inuse_space` or a similar option selected. The file does not name the option. The
//! values are read as bytes in use unless `FormatReadOptions::values` gives another type.

use std::io::ErrorKind;

use heapprof_profile::{ProfileBuilder, Warning};

use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::mapped_files;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::stacks::{self, AddressLocations};

/// Maximum number of frames of a stack, as in google-pprof.
const MAX_STACK_DEPTH: u64 = 1 << 16;
/// Period that `google-pprof --raw` writes. In a CPU profile, this word is the number of
/// microseconds between its samples.
pub(super) const RAW_PERIOD: u64 = 1;

pub(super) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut words = CpuProfileWords {
        input: lines,
        big_endian: false,
        read: 0,
    };
    words.header()?;
    // The file also does not say whether the values were sampled.
    let values = options.values.as_ref();
    let (r#type, unit) = values.map_or(("inuse_space", "bytes"), |v| (&v.r#type, &v.unit));
    let mut profile = ProfileBuilder::new(&[(r#type, unit)]).finish();
    let labels = profile.label_sets.intern(&mut [], &profile.strings);
    let mut locations = AddressLocations::new(options);
    let mut stack = Vec::new();
    let mut files = Vec::new();
    while let Some(value) = words.next()? {
        let depth = words.required_word("the depth of a stack")?;
        if depth > MAX_STACK_DEPTH {
            return Err(words.wrong(
                format!("a stack of at most {MAX_STACK_DEPTH} frames"),
                depth,
            ));
        }
        stack.clear();
        for _ in 0..depth {
            stack.push(words.required_word("an address")?);
        }
        // Some writers put this mark at the end of the words.
        if value == 0 && stack == [0] {
            files = mapped_files::read(words.input)?;
            break;
        }
        let value = i64::from_ne_bytes(value.to_ne_bytes());
        let mut places = Vec::with_capacity(stack.len());
        for &address in &stack {
            places.push(locations.get(&mut profile, address)?);
        }
        locations.count_sample(places.len(), || profile.memory())?;
        profile.samples.push(places, &[value], labels);
    }
    stacks::assign_mappings(&mut profile, files);
    cut_frames::add_pprof_frames(&mut profile);
    if values.is_none() {
        profile.warnings.push(Warning::AssumedType("inuse_space"));
    }
    let rule = "none here; google-pprof has already unsampled the values and truncated them to \
                whole numbers";
    Ok(ProfileReading::new(
        ProfileFormat::Symbolized,
        rule,
        profile,
    ))
}

struct CpuProfileWords<'a, 'b> {
    input: &'a mut LineReader<'b>,
    big_endian: bool,
    read: u64,
}

impl CpuProfileWords<'_, '_> {
    fn header(&mut self) -> Result<(), FormatError> {
        const EXPECTED_HEADER: &str = "the header of google-pprof's words, `0 3 0 1 0`";
        let mut header = [0; 5];
        for word in &mut header {
            *word = self.required_word(EXPECTED_HEADER)?;
        }
        if header[1] == 3u64.swap_bytes() {
            self.big_endian = true;
            header = header.map(u64::swap_bytes);
        }
        match header {
            [0, 3, 0, RAW_PERIOD, 0] => Ok(()),
            _ => Err(self.input.wrong_part(EXPECTED_HEADER, "something else")),
        }
    }

    /// Returns the next word. The end of the file is an error.
    fn required_word(&mut self, expected: &'static str) -> Result<u64, FormatError> {
        match self.next()? {
            Some(word) => Ok(word),
            None => Err(self.input.wrong_part(
                format!("{expected} as word {}", self.read + 1),
                "the end of the file",
            )),
        }
    }

    /// Returns the next word; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<u64>, FormatError> {
        let mut bytes = [0; 8];
        let mut have = 0;
        while have < 8 {
            let rest = match self.input.rest().fill_buf() {
                Ok(rest) => rest,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let n = rest.len().min(8 - have);
            bytes[have..have + n].copy_from_slice(&rest[..n]);
            self.input.rest().consume(n);
            have += n;
            if n == 0 {
                break;
            }
        }
        match have {
            8 => {
                self.read += 1;
                Ok(Some(match self.big_endian {
                    true => u64::from_be_bytes(bytes),
                    false => u64::from_le_bytes(bytes),
                }))
            }
            0 => Ok(None),
            n => Err(self.input.wrong_part(
                format!("8 bytes of word {}", self.read + 1),
                format!("the end of the file after {n}"),
            )),
        }
    }

    fn wrong(&self, expected: String, found: u64) -> FormatError {
        let found = format!("{found} in word {}", self.read);
        self.input.wrong_part(expected, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_words() {
        let table: [(&[u64], usize, &str); 5] = [
            (
                &[0],
                4,
                "8 bytes of word 1, found the end of the file after 4",
            ),
            (
                &[0, 3, 0, 1],
                0,
                "the header of google-pprof's words, `0 3 0 1 0` as word 5, found the end of the \
                 file",
            ),
            (
                &[0, 4, 0, 1, 0],
                0,
                "the header of google-pprof's words, `0 3 0 1 0`, found something else",
            ),
            (
                &[0, 3, 0, 1, 0, 96],
                0,
                "the depth of a stack as word 7, found the end of the file",
            ),
            (
                &[0, 3, 0, 1, 0, 96, 65_537],
                0,
                "a stack of at most 65536 frames, found 65537 in word 7",
            ),
        ];
        for (words, cut, expected) in table {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.truncate(bytes.len() - cut);
            let mut input = &bytes[..];
            let mut lines = LineReader::new(&mut input);
            let error = read(&mut lines, &FormatReadOptions::default())
                .unwrap_err()
                .to_string();
            assert_eq!(error, format!("line 0: expected {expected}"));
        }
    }
}
