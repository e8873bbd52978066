//! View of a profile for one query: the frames of each sample, with inlined functions as frames and
//! with filters applied.
//!
//! Nothing is copied. The stack of a sample is computed when it is needed, and written to a buffer
//! of the caller.

use std::ops::Range;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Profile, Samples, is_place_of_code};

use crate::error::TotalsError;
use crate::filter::{CompiledFilters, bit, drop};
use crate::frames::{FrameTable, ProfileFrame};
use crate::module::ModuleResolver;
use crate::note::FilterNote;
use crate::query::Query;

/// View of a profile for one query, with inlined functions as frames and with filters applied.
pub struct ProfileView {
    /// The frames of the profile.
    pub frames: FrameTable,
    filter: CompiledFilters,
    identity: bool,
    /// The suppression rule of each location, if it has one; empty without suppressions.
    rule: Vec<Option<u32>>,
    /// Whose code each frame is; empty if the query does not need this.
    owner: Vec<FrameOwner>,
}

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameOwner {
    /// The program's own code.
    Program,
    /// Code of the program that has no name, or a mark such as `[truncated]`. Memory of a library
    /// does not count for it, because the name of the library's function says more.
    Unnamed,
    /// A library or the runtime of a language.
    Library,
}

/// Returns whose code each frame is.
fn owners(profile: &Profile, frames: &FrameTable) -> Vec<FrameOwner> {
    let libraries = libraries(profile, frames);
    let functions = profile.function.iter();
    // A function has many frames.
    let named: Vec<bool> = functions.map(|f| is_name(profile.text(f.name))).collect();
    let owner = |(frame, is_library): (&ProfileFrame, bool)| match frame.function(profile) {
        _ if is_library => FrameOwner::Library,
        Some(function) if named[function.index()] => FrameOwner::Program,
        _ => FrameOwner::Unnamed,
    };
    frames.iter().zip(libraries).map(owner).collect()
}

/// Whether a name is more than an address or a mark.
fn is_name(name: &str) -> bool {
    let word = name.trim_matches(|c: char| !c.is_alphanumeric());
    let first = name.split(' ').next().unwrap_or_default();
    let is_address = word.starts_with("0x") || first.contains("@0x") || is_place_of_code(first);
    !name.starts_with('[') && !matches!(word, "" | "unknown" | "null") && !is_address
}

/// Returns, for each frame, whether it is a library frame.
fn libraries(profile: &Profile, frames: &FrameTable) -> Vec<bool> {
    // A function has many frames, so its answer is remembered.
    let (modules, mut known) = (ModuleResolver::new(profile), HashMap::new());
    let is_library = |frame: &ProfileFrame| {
        let Some(location) = frame.location() else {
            return false;
        };
        let function = frame.function(profile);
        let mapping = profile.location[location.index()].mapping;
        *known.entry((function, mapping)).or_insert_with(|| {
            let function = function.map(|function| &profile.function[function.index()]);
            let mapping = mapping.map(|mapping| &profile.mapping[mapping.index()]);
            modules.module_of(function, mapping).is_library
        })
    };
    frames.iter().map(is_library).collect()
}

impl ProfileView {
    /// Compiles the filters of a query for a profile. Fails if a filter is not valid.
    pub fn new(profile: &Profile, query: &Query) -> Result<Self, TotalsError> {
        let mut frames = FrameTable::new(profile, query.no_inlines);
        let filter = CompiledFilters::new(profile, &mut frames, query)?;
        let owner = match query.own_code {
            true => owners(profile, &frames),
            false => Vec::new(),
        };
        let identity = filter.is_identity();
        Ok(Self {
            frames,
            filter,
            identity,
            rule: Vec::new(),
            owner,
        })
    }

    /// Suppresses samples that contain a location with a rule. `rule` has the rule of each
    /// location.
    pub fn suppress(&mut self, rule: Vec<Option<u32>>) {
        self.rule = rule;
    }

    /// Returns the rule that suppresses sample `i`. If several locations have a rule, the one
    /// nearest to the leaf decides. Filters are ignored.
    #[inline]
    pub fn rule(&self, samples: &Samples, i: usize) -> Option<usize> {
        if self.rule.is_empty() {
            return None;
        }
        let rule = samples.stack(i).iter().find_map(|l| self.rule[l.index()]);
        rule.map(|rule| rule as usize)
    }

