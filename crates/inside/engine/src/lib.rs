//! The engine inside the profiled process: it chooses allocations, gets their stacks, keeps the
//! ledger and writes the profile.
//!
//! It does not know which functions were hooked, and it knows no symbols. A crate that hooks
//! (heapprof-preload, heapprof-alloc) uses the process's one [`Engine`], which is [`ENGINE`]. It
//! reports each allocation to the engine's [`EngineEvents`] ([`EngineEvents::charge`]), makes those
//! that the engine chooses through [`EngineEvents::allocate`], and reports each free that
//! [`EngineEvents::may_hold`] lets through. While an allocation is recorded, nothing touches errno,
//! and nothing allocates. In `libheapprof.so` nothing calls the program's allocator. In a dynamic
//! executable with glibc 2.35 or later nothing takes the loader's lock.
//!
//! # The path of one allocation
//!
//! A recorded program calls `malloc(100)`.
//!
//! 1. **The hook** (`fast_path.rs` of heapprof-preload) takes five instructions. It finds the
//!    thread's slot in initial-exec storage, subtracts 101 from the countdown, and jumps to the
//!    real malloc unless that borrowed. It pushes nothing, so the real malloc returns to the
//!    program. In exact mode the countdown is 0 and always borrows. A thread's first allocation
//!    borrows too, because its slot begins as zeros. `free` looks up one byte by the address
//!    (`filter.rs`), and jumps to the real free if it is 0: seven instructions. The byte counts the
//!    sampled blocks of its place; in exact mode all bytes are 255.
//! 2. **The countdown** (`block.rs`, `sampler.rs`). [`EngineEvents::allocate`] gets the place of
//!    the call ([`CallSite`]: where the return address lies, and rbp). A thread's first event gives
//!    it a state, a dead thread's if there is one. The event marks the thread busy and puts the
//!    countdown out of reach. When sampling, it draws the next distance at the end.
//! 3. **The stack** (`capture.rs`). The thread's last stack is kept with the place of each return
//!    address. When unwinding reaches a place that it knows, it compares the older frames with
//!    memory instead of unwinding them. Of a deep stack (1,288 frames) both ends are kept, and
//!    marks between them (`capture/deep_stack.rs`). `recent_stacks.rs` keeps a few more stacks
//!    whole, for loops that allocate on two or three in turn. One step is in `walk.rs`: the return
//!    address finds its rule in a table. The first time, `modules.rs` finds the object and `cfi.rs`
//!    reads its `.eh_frame_hdr`. If a provider knows an interpreter that the thread runs
//!    (`provider.rs`), the stack is the interpreter's instead: frames as numbers, whose texts are
//!    copied when they are new (`script.rs`, `script_frames.rs`). With `--frames=both`, the
//!    interpreter's frames are put into the native stack.
//! 4. **Its number** (`stacks.rs`). A hash leads to the number, without a lock if the stack was
//!    seen before. A new stack is added under a lock, as an earlier stack and the frames above it,
//!    with the generation of the mappings (`mappings.rs`). The generation goes up when code lies
//!    where other code was. If a recording counts each thread separately, the thread then looks up
//!    its own number for that stack (`by_thread.rs`): the same frames, and a word for the thread,
//!    which `names.rs` resolves. So a free by another thread needs nothing more.
//! 5. **The real malloc** is called, so its block is new to the tables. In exact mode this comes
//!    before step 4, and what step 4 needs comes into the cache meanwhile.
//! 6. **The live table** (`live.rs`) leads from the address to stack and size, in 128 parts. A part
//!    belongs to the first thread that touches it, without a lock, until another thread touches it.
//! 7. **The counters** (`counters.rs`): the thread's own counters of that stack, written without a
//!    locked instruction, and the process's sum in use. The peak of each stack costs constant time
//!    per event: its counters are copied aside at their first change after the heap fell from a new
//!    maximum. Well below the peak, threads count what is in use in budgets. Near it they count one
//!    by one, and each event takes a lock for the process's sum and for its stack's counters.
//! 8. **The end of the event.** A dump that became due meanwhile (`dump_schedule.rs`: growth, a
//!    peak, a signal) is made here.
//!
//! A free goes the other way before the real free, because afterwards another thread may get the
//! address: the live table, the counters, the real free. A realloc takes the old block out, calls
//! the real one, and puts the old block back if that failed.
//!
//! A dump (`dumps.rs`) takes the dump lock, blocks signals and changes to a stack of its own,
//! because the program's stack may be a signal's. It adds up the counters of all threads while no
//! thread opens the ledger (`LedgerAccess::run_at_rest`): threads wait in their next event, for
//! about a millisecond. So all sums are of one moment. It writes pprof or text to a `.tmp` file and
//! renames that. The program's other threads go on meanwhile.
//!
//! If the growth of lines is to be reported, a scan (`lines.rs`) is made in the same way, whenever
//! enough was allocated (`growth_reports.rs`). It compares the memory in use of each stack with the
//! last reported size, and adds a small profile of the stacks that have changed to a file.
//!
//! Whenever threads report what they have allocated or freed, one of them checks the heap
//! (`moment.rs`). If a moment is due, it goes into the recording's history (`history.rs`,
//! `moments.rs`), which a dump writes into a comment beside the sizes of allocations (`sizes.rs`,
//! `notes.rs`). No clock runs for that, and no file is opened.
//!
//! Under `record`, the tables from which a profile is made lie in a file in memory that `record`
//! has open, too: the saved ledger (`table_file.rs`, `shared_ledger.rs`). So the tables outlive a
//! program that is killed. A forked child gets tables of its own before it counts anything. If the
//! child may use little memory, its tables move into a file only later (`delay.rs`).
//!
//! # The engine
//!
//! An [`Engine`] is a value of parts, and a part owns its state (`engine.rs`). Two things lie
//! outside an engine: each thread's slot (`tls.rs`), which serves one engine at a time, and the
//! filter's memory, which the hooks read. The `EngineProcess` contains the state that all parts
//! need: what is recorded, what was dropped, which thread forks, where tables get memory.
//! Restarting, going on with inherited tables and listing the locks for fork are one function each.
//! Each takes the engine apart without leaving a part out, so the compiler reports a part that was
//! added and not handled there.
//!
//! # Folders
//!
//! The crate heapprof-platform contains the system calls, locks, memory of our own, stacks to
//! switch to and the thread's slot. Its files `sys.rs`, `lock.rs`, `arena.rs`, `table_file.rs`,
//! `stack_switch.rs`, `tls.rs` and `trial.rs` are named on this page.
//!
//! From the bottom up; no folder uses one that stands after it.
//!
//! * `arch/`: the parts of unwinding that depend on the processor: registers, unwind rules, signal
//!   frames.
//! * `tables/`: growing arrays, hash tables, the numbers of stacks, counters, samples.
//! * `code/`: which files are mapped, and how to unwind from an address.
//! * `stack/`: the stack of an allocation.
//! * `thread/`: the state of each thread.
//! * `ledger/`: which blocks are in use, what was counted, and how threads share both.
//! * `dump/`: the state that lasts from one dump to the next: options, names, turns, triggers.
//! * `event/`: the events in the program's threads, and how a thread enters and leaves the engine.
//! * `recording/`: a recording from start to stop, its dumps and files, forks and signals.
//!
//! The files beside them hold the engine (`engine.rs`), its own memory (`memory.rs`), the process
//! (`process.rs`), what is recorded (`mode.rs`), what was dropped (`drop_counters.rs`), what was
//! asked for (`options.rs`, `setting.rs`), and why dumps are made (`reason.rs`).
//!
//! # Rules for every part
//!
//! * **Busy.** A thread inside the engine has `busy` set. What allocates meanwhile (a signal
//!   handler, libc for us) goes to the real function; it is counted as dropped and never recorded.
//!   So no thread enters the engine twice, and no thread waits for a lock that it has taken itself.
//!   `reentrancy_guard.rs` does the same for the engine's own work.
//! * **What may allocate.** Steps 1 to 8 never allocate: tables grow by mmap, in chunks that do not
//!   move. Dumps, the start, dlclose, options and counted mappings do, and before glibc 2.35 the
//!   list of loaded objects does. They allocate from `arena.rs`, the library's global allocator
//!   over private mappings. Only what a C function hands out (`GetHeapProfile`) comes from the
//!   program's malloc, because the program frees it. libc might look up the text of an errno with
//!   that malloc (gettext), so errors go to the desk as numbers.
//! * **Locks** are futexes (`lock.rs`). Each has a rank in its type, and a thread takes them in the
//!   order of their ranks. A debug build asserts that. Fork takes all of them in this order
//!   (`fork.rs`), and libc malloc's own after them. So a signal handler, whose thread may be inside
//!   malloc, waits for none of them while a thread forks, and lets that thread dump. A lock that
//!   fork does not get in time belongs to a thread that a signal handler holds up. The child has no
//!   such thread. It treats all locks as free and records nothing, which the parent counts.
//! * **Layers.** Modules use no module that uses them. The modules for what is recorded
//!   (`mode.rs`), for the state of threads (`thread/`), for the sums (`counters.rs`) and for the
//!   tables do not use events. `dump_schedule.rs`, which every event checks, learns at the start
//!   what makes the dumps.
//! * **Owners** (`access.rs`). A thread uses what it owns with plain loads and stores while it has
//!   the ledger open, and it checks each time whether it still owns it. A thread that takes a
//!   resource from its owner marks the resource first, has the kernel run a barrier on every core,
//!   and waits until the owner has closed the ledger. The taker has the ledger closed meanwhile,
//!   because otherwise two takers would wait for each other.
//! * **Publication.** A value is written before the key, number or pointer that leads to it. The
//!   key, number or pointer is stored with release and read with acquire. Keys and stacks never
//!   change. Rules and hash tables are replaced by larger ones, and the old ones stay mapped for
//!   threads that still read them.
//! * **errno.** System calls are made directly (`sys.rs`) and return their error.
//! * **No `__tls_get_addr`**, because it may allocate. Our slot is initial-exec storage, and std's
//!   thread-locals come to heapprof-preload's `thread_local.rs`.
//! * **Turns** (`dump_turn.rs`). One thread dumps at a time. Meanwhile an automatic dump is put
//!   off, and a dump that the program asks for waits, while signals are let through. A signal
//!   handler leaves a note, and the thread that dumps makes one more dump. Nothing follows the last
//!   dump or an exec's dump.
//! * **Signals.** A handler dumps, or asks for a dump if it interrupted the engine
//!   (`DumpSchedule::request_dump`). Signals are blocked in a dump. A handler of ours is installed
//!   only if the program left the default, and it calls only async-signal-safe functions.
//! * **fork** keeps the tables. Its handlers are registered first, so that other libraries'
//!   handlers take their locks before ours are taken. They stay registered when libc removes the
//!   handlers of libraries at the end, because a thread may be between the first and the second
//!   handler. A child that is whole starts its sums anew from what is in use. Children of **vfork**
//!   and posix_spawn share memory and do not dump: the process id distinguishes them. Before an
//!   **exec** there is a dump; if the exec fails, the next dump takes that file away.
//! * **Our own thread** (`recording/clock.rs`) exists only if there is an interval, `record
//!   --live`, or growth of lines to report. It makes each dump in a thread without the program's
//!   open files. It is gone before the program changes its identity or its namespaces, because libc
//!   changes the identity of all threads, and the kernel denies some changes to a process with two
//!   threads.
//! * **Files used up.** If the program has no file descriptor left, a dump is made in a child that
//!   shares its memory, has a copy of its descriptors, and closes some of them (`stack_switch.rs`).
//!   The program's thread sleeps meanwhile. This is not done behind a filter of system calls.
//! * **Sandboxes.** Before a seccomp filter is installed, a child installs it and makes every kind
//!   of system call that events and dumps make (`trial.rs`; a new kind belongs there). If the child
//!   dies, the last profile is written first, and from then on nothing of ours calls the kernel.
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

pub use crate::dump::output::{report_becoming_unrecorded, report_unrecorded, working_folder};
pub use crate::dump::{AllocatorUsage, DumpError};
pub use crate::engine::{ENGINE, Engine};
pub use crate::event::EngineEvents;
pub use crate::event::reentrancy_guard::is_inside_engine;
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
pub use heapprof_profile::fork::{LoadAttempt, LoadOutcome};
