//! The engine inside the profiled process. It chooses allocations, captures their stacks, keeps the
//! ledger and writes the profile.
//!
//! The engine does not know which functions were hooked, and it knows no symbols. A crate that
//! hooks functions (heapprof-preload, heapprof-alloc) uses the process's only [`Engine`],
//! [`ENGINE`], and does three things:
//!
//! * It reports each allocation to the engine's [`EngineEvents`] with [`EngineEvents::charge`].
//! * It makes the allocations that the engine chooses through [`EngineEvents::allocate`].
//! * It reports a free if [`EngineEvents::may_hold`] is true for the block's address.
//!
//! While an allocation is recorded, errno stays unchanged, and the engine allocates nothing. In
//! `libheapprof.so`, the engine never calls the program's allocator. In a dynamic executable with
//! glibc 2.35 or later, it never takes the loader's lock.
//!
//! # The path of one allocation
//!
//! A recorded program calls `malloc(100)`.
//!
//! 1. **The hook** (`fast_path.rs` of heapprof-preload) takes five instructions. It finds the
//!    thread's slot in initial-exec storage, and subtracts 101 from the countdown in the slot. If
//!    the countdown does not fall below zero, the hook jumps to the real malloc. It pushes nothing,
//!    so the real malloc returns to the program. In exact mode the countdown is 0, so each
//!    allocation makes it fall below zero. So does the first allocation of a thread, because a
//!    thread's slot begins as zeros. `free` looks up one byte by the address (`filter.rs`), and
//!    jumps to the real free if the byte is 0: seven instructions. The byte counts the sampled
//!    blocks whose addresses share this byte; in exact mode all bytes are 255.
//! 2. **The countdown** (`block.rs`, `sampler.rs`). [`EngineEvents::allocate`] gets the call site
//!    ([`CallSite`]: the address of the return address, and rbp). At its first event, a thread gets
//!    a state: the state of an ended thread, or a new state. The event marks the thread as busy,
//!    and sets the countdown to a value that is not reached meanwhile. In sampled mode, the event
//!    draws the next countdown at its end.
//! 3. **The stack** (`capture.rs`). The thread's last stack is recorded, with the address of each
//!    return address. When unwinding reaches a recorded frame, the older frames are compared with
//!    memory instead of being unwound. Of a deep stack (more than 1,288 frames), both ends are
//!    recorded, and marks between them (`capture/deep_stack.rs`). A few more complete stacks are
//!    recorded for loops that allocate on two or three stacks in turn (`recent_stacks.rs`). One
//!    step of unwinding is in `walk.rs`: it looks up the unwind rule of the return address in a
//!    table. If the table lacks the rule, `modules.rs` finds the object, and `cfi.rs` reads its
//!    `.eh_frame_hdr`. If the thread runs an interpreter that a provider knows (`provider.rs`), the
//!    interpreter's stack is captured instead. Its frames are numbers, and their texts are copied
//!    when a frame is new (`script.rs`, `script_frames.rs`). With `--frames=both`, the
//!    interpreter's frames are merged into the native stack.
//! 4. **The stack's number** (`stacks.rs`) is found by a hash, without a lock if the stack is
//!    known. A new stack is added under a lock. It is stored as an earlier stack and the frames
//!    above it, with the generation of the mappings (`mappings.rs`). A new generation begins when
//!    code takes the addresses of other code. If a recording counts each thread separately, the
//!    thread then looks up its own number for this stack (`by_thread.rs`). That number stands for
//!    the same frames and a word for the thread, which `names.rs` resolves. So a free by another
//!    thread also counts for the thread that allocated, without further work.
//! 5. **The real malloc** is called. In exact mode this happens before step 4, and the memory that
//!    step 4 reads is prefetched meanwhile.
//! 6. **The live table** (`live.rs`) stores the block's stack and size by the block's address, in
//!    128 parts. A part belongs to the first thread that touches it, and needs no lock until
//!    another thread touches it.
//! 7. **The counters** (`counters.rs`) are the thread's own counters of this stack, and the sum of
//!    the memory in use of the whole process. The thread's own counters are written without a
//!    locked instruction. The peak of each stack costs constant time per event: a stack's counters
//!    are copied aside at their first change after the heap has fallen from a new maximum. Well
//!    below the peak, threads count the memory in use in budgets. Near the peak, they count event
//!    by event, and each event takes a lock for the process's sum and for its stack's counters.
//! 8. **The end of the event.** If a dump has become due (`dump_schedule.rs`: by growth, a peak or
//!    a signal), it is made now.
//!
//! A free updates the live table, then the counters, and then calls the real free. The real free
//! comes last, because afterwards another thread may get the address. A realloc removes the old
//! block from the live table, and calls the real realloc. If the real realloc fails, the old block
//! is put back.
//!
//! A dump (`dumps.rs`) takes the dump lock, blocks signals, and changes to a separate stack,
//! because the program's stack may be that of a signal handler. It adds up the counters of all
//! threads while no thread has the ledger open (`LedgerAccess::run_at_rest`). So all sums are of
//! one moment. If a thread has an event meanwhile, it waits for about a millisecond. The dump
//! writes pprof or text to a `.tmp` file, and renames the file. The program's other threads run
//! meanwhile.
//!
//! If the growth of lines is reported, a scan (`lines.rs`) is made in the same way, whenever enough
//! was allocated (`growth_reports.rs`). It compares the memory in use of each stack with the last
//! reported size, and adds a small profile of the changed stacks to a file.
//!
//! Whenever a thread reports its allocated and freed bytes, it may check the heap (`moment.rs`). If
//! a moment is due, it is added to the recording's history (`history.rs`, `moments.rs`). A dump
//! writes the history into a comment, beside the sizes of allocations (`sizes.rs`, `notes.rs`). A
//! moment needs no clock thread and opens no file.
//!
//! Under `record`, the tables for a profile are in a file in memory that `record` has open, too:
//! the saved ledger (`table_file.rs`, `shared_ledger.rs`). So the tables outlive a program that is
//! killed. A forked child gets separate tables before it counts anything. If the child may use
//! little memory, its tables move into a file only later (`delay.rs`).
//!
//! # The engine
//!
//! An [`Engine`] is a value that consists of parts, and each part owns its state (`engine.rs`). Two
//! things are outside of an engine: each thread's slot (`tls.rs`), which serves one engine at a
//! time, and the filter's memory, which the hooks read. The `EngineProcess` contains the state that
//! all parts need: the mode of recording, the counts of dropped events, the thread that forks, and
//! the source of memory for tables. There is one function for restarting, one for continuing with
//! inherited tables, and one that lists the locks for fork. Each of them destructures the engine
//! completely. So if a part is added and not handled there, the compiler reports it.
//!
//! # Folders
//!
//! The crate heapprof-platform contains the system calls, locks, memory of the engine, stacks to
//! switch to, and the thread's slot. This page names its files `sys.rs`, `lock.rs`, `arena.rs`,
//! `table_file.rs`, `stack_switch.rs`, `tls.rs` and `trial.rs`.
//!
//! These are the folders, from the bottom up. No folder uses a folder that stands after it.
//!
//! * `arch/`: the parts of unwinding that depend on the processor: registers, unwind rules, signal
//!   frames.
//! * `tables/`: growing arrays, hash tables, the numbers of stacks, counters, samples.
//! * `code/`: the mapped files, and how to unwind from an address.
//! * `stack/`: the stack of an allocation.
//! * `thread/`: the state of each thread.
//! * `ledger/`: the blocks in use, the counts, and how threads share both.
//! * `dump/`: the state that lasts from one dump to the next: options, names, turns, triggers.
//! * `event/`: the events in the program's threads, and how a thread enters and leaves the engine.
//! * `recording/`: a recording from start to stop, its dumps and files, forks and signals.
//!
//! The files beside the folders hold the engine (`engine.rs`), its own memory (`memory.rs`), the
//! process (`process.rs`), the mode of recording (`mode.rs`), the counts of dropped events
//! (`drop_counters.rs`), the user's options (`options.rs`, `setting.rs`), and the reasons for dumps
//! (`reason.rs`).
//!
//! # Rules for every part
//!
//! * **Busy.** A thread inside the engine has `busy` set. Code that allocates meanwhile (a signal
//!   handler, or libc for the engine) gets memory from the real function. Such an allocation is
//!   counted as dropped and never recorded. So no thread enters the engine twice, and no thread
//!   waits for a lock that it has taken itself. A thread that does work of the engine outside of
//!   events is busy, too (`reentrancy_guard.rs`).
//! * **What may allocate.** Steps 1 to 8 never allocate: tables grow by mmap, in chunks that do not
//!   move. Dumps, the start, dlclose, options and counted mappings may allocate, and before glibc
//!   2.35 the list of loaded objects may, too. They allocate from `arena.rs`, the library's global
//!   allocator over private mappings. Only the result of a C function (`GetHeapProfile`) comes from
//!   the program's malloc, because the program frees it. To look up the text of an errno, libc
//!   might call that malloc (gettext), so errors are passed to the desk as numbers.
//! * **Locks** are futexes (`lock.rs`). Each has a rank in its type, and a thread takes locks in
//!   the order of their ranks. A debug build asserts that. Fork takes all of them in this order
//!   (`fork.rs`), and then the locks of libc's malloc. So while a thread forks, a signal handler
//!   waits for none of these locks, because the handler's own thread may be inside malloc. The
//!   handler leaves its dump to the forking thread. If fork does not get a lock in time, the lock
//!   belongs to a thread that is interrupted by a signal handler. This thread does not exist in the
//!   child. So the child treats all locks as free, and records nothing. The parent counts such
//!   children.
//! * **Layers.** No two modules use each other. The modules for the mode of recording (`mode.rs`),
//!   for the state of threads (`thread/`), for the sums (`counters.rs`) and for the tables do not
//!   use events. `dump_schedule.rs`, which every event checks, gets the maker of dumps at the
//!   start.
//! * **Owners** (`access.rs`). A thread uses a resource that it owns with plain loads and stores
//!   while it has the ledger open. It checks each time whether it still owns the resource. A thread
//!   that takes a resource from its owner first marks the resource, makes the kernel run a barrier
//!   on every core, and waits until the owner has closed the ledger. The taking thread must not
//!   have the ledger open meanwhile, because otherwise two threads could wait for each other.
//! * **Publication.** A value is written before the key, number or pointer that leads to it. The
//!   key, number or pointer is stored with release and read with acquire. Keys and stacks never
//!   change. Rules and hash tables are replaced by larger ones, and the old ones stay mapped for
//!   threads that still read them.
//! * **errno.** System calls are made directly (`sys.rs`) and return their error.
//! * **No `__tls_get_addr`**, because it may allocate. The thread's slot is initial-exec storage,
//!   and std's thread-locals use heapprof-preload's `thread_local.rs`.
//! * **Turns** (`dump_turn.rs`). One thread dumps at a time. Meanwhile an automatic dump is
//!   delayed, and a thread of the program that requests a dump waits (its signals are still
//!   handled). A signal handler leaves a note, and the thread that is dumping then makes one more
//!   dump. No dump follows the last dump or the dump before an exec.
//! * **Signals.** A signal handler dumps. If it has interrupted the engine, it requests a dump
//!   instead (`DumpSchedule::request_dump`). Signals are blocked in a dump. A handler of the
//!   library is installed only if the program left the default, and it calls only async-signal-safe
//!   functions.
//! * **fork** keeps the tables. Its handlers are registered first, so that the handlers of other
//!   libraries take their locks before the engine's locks are taken. When the program ends, libc
//!   removes the handlers of libraries. The engine's handlers stay registered, because a thread
//!   that forks at that moment needs both of them. A child whose tables are whole restarts its sums
//!   with the memory in use. Children of **vfork** and posix_spawn share memory and do not dump:
//!   the process id distinguishes them. Before an **exec** there is a dump. If the exec fails, the
//!   next dump removes that file.
//! * **The engine's own thread** (`recording/clock.rs`) exists only for an interval, for `record
//!   --live`, or for reports of the growth of lines. It makes each dump in a thread without the
//!   program's open files. It ends before the program changes its identity or its namespaces,
//!   because libc changes the identity of all threads, and the kernel denies some changes to a
//!   process with two threads.
//! * **Files used up.** If the program has no file descriptor left, a dump is made in a child. The
//!   child shares the program's memory, has a copy of its descriptors, and closes some of them
//!   (`stack_switch.rs`). The program's thread sleeps meanwhile. This is not done under a filter of
//!   system calls.
//! * **Sandboxes.** Before a seccomp filter is installed, a child installs it and makes every kind
//!   of system call that events and dumps make (`trial.rs`; a new kind belongs there). If the child
//!   dies, the last profile is written first, and from then on the engine makes no system call.
//! * **Panics** abort in `libheapprof.so` and are not expected: nothing unwinds into the program.