    /// Returns the notes for the user about the filters.
    pub fn notes(&self) -> &[FilterNote] {
        &self.filter.notes
    }

    /// Whether every sample is kept.
    pub fn keeps_all(&self) -> bool {
        let f = &self.filter;
        !(f.focus || f.ignore || f.hide || f.show_from)
            && f.label_set.is_empty()
            && self.rule.is_empty()
    }

    /// Writes the frames of sample `i` to `stack`, leaf first. Returns false if the sample is left
    /// out.
    #[inline]
    pub fn stack(&self, samples: &Samples, i: usize, stack: &mut Vec<u32>) -> bool {
        self.rule(samples, i).is_none() && self.visible(samples, i, stack)
    }

    /// Returns the range of library frames at the leaf that are left out, so that their value goes
    /// to the nearest other frame. The range is empty if that frame has no name, or if the stack
    /// has no other frame, so that the stack stays unchanged. Frames of labels around the range
    /// always stay.
    fn folded_range(&self, stack: &[u32]) -> Range<usize> {
        if self.owner.is_empty() {
            return 0..0;
        }
        let is_label = |frame: &u32| matches!(self.frames.get(*frame), ProfileFrame::Label { .. });
        let start = match self.filter.label_frames.is_empty() {
            true => 0,
            false => stack
                .iter()
                .position(|f| !is_label(f))
                .unwrap_or(stack.len()),
        };
        let own = stack[start..].iter().position(|&f| !self.is_library(f));
        let is_program = |at: &usize| self.owner[stack[*at] as usize] == FrameOwner::Program;
        match own.map(|at| start + at).filter(is_program) {
            Some(own) => start..own,
            None => start..start,
        }
    }

    /// Whether a frame belongs to a library. Always false if the query does not need this.
    pub fn is_library(&self, frame: u32) -> bool {
        self.owner.get(frame as usize) == Some(&FrameOwner::Library)
    }

    /// Writes the frames of sample `i` to `stack`, leaf first, even if the sample is suppressed.
    /// Returns false if a filter leaves the sample out.
    #[inline]
    pub fn visible(&self, samples: &Samples, i: usize, stack: &mut Vec<u32>) -> bool {
        stack.clear();
        let locations = samples.stack(i);
        if self.identity {
            match self.frames.has_one_frame_each() {
                true => stack.extend(locations.iter().map(|l| l.0)),
                false => locations
                    .iter()
                    .for_each(|&l| stack.extend(self.frames.frames_of(l))),
            }
            stack.drain(self.folded_range(stack));
            return true;
        }
        self.filter_stack(samples, i, stack)
    }

    fn filter_stack(&self, samples: &Samples, i: usize, stack: &mut Vec<u32>) -> bool {
        let is_kept = self.filter_without_folding(samples, i, stack);
        stack.drain(self.folded_range(stack));
        is_kept
    }

    /// Returns two sums of the absolute values of a column. The first is the sum of values that
    /// libraries allocated and that count for their callers. The second is the sum of values that
    /// stay with libraries, because their stacks have no other frames.
    pub fn fold_sums(&self, samples: &Samples, column: usize) -> [i128; 2] {
        let (mut sums, mut stack) = ([0; 2], Vec::new());
        for i in 0..samples.len() {
            let value = i128::from(samples.values(i)[column].unsigned_abs());
            stack.clear();
            if value == 0
                || self.rule(samples, i).is_some()
                || !self.filter_without_folding(samples, i, &mut stack)
            {
                continue;
            }
            let folded = self.folded_range(&stack);
            match stack.get(folded.start) {
                _ if !folded.is_empty() => sums[0] += value,
                Some(&leaf) if self.is_library(leaf) => sums[1] += value,
                _ => {}
            }
        }
        sums
    }

