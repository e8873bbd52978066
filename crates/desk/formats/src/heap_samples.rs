//! Reads a `heap profile:` header and the values in the lines below it. The header determines the
//! rule by which real values are estimated from sampled ones.

use std::borrow::Cow;

use heapprof_profile::{Label, Profile, ProfileBuilder, StringId};

use crate::error::{FormatError, shortened};
use crate::figures::value;
use crate::heap_line::{HeapHeaderLine, HeapSampleLine, HexAddresses};
use crate::lines::LineReader;
use crate::reading::FormatReadOptions;
use crate::sampling::{InUseValues, Unsampler};

/// Description of a valid first line, for errors.
pub(crate) const EXPECTED_HEADER: &str = "`heap profile: N: BYTES [N: BYTES] @ KIND`";
const EXPECTED_KINDS: &str = "heapprofile, heap_v2/PERIOD, heapz_v2/PERIOD, heap/PERIOD, growth or \
                     fragmentation after the @";
const EXPECTED_SAMPLE: &str = "`N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:";

/// Facts about the samples of a heap profile, from the header of the profile.
#[derive(Clone, Debug)]
pub(crate) struct HeapProfileKind {
    /// The name of the kind, e.g. `heap_v2`.
    pub(crate) name: String,
    /// Number of bytes between two samples. It is 1 if nothing is sampled, and 0 if the header does
    /// not give it.
    pub(crate) period: i64,
    is_sampled: bool,
    /// Whether comments that heapprof wrote into the file are read. pprof does not read them.
    reads_notes: bool,
    /// Whether allocations are counted separately from memory in use.
    has_allocations: bool,
    /// Unsamplers of the values in use and of the values allocated.
    unsamplers: [Unsampler; 2],
}

impl HeapProfileKind {
    /// Reads the header on the current line.
    pub(crate) fn from_header(
        lines: &LineReader<'_>,
        options: &FormatReadOptions,
    ) -> Result<Self, FormatError> {
        let header =
            HeapHeaderLine::find(lines.line()).ok_or_else(|| lines.wrong(EXPECTED_HEADER))?;
        let (name, digits) = header.name_and_period();
        let is_sampled = match name {
            b"heap_v2" | b"heapz_v2" | b"heap" => true,
            b"heapprofile" | b"growth" | b"growthz" | b"fragmentation" | b"fragmentationz" => false,
            _ => return Err(lines.wrong(EXPECTED_KINDS)),
        };
        let mut period = match digits {
            _ if !is_sampled => 1,
            b"" => 0,
            _ => value(digits).ok_or_else(|| {
                lines.wrong_part("a sampling period below 2^63", shortened(digits))
            })?,
        };
        // Go writes twice its rate.
        let is_go = name == b"heap";
        if is_go {
            period /= 2;
        }
        // Go itself truncates fractions in the profiles that it writes as protobuf.
        let unsampler = Unsampler::new(period, options.as_pprof || is_go);
        Ok(Self {
            unsamplers: [unsampler.clone(), unsampler],
            period,
            is_sampled,
            reads_notes: !options.as_pprof,
            has_allocations: name.starts_with(b"heap") && header.has_allocations(),
            name: String::from_utf8_lossy(name).into_owned(),
        })
    }

    /// Reads a comment. In heapprof's own files, a comment may state that the values are estimates,
    /// and give the sampling period.
    pub(crate) fn note(&mut self, line: &[u8], profile: &mut Profile) {
        let period = line
            .strip_prefix(b"# sampled, one in ")
            .and_then(|rest| rest.strip_suffix(b" bytes; values are estimates"))
            .and_then(value);
        if let Some(period) = period.filter(|_| self.reads_notes && self.name == "heapprofile") {
            self.period = period;
            profile.period = period;
        }
    }

