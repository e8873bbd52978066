//! The binary section that `google-pprof --raw` writes of a local heap profile: the 64-bit words of its CPU profiles.
//!
//! `0 3 0 period 0`, then for each stack its value, its depth and its addresses, callers already at their calls. Which of
//! the heap's values it is stands nowhere: it is what `--inuse_space` and its like asked for, in use bytes without.

use std::io::ErrorKind;

use heapprof_profile::ProfileBuilder;

use crate::cut_frames;
use crate::error::Error;
use crate::format::Format;
use crate::lines::Lines;
use crate::mapped_files;
use crate::reading::Reading;
use crate::stacks::{self, AddressLocations};

/// The deepest stack that google-pprof reads.
const DEEPEST: u64 = 1 << 16;
/// `google-pprof --raw` writes this; a CPU profile has the microseconds between its samples here.
const PERIOD: u64 = 1;

pub(super) fn read(lines: &mut Lines<'_>) -> Result<Reading, Error> {
    let mut words = Words {
        input: lines,
        big_endian: false,
        read: 0,
    };
    words.header()?;
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    builder.profile.period_type = Some(builder.value_type("space", "bytes"));
    builder.profile.period = 1;
    let mut profile = builder.finish();
    let labels = profile.label_sets.intern(&mut [], &profile.strings);
    let mut locations = AddressLocations::new();
    let mut stack = Vec::new();
    let mut files = Vec::new();
    while let Some(value) = words.next()? {
        let depth = words.some("the depth of a stack")?;
        if depth > DEEPEST {
            return Err(words.wrong(format!("a stack of at most {DEEPEST} frames"), depth));
        }
        stack.clear();
        for _ in 0..depth {
            stack.push(words.some("an address")?);
        }
        // The end of the words, for those who write one.
        if value == 0 && stack == [0] {
            files = mapped_files::read(words.input)?;
            break;
        }
        let value = i64::from_ne_bytes(value.to_ne_bytes());
        let places: Vec<_> = (stack.iter())
            .map(|&address| locations.get(&mut profile, address))
            .collect();
        profile.samples.push(places, &[value], labels);
    }
    stacks::map(&mut profile, files);
    cut_frames::as_pprof(&mut profile);
    let rule = "none here, google-pprof unsampled the values and cut them to whole numbers";
    Ok(Reading::new(Format::Symbolized, rule, profile))
}

struct Words<'a, 'b> {
    input: &'a mut Lines<'b>,
    big_endian: bool,
    read: u64,
}

impl Words<'_, '_> {
    fn header(&mut self) -> Result<(), Error> {
        const HEADER: &str = "the header of google-pprof's words, `0 3 0 1 0`";
        let mut header = [0; 5];
        for word in &mut header {
            *word = self.some(HEADER)?;
        }
        if header[1] == 3u64.swap_bytes() {
            self.big_endian = true;
            header = header.map(u64::swap_bytes);
        }
        match header {
            [0, 3, 0, PERIOD, 0] => Ok(()),
            [0, 3, _, period, 0] => {
                let found = format!("a CPU profile, a sample every {period} microseconds");
                Err(self.input.wrong_part("the words of a heap profile", found))
            }
            _ => Err(self.input.wrong_part(HEADER, "something else")),
        }
    }

    /// The next word, which must be there.
    fn some(&mut self, expected: &'static str) -> Result<u64, Error> {
        match self.next()? {
            Some(word) => Ok(word),
            None => Err(self.input.wrong_part(
                format!("{expected} as word {}", self.read + 1),
                "the end of the file",
            )),
        }
    }

    /// The next word; none at the end.
    fn next(&mut self) -> Result<Option<u64>, Error> {
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

    fn wrong(&self, expected: String, found: u64) -> Error {
        let found = format!("{found} in word {}", self.read);
        self.input.wrong_part(expected, found)
    }
}
