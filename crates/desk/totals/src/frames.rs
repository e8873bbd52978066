//! Frames: the elements of stacks in which each inlined function is a frame of its own.
//!
//! A location has a frame for each of its lines, or one frame for its address. A label that
//! `tag_root` or `tag_leaf` selects also becomes a frame.

use heapprof_profile::{FunctionIndex, Label, LocationIndex, Profile, StringId};

/// A frame of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileFrame {
    /// A line of a location.
    Line {
        /// The location.
        location: LocationIndex,
        /// The line, as a position in `Profile::line`.
        line: u32,
    },
    /// The address of a location without symbols.
    Address {
        /// The location.
        location: LocationIndex,
    },
    /// A label. Its value takes the place of a function name, and its key the place of a file.
    Label {
        /// The label's key.
        key: String,
        /// The label's value.
        value: String,
    },
}

impl ProfileFrame {
    /// Returns the location of the frame; `None` for a label.
    pub fn location(&self) -> Option<LocationIndex> {
        match self {
            ProfileFrame::Line { location, .. } | ProfileFrame::Address { location } => {
                Some(*location)
            }
            ProfileFrame::Label { .. } => None,
        }
    }

    /// Returns the function of the frame's line; `None` for an address or a label.
    pub fn function(&self, profile: &Profile) -> Option<FunctionIndex> {
        match self {
            ProfileFrame::Line { line, .. } => Some(profile.line[*line as usize].function),
            ProfileFrame::Address { .. } | ProfileFrame::Label { .. } => None,
        }
    }
}

/// All frames of a profile by number.
pub struct FrameTable {
    /// Number of the first frame of each location. The frames of location `l` are
    /// `first[l]..first[l + 1]`, innermost first.
    first: Vec<u32>,
    frame: Vec<ProfileFrame>,
    /// Whether every location has exactly one frame, so that stacks of locations are stacks of
    /// frames.
    one_each: bool,
}

impl FrameTable {
    /// Makes the frames of all locations. With `no_inlines`, only the outermost line of each
    /// location becomes a frame.
    pub fn new(profile: &Profile, no_inlines: bool) -> Self {
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
                true => frame.push(ProfileFrame::Address { location }),
                false => frame.extend(lines.map(|line| ProfileFrame::Line { location, line })),
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
    pub fn push_label(&mut self, key: &str, value: &str) -> u32 {
        self.frame.push(ProfileFrame::Label {
            key: key.to_string(),
            value: value.to_string(),
        });
        self.frame.len() as u32 - 1
    }

    /// Returns the numbers of the frames of a location, innermost first.
    pub fn frames_of(&self, location: LocationIndex) -> std::ops::Range<u32> {
        self.first[location.index()]..self.first[location.index() + 1]
    }

    /// Returns the frame with this number.
    pub fn get(&self, frame: u32) -> &ProfileFrame {
        &self.frame[frame as usize]
    }

    /// Returns all frames in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &ProfileFrame> {
        self.frame.iter()
    }

    /// Returns the number of frames.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether it is")]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether every location has exactly one frame.
    pub fn has_one_frame_each(&self) -> bool {
        self.one_each
    }
}

/// Returns a label's value as text: the text itself, or the number and its unit.
pub fn label_text(profile: &Profile, label: &Label) -> String {
    match (label.str, label.num_unit) {
        (StringId::EMPTY, StringId::EMPTY) => label.num.to_string(),
        (StringId::EMPTY, unit) => format!("{} {}", label.num, profile.text(unit)),
        (text, _) => profile.text(text).to_string(),
    }
}
