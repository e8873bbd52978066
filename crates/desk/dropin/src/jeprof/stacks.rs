//! Prepares stacks as jeprof does before it adds them up: removes allocator frames, applies filters
//! and renames frames so that each report row has one name.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use heapprof_profile::{
    Function, FunctionIndex, Label, LabelSetIndex, LabelSets, Line, Location, LocationIndex,
    Profile, Samples, StringId,
};
use heapprof_totals::pattern::regex_error;
use regex::Regex;

use super::names;
use super::options::JeprofArguments;
use super::reading::{NO_FILE, UNKNOWN_FILE};

/// Functions of allocators. They and all functions that they call are hidden.
const ALLOCATOR_FUNCTIONS: [&str; 55] = [
    "calloc",
    "cfree",
    "malloc",
    "newImpl",
    "void* newImpl",
    "free",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "pvalloc",
    "valloc",
    "realloc",
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
    "sdallocx_noflags",
    "tc_calloc",
    "tc_cfree",
    "tc_malloc",
    "tc_free",
    "tc_memalign",
    "tc_posix_memalign",
    "tc_pvalloc",
    "tc_valloc",
    "tc_realloc",
    "tc_new",
    "tc_delete",
    "tc_newarray",
    "tc_deletearray",
    "tc_new_nothrow",
    "tc_newarray_nothrow",
    "do_malloc",
    "::do_malloc",
    "::do_malloc_or_cpp_alloc",
    "DoSampledAllocation",
    "simple_alloc::allocate",
    "__malloc_alloc_template::allocate",
    "__builtin_delete",
    "__builtin_new",
    "__builtin_vec_delete",
    "__builtin_vec_new",
    "operator new",
    "operator new[]",
    "malloc_zone_malloc",
    "malloc_zone_calloc",
    "malloc_zone_valloc",
    "malloc_zone_realloc",
    "malloc_zone_memalign",
    "malloc_zone_free",
    "__start_google_malloc",
    "__stop_google_malloc",
    "__start_malloc_hook",
    "__stop_malloc_hook",
];

fn is_allocator(name: &str) -> bool {
    let listed = |name: &str| ALLOCATOR_FUNCTIONS.contains(&name);
    listed(name)
        || name.strip_prefix('_').is_some_and(listed)
        || name.contains("TCMalloc")
        || name.starts_with("tcmalloc::")
}

/// Key of the label for a sample's thread.
const THREAD_LABEL: &str = "thread";

/// Returns jeprof's name of a thread: its number, without the thread's own name, which jemalloc
/// writes after the number. A text that does not begin with a number is returned as it is.
pub(super) fn thread_number(thread: &str) -> &str {
    let first = thread.split(' ').next().unwrap_or_default();
    match !first.is_empty() && first.bytes().all(|b| b.is_ascii_digit()) {
        true => first,
        false => thread,
    }
}

fn thread_name(profile: &Profile, set: LabelSetIndex) -> Option<String> {
    let mut labels = profile.label_sets.get(set).iter();
    let label = labels.find(|l| profile.text(l.key) == THREAD_LABEL)?;
    Some(match label.str.is_empty() {
        true => label.num.to_string(),
        false => thread_number(profile.text(label.str)).to_string(),
    })
}

/// A profile that is being prepared for jeprof's rows.
pub(super) struct JeprofStacks {
    pub(super) profile: Profile,
    /// The shortened name of each function, for rows and filters.
    short: Vec<String>,
}

impl JeprofStacks {
    pub(super) fn new(profile: Profile) -> Result<Self> {
        let functions = profile.function.iter();
        let short = names::shorten_names(functions.map(|f| profile.text(f.name)))?;
        Ok(Self { profile, short })
    }

    /// Removes the labels of all samples.
    pub(super) fn remove_labels(&mut self) {
        self.profile.label_sets = LabelSets::default();
        self.profile.samples.relabel(|_| LabelSetIndex(0));
    }

    /// Keeps only the samples of one thread, or of all threads with `*`, and returns the sorted
    /// names of these threads. A sample's label set then gives the position of its thread among the
    /// names.
    pub(super) fn threads(&mut self, wanted: &str) -> Vec<String> {
        let profile = &mut self.profile;
        let sets = 0..profile.label_sets.len() as u32;
        let of_set: Vec<Option<String>> = sets
            .map(|set| thread_name(profile, LabelSetIndex(set)))
            .map(|of| of.filter(|thread| wanted == "*" || thread == thread_number(wanted)))
            .collect();
        let mut has_samples = vec![false; of_set.len()];
        profile.samples.rewrite(|stack, _, set, kept| {
            has_samples[set.index()] = true;
            kept.extend_from_slice(stack);
            of_set[set.index()].is_some()
        });
        let met = of_set.iter().zip(has_samples);
        let met = met.filter_map(|(of, has)| of.as_ref().filter(|_| has));
        let mut threads: Vec<String> = met.cloned().collect();
        threads.sort_by_cached_key(|t| (t.parse::<u64>().unwrap_or(u64::MAX), t.clone()));
        threads.dedup();
        let place: HashMap<&String, usize> = threads.iter().zip(0..).collect();
        let place: Vec<usize> = of_set
            .iter()
            .map(|of| of.as_ref().and_then(|of| place.get(of).copied()))
            .map(Option::unwrap_or_default)
            .collect();
        let key = profile.strings.intern(THREAD_LABEL);
        profile.label_sets = LabelSets::default();
        let set: Vec<LabelSetIndex> = threads
            .iter()
            .map(|thread| {
                let str = profile.strings.intern(thread);
                let label = Label {
                    key,
                    str,
                    num: 0,
                    num_unit: StringId::EMPTY,
                };
                profile.label_sets.intern(&mut [label], &profile.strings)
            })
            .collect();
        profile.samples.relabel(|old| set[place[old.index()]]);
        threads
    }

