//! The addresses of samples: their values, and which of them belong to matching functions.

use std::collections::{BTreeMap, HashMap, HashSet};

use heapprof_profile::{Line, LocationIndex, MappingIndex, Profile, StringId};

use crate::graph::mean;
use crate::report::object::{ObjectFile, ObjectMapping, ObjectTool, parse_address};
use crate::report::options::PprofReportOptions;

/// An address of a matching function.
#[derive(Clone, Copy)]
pub(super) struct MatchedAddress {
    pub(super) location: LocationIndex,
    /// Index of the object file in [`SampledAddresses::objects`]; `None` if there is none.
    pub(super) object: Option<usize>,
}

/// The addresses of all samples. A location without an address has one beyond all mappings.
pub(super) struct SampledAddresses<'a> {
    pub(super) profile: &'a Profile,
    pub(super) flat: BTreeMap<u64, i64>,
    /// A recursive function counts several times in a sample, as in pprof.
    pub(super) cum: BTreeMap<u64, i64>,
    pub(super) matched: BTreeMap<u64, MatchedAddress>,
    pub(super) objects: Vec<Box<dyn ObjectFile>>,
    /// Source names and linker names of the matching functions.
    names: HashSet<&'a str>,
    /// The source name of each linker name.
    source_names: HashMap<&'a str, &'a str>,
    opened: HashMap<StringId, Option<usize>>,
}

impl<'a> SampledAddresses<'a> {
    pub(super) fn new(
        profile: &'a Profile,
        options: &PprofReportOptions,
        tool: &dyn ObjectTool,
        note: &dyn Fn(&str),
    ) -> Self {
        let mut samples = Self {
            profile,
            flat: BTreeMap::new(),
            cum: BTreeMap::new(),
            matched: BTreeMap::new(),
            objects: Vec::new(),
            names: HashSet::new(),
            source_names: HashMap::new(),
            opened: HashMap::new(),
        };
        let wanted = WantedLines::new(profile, options);
        let mut synthetic = SyntheticAddresses::new(profile);
        for i in 0..profile.samples.len() {
            let values = profile.samples.values(i);
            let divisor = options.mean_divisor.and_then(|d| values.get(d));
            let value = values.get(options.column).copied().unwrap_or(0);
            let value = mean(value, divisor.copied().unwrap_or(0));
            for (depth, &at) in profile.samples.stack(i).iter().enumerate().rev() {
                let location = &profile.location[at.index()];
                let lines = profile.lines(location);
                for line in lines {
                    let function = &profile.function[line.function.index()];
                    let [linker, source] =
                        [function.system_name, function.name].map(|text| profile.text(text));
                    samples.source_names.insert(linker, source);
                }
                let address = match location.address {
                    0 => synthetic.address(at),
                    address => address,
                };
                add(&mut samples.cum, address, value);
                if depth == 0 {
                    add(&mut samples.flat, address, value);
                }
                if wanted.address == Some(address) {
                    // The function that contains the address, without the inlined ones.
                    if let Some(line) = lines.last() {
                        samples.mark(address, at, line, tool, note);
                    }
                    continue;
                }
                let is_wanted_file = location.mapping.is_some_and(|m| wanted.mapping[m.index()]);
                for (depth, line) in lines.iter().enumerate() {
                    let is_wanted = wanted.function[line.function.index()];
                    if is_wanted || depth == 0 && is_wanted_file {
                        samples.mark(address, at, line, tool, note);
                    }
                }
            }
        }
        samples
    }

    /// Marks the function of a line as matching, and the address as one of it.
    fn mark(
        &mut self,
        address: u64,
        at: LocationIndex,
        line: &Line,
        tool: &dyn ObjectTool,
        note: &dyn Fn(&str),
    ) {
        let profile = self.profile;
        let function = &profile.function[line.function.index()];
        self.names.insert(profile.text(function.name));
        self.names.insert(profile.text(function.system_name));
        if self.matched.contains_key(&address) {
            return;
        }
        let mapping = profile.location[at.index()].mapping;
        let object = mapping.and_then(|mapping| self.open(mapping, tool, note));
        let matched = MatchedAddress {
            location: at,
            object,
        };
        self.matched.insert(address, matched);
    }

    /// Returns the index of a mapping's object file, which is opened if it is new. As in pprof, all
    /// mappings with the same file name share the file, which knows only the first mapping.
    fn open(
        &mut self,
        mapping: MappingIndex,
        tool: &dyn ObjectTool,
        note: &dyn Fn(&str),
    ) -> Option<usize> {
        let mapping = &self.profile.mapping[mapping.index()];
        if let Some(known) = self.opened.get(&mapping.filename) {
            return *known;
        }
        let place = ObjectMapping {
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            offset: mapping.file_offset,
        };
        let object = match tool.open(self.profile.text(mapping.filename), place) {
            Ok(object) => {
                self.objects.push(object);
                Some(self.objects.len() - 1)
            }
            Err(why) => {
                note(&why);
                None
            }
        };
        self.opened.insert(mapping.filename, object);
        object
    }

    /// Whether any function matches.
    pub(super) fn is_matched(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether a function of this name matches.
    pub(super) fn is_wanted(&self, function: &str) -> bool {
        self.names.contains(function)
    }

    /// Returns the source name for a linker name. Other names stay as they are.
    pub(super) fn source_name<'n>(&self, name: &'n str) -> &'n str
    where
        'a: 'n,
    {
        self.source_names.get(name).copied().unwrap_or(name)
    }
}

fn add(sums: &mut BTreeMap<u64, i64>, address: u64, value: i64) {
    let sum = sums.entry(address).or_default();
    *sum = sum.wrapping_add(value);
}

/// What the regular expression selects.
struct WantedLines {
    /// For each function, whether its name, its linker name or its file matches.
    function: Vec<bool>,
    /// For each mapping, whether its file matches.
    mapping: Vec<bool>,
    /// The address, if the expression is one.
    address: Option<u64>,
}

impl WantedLines {
    fn new(profile: &Profile, options: &PprofReportOptions) -> Self {
        let Some(symbol) = &options.symbol else {
            return Self {
                function: vec![false; profile.function.len()],
                mapping: vec![false; profile.mapping.len()],
                address: None,
            };
        };
        let matches = |text: StringId| symbol.is_match(profile.text(text));
        let functions = profile.function.iter();
        let mappings = profile.mapping.iter();
        Self {
            function: functions
                .map(|f| matches(f.name) || matches(f.system_name) || matches(f.filename))
                .collect(),
            mapping: mappings.map(|m| matches(m.filename)).collect(),
            address: parse_address(&symbol.to_string()),
        }
    }
}

/// Addresses for locations that have none.
struct SyntheticAddresses {
    next: u64,
    known: HashMap<LocationIndex, u64>,
}

impl SyntheticAddresses {
    fn new(profile: &Profile) -> Self {
        let limits = profile.mapping.iter().map(|m| m.memory_limit);
        Self {
            next: limits.max().unwrap_or(0).max(1),
            known: HashMap::new(),
        }
    }

    fn address(&mut self, location: LocationIndex) -> u64 {
        *self.known.entry(location).or_insert_with(|| {
            let address = self.next;
            self.next = self.next.wrapping_add(1);
            address
        })
    }
}
