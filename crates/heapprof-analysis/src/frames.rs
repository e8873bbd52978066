//! Frames: what stacks are made of once inlining is spelled out. A location gives one frame a line,
//! or one for its address; a label that `tag_root` or `tag_leaf` asks for gives one too.

use heapprof_profile::{FunctionIndex, Label, LocationIndex, Profile, StringId};

/// A frame of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A line of a location: a position in `Profile::line`.
    Line { location: LocationIndex, line: u32 },
    /// A location without symbols.
    Address { location: LocationIndex },
    /// A label's value in the place of a function, its key in the place of a file.
    Label { key: String, value: String },
}

impl Frame {
    /// Where it is in the program; a label is nowhere.
    pub(crate) fn location(&self) -> Option<LocationIndex> {
        match self {
            Frame::Line { location, .. } | Frame::Address { location } => Some(*location),
            Frame::Label { .. } => None,
        }
    }

    /// The function that its line is of.
    pub(crate) fn function(&self, profile: &Profile) -> Option<FunctionIndex> {
        match self {
            Frame::Line { line, .. } => Some(profile.line[*line as usize].function),
            Frame::Address { .. } | Frame::Label { .. } => None,
        }
    }
}

/// All frames of a profile by number.
pub(crate) struct FrameTable {
    /// The frames of location `l` are `first[l]..first[l + 1]`, innermost first.
    first: Vec<u32>,
    frame: Vec<Frame>,
    /// Every location has exactly one frame: stacks of locations are stacks of frames.
    one_each: bool,
}

impl FrameTable {
    /// The frames of all locations; with `no_inlines` only the outermost line of each.
    pub(crate) fn new(profile: &Profile, no_inlines: bool) -> Self {
        let mut first = Vec::with_capacity(profile.location.len() + 1);
        let mut frame = Vec::with_capacity(profile.location.len());
        for (l, entry) in profile.location.iter().enumerate() {
            first.push(frame.len() as u32);
            let location = LocationIndex(l as u32);
            let mut lines = entry.line.clone();
            if no_inlines && !lines.is_empty() {
                lines.start = lines.end - 1;
            }
            match lines.is_empty() {
                true => frame.push(Frame::Address { location }),
                false => frame.extend(lines.map(|line| Frame::Line { location, line })),
            }
        }
        first.push(frame.len() as u32);
        let one_each = frame.len() == profile.location.len();
        Self {
            first,
            frame,
            one_each,
        }
    }

    /// Adds a frame that stands for a label's value.
    pub(crate) fn push_label(&mut self, key: &str, value: &str) -> u32 {
        self.frame.push(Frame::Label {
            key: key.to_string(),
            value: value.to_string(),
        });
        self.frame.len() as u32 - 1
    }

    pub(crate) fn of(&self, location: LocationIndex) -> std::ops::Range<u32> {
        self.first[location.index()]..self.first[location.index() + 1]
    }

    pub(crate) fn get(&self, frame: u32) -> &Frame {
        &self.frame[frame as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.frame.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.frame.len()
    }

    pub(crate) fn one_each(&self) -> bool {
        self.one_each
    }
}

/// A label's value as text: the text itself, or the number and its unit.
pub(crate) fn label_text(profile: &Profile, label: &Label) -> String {
    match (label.str, label.num_unit) {
        (StringId::EMPTY, StringId::EMPTY) => label.num.to_string(),
        (StringId::EMPTY, unit) => format!("{} {}", label.num, profile.text(unit)),
        (text, _) => profile.text(text).to_string(),
    }
}
