//! The instructions around the matching addresses, and the source lines to which each of them
//! belongs.

use std::collections::{BTreeMap, HashMap};

use heapprof_profile::{Line, StringId, StringTable};

use super::samples::SampledAddresses;
use crate::graph::{clean, sort_as_go, sum};
use crate::report::object::{InlinedFrame, Instruction, ObjectFile, ObjectTool};
use crate::report::options::PprofReportOptions;

/// Number of bytes before and after a matching address that are disassembled with it.
const EXPANSION: u64 = 500;
/// Maximum number of ranges of addresses that are disassembled.
const MAX_RANGES: usize = 25;
/// Number of instructions from which on no more ranges are disassembled, to bound the memory.
const MAX_INSTRUCTIONS: usize = 4_000_000;
/// Number of inlined calls from which on the callers of an instruction are left out.
const MAX_INLINED_DEPTH: usize = 256;
/// Number of inlined calls of all instructions together from which on calls are left out.
const MAX_INLINED_CALLS: usize = 1 << 20;
/// Maximum distance, in bytes, from which an instruction without a line takes over the line.
const NEIGHBOURHOOD: u64 = 32;

/// An instruction with its values.
pub(super) struct ListedInstruction {
    /// The address in the object file.
    pub(super) object_address: u64,
    /// The length in bytes.
    pub(super) length: u64,
    /// The text; empty if there is no object file.
    pub(super) text: String,
    /// The file of the innermost function.
    pub(super) file: StringId,
    /// The line in the innermost function.
    pub(super) line: i64,
    pub(super) flat: i64,
    pub(super) cum: i64,
}

/// An instruction below a source line.
pub(super) struct PlacedInstruction {
    pub(super) address: u64,
    /// The places in the functions that are inlined into the line, the outermost first.
    pub(super) inlined: Vec<InlinedPlace>,
}

/// A place in an inlined function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct InlinedPlace {
    pub(super) file: StringId,
    pub(super) line: i64,
}

/// The lines of a source file that have instructions.
#[derive(Default)]
pub(super) struct ListedFile {
    pub(super) lines: BTreeMap<i64, Vec<PlacedInstruction>>,
    /// The first function that was found at each line.
    pub(super) functions: BTreeMap<i64, StringId>,
}

/// All instructions, and the files and lines to which they belong.
#[derive(Default)]
pub(super) struct InstructionMap {
    instructions: BTreeMap<u64, ListedInstruction>,
    /// The files by name.
    pub(super) files: BTreeMap<String, ListedFile>,
    texts: StringTable,
    /// Number of inlined calls of all placed instructions.
    inlined_calls: usize,
    /// Whether inlined calls were left out.
    pub(super) is_cut: bool,
}

/// A range of addresses to disassemble.
struct AddressRange<'a> {
    begin: u64,
    end: u64,
    object: &'a dyn ObjectFile,
    file: &'a str,
    /// The sum of the flats in the range.
    flat: i64,
}

impl InstructionMap {
    /// Returns the instruction at an address.
    pub(super) fn instruction(&self, address: u64) -> Option<&ListedInstruction> {
        self.instructions.get(&address)
    }

    /// Returns the text of an id.
    pub(super) fn text(&self, id: StringId) -> &str {
        self.texts.get(id)
    }

    /// Adds the instructions around the addresses that are in object files. Of too many ranges,
    /// those with the greatest flats are taken.
    pub(super) fn add_disassembled(
        &mut self,
        samples: &SampledAddresses<'_>,
        options: &PprofReportOptions,
        tool: &dyn ObjectTool,
        note: &dyn Fn(&str),
    ) {
        let mut ranges = ranges(samples);
        sort_as_go(&mut ranges, |a, b| a.flat > b.flat);
        ranges.truncate(MAX_RANGES);
        for range in ranges {
            if self.instructions.len() > MAX_INSTRUCTIONS {
                note(&format!(
                    "the functions have more than {MAX_INSTRUCTIONS} instructions, heapprof's limit; \
                     some ranges of addresses are left out"
                ));
                break;
            }
            let convert = |what: &str, address: u64| {
                let converted = range.object.object_address(address);
                converted.map_err(|why| {
                    note(&format!(
                        "Failed to compute objdump address for range {what} {address:x}: {why}; as \
                         in pprof, its functions are left out, and -disasm shows them"
                    ));
                })
            };
            let Ok(begin) = convert("start", range.begin) else {
                continue;
            };
            let Ok(end) = convert("end", range.end) else {
                continue;
            };
            match tool.disassemble(range.file, begin..end, options.intel_syntax) {
                Ok(list) => {
                    let base = range.begin.wrapping_sub(begin);
                    self.add_range(samples, range.object, base, list);
                }
                Err(why) => note(&why),
            }
        }
    }

    /// Adds the instructions of a range. `base` is what its addresses in the profile are above
    /// those in the object file.
    fn add_range(
        &mut self,
        samples: &SampledAddresses<'_>,
        object: &dyn ObjectFile,
        base: u64,
        list: Vec<Instruction>,
    ) {
        let mut last: Option<(u64, Vec<InlinedFrame>)> = None;
        let mut highest = 0;
        let mut list = list.into_iter().peekable();
        while let Some(instruction) = list.next() {
            let address = instruction.address.wrapping_add(base);
            // objdump may show an instruction twice.
            if address <= highest {
                continue;
            }
            highest = address;
            let next = list.peek().map_or(0, |next| next.address);
            let length = match next > instruction.address {
                true => next - instruction.address,
                false => 1,
            };
            let mut frames = object.frames(address).unwrap_or_else(|_| {
                vec![InlinedFrame {
                    function: instruction.function.to_string(),
                    file: instruction.file.to_string(),
                    line: instruction.line,
                }]
            });
            let innermost = frames.first();
            let listed = ListedInstruction {
                object_address: instruction.address,
                length,
                text: instruction.text,
                file: self.texts.intern(innermost.map_or("", |f| f.file.as_str())),
                line: innermost.map_or(0, |f| f.line),
                flat: 0,
                cum: 0,
            };
            self.instructions.insert(address, listed);
            if frames.first().is_some_and(|f| f.line != 0) {
                self.place(address, &frames, samples);
                last = Some((address, frames));
                continue;
            }
            if let Some((at, known)) = &last
                && address.wrapping_sub(*at) <= NEIGHBOURHOOD
            {
                frames.clone_from(known);
            }
            self.place(address, &frames, samples);
        }
    }