mod arch;
mod code;
mod drop_counters;
mod dump;
mod engine;
mod event;
mod ledger;
mod memory;
mod mode;
mod options;
#[cfg(not(shuttle))]
mod outside;
mod process;
mod reason;
mod recording;
pub mod setting;
mod stack;
mod tables;
mod thread;

pub use crate::dump::output::{
    open_list, report_becoming_unrecorded, report_hooked_allocator, report_unrecorded,
    working_folder,
};
pub use crate::dump::{AllocatorUsage, DumpError};
pub use crate::engine::{ENGINE, Engine};
pub use crate::event::EngineEvents;
pub use crate::event::reentrancy_guard::{is_inside_allocator, is_inside_engine};
pub use crate::event::trace::ValueTracer;
pub use crate::memory::EngineMemory;
pub use crate::mode::RecordingMode;
pub use crate::options::{
    DEFAULT_PERIOD, DumpFormat, DumpOutput, DumpTriggers, FrameChoice, LedgerRecipient,
    LedgerTaker, MAX_PERIOD, RecordingOptions,
};
pub use crate::reason::DumpReason;
pub use crate::recording::dumps::EngineDumps;
pub use crate::recording::fork::EngineForks;
pub use crate::recording::lifecycle::EngineLifecycle;
#[cfg(not(shuttle))]
pub use crate::recording::rights::RightsLeft;
pub use crate::recording::scripts::StackProviders;
pub use crate::recording::signals::raise_default;
pub use crate::stack::call_site::CallSite;
pub use crate::stack::provider::{
    NamedFrame, PoolPart, RawFrame, RegistrationError, ReportSink, StackCapture, StackProvider,
    TracedValues,
};
pub use heapprof_abi::{RecordingEpoch, StackNumber};
pub use heapprof_profile::HookedAllocator;
pub use heapprof_profile::fork::{LoadAttempt, LoadOutcome};
