//! Reads profiles in sections, as `jeprof --raw` and `google-pprof --raw` write them: `--- symbol`,
//! a table of names by address, `---`, and the profile itself.
//!
//! The profile is a section such as `--- heap`. It consists of text, or of binary words as in
//! google-pprof's CPU profiles. Like these tools, this reader also accepts a file without the table
//! of names. The locations then have no names.

mod names;
mod words;

use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::readers::{gperftools, gperftools_cpu, jemalloc};
use crate::reading::{FormatReadOptions, ProfileReading};

use names::SymbolNames;
use words::RAW_PERIOD;

const EXPECTED_SECTION: &str =
    "`--- heap`, `--- growth`, `--- profile` or the first line of a heap profile";

/// Name of the section with the names.
const SYMBOL_SECTION: &[u8] = b"symbol";
/// Names of the sections that hold a profile.
const PROFILE_SECTIONS: [&[u8]; 4] = [b"heap", b"growth", b"fragmentation", b"profile"];

pub(crate) fn sniff(head: &[u8]) -> bool {
    let first = section(head.split(|&b| b == b'\n').next().unwrap_or_default());
    first.is_some_and(|name| name == SYMBOL_SECTION || PROFILE_SECTIONS.contains(&name))
}

/// Returns the name of the section that a line `--- name` begins.
fn section(line: &[u8]) -> Option<&[u8]> {
    let name = line.trim_ascii().strip_prefix(b"---")?;
    Some(name.trim_ascii())
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    next_line(lines)?;
    let mut names = SymbolNames::default();
    if section(lines.line()) == Some(SYMBOL_SECTION) {
        names.read(lines)?;
        next_line(lines)?;
    }
    let name = section(lines.line()).map(<[u8]>::to_vec);
    let reading = match name.as_deref() {
        Some(b"profile") if is_cpu_profile(lines)? => {
            values_are_known(options)?;
            let start = lines.bytes();
            gperftools_cpu::read_behind(&mut lines.rest(), start, options)?
        }
        Some(b"profile") if !is_heap_text(lines)? => words::read(lines, options)?,
        Some(name) if PROFILE_SECTIONS.contains(&name) => {
            next_line(lines)?;
            text(lines, options)?
        }
        Some(_) => return Err(lines.wrong(EXPECTED_SECTION)),
        None => text(lines, options)?,
    };
    let profile = names.put_into(reading.profile);
    let with_names = ProfileReading::new(ProfileFormat::Symbolized, reading.unsampling, profile);
    Ok(with_names.about(reading.format))
}

/// Goes to the next line that has content. Empty lines are skipped. Lines that begin with `%` are
/// skipped, too: they are commands between server and tool, such as a warning.
fn next_line(lines: &mut LineReader<'_>) -> Result<(), FormatError> {
    while lines.advance()? {
        let line = lines.trimmed();
        if !line.is_empty() && line[0] != b'%' {
            return Ok(());
        }
    }
    Err(lines.ended(EXPECTED_SECTION))
}

/// Whether binary words follow that are a CPU profile. google-pprof writes the words of a heap
/// profile with the period [`RAW_PERIOD`].
fn is_cpu_profile(lines: &mut LineReader<'_>) -> Result<bool, FormatError> {
    let period = gperftools_cpu::period_micros(lines.peek(gperftools_cpu::MAX_HEADER_BYTES)?);
    Ok(period.is_some_and(|period| period != RAW_PERIOD))
}

/// Refuses [`FormatReadOptions::values`] for a profile that states what its values are.
fn values_are_known(options: &FormatReadOptions) -> Result<(), FormatError> {
    match options.values {
        None => Ok(()),
        Some(_) => Err(FormatError::ValuesKnown(
            "holds a profile that already states what its values are".to_string(),
        )),
    }
}

fn is_heap_text(lines: &mut LineReader<'_>) -> Result<bool, FormatError> {
    const START: &[u8] = b"heap";
    let head = lines.peek(START.len())?;
    let mut starts = [START, b"%", b"\n", b"\r"].iter();
    Ok(starts.any(|start| head.starts_with(start)))
}

