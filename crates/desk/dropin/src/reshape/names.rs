//! The filters focus, ignore, hide, show and show_from, which keep samples and lines by name.

use heapprof_profile::{Line, LocationIndex, Profile};
use regex::Regex;

use heapprof_totals::filter::RegexMatches;

/// The filters by name, which are applied together.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameFilters<'a> {
    /// Regular expression: only samples with a matching location are kept.
    pub focus: Option<&'a Regex>,
    /// Regular expression: samples with a matching location are removed. If `focus` matches the
    /// same location, `ignore` wins.
    pub ignore: Option<&'a Regex>,
    /// Regular expression: matching lines are removed.
    pub hide: Option<&'a Regex>,
    /// Regular expression: only matching lines are kept.
    pub show: Option<&'a Regex>,
}

/// Results of the filters by name: which of them matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterMatches {
    /// Whether `focus` matched any location.
    pub focus: bool,
    /// Whether `ignore` matched any location.
    pub ignore: bool,
    /// Whether `hide` matched any location or any of its lines.
    pub hide: bool,
    /// Whether `show` matched any location.
    pub show: bool,
}

/// Bits for the effects of a location on the samples that contain it.
mod filter_bits {
    pub(super) const FOCUS: u8 = 1;
    pub(super) const IGNORE: u8 = 2;
    pub(super) const HIDDEN: u8 = 4;
}

/// Applies the filters by name. A sample without a remaining location is removed.
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

/// Keeps the matching lines of a location or, if `matching` is false, the other lines. If the
/// location's mapping matches, all its lines match. Returns the number of lines that remain.
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

/// Cuts the callers of the matching function that is nearest to the root, including those that it
/// was inlined into. Samples without a match are removed. Returns whether anything matches.
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