    /// Adds up samples with equal stacks, as jeprof's table does. Otherwise a stack whose samples
    /// had different labels could be positive in one sample and negative in another.
    pub(super) fn merge_equal(&mut self) -> Result<()> {
        let samples = std::mem::take(&mut self.profile.samples);
        let mut place: HashMap<(&[LocationIndex], LabelSetIndex), usize> = HashMap::new();
        let mut sums: Vec<(usize, Vec<i64>)> = Vec::new();
        for i in 0..samples.len() {
            let at = *place
                .entry((samples.stack(i), samples.label_set(i)))
                .or_insert(sums.len());
            let Some((_, sum)) = sums.get_mut(at) else {
                sums.push((i, samples.values(i).to_vec()));
                continue;
            };
            for (sum, &value) in sum.iter_mut().zip(samples.values(i)) {
                *sum = sum.checked_add(value).ok_or_else(|| {
                    anyhow!("the values of a stack add up to more than a 64-bit number holds")
                })?;
            }
        }
        let mut united = Samples::new(self.profile.sample_type.len());
        for (i, sum) in sums {
            united.push(samples.stack(i).iter().copied(), &sum, samples.label_set(i));
        }
        self.profile.samples = united;
        Ok(())
    }

    /// Replaces values below 0 by 0.
    pub(super) fn drop_negative(&mut self) {
        self.profile.samples.change_values(|_, value| value.max(0));
    }

    /// Returns the signed sums of a sample type, one for each thread if threads are reported
    /// separately.
    pub(super) fn sums(&self, column: usize, threads: usize) -> Vec<i128> {
        let samples = &self.profile.samples;
        let mut sums = vec![0; threads];
        for i in 0..samples.len() {
            sums[thread_place(samples.label_set(i))] += i128::from(samples.values(i)[column]);
        }
        sums
    }

    /// Removes the allocator function that is nearest to the root, and all functions that it
    /// called, from each stack.
    pub(super) fn cut_allocator(&mut self) {
        let of_allocator: Vec<bool> = self
            .profile
            .location
            .iter()
            .map(|location| self.outermost(location).is_some_and(is_allocator))
            .collect();
        self.profile.samples.rewrite(|stack, _, _, kept| {
            let cut = stack.iter().rposition(|l| of_allocator[l.index()]);
            kept.extend_from_slice(&stack[cut.map_or(0, |at| at + 1)..]);
            true
        });
    }

    /// Returns the name of the function that contains a location, even if other functions were
    /// inlined there.
    fn outermost(&self, location: &Location) -> Option<&str> {
        let line = self.profile.lines(location).last()?;
        Some(self.name(line)).filter(|name| !name.is_empty())
    }

    fn name(&self, line: &Line) -> &str {
        &self.short[line.function.index()]
    }

    /// Returns the source file and line number of a line as addr2line writes them.
    fn place(&self, line: &Line) -> String {
        let function = &self.profile.function[line.function.index()];
        match (self.profile.text(function.filename), line.line) {
            ("", _) => "??:?".to_string(),
            (UNKNOWN_FILE, _) => "??:0".to_string(),
            (NO_FILE, _) => NO_FILE.to_string(),
            (file, 0) => format!("{file}:?"),
            (file, line) => format!("{file}:{line}"),
        }
    }

    fn address(location: &Location) -> String {
        format!("{:016x}", location.address)
    }