/// Reads the heap profile that begins with the current line of `lines`.
fn text(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let read = if gperftools::sniff(lines.line()) {
        gperftools::read
    } else if jemalloc::sniff(lines.line()) {
        jemalloc::read
    } else {
        return Err(lines.wrong(EXPECTED_SECTION));
    };
    // Unlike words, text contains the meaning of its values.
    values_are_known(options)?;
    lines.stay();
    read(lines, options)
}

#[cfg(test)]
mod tests {
    use heapprof_profile::Profile;

    use super::*;

    fn parsed(text: &[u8]) -> ProfileReading {
        let mut input = text;
        read(
            &mut LineReader::new(&mut input),
            &FormatReadOptions::default(),
        )
        .unwrap()
    }

    fn stack(profile: &Profile) -> Vec<String> {
        let names = profile.samples.stack(0).iter().map(|l| {
            let location = &profile.location[l.index()];
            let names = profile.lines(location).iter();
            let names =
                names.map(|line| profile.text(profile.function[line.function.index()].name));
            format!(
                "{:x} {}",
                location.address,
                names.collect::<Vec<_>>().join(" < ")
            )
        });
        names.collect()
    }

    const SYMBOLS: &str = "--- symbol\nbinary=/bin/shop\n\
        0x0000000000401000 alloc(unsigned long)<0000000000001000>\n\
        0x402000 main--outer--inner@@LIB_1.0\n---\n";

    #[test]
    fn text_with_names() {
        for (marker, profile) in [
            (
                "--- heap\n",
                "heap profile: 1: 96 [1: 96] @ heapprofile\n1: 96 [1: 96] @ 0x401000 0x402001 \
                 0x403001\n",
            ),
            (
                "--- profile\n%warn late\n",
                "heap profile: 1: 96 [1: 96] @ heap_v2/1\n1: 96 [1: 96] @ 0x401000 0x402001 \
                 0x403001\n",
            ),
            (
                "",
                "heap_v2/1\n@ 0x401000 0x402001 0x403001\n t*: 1: 96 [0: 0]\n",
            ),
        ] {
            let reading = parsed(format!("{SYMBOLS}{marker}{profile}").as_bytes());
            let profile = &reading.profile;
            // The first address is a return address here, but the table does not have it.
            assert_eq!(
                stack(profile),
                [
                    "400fff alloc(unsigned long)",
                    "402000 inner < outer < main",
                    "403000 "
                ]
            );
            assert_eq!(profile.samples.values(0), [1, 96]);
            assert!(profile.mapping[0].has_functions);
            let comments: Vec<&str> = profile.comment.iter().map(|&c| profile.text(c)).collect();
            assert_eq!(comments, ["binary: /bin/shop"]);
        }
    }

    #[test]
    fn sections_without_names() {
        let text = "heap profile: 1: 96 [1: 96] @ heapprofile\n1: 96 [1: 96] @ 0x401000\n";
        let dump = "heap_v2/1\n@ 0x401000\n t*: 1: 96 [0: 0]\n";
        let words = [0u64, 3, 0, 1, 0, 96, 1, 0x40_0fff]
            .map(u64::to_le_bytes)
            .concat();
        for (section, profile) in [
            ("heap", text.as_bytes()),
            ("heap", dump.as_bytes()),
            ("growth", text.as_bytes()),
            ("fragmentation", text.as_bytes()),
            ("profile", text.as_bytes()),
            ("profile", &words),
        ] {
            let file = [format!("--- {section}\n").as_bytes(), profile].concat();
            let reading = crate::read(&file[..], &FormatReadOptions::default()).unwrap();
            assert_eq!(reading.format, ProfileFormat::Symbolized, "{section}");
            assert_eq!(stack(&reading.profile), ["400fff "], "{section}");
            assert_eq!(reading.profile.samples.values(0).last(), Some(&96));
        }
    }

