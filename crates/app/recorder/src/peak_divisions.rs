//! Keeps how the memory of each process of a recording was divided when it was largest. The kernel
//! says it while the process runs.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use heapprof_process::{
    MappingKind, MemoryBreakdown, MemoryTexts, ProcessIdentity, StatusCounters,
};
use heapprof_profile::{PeakPart, Profile, recording_texts};

/// The memory of a process is divided again if it has grown by more than one part in this number.
const GROWTH_DIVISOR: i64 = 50;
/// Maximum number of processes whose memory is divided: those with the most.
const MAX_PROCESSES: usize = 100;
/// Maximum size of the kernel's texts about a process that are kept, in bytes.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// Maximum number of named parts in a profile. The rest of a kind is one part without a name.
const MAX_NAMED_PARTS: usize = 30;

/// How the memory of each process was divided when it was largest, by the number of the process.
#[derive(Debug, Default)]
pub(crate) struct PeakDivisions {
    of_processes: HashMap<u32, LargestMoment>,
    /// The file that this process runs.
    own_program: Option<PathBuf>,
}

/// When the memory of a process is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadingTime {
    /// While the process runs: a small growth is not worth a reading.
    WhileRunning,
    /// Before the process ends, while it waits: this is the last reading.
    BeforeEnd,
}

/// The divisions that two threads read: the reader of resident memory, and the ledger keeper at the
/// end of each process.
#[derive(Clone, Debug)]
pub(crate) struct SharedPeakDivisions(Arc<Mutex<PeakDivisions>>);

impl SharedPeakDivisions {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(PeakDivisions::new())))
    }

    /// Reads how the memory of a process is divided, as [`PeakDivisions::read`] does.
    pub(crate) fn read(&self, pid: u32, resident: i64, reading: ReadingTime) {
        let mut divisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        divisions.read(pid, resident, reading);
    }

    /// Forgets what a process had before it became another program.
    pub(crate) fn forget(&self, pid: u32) {
        let mut divisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        divisions.of_processes.remove(&pid);
    }

    /// Takes what was read.
    pub(crate) fn take(&self) -> PeakDivisions {
        let mut divisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut divisions)
    }
}

/// The moment when a process was largest.
#[derive(Debug)]
struct LargestMoment {
    /// Resident bytes.
    resident: i64,
    /// Where the process's first stack begins, which an exec changes.
    stack: u64,
    /// The name of the process.
    name: String,
    memory: MomentMemory,
    /// The most bytes that the kernel ever counted as resident, as far as it was asked.
    high_water: u64,
}

/// The memory of a moment.
#[derive(Debug)]
enum MomentMemory {
    /// The kernel's texts. They are read into parts when the program has ended.
    Texts(Box<MemoryTexts>),
    /// The parts, of a process with many mappings: their texts would take more memory.
    Parts(Vec<PeakPart>),
}

impl MomentMemory {
    fn new(texts: MemoryTexts) -> Self {
        match texts.size() > MAX_TEXT_BYTES {
            true => Self::Parts(parts(&texts.divide())),
            false => Self::Texts(Box::new(texts)),
        }
    }

    fn parts(&self) -> Vec<PeakPart> {
        match self {
            Self::Texts(texts) => parts(&texts.divide()),
            Self::Parts(parts) => parts.clone(),
        }
    }
}

/// A process that left no profile, with its largest resident memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnprofiledPeak {
    /// The name of the process.
    pub name: String,
    /// Resident bytes.
    pub bytes: u64,
}

impl PeakDivisions {
    pub(crate) fn new() -> Self {
        Self {
            own_program: program_of(std::process::id()),
            ..Self::default()
        }
    }

    /// Reads how the memory of a process is divided, if it has more than at any earlier reading.
    /// `resident` is the number of its bytes now.
    fn read(&mut self, pid: u32, resident: i64, reading: ReadingTime) {
        let known = self.of_processes.get(&pid);
        let is_known_program = known.is_some_and(|known| {
            let identity = ProcessIdentity::from_pid(pid).ok();
            identity.is_some_and(|now| now.stack == known.stack)
        });
        let largest = known.map_or(0, |known| known.resident);
        let before = known.filter(|_| is_known_program);
        let before = before.map_or(0, |known| known.high_water);
        let is_new = known.is_none();
        let growth = match reading {
            ReadingTime::WhileRunning => largest / GROWTH_DIVISOR,
            ReadingTime::BeforeEnd => 0,
        };
        let has_grown = resident > largest.saturating_add(growth);
        let is_copy = || self.own_program.is_some() && program_of(pid) == self.own_program;
        // Before its exec, a child of this process is a copy of it.
        if is_known_program && !has_grown || is_copy() {
            if reading == ReadingTime::BeforeEnd {
                self.note_high_water(pid);
            }
            return;
        }
        if is_new && self.of_processes.len() >= MAX_PROCESSES {
            let all = self.of_processes.iter();
            let smallest = all.min_by_key(|(pid, of)| (of.resident, **pid));
            let smallest = smallest.map(|(pid, of)| (*pid, of.resident));
            match smallest.filter(|(_, bytes)| *bytes < resident) {
                Some((pid, _)) => self.of_processes.remove(&pid),
                None => return,
            };
        }
        if let Ok(texts) = MemoryTexts::read(pid) {
            let moment = LargestMoment {
                resident,
                high_water: texts.high_water().unwrap_or(0).max(before),
                stack: texts.identity().stack,
                name: texts.identity().name.clone(),
                memory: MomentMemory::new(texts),
            };
            self.of_processes.insert(pid, moment);
        }
    }

