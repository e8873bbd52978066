//! Reads the CPU profiles of gperftools and of Google's Java agent: binary words, and after them
//! the memory map, or the names of Java's frames.
//!
//! Files are read as pprof reads them.

mod samples;
mod words;

use std::io::{BufRead, Read};

use heapprof_profile::ProfileBuilder;

use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::java_frames;
use crate::lines::LineReader;
use crate::mapped_files;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::stacks::{self, AddressLocations};

use samples::CpuSamples;
pub(crate) use words::MAX_HEADER_BYTES;
use words::{CpuProfileHeader, CpuProfileKind, WordReader};

pub(crate) fn sniff(head: &[u8]) -> bool {
    CpuProfileHeader::find(head).is_some()
}

/// Returns the period in the header of a CPU profile, in microseconds; `None` for other words.
pub(crate) fn period_micros(head: &[u8]) -> Option<u64> {
    CpuProfileHeader::find(head).map(|header| header.period_micros)
}

pub(crate) fn read(
    stream: &mut dyn Read,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    read_behind(stream, 0, options)
}

/// Reads a CPU profile that begins after `start` bytes of a file.
pub(crate) fn read_behind(
    stream: &mut dyn Read,
    start: u64,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let (header, mut words) = WordReader::open(stream, start)?;
    let period_micros = header.period_micros;
    let period = i64::try_from(period_micros).ok();
    let period = period.and_then(|micros| micros.checked_mul(1000));
    let period = period.ok_or_else(|| {
        words.wrong(
            "a period below 2^63 nanoseconds",
            format!("{period_micros} us"),
        )
    })?;
    let mut samples = CpuSamples::read(&mut words, period, options)?;
    if header.kind == CpuProfileKind::Native {
        samples.move_to_calls();
        samples.remove_handler_frames();
    }
    let mut builder = ProfileBuilder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    builder.profile.period_type = Some(builder.value_type("cpu", "nanoseconds"));
    builder.profile.period = period;
    let mut locations = AddressLocations::new(options);
    samples.put_into(&mut builder, &mut locations, header.kind)?;
    let text = names_or_map(header.kind, words.text(), &mut builder, &mut locations);
    text.map_err(behind_words)?;
    let mut profile = builder.finish();
    cut_frames::add_sampler_frames(&mut profile);
    let rule = format!("none, each sample stands for {period_micros} microseconds");
    Ok(ProfileReading::new(
        ProfileFormat::GperftoolsCpu,
        rule,
        profile,
    ))
}

/// Reads the text after the words: the memory map, or the names of Java's frames.
fn names_or_map(
    kind: CpuProfileKind,
    text: &mut dyn BufRead,
    builder: &mut ProfileBuilder,
    locations: &mut AddressLocations,
) -> Result<(), FormatError> {
    let mut lines = LineReader::new(text);
    match kind {
        CpuProfileKind::Native => {
            let files = mapped_files::read(&mut lines)?;
            stacks::assign_mappings(&mut builder.profile, files);
            Ok(())
        }
        CpuProfileKind::Java => java_frames::names(&mut lines, builder, locations),
    }
}

