//! Reads jemalloc's dumps: `heap_v2/PERIOD`, then for each stack `@ addresses`, its totals (`t*`)
//! and the counts of its threads.
//!
//! Some versions of jemalloc write the header `heap profile: … @ heap_v2/PERIOD` instead. This is
//! tcmalloc's format, which the reader of gperftools reads. The meaning of lines and the rule for
//! unsampling are the same as in jeprof. A dump of jemalloc 5.3 already contains counts that are
//! adjusted so that this rule gives unbiased values.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Label, LocationIndex, Profile, ProfileBuilder, Samples, StringId};

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::value;
use crate::format::ProfileFormat;
use crate::heap_line::{HexAddresses, values};
use crate::heap_samples::size_label;
use crate::lines::LineReader;
use crate::mapped_files;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::sampling::{InUseValues, Unsampler, unsampled};
use crate::stacks::{self, AddressLocations};

const EXPECTED_HEADER: &str = "`heap_v2/PERIOD`";
const EXPECTED_COUNTS: &str = "`t*: N: BYTES [N: BYTES]`";
const EXPECTED_LINE: &str =
    "`@ 0xADDRESS …`, `t*: N: BYTES [N: BYTES]`, the same of a thread, or MAPPED_LIBRARIES:";

pub(crate) fn sniff(head: &[u8]) -> bool {
    let first = head.split(|&b| b == b'\n').next();
    first.is_some_and(|line| period(line.trim_ascii()).is_some())
}

/// Returns the digits of the period if the line is a header.
fn period(line: &[u8]) -> Option<&[u8]> {
    let digits = line.strip_prefix(b"heap_v2/")?;
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    if !lines.advance()? {
        return Err(lines.ended(EXPECTED_HEADER));
    }
    let digits = period(lines.trimmed()).ok_or_else(|| lines.wrong(EXPECTED_HEADER))?;
    let period = value(digits)
        .ok_or_else(|| lines.wrong_part("a sampling period below 2^63", shortened(digits)))?;
    let mut dump = JemallocDump::new(period, options);
    let mut files = Vec::new();
    while lines.advance()? {
        let line = lines.trimmed();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        if mapped_files::begins(line) {
            files = mapped_files::read(lines)?;
            break;
        }
        match line {
            [b'@', ..] => dump.stack(lines)?,
            [b't', ..] => dump.counts(lines)?,
            _ => return Err(lines.wrong(EXPECTED_LINE)),
        }
    }
    dump.flush(lines)?;
    let mut profile = dump.finish();
    stacks::assign_mappings(&mut profile, files);
    cut_frames::add_jemalloc_frames(&mut profile);
    let rule = match period {
        0 | 1 => format!("none, a period of {period} samples everything"),
        period => format!(
            "heap_v2, count and bytes of a stack divided by 1 - exp(-mean size/{period}), in use \
             and allocated each with its own mean; the result is shared out among the stack's \
             threads"
        ),
    };
    Ok(ProfileReading::new(ProfileFormat::Jemalloc, rule, profile))
}

/// The count and bytes in use, then the count and bytes allocated.
type JemallocCounts = [i64; 4];

struct JemallocDump {
    period: i64,
    /// Whether the values of a thread are its counts in the file. Otherwise they are a share of the
    /// stack's total.
    as_counted: bool,
    /// Unsamplers of memory in use and of memory allocated, by thread: `*` for all threads
    /// together, and with `as_counted` also each thread. Fractions are not truncated as in pprof,
    /// because pprof does not read jemalloc's dumps.
    unsamplers: HashMap<Vec<u8>, [Unsampler; 2]>,
    profile: Profile,
    /// The samples. They have two values until the first allocations are found, and four from then
    /// on.
    samples: Samples,
    locations: AddressLocations,
    /// The names of threads, by number.
    names: HashMap<Vec<u8>, Vec<u8>>,
    /// Number of bytes that the names take.
    names_bytes: usize,
    /// Whether a stack has begun. Before the first stack, counts belong to the whole process and
    /// its threads.
    in_stacks: bool,
    has_allocations: bool,
    stack: Vec<LocationIndex>,
    /// The totals of the current stack: as in the file, then unsampled.
    total: Option<(JemallocCounts, JemallocCounts)>,
    /// The threads of the current stack, with their counts as in the file, then unsampled.
    threads: Vec<(StringId, JemallocCounts, JemallocCounts)>,
}