    /// Writes the filtered stack of sample `i`, like [`filter_stack`](Self::filter_stack), but
    /// keeps the frames of libraries.
    fn filter_without_folding(&self, samples: &Samples, i: usize, stack: &mut Vec<u32>) -> bool {
        let filter = &self.filter;
        let set = samples.label_set(i).index();
        if filter.label_set.get(set) == Some(&false) {
            return false;
        }
        let mut locations = samples.stack(i);
        if !filter.drop.is_empty() {
            locations = &locations[self.count_dropped(locations)..];
        }
        let added = filter.label_frames.get(set);
        if let Some((_, leaf)) = added {
            stack.extend(leaf);
        }
        for &location in locations {
            stack.extend(self.frames.frames_of(location));
        }
        if let Some((root, _)) = added {
            stack.extend(root);
        }
        // A profile without frames has no bits either, but focus and show-from must still leave its
        // samples out.
        let looks_at_none = filter.frame.is_empty() && !filter.focus && !filter.show_from;
        looks_at_none || self.frame_filters(stack)
    }

    /// Returns the number of locations at the leaf that the profile's `drop_frames` cuts. The
    /// outermost location that does not match is kept with all its callers, because otherwise
    /// nothing might be left of a stack.
    fn count_dropped(&self, locations: &[heapprof_profile::LocationIndex]) -> usize {
        let mut found_user = false;
        for (at, location) in locations.iter().enumerate().rev() {
            let what = self.filter.drop[location.index()];
            match what {
                0 => found_user = true,
                _ if !found_user => {}
                _ if what & drop::ALL != 0 => return at + 1,
                _ => return at,
            }
        }
        0
    }

    fn frame_filters(&self, stack: &mut Vec<u32>) -> bool {
        let filter = &self.filter;
        // Frames of labels have numbers beyond the bits if no filter needed their bits.
        let has = |f: u32, bit: u8| filter.frame.get(f as usize).is_some_and(|b| b & bit != 0);
        if filter.drops_lines {
            stack.retain(|&f| !has(f, bit::DROP_LINE));
        }
        if filter.ignore && stack.iter().any(|&f| has(f, bit::IGNORE)) {
            return false;
        }
        // `ignore` wins over `focus`: a stack with an ignored frame is already left out here.
        if filter.focus && !stack.iter().any(|&f| has(f, bit::FOCUS)) {
            return false;
        }
        if filter.hide && !stack.is_empty() {
            stack.retain(|&f| !has(f, bit::HIDDEN));
            if stack.is_empty() {
                return false;
            }
        }
        if filter.show_from {
            match stack.iter().rposition(|&f| has(f, bit::SHOW_FROM)) {
                Some(at) => stack.truncate(at + 1),
                None => return false,
            }
        }
        if filter.prune_from
            && let Some(at) = stack.iter().position(|&f| has(f, bit::PRUNE_FROM))
        {
            stack.drain(..at);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use heapprof_profile::ProfileBuilder;

    use super::*;

    /// Memory of libraries at the leaf counts for the nearest caller in the program, if that caller
    /// has a name. Other stacks stay as they are.
    #[test]
    fn own_code_is_the_nearest_caller_with_a_name() {
        for (stack, shown) in [
            ("main;work", "main;work"),
            ("main;work;std::vector<int>::reserve", "main;work"),
            (
                "main;std::sort;compare;std::string::assign",
                "main;std::sort;compare",
            ),
            (
                "std::thread::run;std::string::assign",
                "std::thread::run;std::string::assign",
            ),
            (
                "main;app+0x1f0;std::string::assign",
                "main;app+0x1f0;std::string::assign",
            ),
            (
                "main;[truncated];std::string::assign",
                "main;[truncated];std::string::assign",
            ),
            ("main;??;std::string::assign", "main;??;std::string::assign"),
            (
                "main;<unknown>;std::string::assign",
                "main;<unknown>;std::string::assign",
            ),
        ] {
            let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
            builder.add_folded(stack, &[8]);
            let profile = builder.finish();
            let query = Query {
                own_code: true,
                ..Query::default()
            };
            let view = ProfileView::new(&profile, &query).unwrap();
            let mut frames = Vec::new();
            assert!(view.stack(&profile.samples, 0, &mut frames));
            let name = |&frame: &u32| {
                let function = view.frames.get(frame).function(&profile).unwrap();
                profile.text(profile.function[function.index()].name)
            };
            let names: Vec<&str> = frames.iter().rev().map(name).collect();
            assert_eq!(names.join(";"), shown);
            let is_moved = i128::from(stack != shown);
            assert_eq!(
                view.fold_sums(&profile.samples, 0)[0],
                8 * is_moved,
                "{stack}"
            );
        }
    }
}