    /// Applies the filters focus, ignore, retain and exclude.
    pub(super) fn filter(&mut self, typed: &JeprofArguments) -> Result<()> {
        let regex = |name: &str| -> Result<Option<Regex>> {
            let text = typed.text(name);
            if text.is_empty() {
                return Ok(None);
            }
            let regex = Regex::new(text);
            regex
                .map(Some)
                .map_err(|e| anyhow!("--{name} {text:?}: {}", regex_error(&e)))
        };
        let (focus, ignore) = (regex("focus")?, regex("ignore")?);
        let (retain, exclude) = (regex("retain")?, regex("exclude")?);
        let any = |regex: &Regex| -> Vec<bool> {
            let matches = |location: &Location| {
                let lines = self.profile.lines(location).iter();
                regex.is_match(&Self::address(location))
                    || lines
                        .into_iter()
                        .any(|l| regex.is_match(self.name(l)) || regex.is_match(&self.place(l)))
            };
            self.profile.location.iter().map(matches).collect()
        };
        let own = |regex: &Regex| -> Vec<bool> {
            let matches = |location: &Location| match self.outermost(location) {
                Some(name) => regex.is_match(name),
                None => regex.is_match(&Self::address(location)),
            };
            self.profile.location.iter().map(matches).collect()
        };
        let (retain, exclude) = (retain.as_ref().map(own), exclude.as_ref().map(own));
        let (focus, ignore) = (focus.as_ref().map(any), ignore.as_ref().map(any));
        self.profile.samples.rewrite(|stack, _, _, kept| {
            let begin = kept.len();
            kept.extend(stack.iter().filter(|l| {
                retain.as_ref().is_none_or(|m| m[l.index()])
                    && !exclude.as_ref().is_some_and(|m| m[l.index()])
            }));
            let stack = &kept[begin..];
            let has = |matches: &Vec<bool>| stack.iter().any(|l| matches[l.index()]);
            (retain.is_none() && exclude.is_none() || !stack.is_empty())
                && focus.as_ref().is_none_or(has)
                && !ignore.as_ref().is_some_and(has)
        });
        Ok(())
    }

    /// Returns a profile with one function for each row of the report. The function's name is the
    /// text to print. Its linker name identifies the row, and rows are sorted by it.
    pub(super) fn into_row_profile(mut self, typed: &JeprofArguments) -> Profile {
        let rows: Vec<Vec<JeprofRow>> = (self.profile.location.iter())
            .map(|location| self.rows(location, typed))
            .collect();
        let profile = &mut self.profile;
        profile.function.clear();
        profile.line.clear();
        let mut known = HashMap::new();
        for (location, rows) in profile.location.iter_mut().zip(rows) {
            location.address = 0;
            location.mapping = None;
            let start = profile.line.len() as u32;
            for JeprofRow { key, shown } in rows {
                let key = profile.strings.intern(&key);
                let name = shown.map_or(key, |shown| profile.strings.intern(&shown));
                let table = &mut profile.function;
                let function = *known.entry(key).or_insert_with(|| {
                    table.push(Function {
                        id: table.len() as u64 + 1,
                        name,
                        system_name: key,
                        filename: StringId::EMPTY,
                        start_line: 0,
                    });
                    FunctionIndex(table.len() as u32 - 1)
                });
                profile.line.push(Line {
                    function,
                    line: 0,
                    column: 0,
                });
            }
            location.line = start..profile.line.len() as u32;
        }
        // A location without a row is left out of stacks.
        let empty: Vec<bool> = profile.location.iter().map(|l| l.line.is_empty()).collect();
        if empty.contains(&true) {
            profile.samples.rewrite(|stack, _, _, kept| {
                kept.extend(stack.iter().filter(|&&LocationIndex(l)| !empty[l as usize]));
                true
            });
        }
        self.profile
    }

    /// Returns the report rows that count the values of a location, beginning with the innermost
    /// function.
    fn rows(&self, location: &Location, typed: &JeprofArguments) -> Vec<JeprofRow> {
        // Addresses in the upper half, which belongs to the kernel, come from damaged stacks.
        if location.address > i64::MAX as u64 {
            return Vec::new();
        }
        let address = Self::address(location);
        let lines = self.profile.lines(location);
        if lines.is_empty() {
            // Name and place are both unknown, so a text made of them ends in a blank.
            return vec![JeprofRow::new(if typed.is_on("addresses") {
                format!("{address} {address} ")
            } else if typed.is_on("lines") {
                format!("{address} ")
            } else {
                address
            })];
        }
        let of_line = |(i, line): (usize, &Line)| {
            let (name, place) = (self.name(line), self.place(line));
            let inline = if i + 1 < lines.len() { " (inline)" } else { "" };
            let named = match name {
                "" => "??".to_string(),
                name => format!("{name}{inline}"),
            };
            if typed.is_on("addresses") {
                return JeprofRow::new(format!("{address} {named} {place}"));
            }
            if typed.is_on("lines") {
                return JeprofRow::new(format!("{named} {place}"));
            }
            if typed.is_on("files") {
                return match place.rsplit_once(':') {
                    // Each address has its own row, ordered by the address, with all known facts
                    // about it.
                    Some(("??", "0")) => JeprofRow {
                        key: address.clone(),
                        shown: Some(format!("{named} {place}")),
                    },
                    Some((file, line)) if line.bytes().all(|b| b.is_ascii_digit()) => {
                        JeprofRow::new(file.to_string())
                    }
                    _ => JeprofRow::new(place),
                };
            }
            JeprofRow::new(match name {
                "" => address.clone(),
                _ => named,
            })
        };
        lines.iter().enumerate().map(of_line).collect()
    }
}

/// A report row that counts the values of a location.
struct JeprofRow {
    key: String,
    /// The printed text, if it differs from the key.
    shown: Option<String>,
}

impl JeprofRow {
    fn new(key: String) -> Self {
        Self { key, shown: None }
    }
}

/// Returns the position of a sample's thread, or 0 if threads are not reported separately.
pub(super) fn thread_place(set: LabelSetIndex) -> usize {
    set.index().saturating_sub(1)
}
