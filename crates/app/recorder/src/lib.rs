//! Records a program: starts it with the library in it, keeps the ledgers of its processes, and
//! checks, symbolizes and cleans up the files that they left.
//!
//! A front end makes [`RecordingSettings`], and gets a [`RecordingOutcome`]. [`Recording`] joins
//! the parts: `child.rs` runs the program, `keeper.rs` keeps what its processes hand over, and
//! `outcome.rs` settles the files. A [`RecordingObserver`] receives the events of the recording.
//!
//! [`rights`] decides with which rights heapprof opens a file that a recorded process names,
//! [`outside`] reads the ledger of a process, [`log`] writes the events of a process, and
//! [`sockets`] lets other commands of the same user reach a recording.
//!
//! This crate must never know options, clap or the words of a message. It prints nothing: it
//! returns values, which a front end puts into words.
#![deny(unsafe_code)]

mod audit;
mod child;
mod ending;
mod environment;
mod executables;
mod files;
mod folder;
mod hooked_allocators;
pub mod inherited_state;
mod keeper;
mod kept_ledger;
mod line_growth;
mod line_output;
mod lines;
mod list;
mod live;
pub mod log;
mod names;
mod note;
mod observer;
mod oom;
mod outcome;
pub mod outside;
mod path_text;
mod peak_divisions;
mod peer;
mod process_feed;
mod profile_entries;
mod program;
pub mod recorded_files;
mod recorded_processes;
mod recording;
mod records;
mod residents;
pub mod rights;
mod root_folder;
mod settings;
mod small_children;
pub mod sockets;
mod start_error;
mod tail;
mod unhooked_allocators;

pub use child::{ProgramExit, run_unrecorded};
pub use ending::ProcessEndings;
pub use files::{FileFate, ProfileDetails, SamplingSummary, UnnamedCode};
pub use heapprof_allocators::AllocatorChoice;
pub use kept_ledger::ProcessDeath;
pub use lines::LineFollowOptions;
pub use live::LiveViewOptions;
pub use live::moments::ProcessMoments;
pub use names::{CHILDREN_SUFFIX, ProfileNamePatterns};
pub use note::{AuditLimit, NoPlaceError, RecordingNote};
pub use observer::{LineOutputError, ProgramStream, RecordingEvent, RecordingObserver};
pub use oom::OomKill;
pub use outcome::{RecordedProfile, RecordingOutcome};
pub use path_text::{path_from_here, shown_path};
pub use peak_divisions::UnprofiledPeak;
pub use process_feed::ProcessFeed;
pub use profile_entries::{PrivateLedger, UnrecordedProcess, WriteFailure, WrittenProfile};
pub use program::{PreloadCheck, RaisedRights, SanitizerError, find_program};
pub use recorded_processes::recorded_processes;
pub use recording::{Recording, RecordingEnd};
pub use residents::resident;
pub use settings::RecordingSettings;
pub use small_children::MIN_OWN_BYTES;
pub use start_error::RecordingStartError;
pub use unhooked_allocators::{describe_unhooked, own_allocator};