impl JemallocDump {
    fn new(period: i64, options: &FormatReadOptions) -> Self {
        let mut builder = ProfileBuilder::new(&[]);
        builder.profile.period_type = Some(builder.value_type("space", "bytes"));
        builder.profile.period = period;
        Self {
            period,
            as_counted: options.threads_as_counted,
            unsamplers: HashMap::new(),
            profile: builder.finish(),
            samples: Samples::new(2),
            locations: AddressLocations::new(options),
            names: HashMap::new(),
            names_bytes: 0,
            in_stacks: false,
            has_allocations: false,
            stack: Vec::new(),
            total: None,
            threads: Vec::new(),
        }
    }

    /// Changes all samples from two values to four, if they have two.
    ///
    /// Without `prof_accum`, jemalloc counts only memory in use. So this function is called when a
    /// header or a stack has a count of allocations.
    fn allocations_too(&mut self) {
        if self.has_allocations {
            return;
        }
        self.has_allocations = true;
        let in_use = std::mem::replace(&mut self.samples, Samples::new(4));
        for i in 0..in_use.len() {
            let stack = in_use.stack(i).iter().copied();
            let values = [&[0, 0], in_use.values(i)].concat();
            self.samples.push(stack, &values, in_use.label_set(i));
        }
    }

    fn finish(self) -> Profile {
        let mut builder = ProfileBuilder::default();
        builder.profile = self.profile;
        let types = [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ];
        let left_out = if self.has_allocations { 0 } else { 2 };
        for (r#type, unit) in &types[left_out..] {
            let value_type = builder.value_type(r#type, unit);
            builder.profile.sample_type.push(value_type);
        }
        builder.profile.samples = self.samples;
        builder.finish()
    }

    /// Reads a line with a stack, such as `@ 0x7f9b08ca2630 0x55e4e4942191`.
    fn stack(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        self.flush(lines)?;
        self.in_stacks = true;
        for address in HexAddresses(lines.trimmed()) {
            let address = address
                .map_err(|text| lines.wrong_part("an address of 64 bits", shortened(text)))?;
            // All addresses are return addresses. The first one belongs to jemalloc's own call.
            let call = address.wrapping_sub(1);
            self.stack
                .push(self.locations.get(&mut self.profile, call)?);
        }
        Ok(())
    }

    /// Reads a line with counts: of all threads, such as `t*: 1147: 1650727 [1335: 1752220]`, or of
    /// one thread in the same form. Before the first stack, a thread's counts may be followed by
    /// its name.
    fn counts(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let mut rest = &lines.trimmed()[1..];
        let colon = memchr::memchr(b':', rest).ok_or_else(|| lines.wrong(EXPECTED_COUNTS))?;
        let thread = &rest[..colon];
        if thread != b"*" && (thread.is_empty() || !thread.iter().all(u8::is_ascii_digit)) {
            return Err(lines.wrong(EXPECTED_COUNTS));
        }
        rest = &rest[colon + 1..];
        let digits = values(&mut rest).ok_or_else(|| lines.wrong(EXPECTED_COUNTS))?;
        let mut raw = [0; 4];
        for (number, digits) in raw.iter_mut().zip(digits) {
            *number = value(digits)
                .ok_or_else(|| lines.wrong_part("a number below 2^63", shortened(digits)))?;
        }
        if raw[2] != 0 || raw[3] != 0 {
            self.allocations_too();
        }
        if !self.in_stacks {
            let name = rest.trim_ascii();
            if !name.is_empty() {
                self.names_bytes += thread.len() + name.len() + size_of::<[Vec<u8>; 2]>();
                self.names.insert(thread.to_vec(), name.to_vec());
            }
            return self.count_growth(0);
        }
        let mut counts = raw;
        let period = self.period;
        // Threads share the total of their stack, unless the user wants their own numbers.
        let mut unsamplers = match thread == b"*" || self.as_counted {
            true => self.unsamplers(thread).iter_mut(),
            false => [].iter_mut(),
        };
        let mut in_use = None;
        for [count, bytes] in counts.as_chunks_mut().0 {
            let unsampler = unsamplers.next();
            let sampled = (*count, *bytes);
            // Bytes without an object stay as they are, as in jeprof.
            if *count != 0 {
                let values = match unsampler {
                    Some(unsampler) => unsampler.next_beside(*count, *bytes, in_use.as_ref()),
                    None => unsampled(*count, *bytes, period),
                };
                (*count, *bytes) = values.ok_or_else(|| {
                    let expected = format!(
                        "values that fit in 64 bits when scaled up from one \
                                            sample every {period} bytes"
                    );
                    lines.wrong_part(expected, format!("{bytes} bytes in {count} objects"))
                })?;
            }
            in_use = Some(InUseValues {
                sampled,
                objects: *count,
            });
        }
        if thread == b"*" {
            if self.total.replace((raw, counts)).is_some() {
                return Err(lines.wrong("one t* line per stack"));
            }
        } else {
            let thread = self.thread_name(thread);
            self.threads.push((thread, raw, counts));
        }
        self.count_growth(0)
    }

    fn unsamplers(&mut self, thread: &[u8]) -> &mut [Unsampler; 2] {
        let new = || Unsampler::new(self.period, false);
        let all = self.unsamplers.entry(thread.to_vec());
        all.or_insert_with(|| [new(), new()])
    }

    /// Returns the label for a thread: its number, such as `3`, or `3 worker` if the dump has
    /// names.
    fn thread_name(&mut self, number: &[u8]) -> StringId {
        let mut text = String::from_utf8_lossy(number).into_owned();
        if let Some(name) = self.names.get(number) {
            text.push(' ');
            text.push_str(&String::from_utf8_lossy(name));
        }
        self.profile.strings.intern(&text)
    }

    /// Adds the samples of the last stack: one for each thread, or a single one if the totals can't
    /// be shared among threads. Without `as_counted`, the samples add up to the stack's totals.
    fn flush(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let Some((raw, total)) = self.total.take() else {
            return match self.in_stacks {
                true => Err(lines.wrong(EXPECTED_COUNTS)),
                false => Ok(()),
            };
        };
        let threads = std::mem::take(&mut self.threads);
        if self.as_counted && !threads.is_empty() {
            for (thread, raw, counts) in threads {
                self.push(Some(thread), raw, counts)?;
            }
            self.stack.clear();
            return Ok(());
        }
        let weight = |c: usize| -> i128 { threads.iter().map(|t| i128::from(t.2[c])).sum() };
        let weights = [weight(0), weight(1), weight(2), weight(3)];
        // The totals can't be shared among threads that all have 0, or if the numbers are too large
        // to multiply.
        let shared = (0..4).all(|c| {
            let product = i128::from(total[c]).checked_mul(weights[c]);
            product.is_some() && (weights[c] > 0 || total[c] == 0)
        });
        if !shared || threads.is_empty() {
            self.push(None, raw, total)?;
        } else {
            let mut seen = [0i128; 4];
            let mut given = [0i64; 4];
            for (thread, raw, counts) in threads {
                let mut share = [0; 4];
                for c in 0..4 {
                    seen[c] += i128::from(counts[c]);
                    // The share of all threads up to this one. The last one completes the total.
                    let up_to = match weights[c] {
                        0 => 0,
                        weight => (i128::from(total[c]) * seen[c] / weight) as i64,
                    };
                    share[c] = up_to - given[c];
                    given[c] = up_to;
                }
                self.push(Some(thread), raw, share)?;
            }
        }
        self.stack.clear();
        Ok(())
    }

    /// Adds a sample of the current stack. Too much memory is an error.
    fn push(
        &mut self,
        thread: Option<StringId>,
        raw: JemallocCounts,
        counts: JemallocCounts,
    ) -> Result<(), FormatError> {
        let [count, bytes, all_count, all_bytes] = raw;
        let mean = bytes
            .checked_div(count)
            .or(all_bytes.checked_div(all_count));
        let profile = &mut self.profile;
        let thread = thread.map(|str| Label {
            key: profile.strings.intern("thread"),
            str,
            num: 0,
            num_unit: StringId::EMPTY,
        });
        let size = size_label(profile, mean.unwrap_or(0));
        let mut labels: Vec<Label> = thread.into_iter().chain([size]).collect();
        let labels = profile.label_sets.intern(&mut labels, &profile.strings);
        let [count, bytes, all_count, all_bytes] = counts;
        let values = [all_count, all_bytes, count, bytes];
        let wanted = if self.has_allocations { 0 } else { 2 };
        let stack = self.stack.iter().copied();
        self.samples.push(stack, &values[wanted..], labels);
        self.count_growth(self.stack.len())
    }

    /// Counts a line of the dump, or a new sample with `frames` frames. Too much memory is an
    /// error.
    fn count_growth(&mut self, frames: usize) -> Result<(), FormatError> {
        let lines = self.names_bytes
            + self.threads.capacity() * size_of::<(StringId, JemallocCounts, JemallocCounts)>()
            + self.unsamplers.capacity() * size_of::<(Vec<u8>, [Unsampler; 2])>();
        let (profile, samples) = (&self.profile, &self.samples);
        self.locations.count_sample(frames, || {
            let profile = profile.memory().saturating_add(samples.memory());
            profile.saturating_add(lines as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(text: &str) -> String {
        samples_with(text, &FormatReadOptions::default())
    }

    fn samples_with(text: &str, options: &FormatReadOptions) -> String {
        let mut input = text.as_bytes();
        let reading = read(&mut LineReader::new(&mut input), options).unwrap();
        let profile = reading.profile;
        let lines = (0..profile.samples.len()).map(|i| {
            let labels = profile.label_sets.get(profile.samples.label_set(i)).iter();
            let labels: Vec<String> = labels
                .map(|label| match profile.text(label.str) {
                    "" => label.num.to_string(),
                    text => text.to_string(),
                })
                .collect();
            let stack: Vec<String> = (profile.samples.stack(i).iter())
                .map(|l| format!("{:x}", profile.location[l.index()].address))
                .collect();
            let values = profile.samples.values(i);
            format!("{values:?} {} {}", stack.join(" "), labels.join(", "))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn stacks_and_threads() {
        let table = [
            // One thread, and no counts of allocations.
            (
                "heap_v2/524288\n  t*: 1: 1024 [0: 0]\n  t0: 1: 1024 [0: 0]\n@ 0x11 0x21\n  t*: \
                 1: 1024 [0: 0]\n  t0: 1: 1024 [0: 0]\n",
                "[513, 524800] 10 20 0, 1024",
            ),
            // The samples of threads add up to t*, however the threads' own numbers are rounded or
            // adjusted. This includes freed blocks.
            (
                "heap_v2/1\n  t7: 3: 30 [9: 90] worker one\n@ 0x11\n  t*: 3: 30 [9: 90]\n  t7: 1: \
                 11 [0: 0]\n  t8: 1: 11 [9: 90]\n",
                "[0, 0, 1, 15] 10 7 worker one, 11\n[9, 90, 2, 15] 10 8, 11",
            ),
            // No threads, or only threads whose counts are all 0.
            ("heap_v2/0\n@ 0x11\nt*: 3: 30 [0: 0]", "[3, 30] 10 10"),
            (
                "heap_v2/0\n@ 0x11\nt*: 3: 30 [0: 0]\nt1: 0: 0 [0: 0]",
                "[3, 30] 10 10",
            ),
            // An empty stack, and stacks with only freed memory.
            ("heap_v2/1\n@\n  t*: 0: 0 [2: 33]\n", "[2, 33, 0, 0]  16"),
            (
                "heap_v2/1\n@ 0x11\nt*: 1: 16 [0: 0]\n@ 0x21\nt*: 0: 0 [2: 33]",
                "[0, 0, 1, 16] 10 16\n[2, 33, 0, 0] 20 16",
            ),
            ("heap_v2/1\n  t*: 0: 0 [0: 0]\n\nMAPPED_LIBRARIES:\n", ""),
        ];
        for (text, expected) in table {
            assert_eq!(samples(text), expected, "{text}");
        }
    }

    #[test]
    fn threads_as_they_are_counted() {
        let text =
            "heap_v2/1\n@ 0x11\n  t*: 3: 30 [9: 90]\n  t7: 1: 11 [0: 0]\n  t8: 1: 11 [9: 90]\n";
        let options = FormatReadOptions::default().threads_as_counted(true);
        let expected = "[0, 0, 1, 11] 10 7, 11\n[9, 90, 1, 11] 10 8, 11";
        assert_eq!(samples_with(text, &options), expected);
    }
}
