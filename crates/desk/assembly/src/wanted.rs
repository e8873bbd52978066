//! Which frames of debug information are which of the wanted functions. Several functions may have
//! one name: each file of the source may have a static function `make`.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use heapprof_profile::Profile;

use crate::SourceFrame;

/// A function whose instructions are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WantedFunction<'a> {
    /// The source name, as the profile has it.
    pub name: &'a str,
    /// The source file, as the profile has it.
    pub file: &'a str,
}

/// The wanted functions of a profile, which have numbers.
pub(crate) struct WantedFunctions<'a> {
    all: &'a [WantedFunction<'a>],
    /// Whether another function of the profile has the same name.
    has_namesake: Vec<bool>,
}

impl<'a> WantedFunctions<'a> {
    pub(crate) fn new(profile: &Profile, all: &'a [WantedFunction<'a>]) -> Self {
        let functions = profile.function.iter();
        let functions: HashSet<WantedFunction<'_>> = functions
            .map(|function| WantedFunction {
                name: profile.text(function.name),
                file: profile.text(function.filename),
            })
            .collect();
        let mut count: HashMap<&str, usize> = HashMap::new();
        for function in functions {
            *count.entry(function.name).or_default() += 1;
        }
        let has_namesake = |function: &WantedFunction<'_>| count.get(function.name) > Some(&1);
        Self {
            all,
            has_namesake: all.iter().map(has_namesake).collect(),
        }
    }

    pub(crate) fn get(&self, function: usize) -> &WantedFunction<'a> {
        &self.all[function]
    }
}

/// Finds the frames of wanted functions in the debug information of one file.
///
/// The profile and the debug information may name a source file differently. So the addresses of
/// the profile show which of its files is which of the debug information.
pub(crate) struct FrameFinder<'a> {
    wanted: &'a WantedFunctions<'a>,
    /// The files of the debug information that each wanted function has.
    files: HashMap<usize, HashSet<Rc<str>>>,
}

impl<'a> FrameFinder<'a> {
    pub(crate) fn new(wanted: &'a WantedFunctions<'a>) -> Self {
        Self {
            wanted,
            files: HashMap::new(),
        }
    }

    /// Learns from an address of a wanted function which file of the debug information it has.
    /// `inner_namesakes` is the number of functions with its name that are inlined into it there.
    pub(crate) fn learn(
        &mut self,
        function: usize,
        inner_namesakes: usize,
        frames: &[SourceFrame],
    ) {
        let name = self.wanted.get(function).name;
        let mut frames = frames.iter().filter(|frame| *frame.function == *name);
        if self.wanted.has_namesake[function]
            && let Some(frame) = frames.nth(inner_namesakes)
        {
            let files = self.files.entry(function).or_default();
            files.insert(frame.file.clone());
        }
    }

    /// Returns the innermost of an instruction's frames that is a wanted function.
    pub(crate) fn find<'f>(
        &self,
        function: usize,
        frames: &'f [SourceFrame],
    ) -> Option<&'f SourceFrame> {
        let wanted = self.wanted.get(function);
        let files = self.files.get(&function);
        let has_file = |frame: &SourceFrame| {
            !self.wanted.has_namesake[function]
                || *frame.file == *wanted.file
                || files.is_some_and(|files| files.contains(&frame.file))
        };
        let mut frames = frames.iter();
        frames.find(|frame| *frame.function == *wanted.name && has_file(frame))
    }
}
