//! Stores the lines that were found for locations, and writes them into the profile.

use std::collections::HashMap;

use heapprof_profile::{Function, FunctionIndex, Line, Profile, StringId};

use crate::demangle::{demangle, is_mangled};
use crate::dwarf::DwarfFrame;

/// A line of a location, with the linker name of its function.
#[derive(Clone, Copy)]
pub(crate) struct RawLine {
    name: StringId,
    is_short: bool,
    /// Whether the name is only a position in a file, because the code has no name.
    is_nameless: bool,
    file: StringId,
    line: i64,
    column: i64,
}

impl RawLine {
    /// Returns a line that has only a function name.
    fn from_function(name: StringId) -> Self {
        Self {
            name,
            is_short: false,
            is_nameless: false,
            file: StringId::EMPTY,
            line: 0,
            column: 0,
        }
    }

    /// Returns the line for another profile. `text` converts its text ids.
    pub(crate) fn with_texts(&self, mut text: impl FnMut(StringId) -> StringId) -> Self {
        Self {
            name: text(self.name),
            file: text(self.file),
            ..*self
        }
    }
}

/// The lines that were found, by location.
pub(crate) struct LocationLines {
    lines: Vec<Option<Box<[RawLine]>>>,
}

impl LocationLines {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            lines: vec![None; profile.location.len()],
        }
    }

    /// Stores the frames of a location, innermost first. A frame without a name is kept only if it
    /// is the outermost one, because the symbol table may have its name.
    pub(crate) fn frames(
        &mut self,
        profile: &mut Profile,
        location: u32,
        ask: impl FnOnce(&mut dyn FnMut(DwarfFrame<'_>)),
    ) {
        let mut lines: Vec<RawLine> = Vec::new();
        ask(&mut |frame| {
            lines.push(RawLine {
                name: profile.strings.intern(frame.name),
                is_short: frame.is_short,
                is_nameless: false,
                file: profile.strings.intern(frame.file),
                line: frame.line.into(),
                column: frame.column.into(),
            });
        });
        let last = lines.len().saturating_sub(1);
        let mut at = 0;
        lines.retain(|line| {
            at += 1;
            at > last || !line.name.is_empty()
        });
        if !lines.is_empty() {
            self.lines[location as usize] = Some(lines.into());
        }
    }

    /// Returns a location's lines.
    pub(crate) fn get(&self, location: u32) -> Option<&[RawLine]> {
        self.lines[location as usize].as_deref()
    }

    /// Sets the lines of a location.
    pub(crate) fn set(&mut self, location: u32, lines: Box<[RawLine]>) {
        self.lines[location as usize] = Some(lines);
    }

    /// Returns the line of a location's outermost function.
    fn outermost(&self, location: u32) -> Option<&RawLine> {
        self.get(location)?.last()
    }

    /// Whether a location's outermost function has a name.
    pub(crate) fn is_named(&self, location: u32) -> bool {
        self.outermost(location)
            .is_some_and(|line| !line.name.is_empty() && !line.is_nameless)
    }

    /// Whether a location is named by its file and the start of its function, e.g.
    /// `libfoo.so+0x1234`.
    pub(crate) fn is_numbered(&self, location: u32) -> bool {
        self.outermost(location)
            .is_some_and(|line| line.is_nameless)
    }

    /// Whether a location's outermost function has a name that no symbol table could improve.
    pub(crate) fn is_settled(&self, location: u32) -> bool {
        self.outermost(location)
            .is_some_and(|line| !line.name.is_empty() && !line.is_short)
    }

    /// Sets the name of a location's outermost function to `name` from a symbol table. An existing
    /// name is replaced only by a mangled name.
    pub(crate) fn name(&mut self, profile: &mut Profile, location: u32, name: &str) {
        let lines = &mut self.lines[location as usize];
        if let Some(line) = lines.as_mut().and_then(|lines| lines.last_mut()) {
            if line.name.is_empty() || is_mangled(name) {
                line.name = profile.strings.intern(name);
                line.is_short = false;
            }
            return;
        }
        *lines = Some(Box::new([RawLine::from_function(
            profile.strings.intern(name),
        )]));
    }

    /// Sets the name of a location without a symbol to `name`, which consists of the file and the
    /// start of the function, e.g. `libfoo.so+0x1234`.
    pub(crate) fn number(&mut self, profile: &mut Profile, location: u32, name: &str) {
        if !self.is_named(location) {
            self.lines[location as usize] = Some(Box::new([RawLine {
                is_nameless: true,
                ..RawLine::from_function(profile.strings.intern(name))
            }]));
        }
    }

    /// Writes the lines into the profile. Locations without lines stay unchanged.
    pub(crate) fn write(self, profile: &mut Profile) {
        let mut functions = AddedFunctions::new(profile);
        let old = std::mem::take(&mut profile.line);
        let mut locations = std::mem::take(&mut profile.location);
        for (location, answer) in locations.iter_mut().zip(self.lines) {
            let start = profile.line.len() as u32;
            // An answer with a frame that is still without a name is dropped: an address is more
            // useful than a line without a function.
            let answer = answer.filter(|lines| lines.iter().all(|l| !l.name.is_empty()));
            match answer {
                Some(lines) => {
                    for raw in &lines {
                        let line = Line {
                            function: functions.index(profile, raw),
                            line: raw.line,
                            column: raw.column,
                        };
                        profile.line.push(line);
                    }
                }
                None => {
                    let range = location.line.start as usize..location.line.end as usize;
                    profile.line.extend_from_slice(&old[range]);
                }
            }
            location.line = start..profile.line.len() as u32;
        }
        profile.location = locations;
        drop_replaced(profile, &old);
    }
}

/// The functions that were added to the profile. They are stored so that each is added only once.
struct AddedFunctions {
    index: HashMap<(StringId, StringId), FunctionIndex>,
    names: HashMap<StringId, StringId>,
    next_id: u64,
}

impl AddedFunctions {
    fn new(profile: &Profile) -> Self {
        Self {
            index: HashMap::new(),
            names: HashMap::new(),
            next_id: profile.function.iter().map(|f| f.id).max().unwrap_or(0),
        }
    }

    fn index(&mut self, profile: &mut Profile, raw: &RawLine) -> FunctionIndex {
        if let Some(&index) = self.index.get(&(raw.name, raw.file)) {
            return index;
        }
        let name = match self.names.get(&raw.name) {
            Some(&name) => name,
            None => {
                let name = match raw.is_nameless {
                    true => None,
                    false => demangle(profile.text(raw.name)),
                };
                let name = name.map_or(raw.name, |name| profile.strings.intern(&name));
                self.names.insert(raw.name, name);
                name
            }
        };
        self.next_id = self.next_id.wrapping_add(1);
        let index = FunctionIndex(profile.function.len() as u32);
        profile.function.push(Function {
            id: self.next_id,
            name,
            system_name: match raw.is_nameless {
                true => StringId::EMPTY,
                false => raw.name,
            },
            filename: raw.file,
            start_line: 0,
        });
        self.index.insert((raw.name, raw.file), index);
        index
    }
}

/// Removes functions to which only replaced lines (`old`) referred. Functions to which no line ever
/// referred stay.
fn drop_replaced(profile: &mut Profile, old: &[Line]) {
    let mut used = vec![true; profile.function.len()];
    for line in old {
        used[line.function.index()] = false;
    }
    for line in &profile.line {
        used[line.function.index()] = true;
    }
    if !used.contains(&false) {
        return;
    }
    let mut moved = Vec::with_capacity(used.len());
    let mut kept = 0;
    for &is_used in &used {
        moved.push(FunctionIndex(kept));
        kept += u32::from(is_used);
    }
    let mut at = 0;
    profile.function.retain(|_| {
        at += 1;
        used[at - 1]
    });
    for (function, id) in profile.function.iter_mut().zip(1..) {
        function.id = id;
    }
    for line in &mut profile.line {
        line.function = moved[line.function.index()];
    }
}