    #[test]
    fn what_words_mean_can_be_said() {
        let words = format!("{SYMBOLS}--- profile\n").into_bytes();
        let header = [0u64, 3, 0, 1, 0].map(u64::to_le_bytes).concat();
        let words = [words, header].concat();
        let text = format!("{SYMBOLS}heap_v2/1\n").into_bytes();
        let options = FormatReadOptions::default().values("inuse_objects/count".parse().ok());
        let read = |file: &[u8]| read(&mut LineReader::new(&mut &file[..]), &options);
        let profile = read(&words).unwrap().profile;
        assert_eq!(profile.text(profile.sample_type[0].r#type), "inuse_objects");
        assert_eq!(
            read(&text).unwrap_err().to_string(),
            "holds a profile that already states what its values are"
        );
    }

    #[test]
    fn cpu_profiles_with_names() {
        // The addresses of callers are return addresses.
        let words: [&[u64]; 4] = [
            &[0, 3, 0, 10_000, 0],
            &[4, 2, 0x40_1000, 0x40_2001],
            &[1, 2, 0x40_1000, 0x40_3001],
            &[0, 1, 0],
        ];
        let words: Vec<u8> = words
            .concat()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let file = [format!("{SYMBOLS}--- profile\n").as_bytes(), &words].concat();
        let reading = parsed(&file);
        assert_eq!(
            stack(&reading.profile),
            ["401000 alloc(unsigned long)", "402000 inner < outer < main"]
        );
        assert_eq!(reading.profile.type_names(), ["samples", "cpu"]);
        assert_eq!(reading.profile.samples.values(0), [4, 40_000_000]);
        let said = parsed(&file).commented().warnings;
        assert_eq!(said.len(), 1);
        assert!(said[0].to_string().contains("it is a CPU profile"));
        let options = FormatReadOptions::default().values("inuse_objects/count".parse().ok());
        let mut input = &file[..];
        let error = read(&mut LineReader::new(&mut input), &options).unwrap_err();
        assert!(error.to_string().contains("already states"), "{error}");
    }

    /// The stream gives few bytes at once, as a pipe may.
    #[test]
    fn sections_are_recognized_in_pieces() {
        let words = |period: u64| {
            let words = [0, 3, 0, period, 0, 4, 1, 0x40_1000, 0, 1, 0];
            let words: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            [b"--- profile\n", &words[..]].concat()
        };
        let text = b"--- profile\nheap profile: 1: 96 [1: 96] @ heapprofile\n\
                     1: 96 [1: 96] @ 0x401000\n";
        for (file, expected) in [
            (words(10_000), "samples cpu"),
            (words(1), "inuse_space"),
            (text.to_vec(), "objects space"),
        ] {
            for size in [1, 3, 7, 39] {
                let mut stream = std::io::BufReader::with_capacity(size, &file[..]);
                let options = FormatReadOptions::default();
                let reading = read(&mut LineReader::new(&mut stream), &options).unwrap();
                assert_eq!(reading.profile.type_names().join(" "), expected, "{size}");
            }
        }
    }

    #[test]
    fn words_with_names() {
        let words: [u64; 15] = [0, 3, 0, 1, 0, 96, 2, 0x40_1000, 0x40_2000, 7, 1, 5, 0, 1, 0];
        for big in [false, true] {
            let mut file = format!("{SYMBOLS}--- profile\n").into_bytes();
            for word in words {
                file.extend(match big {
                    true => word.to_be_bytes(),
                    false => word.to_le_bytes(),
                });
            }
            let reading = parsed(&file);
            let profile = &reading.profile;
            assert_eq!(
                stack(profile),
                ["401000 alloc(unsigned long)", "402000 inner < outer < main"]
            );
            let values: Vec<i64> = (0..2).map(|i| profile.samples.values(i)[0]).collect();
            assert_eq!(values, [96, 7]);
        }
    }
}
