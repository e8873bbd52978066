//! Heap profiles of a Rust program, recorded inside the program by a global allocator that wraps
//! the program's allocator.
//!
//! The crate is meant for programs into which no library can be preloaded (static executables,
//! musl), and for programs that offer their own profiles. Two lines record and dump on demand:
//!
//! ```no_run
//! #[global_allocator]
//! static ALLOCATOR: heapprof_alloc::HeapProf = heapprof_alloc::HeapProf::system();
//!
//! fn main() -> Result<(), heapprof_alloc::DumpError> {
//!     heapprof_alloc::start(heapprof_alloc::RecordingOptions::default());
//!     let work: Vec<u64> = (0..1_000_000).collect();
//!     let written = heapprof_alloc::dump_to("heap.pb.gz")?;
//!     drop((work, written));
//!     Ok(())
//! }
//! ```
//!
//! `heapprof top heap.pb.gz` shows the file, as does any reader of pprof's format. The profile
//! holds only build ids and addresses; `heapprof convert symbolize` adds the names of functions,
//! and needs the executable for that.
//!
//! Nothing is recorded before [`start`]. Until then, an allocation costs one more load and one more
//! branch. After that, in sampled mode (the default), it costs a few more instructions, and one
//! allocation in about 512 KiB is recorded. [`RecordingMode::Exact`] records all of them.
//!
//! A recording belongs to the process, so functions of this crate control it, not methods of the
//! allocator. `examples/pprof_endpoint.rs` serves profiles at `/debug/pprof/heap`, as Go programs
//! do.

mod allocator;
mod environment;
mod process;
mod recording;
mod wiretap;

pub use crate::{
    allocator::HeapProf,
    recording::{
        dump, dump_at_exit, dump_to, is_running, profile, start, start_from_environment, stop,
    },
    wiretap::alive_at,
};
pub use heapprof_engine::setting::{SETTINGS, Setting, SettingError};
pub use heapprof_engine::{
    DEFAULT_PERIOD, DumpError, DumpFormat, DumpOutput, DumpTriggers, RecordingMode,
    RecordingOptions,
};

/// The examples of README.md. They run as tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// Reports that the code with this name has run, by a datagram to the address in the variable
/// `HEAPPROF_WIRETAP`. Does nothing if the variable is not set.
///
/// ```
/// heapprof_alloc::alive!("orders.cancel");
/// ```
#[macro_export]
macro_rules! alive {
    ($name:expr) => {
        $crate::alive_at($name, concat!(file!(), ":", line!()))
    };
}
