//! Keeps names apart: different names never have the same short name.
//!
//! This is the one rule for all reports. Where the short names of different functions are equal,
//! each of these steps changes the names that are still equal after the step before it:
//!
//! 1. Templates keep their first argument: `std::map<A, …>::at`. If that is too long, only the
//!    first template whose first argument differs keeps it, cut to the room that is left.
//! 2. Overloads keep their parameters, `parse(int)`, and if these are equal, what follows them:
//!    `size() const`, `parse(int) [clone .cold]`.
//! 3. The function that contains another one keeps its parameters, or its place at the end of a
//!    name that is too long: `…::render::{closure#0}`.
//! 4. The types that differ are added: `put<…> [float]`.
//! 5. The names are numbered.
//!
//! Very long names are only numbered. A step changes nothing if its names do not fit, or if it
//! tells none of them apart. A name whose
//! short name is its own already is never changed.

use std::collections::{BTreeMap, HashSet};

use unicode_width::UnicodeWidthStr;

use super::arguments::{ArgumentDetail, FirstArgumentRule, argument, is_anonymous};
use super::disambiguation::differences;
use super::{
    ShortNamePart, cut, format_name, is_nested_well, is_of_cpp_or_rust, parse, shorten_one,
};

/// Maximum number of bytes of all names that are compared with one another part by part.
const MAX_COMPARED_BYTES: usize = 20_000;

/// Shortens names: removes parameters, return types and default template arguments. `width` returns
/// the maximum number of columns for the name at an index. Different names have different short
/// names.
pub fn shorten(names: &[&str], width: impl Fn(usize) -> usize) -> Vec<String> {
    let width: Vec<usize> = (0..names.len()).map(width).collect();
    let both = names.iter().zip(&width);
    let mut short = NamesApart {
        short: both
            .map(|(name, &width)| shorten_one(name, width))
            .collect(),
        is_plain: vec![true; names.len()],
        names,
        width,
    };
    short.number_long_groups();
    if short.groups_of_equal().is_empty() {
        return short.short;
    }
    short.refine(NamesApart::with_first_arguments);
    short.refine(NamesApart::with_one_first_argument);
    short.refine(|names, group| names.each(group, |at| names.with_parameters(at, false)));
    short.refine(|names, group| names.each(group, |at| names.with_parameters(at, true)));
    short.refine(|names, group| names.each(group, |at| names.with_outer_parameters(at)));
    short.refine(|names, group| names.each(group, |at| names.with_outer_function(at)));
    short.add_differences();
    short.number();
    short.short
}

/// Names, and their short names so far.
struct NamesApart<'n> {
    names: &'n [&'n str],
    /// The maximum number of columns for each short name.
    width: Vec<usize>,
    short: Vec<String>,
    /// Whether the short name is the one that [`shorten_one`] makes.
    is_plain: Vec<bool>,
}