/// Adds to an error about a line where the lines begin.
fn behind_words(error: FormatError) -> FormatError {
    match error {
        FormatError::Line {
            line,
            expected,
            found,
        } => FormatError::Line {
            line,
            expected,
            found: format!("{found}, in the text after the words"),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{error, read_bytes, samples, types};

    /// Makes a file of little-endian words and the text after them.
    fn file(header: [u64; 5], words: &[u64], text: &str) -> Vec<u8> {
        let words = header.iter().chain(words);
        let mut file: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        file.extend(text.as_bytes());
        file
    }

    const HEADER: [u64; 5] = [0, 3, 0, 10_000, 0];
    const MAP: &str = "build=/bin\n00400000-00500000 r-xp 00000000 00:00 1 $build/app\n";

    #[test]
    fn stacks_of_calls() {
        let words = [2, 3, 0x40_0010, 0x40_0021, 0x50_0031, 1, 0, 0, 1, 0];
        let reading = read_bytes(&file(HEADER, &words, MAP));
        let profile = &reading.profile;
        assert_eq!(reading.format, ProfileFormat::GperftoolsCpu);
        assert_eq!(types(profile), ["samples/count", "cpu/nanoseconds"]);
        assert_eq!(profile.period, 10_000_000);
        // The leaf is no return address. The last address is in no mapping.
        assert_eq!(
            samples(profile),
            [
                "0x500030@;0x400020@/bin/app;0x400010@/bin/app 2 20000000",
                " 1 10000000"
            ]
        );
    }

    #[test]
    fn frames_of_the_handler_are_removed() {
        // Two frames of the handler are in all stacks, and a third one stays.
        let mut words = Vec::new();
        for leaf in 0..40 {
            words.extend([1, 6, 0x1000 + leaf, 0x11, 0x21, 0x31, 0x41, 0x51]);
        }
        let stacks = |words: &[u64]| samples(&read_bytes(&file(HEADER, words, "")).profile);
        assert_eq!(stacks(&words)[0], "0x50@;0x40@;0x30@;0x1000@ 1 10000000");
        // One of 41 stacks may differ; two may not.
        words.extend([1, 2, 0x2000, 0x61]);
        let found = stacks(&words);
        assert_eq!(found[1], "0x50@;0x40@;0x30@;0x1001@ 1 10000000");
        assert_eq!(found[40], "0x60@;0x2000@ 1 10000000");
        words.extend([1, 2, 0x2000, 0x71]);
        assert_eq!(
            stacks(&words)[0],
            "0x50@;0x40@;0x30@;0x20@;0x10@;0x1000@ 1 10000000"
        );
    }

    #[test]
    fn a_leaf_that_is_there_twice_is_one_frame() {
        // Unwinding found the leaf, too. The second stack only looks similar. The third one keeps
        // the frame of the first two from being the handler's.
        let words = [
            1, 3, 0x10, 0x10, 0x21, 1, 3, 0x12, 0x10, 0x21, 1, 2, 0x14, 0x31,
        ];
        let profile = read_bytes(&file(HEADER, &words, "")).profile;
        assert_eq!(
            samples(&profile),
            [
                "0x20@;0x10@ 1 10000000",
                "0x20@;0xf@;0x12@ 1 10000000",
                "0x30@;0x14@ 1 10000000"
            ]
        );
        // pprof keeps the location of a frame that it removes.
        let first = words[..5].to_vec();
        let words = [&first[..], &[1, 2, 0x14, 0x31]].concat();
        let profile = read_bytes(&file(HEADER, &words, "")).profile;
        let addresses: Vec<u64> = profile.location.iter().map(|l| l.address).collect();
        assert_eq!(addresses, [0x10, 0xf, 0x20, 0x14, 0x30]);
    }

    #[test]
    fn memory_is_bounded() {
        let words: Vec<u64> = (0..1 << 18)
            .flat_map(|i| [1, 2, i << 8, i << 8 | 7])
            .collect();
        let options = FormatReadOptions::default().max_inflated(10 << 20);
        let error = crate::read(&file(HEADER, &words, "")[..], &options).unwrap_err();
        assert!(error.to_string().contains("takes more than"), "{error}");
    }

    #[test]
    fn frames_of_java() {
        let header = [0, 3, 1, 1000, 0];
        let words = [3, 2, 0x3, 0x1, 1, 1, 0x7, 0, 1, 0];
        let names = "\n    0x01 main (App.java:7)\n    0x3 parse (App.java:3)\n";
        let profile = read_bytes(&file(header, &words, names)).profile;
        assert_eq!(
            samples(&profile),
            [
                "main@App.java:7;parse@App.java:3 3 3000000",
                "0x0@ 1 1000000"
            ]
        );
    }

    #[test]
    fn damage_is_named_with_its_byte() {
        let table: [(&[u64], usize, &str); 5] = [
            (
                &[7],
                0,
                "byte 48: expected the depth of a stack, found the end of the file; copy or \
                 download it again",
            ),
            (
                &[7, u64::MAX, 1],
                0,
                "byte 64: expected an address of a stack, found the end of the file; copy or \
                 download it again",
            ),
            (
                &[7, 1, 0x10],
                3,
                "byte 56: expected a word of 8 bytes, found the end of the file after 5",
            ),
            (
                &[u64::MAX, 1, 0x10],
                0,
                "byte 40: expected a number of samples whose time fits in 64 bits, found \
                 18446744073709551615",
            ),
            (
                &[1 << 62, 1, 0x10],
                0,
                "byte 40: expected a number of samples whose time fits in 64 bits, found \
                 4611686018427387904",
            ),
        ];
        for (words, cut, expected) in table {
            let mut bytes = file(HEADER, words, "");
            bytes.truncate(bytes.len() - cut);
            assert_eq!(error(&bytes), expected);
        }
        let java = file([0, 3, 1, 1, 0], &[0, 1, 0], "\n 0x12345678901234567 main\n");
        assert_eq!(
            error(&java),
            "line 2: expected an id of 64 bits, found \"12345678901234567\", in the text after the \
             words"
        );
        assert_eq!(
            error(&file([0, 3, 0, 1 << 62, 0], &[], "")),
            "byte 40: expected a period below 2^63 nanoseconds, found 4611686018427387904 us"
        );
    }
}