    /// Adds the addresses that are in no object file, as instructions without text.
    pub(super) fn add_unmapped(&mut self, samples: &SampledAddresses<'_>) {
        let profile = samples.profile;
        for (&address, matched) in &samples.matched {
            if matched.object.is_some() {
                continue;
            }
            let lines = profile.lines(&profile.location[matched.location.index()]);
            let frame = |line: &Line| {
                let function = &profile.function[line.function.index()];
                InlinedFrame {
                    function: profile.text(function.name).to_string(),
                    file: profile.text(function.filename).to_string(),
                    line: line.line,
                }
            };
            let frames: Vec<InlinedFrame> = lines.iter().map(frame).collect();
            let innermost = frames.first();
            let listed = ListedInstruction {
                object_address: address,
                length: 1,
                text: String::new(),
                file: self.texts.intern(innermost.map_or("", |f| f.file.as_str())),
                line: innermost.map_or(0, |f| f.line),
                flat: 0,
                cum: 0,
            };
            self.instructions.insert(address, listed);
            self.place(address, &frames, samples);
        }
    }

    /// Places an instruction below the line of each of its functions that matches.
    fn place(&mut self, address: u64, frames: &[InlinedFrame], samples: &SampledAddresses<'_>) {
        for (depth, frame) in frames.iter().enumerate() {
            if !samples.is_wanted(&frame.function) {
                continue;
            }
            if depth > MAX_INLINED_DEPTH || self.inlined_calls + depth > MAX_INLINED_CALLS {
                self.is_cut = true;
                break;
            }
            self.inlined_calls += depth;
            let inlined = frames.get(..depth).unwrap_or_default().iter().rev();
            let inlined = inlined.map(|frame| InlinedPlace {
                file: self.texts.intern(&frame.file),
                line: frame.line,
            });
            let inlined = inlined.collect();
            let function = self.texts.intern(&frame.function);
            let file = self.files.entry(file_name(&frame.file)).or_default();
            file.functions.entry(frame.line).or_insert(function);
            let placed = PlacedInstruction { address, inlined };
            file.lines.entry(frame.line).or_default().push(placed);
        }
    }

    /// Adds the values of the samples. A sample in the middle of an instruction belongs to that
    /// instruction.
    pub(super) fn add_values(&mut self, samples: &SampledAddresses<'_>) {
        for (&address, instruction) in &mut self.instructions {
            let end = address.wrapping_add(instruction.length);
            let in_range = |values: &BTreeMap<u64, i64>| match address < end {
                true => sum(values.range(address..end).map(|(_, &value)| value)),
                false => 0,
            };
            instruction.flat = in_range(&samples.flat);
            instruction.cum = in_range(&samples.cum);
        }
    }
}

/// Returns the ranges of addresses to disassemble, in ascending order. Addresses near each other
/// are in one range.
fn ranges<'a>(samples: &'a SampledAddresses<'_>) -> Vec<AddressRange<'a>> {
    let profile = samples.profile;
    let objects: HashMap<u64, usize> = samples
        .matched
        .iter()
        .filter_map(|(&address, matched)| Some((address, matched.object?)))
        .collect();
    let mut addresses: Vec<u64> = objects.keys().copied().collect();
    addresses.sort_unstable();
    let flat = |address: u64| samples.flat.get(&address).copied().unwrap_or(0);
    let mut ranges = Vec::new();
    let mut addresses = addresses.into_iter().peekable();
    while let Some(first) = addresses.next() {
        let location = samples.matched.get(&first).map(|m| m.location);
        let mapping = location.and_then(|l| profile.location[l.index()].mapping);
        let object = objects.get(&first).and_then(|&at| samples.objects.get(at));
        let (Some(mapping), Some(object)) = (mapping, object) else {
            continue;
        };
        let mapping = &profile.mapping[mapping.index()];
        let (mut begin, mut end) = (first, first);
        let mut sum = flat(first);
        let is_near = |next: u64, end: u64| {
            next <= end.wrapping_add(2 * EXPANSION) && next < mapping.memory_limit
        };
        while let Some(next) = addresses.next_if(|&next| is_near(next, end)) {
            end = next;
            sum = sum.wrapping_add(flat(end));
        }
        // This subtraction wraps in pprof, too, so a range may begin before its mapping.
        begin = match mapping.memory_start.wrapping_sub(begin) >= EXPANSION {
            true => begin.wrapping_sub(EXPANSION),
            false => mapping.memory_start,
        };
        end = match mapping.memory_limit.wrapping_sub(end) >= EXPANSION {
            true => end.wrapping_add(EXPANSION),
            false => mapping.memory_limit,
        };
        ranges.push(AddressRange {
            begin,
            end,
            object: object.as_ref(),
            file: profile.text(mapping.filename),
            flat: sum,
        });
    }
    ranges
}

/// Returns the name under which a source file is listed.
fn file_name(file: &str) -> String {
    let file = file.strip_prefix("/proc/self/cwd/").unwrap_or(file);
    clean(file.strip_prefix("./").unwrap_or(file)).into_owned()
}
