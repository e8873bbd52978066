//! The filters focus, ignore, hide, show and show_from, which keep samples and lines by name.

use heapprof_profile::{Line, LocationIndex, Profile};
use regex::Regex;

use heapprof_totals::filter::RegexMatches;

/// The filters by name, which are applied together.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameFilters<'a> {
    /// Keeps only samples with a matching location.
    pub focus: Option<&'a Regex>,
    /// Leaves out samples with a matching location. On the same location, `ignore` wins over
    /// `focus`.
    pub ignore: Option<&'a Regex>,
    /// Leaves out matching lines.
    pub hide: Option<&'a Regex>,
    /// Keeps only matching lines.
    pub show: Option<&'a Regex>,
}

/// The filters that matched something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterMatches {
    /// Whether any location is in focus.
    pub focus: bool,
    /// Whether any location is ignored.
    pub ignore: bool,
    /// Whether any location is hidden, in part or as a whole.
    pub hide: bool,
    /// Whether any location is matched by `show`.
    pub show: bool,
}

/// Effects of a location on the samples that contain it.
mod filter_bits {
    pub(super) const FOCUS: u8 = 1;
    pub(super) const IGNORE: u8 = 2;
    pub(super) const HIDDEN: u8 = 4;
}

/// Applies the filters by name. A sample without any remaining location is removed.
pub fn keep_by_name(profile: &mut Profile, filters: NameFilters<'_>) -> FilterMatches {
    let NameFilters {
        focus,
        ignore,
        hide,
        show,
    } = filters;
    let mut matched = FilterMatches::default();
    if focus.is_none() && ignore.is_none() && hide.is_none() && show.is_none() {
        matched.focus = true;
        return matched;
    }
    let compile = |regex: Option<&Regex>| {
        let regex = regex?;
        let RegexMatches {
            function, mapping, ..
        } = RegexMatches::new(profile, regex);
        Some((function, mapping))
    };
    let (focus, ignore, hide, show) = (
        compile(focus),
        compile(ignore),
        compile(hide),
        compile(show),
    );
    let mut bits = vec![0u8; profile.location.len()];
    for (l, bits) in bits.iter_mut().enumerate() {
        let by = |(function, mapping): &(Vec<bool>, Vec<bool>)| {
            let location = &profile.location[l];
            location.mapping.is_some_and(|m| mapping[m.index()])
                || profile
                    .lines(location)
                    .iter()
                    .any(|line| function[line.function.index()])
        };
        if ignore.as_ref().is_some_and(by) {
            matched.ignore = true;
            *bits |= filter_bits::IGNORE;
        } else if focus.as_ref().is_none_or(by) {
            matched.focus = true;
            *bits |= filter_bits::FOCUS;
        }
        if let Some(hide) = &hide
            && by(hide)
        {
            matched.hide = true;
            if keep_lines(profile, l, hide, false) == 0 {
                *bits |= filter_bits::HIDDEN;
            }
        }
        if let Some(show) = &show {
            match keep_lines(profile, l, show, true) {
                0 => *bits |= filter_bits::HIDDEN,
                _ => matched.show = true,
            }
        }
    }
    let some_hidden = bits.iter().any(|b| b & filter_bits::HIDDEN != 0);
    profile.samples.rewrite(|stack, _, _, kept| {
        let mut all = 0;
        for l in stack {
            all |= bits[l.index()];
        }
        if all & filter_bits::IGNORE != 0 || all & filter_bits::FOCUS == 0 {
            return false;
        }
        if !some_hidden {
            kept.extend_from_slice(stack);
            return true;
        }
        let before = kept.len();
        kept.extend(
            stack
                .iter()
                .filter(|l| bits[l.index()] & filter_bits::HIDDEN == 0),
        );
        kept.len() > before
    });
    matched
}

/// Keeps the lines of a location that match, or those that do not. If its mapping matches, all
/// lines match. Returns how many lines are left.
fn keep_lines(
    profile: &mut Profile,
    l: usize,
    (function, mapping): &(Vec<bool>, Vec<bool>),
    matching: bool,
) -> usize {
    let location = &profile.location[l];
    let in_mapping = location.mapping.is_some_and(|m| mapping[m.index()]);
    let lines = profile.lines(location);
    let keep = |line: &Line| match in_mapping {
        true => matching,
        false => function[line.function.index()] == matching,
    };
    if lines.iter().all(keep) {
        return lines.len();
    }
    let kept: Vec<Line> = lines.iter().copied().filter(keep).collect();
    let start = profile.line.len() as u32;
    profile.line.extend_from_slice(&kept);
    profile.location[l].line = start..profile.line.len() as u32;
    kept.len()
}

/// Cuts the callers of the match nearest to the root, including the functions that it was inlined
/// into. Samples without a match are removed. Returns whether anything matches.
pub fn show_from(profile: &mut Profile, regex: &Regex) -> bool {
    let matches = RegexMatches::new(profile, regex);
    let mut from = vec![false; profile.location.len()];
    for (l, from) in from.iter_mut().enumerate() {
        let location = &profile.location[l];
        if location.mapping.is_some_and(|m| matches.mapping[m.index()]) {
            *from = true;
            continue;
        }
        let outermost = profile
            .lines(location)
            .iter()
            .rposition(|line| matches.function[line.function.index()]);
        if let Some(outermost) = outermost {
            *from = true;
            let line = &mut profile.location[l].line;
            line.end = line.start + outermost as u32 + 1;
        }
    }
    profile.samples.rewrite(|stack, _, _, kept| {
        let at = stack.iter().rposition(|&LocationIndex(l)| from[l as usize]);
        at.map(|at| kept.extend_from_slice(&stack[..=at])).is_some()
    });
    from.contains(&true)
}
