//! Prepares stacks as jeprof does before it adds them up: removes allocator frames and applies
//! filters.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use heapprof_profile::{
    Label, LabelSetIndex, LabelSets, Line, Location, LocationIndex, Profile, Samples, StringId,
};
use regex::Regex;

use super::names::NameShortener;
use super::reading::{NO_FILE, UNKNOWN_FILE};
use super::tool::PerlTool;

/// Functions of allocators that both scripts hide.
const ALLOCATOR_FUNCTIONS: [&str; 46] = [
    "calloc",
    "cfree",
    "malloc",
    "free",
    "memalign",
    "posix_memalign",
    "pvalloc",
    "valloc",
    "realloc",
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

fn is_allocator(name: &str, tool: PerlTool) -> bool {
    let listed = |name: &str| {
        ALLOCATOR_FUNCTIONS.contains(&name) || tool.own_allocator_functions().contains(&name)
    };
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

/// The filters of a report. A stack must pass all of them.
#[derive(Debug, Default)]
pub(super) struct StackFilters {
    /// Only stacks with a match are kept.
    pub(super) focus: Option<Regex>,
    /// Stacks with a match are left out.
    pub(super) ignore: Option<Regex>,
    /// Only matching functions of each stack are kept.
    pub(super) retain: Option<Regex>,
    /// Matching functions of each stack are left out.
    pub(super) exclude: Option<Regex>,
}

/// A profile that is being prepared for jeprof's rows.
#[derive(Clone)]
pub(super) struct JeprofStacks {
    pub(super) profile: Profile,
    /// The shortened name of each function, for rows and filters.
    short: Vec<String>,
    tool: PerlTool,
}

impl JeprofStacks {
    pub(super) fn new(profile: Profile, tool: PerlTool, names: &NameShortener) -> Self {
        let functions = profile.function.iter();
        let short = functions.map(|f| names.shorten(profile.text(f.name)));
        Self {
            short: short.collect(),
            profile,
            tool,
        }
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

    /// Keeps only the samples of the thread at this position, if threads are reported separately.
    pub(super) fn keep_thread(&mut self, place: usize) {
        self.profile.samples.rewrite(|stack, _, set, kept| {
            kept.extend_from_slice(stack);
            thread_place(set) == place
        });
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

    /// Returns the sum of a sample type.
    pub(super) fn total(&self, column: usize) -> i128 {
        let samples = &self.profile.samples;
        let values = (0..samples.len()).map(|i| samples.values(i)[column]);
        values.map(i128::from).sum()
    }

    /// Removes allocator functions from each stack: in jeprof the one that is nearest to the root,
    /// together with all functions that it called.
    pub(super) fn cut_allocator(&mut self) {
        let of_allocator: Vec<bool> = self
            .profile
            .location
            .iter()
            .map(|location| {
                let name = self.outermost(location);
                name.is_some_and(|name| is_allocator(name, self.tool))
            })
            .collect();
        let with_callees = self.tool.hides_callees_of_allocators();
        self.profile.samples.rewrite(|stack, _, _, kept| {
            let is_cut = |l: &LocationIndex| of_allocator[l.index()];
            let cut = stack.iter().rposition(is_cut).filter(|_| with_callees);
            let rest = &stack[cut.map_or(0, |at| at + 1)..];
            kept.extend(rest.iter().filter(|l| !is_cut(l)));
            true
        });
    }

    /// Returns the name of the function that contains a location, even if other functions were
    /// inlined there.
    pub(super) fn outermost(&self, location: &Location) -> Option<&str> {
        let line = self.profile.lines(location).last()?;
        Some(self.name(line)).filter(|name| !name.is_empty())
    }

    fn name(&self, line: &Line) -> &str {
        &self.short[line.function.index()]
    }

    /// Returns the source file and line number of a line as the script prints them.
    fn place(&self, line: &Line) -> String {
        let function = &self.profile.function[line.function.index()];
        let unknown = match self.tool.numbers_unknown_lines() {
            true => "0",
            false => "?",
        };
        match (self.profile.text(function.filename), line.line) {
            ("", _) => format!("??:{unknown}"),
            (UNKNOWN_FILE, _) => "??:0".to_string(),
            (NO_FILE, _) => NO_FILE.to_string(),
            (file, 0) => format!("{file}:{unknown}"),
            (file, line) => format!("{file}:{line}"),
        }
    }

    /// Returns the shortened name and the place of each function at a location, innermost first.
    pub(super) fn frames(&self, location: &Location) -> impl Iterator<Item = (&str, String)> {
        let lines = self.profile.lines(location).iter();
        lines.map(|line| (self.name(line), self.place(line)))
    }

    pub(super) fn address(location: &Location) -> String {
        format!("{:016x}", location.address)
    }

    /// Applies filters.
    pub(super) fn filter(&mut self, filters: &StackFilters) {
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
        let (retain, exclude) = (&filters.retain, &filters.exclude);
        let (retain, exclude) = (retain.as_ref().map(own), exclude.as_ref().map(own));
        let (focus, ignore) = (&filters.focus, &filters.ignore);
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
    }
}

/// Returns the position of a sample's thread, or 0 if threads are not reported separately.
pub(super) fn thread_place(set: LabelSetIndex) -> usize {
    set.index().saturating_sub(1)
}