    /// Returns a description, for people, of how the values are unsampled.
    pub(crate) fn rule(&self) -> Cow<'static, str> {
        match (&self.name[..], self.is_sampled, self.period) {
            ("heapprofile", _, 2..) => "none, the values are estimates already".into(),
            ("heapprofile", ..) => "none, every allocation was counted".into(),
            (_, false, _) => "none, nothing was sampled".into(),
            (name, _, 0) => format!("none, {name} does not say its period").into(),
            (name, _, 1) => format!("none, {name} with a period of 1 samples everything").into(),
            (name, _, period) => format!(
                "{name}, count and bytes divided by 1 - exp(-mean size/{period}), in use and \
                 allocated each with its own mean"
            )
            .into(),
        }
    }

    /// Makes an empty profile with the sample types of this kind.
    pub(crate) fn profile(&self) -> Profile {
        let types: &[(&str, &str)] = match self.has_allocations {
            true => &[
                ("alloc_objects", "count"),
                ("alloc_space", "bytes"),
                ("inuse_objects", "count"),
                ("inuse_space", "bytes"),
            ],
            false => &[("objects", "count"), ("space", "bytes")],
        };
        let mut builder = ProfileBuilder::new(types);
        builder.profile.period_type = Some(builder.value_type("space", "bytes"));
        builder.profile.period = self.period;
        builder.finish()
    }

    /// Reads the sample on the current line. Returns its addresses, and puts one value for each of
    /// the profile's types into `values`.
    pub(crate) fn sample<'a>(
        &mut self,
        lines: &'a LineReader<'_>,
        values: &mut Vec<i64>,
    ) -> Result<HeapSampleStack<'a>, FormatError> {
        let line = lines.trimmed();
        let sample = HeapSampleLine::find(line).ok_or_else(|| lines.wrong(EXPECTED_SAMPLE))?;
        values.clear();
        let mut mean_size = None;
        let mut found = [(0, 0); 2];
        let mut in_use = None;
        let [count, bytes, all_count, all_bytes] = sample.values;
        let pairs = [[count, bytes], [all_count, all_bytes]].into_iter();
        let pairs = pairs.take(1 + usize::from(self.has_allocations));
        for (pair, [count, bytes]) in pairs.enumerate() {
            let number = |digits| {
                value(digits)
                    .ok_or_else(|| lines.wrong_part("a number of 64 bits", shortened(digits)))
            };
            let (count, bytes) = (number(count)?, number(bytes)?);
            if count == 0 && bytes != 0 {
                return Err(lines.wrong_part("0 bytes in 0 objects", format!("{bytes} bytes")));
            }
            // The mean size is the mean of the objects in use, if there are any.
            if count != 0 {
                mean_size.get_or_insert(bytes.wrapping_div(count));
            }
            found[pair] = (count, bytes);
            if self.is_sampled {
                let unsampler = &mut self.unsamplers[pair];
                let values = unsampler.next_beside(count, bytes, in_use.as_ref());
                found[pair] = values.ok_or_else(|| {
                    let found = format!("{bytes} bytes in {count} objects");
                    let period = self.period;
                    lines.wrong_part(
                        format!(
                            "values that fit in 64 bits when scaled up from one sample every \
                                 {period} bytes"
                        ),
                        found,
                    )
                })?;
            }
            in_use = Some(InUseValues {
                sampled: (count, bytes),
                objects: found[pair].0,
            });
        }
        if self.has_allocations {
            values.extend([found[1].0, found[1].1]);
        }
        values.extend([found[0].0, found[0].1]);
        Ok(HeapSampleStack {
            mean_size: mean_size.unwrap_or(0),
            addresses: HexAddresses(sample.stack),
        })
    }
}

/// Content of a sample line other than its values.
pub(crate) struct HeapSampleStack<'a> {
    /// The mean size of an object in bytes, from the values before unsampling.
    pub(crate) mean_size: i64,
    /// Return addresses, leaf first.
    pub(crate) addresses: HexAddresses<'a>,
}

impl HeapSampleStack<'_> {
    /// Turns the return addresses into addresses inside the calls.
    pub(crate) fn calls(
        self,
        lines: &LineReader<'_>,
        calls: &mut Vec<u64>,
    ) -> Result<(), FormatError> {
        calls.clear();
        push_calls(self.addresses, lines, calls)
    }
}

/// Appends the addresses inside the calls that return to these addresses. `lines` is at the line
/// with the addresses.
pub(crate) fn push_calls(
    addresses: HexAddresses<'_>,
    lines: &LineReader<'_>,
    calls: &mut Vec<u64>,
) -> Result<(), FormatError> {
    for address in addresses {
        let address =
            address.map_err(|text| lines.wrong_part("an address of 64 bits", shortened(text)))?;
        calls.push(address.wrapping_sub(1));
    }
    Ok(())
}

/// Makes the label `bytes: size`, without a unit, as pprof and Go write it.
pub(crate) fn size_label(profile: &mut Profile, size: i64) -> Label {
    Label {
        key: profile.strings.intern("bytes"),
        str: StringId::EMPTY,
        num: size,
        num_unit: StringId::EMPTY,
    }
}