    /// Notes the most that the kernel has counted as resident memory of a known process.
    fn note_high_water(&mut self, pid: u32) {
        if let Some(known) = self.of_processes.get_mut(&pid) {
            let counters = StatusCounters::from_pid(pid).ok();
            let bytes = counters.and_then(|counters| counters.get("VmHWM"));
            known.high_water = bytes.unwrap_or(0).max(known.high_water);
        }
    }

    /// Adds the parts of a process's memory to its last profile, and the peak that the kernel
    /// counted if the profile knows less. Returns whether they were known.
    pub(crate) fn put_into(&self, profile: &mut Profile, pid: u32) -> bool {
        let Some(known) = self.of_processes.get(&pid) else {
            return false;
        };
        for part in known.memory.parts() {
            let comment = profile.strings.intern(&part.to_comment());
            profile.comment.push(comment);
        }
        raise_peak(profile, known.high_water);
        true
    }

    /// Returns the process with the most memory that has no profile.
    pub(crate) fn largest_without(
        &self,
        has_profile: impl Fn(u32) -> bool,
    ) -> Option<UnprofiledPeak> {
        let others = self
            .of_processes
            .iter()
            .filter(|(pid, _)| !has_profile(**pid));
        let largest = others.max_by_key(|(pid, of)| (of.resident, **pid));
        largest.map(|(_, of)| UnprofiledPeak {
            name: of.name.clone(),
            bytes: u64::try_from(of.resident).unwrap_or(0),
        })
    }
}

fn program_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Raises the peak in the comments of a profile to what the kernel counted. A profile that `record`
/// wrote has none if each reading was below the heap's peak.
fn raise_peak(profile: &mut Profile, bytes: u64) {
    let [_, text] = recording_texts::resident(0, bytes);
    let peak = |text: &str| recording_texts::parse_peak_resident(text);
    let known = profile.comment.iter().enumerate();
    let mut known = known.filter_map(|(at, &text)| Some((at, peak(profile.text(text))?)));
    match known.next() {
        Some((_, known)) if known >= bytes => {}
        Some((at, _)) => profile.comment[at] = profile.strings.intern(&text),
        None if bytes > 0 => {
            let text = profile.strings.intern(&text);
            profile.comment.push(text);
        }
        None => {}
    }
}

/// Returns the parts of a division, the largest named parts first, and then for each kind the sum
/// of its other mappings.
fn parts(division: &MemoryBreakdown) -> Vec<PeakPart> {
    let mut by_name: BTreeMap<(MappingKind, &str), PeakPart> = BTreeMap::new();
    let resident = division
        .regions
        .iter()
        .filter(|mapping| mapping.usage.rss > 0);
    for mapping in resident {
        let part = by_name.entry((mapping.kind, &mapping.name)).or_default();
        part.kind = mapping.kind.name().to_string();
        part.name.clone_from(&mapping.name);
        part.bytes += mapping.usage.rss;
        part.mappings += 1;
    }
    let (mut parts, mut rest): (Vec<PeakPart>, Vec<PeakPart>) = by_name
        .into_values()
        .partition(|part| !part.name.is_empty());
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    for left_out in parts.split_off(parts.len().min(MAX_NAMED_PARTS)) {
        match rest.iter_mut().find(|part| part.kind == left_out.kind) {
            Some(part) => {
                part.bytes += left_out.bytes;
                part.mappings += left_out.mappings;
            }
            None => rest.push(PeakPart {
                name: String::new(),
                ..left_out
            }),
        }
    }
    parts.extend(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_process_are_its_memory() {
        let mut divisions = PeakDivisions::default();
        let own = std::process::id();
        divisions.read(own, 1, ReadingTime::WhileRunning);
        let MomentMemory::Texts(texts) = &divisions.of_processes[&own].memory else {
            panic!("the texts of a small process are kept");
        };
        let division = texts.divide();
        let found = divisions.of_processes[&own].memory.parts();
        let sum: u64 = found.iter().map(|part| part.bytes).sum();
        assert_eq!(
            sum,
            division.regions.iter().map(|of| of.usage.rss).sum::<u64>()
        );
        let mut profile = Profile::default();
        assert!(divisions.put_into(&mut profile, own));
        assert!(!divisions.put_into(&mut profile, 0));
        let kernels_peak = |profile: &Profile| {
            let mut texts = profile.comment.iter().map(|&text| profile.text(text));
            texts.find_map(recording_texts::parse_peak_resident)
        };
        assert!(kernels_peak(&profile) > Some(1 << 20));
        // The kernel counted more than the profile knows.
        let mut profile = Profile::default();
        profile.comment = recording_texts::resident(1, 2)
            .map(|text| profile.strings.intern(&text))
            .to_vec();
        divisions.put_into(&mut profile, own);
        assert!(kernels_peak(&profile) > Some(1 << 20));
        assert!(divisions.largest_without(|_| false).is_some());
        assert_eq!(divisions.largest_without(|pid| pid == own), None);
    }

    #[test]
    fn copies_of_this_process_are_not_read() {
        let mut divisions = PeakDivisions::new();
        divisions.read(std::process::id(), 1, ReadingTime::BeforeEnd);
        assert!(divisions.of_processes.is_empty());
    }
}
