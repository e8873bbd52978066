//! The engine inside the profiled process: chooses allocations, gets their stacks, keeps the books,
//! writes the profile.
//!
//! It knows nothing of which functions were hooked, nor of symbols. Whoever hooks
//! (heapprof-preload, heapprof-alloc) calls [`charge`] for each allocation and [`allocate`] for
//! those that it chooses, and [`release`] before each free that [`may_hold`] lets through. Nothing
//! here touches errno. Memory comes from the kernel or from the global allocator, and in
//! libheapprof.so that is [`arena`], not the program's. In a dynamic executable with glibc 2.35 or
//! later, nothing takes the loader's lock on the way of an allocation.
//!
//! The books are the counters of each stack and the table of blocks in use. A thread is apart while
//! it does the collector's own work, which is not recorded. A thread is held up if something keeps
//! it in the middle of an event, such as a signal handler that waits.

mod access;
mod apart;
pub mod arena;
mod begin;
mod books;
mod call_site;
mod capture;
mod cfi;
mod chunks;
mod counters;
mod dropped;
mod engine;
mod event;
mod filter;
mod floating_point;
mod image;
mod live;
mod lock;
mod mappings;
mod maps;
mod mode;
mod modules;
mod options;
mod output;
mod own_stack;
mod own_tables;
mod probe_table;
mod program;
mod reason;
mod recent_stacks;
mod recording;
mod regions;
mod rule;
mod sampler;
pub mod setting;
mod snapshot;
mod spread;
mod stack_switch;
mod stacks;
mod status;
pub mod sys;
mod text;
mod thread;
mod tls;
mod trial;
mod trigger;
mod unload;
mod walk;
mod weak;

pub use crate::output::working_folder;
pub use crate::{
    apart::{apart, guarded, is_apart},
    call_site::CallSite,
    engine::charge,
    event::{allocate, reallocate, release},
    filter::may_hold,
    mode::{Mode, now as mode},
    modules::object_at,
    options::{DEFAULT_PERIOD, Format, LONGEST_PERIOD, Options, Output, Triggers},
    reason::Reason,
    recording::{
        Error, after_fork_in_child, after_fork_in_parent, before_fork, default_options,
        dump_at_end, dump_from_signal, end_clock, end_from_signal, go_on, hold_clock,
        is_own_process, is_running, let_clock_go, on_dump, profile, raise_default, request,
        set_default, start, stop, text_profile, was_started,
    },
    regions::{map, unmap},
    thread::prepare,
    tls::rewind,
    trial::survives,
    unload::around_unload,
};
