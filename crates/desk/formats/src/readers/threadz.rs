//! Reads lists of threads with their stacks, which servers with gperftools' older profilers show at
//! `/threadz`.
//!
//! Files are read as pprof reads them. All addresses of a thread form its stack: those of its own
//! frames, then those of the stack that created it.

use heapprof_profile::{LocationIndex, Profile, ProfileBuilder};

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::format::ProfileFormat;
use crate::heap_line::HexAddresses;
use crate::lines::LineReader;
use crate::mapped_files;
use crate::readers::go_count::is_blank_or_comment;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::stacks::{self, AddressLocations};

const EXPECTED_HEADER: &str = "`--- threadz N ---` or `--- Thread ID (name: NAME/ID) stack: ---`";
const EXPECTED_THREAD: &str = "`--- Thread ID (name: NAME/ID) stack: ---` or `--- Memory map: ---`";

pub(crate) fn sniff(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n');
    let first = lines.find(|line| !is_blank_or_comment(line));
    first.is_some_and(|line| is_header(line) || begins_thread(line))
}

/// Whether a line has the text `--- threadz N ---`.
fn is_header(line: &[u8]) -> bool {
    const START: &[u8] = b"--- threadz ";
    memchr::memmem::find_iter(line, START).any(|at| {
        let rest = &line[at + START.len()..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        digits > 0 && rest[digits..].starts_with(b" ---")
    })
}

/// Whether a line has the text `--- Thread ID (name: NAME/ID) stack: ---`.
fn begins_thread(line: &[u8]) -> bool {
    const START: &[u8] = b"--- Thread ";
    const END: &[u8] = b") stack: ---";
    const NAME: &[u8] = b" (name: ";
    // The last end is enough, because a name may contain other ends.
    let slash = memchr::memmem::rfind_iter(line, END).find_map(|end| {
        let before = &line[..end];
        let id = before
            .iter()
            .rev()
            .take_while(|b| b.is_ascii_digit())
            .count();
        let named = &before[..end - id];
        (id > 0 && named.ends_with(b"/")).then(|| named.len() - 1)
    });
    let Some(slash) = slash else {
        return false;
    };
    memchr::memmem::find_iter(line, START).any(|at| {
        let rest = &line[at + START.len()..];
        let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let name = at + START.len() + digits + NAME.len();
        digits > 0 && rest[digits..].starts_with(NAME) && name <= slash
    })
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    while lines.advance()? && is_blank_or_comment(lines.line()) {}
    if is_header(lines.line()) {
        while lines.advance()? && !lines.line().starts_with(b"-") {
            if mapped_files::begins(lines.line()) {
                break;
            }
        }
    } else if !begins_thread(lines.line()) {
        return Err(lines.wrong(EXPECTED_HEADER));
    }
    let mut builder = ProfileBuilder::new(&[("thread", "count")]);
    builder.profile.period_type = Some(builder.value_type("thread", "count"));
    builder.profile.period = 1;
    let mut threads = ThreadStacks {
        profile: builder.finish(),
        locations: AddressLocations::new(options),
        addresses: Vec::new(),
    };
    while !mapped_files::begins(lines.line())
        && !lines.line().starts_with(b"---- no stack trace for")
    {
        if !begins_thread(lines.line()) {
            return Err(lines.wrong(EXPECTED_THREAD));
        }
        threads.add(lines)?;
    }
    lines.stay();
    let files = mapped_files::find_and_read(lines)?;
    let mut profile = threads.profile;
    stacks::assign_mappings(&mut profile, files);
    cut_frames::add_sampler_frames(&mut profile);
    let rule = "none, every thread was counted";
    Ok(ProfileReading::new(ProfileFormat::Threadz, rule, profile))
}

/// The profile of the threads that were read so far.
struct ThreadStacks {
    profile: Profile,
    locations: AddressLocations,
    /// The addresses of the thread that is being read. The allocation is reused.
    addresses: Vec<u64>,
}

impl ThreadStacks {
    /// Reads the stack of a thread, and adds it. `lines` then is at the line after the stack.
    fn add(&mut self, lines: &mut LineReader<'_>) -> Result<(), FormatError> {
        self.addresses.clear();
        let mut is_repeated = false;
        while lines.advance()? {
            let line = lines.trimmed();
            if line.starts_with(b"---") || mapped_files::begins(line) {
                break;
            }
            if memchr::memmem::find(line, b"same as previous thread").is_some() {
                is_repeated = true;
                continue;
            }
            for address in HexAddresses(line) {
                let address = address
                    .map_err(|text| lines.wrong_part("an address of 64 bits", shortened(text)))?;
                // The addresses of callers are return addresses. The leaf is not a call.
                let back = u64::from(!self.addresses.is_empty());
                self.addresses.push(address.wrapping_sub(back));
            }
        }
        match is_repeated || self.addresses.is_empty() {
            true => self.repeat(),
            false => self.push()?,
        }
        Ok(())
    }

    /// Counts a thread that has the stack of the thread before.
    fn repeat(&mut self) {
        let samples = &mut self.profile.samples;
        if let Some(last) = samples.len().checked_sub(1)
            && let [threads] = samples.values_mut(last)
        {
            *threads = threads.saturating_add(1);
        }
    }

    /// Adds a thread with the stack in `addresses`.
    fn push(&mut self) -> Result<(), FormatError> {
        let Self {
            profile,
            locations,
            addresses,
        } = self;
        let mut stack: Vec<LocationIndex> = Vec::with_capacity(addresses.len());
        for &address in addresses.iter() {
            stack.push(locations.get(profile, address)?);
        }
        if stacks::has_leaf_twice(addresses) {
            stack.remove(1);
        }
        locations.count_sample(stack.len(), || profile.memory())?;
        let labels = profile.label_sets.intern(&mut [], &profile.strings);
        profile.samples.push(stack, &[1], labels);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{error, read, samples, types};

    const MAP: &str = "--- Memory map: ---\n  00400000-00500000: /bin/app\n";

    #[test]
    fn stacks_of_threads() {
        let text = format!(
            "--- threadz 1 ---\n3 threads\n\n\
             --- Thread 7f01 (name: main/7) stack: ---\n\
             \x20 PC:  0x00400010: wait(int)\n  0x00400021: main\n\
             --- Thread 7f02 (name: pool (a/b)/8) stack: ---\n  [same as previous thread]\n\
             --- Thread 7f03 (name: /9) stack: ---\n\
             \x20 PC: 0x400030 0x400030 0x400041\n      creator: 0x400051\n{MAP}"
        );
        let profile = read(&text);
        assert_eq!(types(&profile), ["thread/count"]);
        assert_eq!(
            samples(&profile),
            [
                "0x400020@/bin/app;0x400010@/bin/app 2",
                "0x400050@/bin/app;0x400040@/bin/app;0x400030@/bin/app 1"
            ]
        );
    }

    #[test]
    fn lists_of_other_forms() {
        // The first line may be that of a thread. A stack may be missing, also all of them.
        let thread = "--- Thread 7f01 (name: main/7) stack: ---\n";
        let text = format!("\n# late\n{thread}{thread}0x10\n---- no stack trace for 7 ---\n{MAP}");
        assert_eq!(samples(&read(&text)), ["0x10@ 1"]);
        assert!(samples(&read(&format!("--- threadz 2 ---\n{MAP}"))).is_empty());
        let text = format!("{thread}0x10\nMAPPED_LIBRARIES:\n1-20 r-xp 0 00:00 0 /a\n");
        assert_eq!(samples(&read(&text)), ["0x10@/a 1"]);
        for text in [
            "--- threadz ---\n",
            "--- threadz x ---\n",
            "--- Thread (name: main/7) stack: ---\n",
            "--- Thread 7f01 (name: main) stack: ---\n",
            "--- Thread 7f01 (name: main/) stack: ---\n",
            "--- Thread 7f01 (name: main/7) frames: ---\n",
        ] {
            assert!(!sniff(text.as_bytes()), "{text}");
        }
        // Each start and each end is looked at once, however many there are.
        for many in [
            "--- Thread 1 (name: ".repeat(100_000),
            format!("{}x", "--- Thread 1 (name: a) stack: ---".repeat(100_000)),
            format!("--- Thread 1 {}", "(name: 7) stack: ---".repeat(100_000)),
        ] {
            assert!(!begins_thread(many.as_bytes()));
        }
        let cut = format!("{thread}0x10\n");
        assert_eq!(
            error(cut.as_bytes()),
            "line 3: expected `--- Thread ID (name: NAME/ID) stack: ---` or `--- Memory map: \
             ---`, found the end of the file"
        );
    }
}