impl NamesApart<'_> {
    /// Returns the groups of names that differ, but have equal short names.
    fn groups_of_equal(&self) -> Vec<Vec<usize>> {
        let mut same: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, name) in self.short.iter().enumerate() {
            same.entry(name).or_default().push(at);
        }
        let names = self.names;
        let differ = |all: &Vec<usize>| all.iter().any(|&at| names[at] != names[all[0]]);
        same.into_values().filter(differ).collect()
    }

    /// Replaces equal short names by the names that `step` makes of a group. They must fit, and
    /// tell some of the names apart.
    fn refine(&mut self, step: impl Fn(&Self, &[usize]) -> Option<Vec<String>>) {
        for group in self.groups_of_equal() {
            let Some(made) = step(self, &group) else {
                continue;
            };
            let fits = |(at, name): (&usize, &String)| name.width() <= self.width[*at];
            let count = made.iter().collect::<HashSet<_>>().len();
            if count > 1 && group.iter().zip(&made).all(fits) {
                for (at, name) in group.into_iter().zip(made) {
                    self.is_plain[at] &= self.short[at] == name;
                    self.short[at] = name;
                }
            }
        }
    }

    /// Makes a name of each of these; `None` if one of them can't be made.
    fn each(&self, group: &[usize], make: impl Fn(usize) -> Option<String>) -> Option<Vec<String>> {
        group.iter().map(|&at| make(at)).collect()
    }

    /// Returns the parsed name; `None` if it has no parts.
    fn parts(&self, at: usize) -> Option<Vec<ShortNamePart<'_>>> {
        let name = self.names[at];
        (is_of_cpp_or_rust(name) && is_nested_well(name)).then(|| parse(name))
    }

    /// Step 1: every template has its first argument.
    fn with_first_arguments(&self, group: &[usize]) -> Option<Vec<String>> {
        self.each(group, |at| {
            let parts = self.parts(at)?;
            let levels = ARGUMENT_LEVELS.into_iter();
            let mut made = levels.map(|levels| {
                let rule = FirstArgumentRule::all();
                format_name(&parts, ArgumentDetail::first(levels, &rule))
            });
            made.find(|name| name.width() <= self.width[at])
        })
    }

    /// Step 1 in less room: the first template whose first argument differs has it.
    fn with_one_first_argument(&self, group: &[usize]) -> Option<Vec<String>> {
        let parts: Option<Vec<_>> = group.iter().map(|&at| self.parts(at)).collect();
        let parts = parts?;
        let found: Vec<Vec<String>> = parts
            .iter()
            .map(|parts| {
                let rule = FirstArgumentRule::all();
                format_name(parts, ArgumentDetail::first(usize::MAX, &rule));
                rule.found()
            })
            .collect();
        let most = found.iter().map(Vec::len).max().unwrap_or(0);
        let differs = |at: &usize| found.iter().any(|one| one.get(*at) != found[0].get(*at));
        let template = (0..most).find(differs)?;
        let made = group.iter().zip(&parts).map(|(&at, parts)| {
            let with = |levels: usize, width: usize| {
                let rule = FirstArgumentRule::only(template, width);
                format_name(parts, ArgumentDetail::first(levels, &rule))
            };
            let fits = |name: &String| name.width() <= self.width[at];
            let mut levels = ARGUMENT_LEVELS.into_iter();
            let whole = levels
                .by_ref()
                .map(|levels| with(levels, usize::MAX))
                .find(fits);
            whole.or_else(|| {
                // One column is that of the `…` which this name has in place of the argument.
                let least = with(1, 1).width();
                let room = (self.width[at] + 1).saturating_sub(least);
                let short = || self.end_of(at, &with(1, self.width[at] / 3));
                match room {
                    GOOD_ARGUMENT_COLUMNS.. => Some(with(1, room)),
                    MIN_ARGUMENT_COLUMNS.. => short().or_else(|| Some(with(1, room))),
                    _ => short(),
                }
            })
        });
        made.collect()
    }

    /// Step 2: returns the short name with the function's parameters, and with what follows them if
    /// `with_end`. The template arguments in the parameters are shortened until the name fits, if
    /// possible.
    fn with_parameters(&self, at: usize, with_end: bool) -> Option<String> {
        let short = &self.short[at];
        let parts = self.parts(at).unwrap_or_default();
        let end = match parts.last() {
            Some(ShortNamePart::Text(text)) if with_end => match text.find(" [clone ") {
                Some(clone) if parts.len() == 1 => &text[clone..],
                _ => text,
            },
            _ => "",
        };
        let mut lists = parts.iter().rev().filter_map(|part| match part {
            ShortNamePart::Group('(', inner) if !is_anonymous(inner) => Some(inner),
            _ => None,
        });
        let Some(inner) = lists.next() else {
            return Some(match end.starts_with(" [clone ") {
                true => format!("{short}{end}"),
                false => short.clone(),
            });
        };
        let mut whole = String::new();
        for levels in [usize::MAX, 2, 1, 0] {
            let detail = ArgumentDetail::levels(levels);
            let inner: Vec<String> = inner.iter().map(|one| argument(one, detail)).collect();
            whole = format!("{short}({}){end}", inner.join(", "));
            if whole.width() <= self.width[at] {
                break;
            }
        }
        Some(whole)
    }

    /// Step 3: returns the name with the parameters of the functions that contain it.
    fn with_outer_parameters(&self, at: usize) -> Option<String> {
        let parts = self.parts(at).filter(|_| self.is_plain[at])?;
        let mut made = [usize::MAX, 2, 1, 0].into_iter().map(|levels| {
            let detail = ArgumentDetail::levels(levels).with_outer_parameters();
            format_name(&parts, detail)
        });
        made.find(|name| name.width() <= self.width[at])
    }

    /// Step 3 for a name that is too long: returns its end, which begins at the function that
    /// contains it, or further left if there is room.
    fn with_outer_function(&self, at: usize) -> Option<String> {
        if !self.is_plain[at] {
            return None;
        }
        let name = match self.parts(at) {
            Some(parts) => format_name(&parts, ArgumentDetail::levels(0)),
            None => self.names[at].to_string(),
        };
        self.end_of(at, &name)
    }

    /// Returns the end of a name that is too long. The end begins at the function or the class that
    /// contains the function, or further left if there is room. Returns `None` if it does not fit.
    fn end_of(&self, at: usize, name: &str) -> Option<String> {
        let starts = component_starts(name);
        // The function itself is the last component.
        let outer = starts.windows(2).rposition(|pair| {
            let component = name[pair[0]..pair[1]].trim_end_matches([':', '.', '/']);
            !component.starts_with(['{', '<', '(']) && component != "__ANON__"
        })?;
        let mut ends = starts[1..=outer].iter().map(|&start| &name[start..]);
        let end = ends.find(|end| end.width() < self.width[at])?;
        Some(format!("…{end}"))
    }

    /// Step 4: adds the types that differ to names that are still equal.
    fn add_differences(&mut self) {
        for group in self.groups_of_equal() {
            let whole: Vec<&str> = group.iter().map(|&at| self.names[at]).collect();
            let least = group.iter().map(|&at| self.width[at]).min().unwrap_or(0);
            for (at, difference) in group.into_iter().zip(differences(&whole, least / 2)) {
                if difference.is_empty() {
                    continue;
                }
                let room = self.width[at].saturating_sub(difference.width() + 3);
                let short = match self.is_plain[at] {
                    true => cut(&shorten_one(self.names[at], room), room),
                    false => cut(&self.short[at], room).replace("……", "…"),
                };
                self.short[at] = format!("{short} [{difference}]");
            }
        }
    }

    /// Step 5: numbers the names that are still equal. What differs may have been cut out, and a
    /// number may make two groups equal.
    fn number(&mut self) {
        let mut number = 0;
        loop {
            let groups = self.groups_of_equal();
            if groups.is_empty() {
                return;
            }
            for group in groups {
                self.number_group(&group, &mut number);
            }
        }
    }

    /// Numbers the names of groups whose comparison would take long: templates that nest deeply.
    fn number_long_groups(&mut self) {
        let mut number = 0;
        for group in self.groups_of_equal() {
            let bytes: usize = group.iter().map(|&at| self.names[at].len()).sum();
            if bytes > MAX_COMPARED_BYTES {
                self.number_group(&group, &mut number);
            }
        }
    }

    /// Adds a number to each name of a group, after `number`. Equal names have equal numbers.
    fn number_group(&mut self, group: &[usize], number: &mut usize) {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for &at in group {
            let own = *numbers.entry(self.names[at]).or_insert_with(|| {
                *number += 1;
                *number
            });
            let own = format!(" #{own}");
            let room = self.width[at].saturating_sub(own.len());
            self.short[at] = cut(&self.short[at], room) + &own;
        }
    }
}

/// The numbers of levels of template arguments that are tried for a first argument.
const ARGUMENT_LEVELS: [usize; 4] = [usize::MAX, 3, 2, 1];

/// Least number of columns of a first argument that is cut.
const MIN_ARGUMENT_COLUMNS: usize = 5;
/// Number of columns of a first argument below which the scopes at the beginning of a name are
/// rather left out.
const GOOD_ARGUMENT_COLUMNS: usize = 20;

/// Returns the positions at which the components of a name begin: its scopes, modules or folders,
/// and the function itself. Separators between brackets do not count.
fn component_starts(name: &str) -> Vec<usize> {
    let mut starts = vec![0];
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && before == ':' => starts.push(at + 1),
            '.' | '/' if depth == 0 => starts.push(at + 1),
            _ => {}
        }
        before = c;
    }
    starts
}
