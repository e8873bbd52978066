//! Reads profiles of contention as text: `--- contentionz 1 ---` of C++ servers and of Google's
//! Java agent, and Go's `/debug/pprof/mutex?debug=1` and `block?debug=1`.
//!
//! A file consists of attributes, samples `DELAY COUNT @ 0xADDRESS …`, and a memory map or Java's
//! names. Values are read as pprof reads them. pprof ignores the names in Go's comments; this
//! reader assigns them to the addresses.

mod header;

use crate::counted_stack::CountedStack;
use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::go_stacks::GoStackReader;
use crate::heap_samples::push_calls;
use crate::java_frames;
use crate::lines::LineReader;
use crate::mapped_files;
use crate::reading::{FormatReadOptions, ProfileReading};

use heapprof_profile::{Profile, ProfileBuilder};

use header::ContentionHeader;

const FIRST_LINES: [&str; 3] = ["--- contentionz ", "--- mutex:", "--- contention:"];
const EXPECTED_SAMPLE: &str = "`DELAY COUNT @ 0xADDRESS …`, a comment or `--- Memory map: ---`";

pub(crate) fn sniff(head: &[u8]) -> bool {
    FIRST_LINES
        .iter()
        .any(|first| head.starts_with(first.as_bytes()))
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    lines.advance()?;
    let header = ContentionHeader::read(lines)?;
    let profile = match header.is_java {
        true => java(&header, lines, options)?,
        false => native(&header, lines, options)?,
    };
    Ok(ProfileReading::new(
        ProfileFormat::Contention,
        header.rule(),
        profile,
    ))
}

/// Reads samples whose frames are addresses, and the memory map.
fn native(
    header: &ContentionHeader,
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<Profile, FormatError> {
    let mut stacks = GoStackReader::new(header.profile(), options);
    let labels = stacks.builder.label_set(&mut []);
    while lines.advance()? {
        let line = lines.trimmed();
        if line.starts_with(b"---") || mapped_files::begins(line) {
            lines.stay();
            break;
        }
        match line {
            [] => {}
            [b'#', ..] => stacks.comment(lines)?,
            _ => {
                stacks.flush()?;
                let sample = CountedStack::read(lines)?;
                let sample = sample.ok_or_else(|| lines.wrong(EXPECTED_SAMPLE))?;
                stacks.values.clear();
                stacks.values.extend(values(&sample, header, lines)?);
                stacks.addresses.clear();
                push_calls(sample.stack, lines, &mut stacks.addresses)?;
                stacks.begin(labels);
            }
        }
    }
    let files = mapped_files::find_and_read(lines)?;
    stacks.finish(files, cut_frames::add_lock_frames)
}

/// Reads samples whose frames are numbers, and the names of the frames.
fn java(
    header: &ContentionHeader,
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<Profile, FormatError> {
    let mut builder = ProfileBuilder::default();
    builder.profile = header.profile();
    let labels = builder.label_set(&mut []);
    java_frames::read(lines, &mut builder, options, |sample, lines, _| {
        Ok((values(sample, header, lines)?, labels))
    })?;
    let mut profile = builder.finish();
    cut_frames::add_lock_frames(&mut profile);
    Ok(profile)
}

/// Returns the contentions and the delay that a sample stands for.
fn values(
    sample: &CountedStack<'_>,
    header: &ContentionHeader,
    lines: &LineReader<'_>,
) -> Result<[i64; 2], FormatError> {
    let CountedStack { value, count, .. } = *sample;
    header.values(value, count).ok_or_else(|| {
        let found = format!("{count} contentions that took {value}");
        lines.wrong_part("values that fit in 64 bits when scaled up", found)
    })
}

#[cfg(test)]
mod tests {
    use crate::profile_text::{error, read, samples, types};

    #[test]
    fn contention_of_a_server() {
        let text = "--- contentionz 1 ---\ncycles/second = 2000000000\nsampling period = 100\n\
                    ms since reset = 7\ndiscarded samples = 0\n  96 2 @ 0x401001 0x402001\n\n\
                    10 1 @\n--- Memory map: ---\n 00400000-00500000: /bin/app\n";
        let profile = read(text);
        assert_eq!(types(&profile), ["contentions/count", "delay/nanoseconds"]);
        assert_eq!(
            samples(&profile),
            ["0x402000@/bin/app;0x401000@/bin/app 200 4800", " 100 500"]
        );
        assert_eq!((profile.period, profile.duration_nanos), (100, 7_000_000));
        let drops = profile.text(profile.drop_frames);
        assert!(drops.starts_with("RecordLockProfileData|"), "{drops}");
    }

    #[test]
    fn contention_of_go() {
        for first in ["--- mutex:", "--- contention:"] {
            let text = format!(
                "{first}\ncycles/second=1000000000\n96 2 @ 0x11 0x21 0x31\n#\t0x10\t\
                 sync.(*Mutex).Unlock+0x1\t/go/mutex.go:1\n#\t0x20\tmain.main+0x1\ta.go:2\n"
            );
            let profile = read(&text);
            assert_eq!(
                samples(&profile),
                ["main.main@a.go:2;sync.(*Mutex).Unlock@/go/mutex.go:1 2 96"]
            );
            assert_eq!(profile.text(profile.drop_frames), "");
        }
    }

    #[test]
    fn contention_of_java() {
        let text = "--- contentionz 1 ---\nformat = java\nresolution = microseconds\n\
                    sampling period = 100\nms since reset = 7\n  14 2 @ 0x3 0x1\n\n\
                    0x3 lock (Shop.java:7)\n0x1 main (Shop.java:1)\n";
        let profile = read(text);
        assert_eq!(types(&profile), ["contentions/count", "delay/microseconds"]);
        assert_eq!(
            samples(&profile),
            ["main@Shop.java:1;lock@Shop.java:7 200 1400"]
        );
        let unsampled = read(&text.replace("sampling period = 100\n", ""));
        assert_eq!(unsampled.samples.values(0), [2, 14]);
        assert_eq!((unsampled.period, unsampled.period_type), (0, None));
    }

    #[test]
    fn lines_of_other_forms() {
        let native = "--- contentionz 1 ---\nsampling period = 100\n96 2 @ 0x11\n";
        assert!(error(native.replace("period", "rate").as_bytes()).starts_with("line 2: "));
        for line in [
            "96 2",
            "96 @ 0x11",
            "96 2 3 @ 0x11",
            "96 two @ 0x11",
            "96 -2 @ 0x11",
        ] {
            let text = native.replace("96 2 @ 0x11", line);
            let expected = "line 3: expected `DELAY COUNT @ 0xADDRESS …`";
            assert!(error(text.as_bytes()).starts_with(expected), "{line}");
        }
        let java = "--- contentionz 1 ---\nformat = java\n96 2 @ 0x11\n";
        assert_eq!(
            error(java.as_bytes()),
            "line 3: expected `resolution = UNIT`, found \"96 2 @ 0x11\""
        );
    }
}
