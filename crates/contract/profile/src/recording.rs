//! The parts of a recording's profile: code, frames, threads and times. The collector writes them
//! from its tables, and a reader outside the process writes them from a copy of these tables.
//!
//! The texts in the profile are in [`recording_texts`].

mod code;
mod frames;

use crate::{Label, ProfileBuilder, recording_texts, sample_type};

pub use code::{RecordedCode, RecordedMapping};
pub use frames::{LedgerSource, RecordedFrame, RecordedLocations};

/// A thread of a recorded process. The labels of a sample name the thread that allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedThread {
    /// Name of the thread, or [`OTHER_THREADS`](recording_texts::OTHER_THREADS).
    pub name: String,
    /// Kernel's id of the thread, if this is one thread and its id is known.
    pub id: Option<u32>,
    /// Number of forks between the first process and the thread's process.
    pub generation: u8,
}

impl RecordedThread {
    /// Returns the entry for all threads that the ledger does not list by name.
    pub fn others() -> Self {
        Self {
            name: recording_texts::OTHER_THREADS.to_string(),
            id: None,
            generation: 0,
        }
    }

    /// Adds the thread's labels to the labels of a sample.
    pub fn add_labels(&self, builder: &mut ProfileBuilder, labels: &mut Vec<Label>) {
        labels.push(builder.text_label(recording_texts::THREAD_LABEL, &self.name));
        let mut add = |key, value: u32| labels.push(builder.number_label(key, value.into(), ""));
        if let Some(id) = self.id {
            add(recording_texts::TID_LABEL, id);
        }
        if self.generation != 0 {
            add(recording_texts::GENERATION_LABEL, self.generation.into());
        }
    }
}

/// The fields of a profile that describe the recording as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingHeader {
    /// Number of bytes between two samples; 1 if every allocation is recorded.
    pub period: u64,
    /// Time at which the recording began, in nanoseconds since 1970.
    pub started: i64,
    /// Time from the beginning of the recording to the profile, in nanoseconds.
    pub duration: i64,
    /// Whether nothing is recorded after this profile, because the program has ended or called
    /// exec.
    pub is_last: bool,
    /// Number of bytes in use, in all samples together.
    pub in_use: i64,
    /// Number of bytes in use at the peak, in all samples together.
    pub peak: i64,
}

impl RecordingHeader {
    /// Writes the fields and `comments` into a profile.
    pub fn write(self, builder: &mut ProfileBuilder, comments: impl IntoIterator<Item = String>) {
        for comment in comments {
            let text = builder.text(&comment);
            builder.profile.comment.push(text);
        }
        let space = builder.value_type("space", "bytes");
        let default = match self.is_last {
            true => sample_type::default_of_finished_program(self.in_use, self.peak),
            false => sample_type::IN_USE,
        };
        let default = builder.text(default);
        let profile = &mut builder.profile;
        profile.period_type = Some(space);
        profile.period = i64::try_from(self.period).unwrap_or(i64::MAX);
        profile.default_sample_type = default;
        profile.duration_nanos = self.duration.max(1);
        // All profiles of a recording have the same beginning, even if the clock was set meanwhile.
        profile.time_nanos = self.started.saturating_add(profile.duration_nanos);
    }
}
