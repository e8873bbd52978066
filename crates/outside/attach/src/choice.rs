//! Chooses a thread of the program that can be diverted for a moment. Such a thread has taken no
//! lock that the loader, the allocator or heapprof's library needs.
//!
//! Threads are examined while they run, and are stopped one at a time. Threads in a system call
//! that continues after a stop are tried first.

use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant};

use heapprof_memory::Memory;
use heapprof_process::{is_there, run_state, status};

use crate::arch::signal_frame::{CODE_SEGMENT, SEGMENT_AFTER_PC};
use crate::c_library::CLibrary;
use crate::error::AttachError;
use crate::musl::{self, LockingCode};
use crate::process::{TargetProcess, contains_address, permission_error};
use crate::region::AttachRegion;
use crate::suspended_thread::has_signals;
use crate::thread::{StoppedThread, let_go};
use crate::unwind::EhFrameTables;

/// How long the search for a safe thread may take.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a waiting thread counts as being inside the loader, if its stack has addresses of the
/// loader and its calls can't be found. After this time, the addresses are taken for remains of
/// earlier calls.
const LOADER_WAIT_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of bytes of a stack that are searched for return addresses.
const MAX_STACK_SCAN: u64 = 64 << 10;
/// Time to wait for a thread inside the loader before all threads are examined again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// System calls that, like futex, continue by themselves after a stop: read, poll, select,
/// nanosleep, wait4, clock_nanosleep, pselect6, ppoll, waitid, pause, rt_sigsuspend,
/// restart_syscall, flock.
const RESUMING_CALLS: [i64; 13] = [
    libc::SYS_read,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_nanosleep,
    libc::SYS_wait4,
    libc::SYS_clock_nanosleep,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_waitid,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_restart_syscall,
    libc::SYS_flock,
];

/// System calls in which a thread waits, and which no allocator makes: read, readv, poll, ppoll,
/// select, pselect6, epoll_wait, epoll_pwait, epoll_pwait2, wait4, waitid, pause, rt_sigsuspend,
/// rt_sigtimedwait, accept, accept4, recvfrom, recvmsg, recvmmsg.
const CALLS_OUTSIDE_ALLOCATORS: [i64; 19] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];

/// The activity of a thread, as far as it is known without stopping the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ThreadActivity {
    /// The thread waits in a system call that continues after a stop.
    WaitsSafely,
    /// The thread waits for another thread, in a system call that continues after a stop.
    WaitsForThreads,
    Runs,
    /// The thread waits in a system call that may end early when the thread is stopped.
    Waits,
}

/// Chooses a thread of a program that can be diverted safely.
pub(crate) struct SafeThreadSelector<'a> {
    process: &'a TargetProcess,
    forbidden_code: Vec<Range<u64>>,
    /// The code that may run with a lock, if the program uses musl.
    musl: Option<LockingCode>,
    /// Whether the program has its own malloc. Then a thread is only safe in a system call that no
    /// allocator makes.
    has_own_malloc: bool,
    ends: Option<Range<u64>>,
    loader: Vec<Range<u64>>,
    tables: EhFrameTables<'a>,
    /// Threads that could not be stopped in time.
    given_up: RefCell<Vec<u32>>,
    since: Instant,
}

impl<'a> SafeThreadSelector<'a> {
    /// Reads the program's code.
    ///
    /// # Errors
    /// musl is not found in a program of musl.
    pub(crate) fn new(
        process: &'a TargetProcess,
        region: Option<AttachRegion>,
    ) -> Result<Self, AttachError> {
        // A thread that was diverted into the region before may still be there.
        let of_region = region.map(AttachRegion::code);
        let ours = process.own_code().chain(of_region);
        let (musl, code, ends, loader) = match process.c_library {
            CLibrary::Glibc => {
                let (code, loader) = (process.forbidden_code(), process.loader_code());
                (None, code, process.thread_end_code(), loader)
            }
            CLibrary::Musl => {
                let musl = LockingCode::new(process, region);
                let musl = musl.ok_or(AttachError::Missing("a usable C library"))?;
                (Some(musl), Vec::new(), None, Vec::new())
            }
        };
        Ok(Self {
            process,
            forbidden_code: code.into_iter().chain(ours).collect(),
            musl,
            has_own_malloc: process.has_malloc(),
            ends,
            loader,
            tables: EhFrameTables::new(process),
            given_up: RefCell::new(Vec::new()),
            since: Instant::now(),
        })
    }

    /// Stops a safe thread, and returns it with its number. Among equally suitable threads, `first`
    /// is tried first.
    pub(crate) fn stop(&self, first: u32) -> Result<(u32, StoppedThread), AttachError> {
        let mut refused = None;
        loop {
            for (_, tid) in self.candidates(first) {
                match self.try_to_stop(tid) {
                    Ok(Some(stopped)) => return Ok((tid, stopped)),
                    Ok(None) => {}
                    Err(error) => match error.raw_os_error() {
                        // A thread that is ending, or that another process traces, can't be traced.
                        Some(libc::EPERM) if self.is_free(tid) => {
                            refused = Some(permission_error())
                        }
                        Some(libc::EPERM) => {}
                        // The thread has ended.
                        Some(libc::ESRCH) | None => {}
                        Some(_) => refused = Some(AttachError::KernelError("ptrace", error)),
                    },
                }
                if self.since.elapsed() > SELECTION_TIMEOUT {
                    break;
                }
            }
            self.let_go();
            if let Some(refused) = refused {
                return Err(refused);
            }
            if !is_there(self.process.pid) {
                return Err(AttachError::NoProcess);
            }
            if self.since.elapsed() > SELECTION_TIMEOUT {
                return Err(AttachError::NoSafeThread(SELECTION_TIMEOUT.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Releases threads that were given up and have stopped since then.
    pub(crate) fn let_go(&self) {
        self.given_up.borrow_mut().retain(|&tid| !let_go(tid));
    }

    /// Whether a thread exists and is not traced.
    fn is_free(&self, tid: u32) -> bool {
        is_there(tid) && status(tid, ["TracerPid:"]) == ["0"]
    }

    /// Whether a thread has left the region and will not return to the region's code.
    pub(crate) fn is_outside(&self, tid: u32, region: AttachRegion) -> bool {
        let Some(stopped) = self.stop_one(tid).ok().flatten() else {
            return false;
        };
        let (pc, stack) = stopped.place();
        // A handler that the thread runs may return there.
        !region.contains(pc) && !region.contains(stack) && !self.is_in(&[region.code()], pc, stack)
    }

    /// Returns the threads that may be safe, the most suitable ones first. The list is empty while
    /// any thread waits inside the loader: such a thread has the loader's lock, and may wait for
    /// the thread that is to be diverted.
    fn candidates(&self, first: u32) -> Vec<((bool, ThreadActivity, bool), u32)> {
        let mut all = Vec::new();
        for tid in self.process.threads() {
            let Some((does, place)) = self.find_activity(tid) else {
                continue;
            };
            let mut seems_held = false;
            if let Some((pc, stack)) = place {
                let may_be = self.is_in(&self.loader, pc, stack);
                if may_be && self.is_in_loader(tid) {
                    std::thread::sleep(RETRY_INTERVAL);
                    return Vec::new();
                }
                // Addresses on the thread's stack may be left from earlier calls.
                seems_held = self.is_in(&self.forbidden_code, pc, stack);
            }
            all.push(((seems_held, does, tid != first), tid));
        }
        all.sort_unstable();
        all
    }

    /// Whether a waiting thread will return into the loader. Such a thread has the loader's lock,
    /// and may wait for the thread that is to be diverted.
    fn is_in_loader(&self, tid: u32) -> bool {
        let stopped = self.stop_one(tid).ok().flatten();
        match stopped.and_then(|stopped| self.tables.calls(&stopped.registers())) {
            Some(calls) => calls
                .into_iter()
                .any(|call| contains_address(&self.loader, call)),
            // The addresses may be left from an earlier call.
            None => self.since.elapsed() < LOADER_WAIT_LIMIT,
        }
    }

    /// Returns the activity of a thread, and, if it waits, its next instruction and its stack
    /// pointer. Returns `None` if the activity is not known.
    fn find_activity(&self, tid: u32) -> Option<(ThreadActivity, Option<(u64, u64)>)> {
        let path = format!("/proc/{}/task/{tid}/syscall", self.process.pid);
        let call = std::fs::read_to_string(path).ok()?;
        let mut words = call.split_whitespace();
        let number = words.next()?;
        if number == "running" {
            return Some((ThreadActivity::Runs, None));
        }
        let number: i64 = number.parse().ok()?;
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let mut last = words.rev();
        let (pc, stack) = (hex(last.next()?)?, hex(last.next()?)?);
        let does = match number {
            libc::SYS_futex => ThreadActivity::WaitsForThreads,
            number if RESUMING_CALLS.contains(&number) => ThreadActivity::WaitsSafely,
            _ => ThreadActivity::Waits,
        };
        Some((does, Some((pc, stack))))
    }

    /// Whether a thread is in one of the ranges `places`, or has an address in one of them on its
    /// stack.
    fn is_in(&self, places: &[Range<u64>], pc: u64, stack: u64) -> bool {
        if contains_address(places, pc) {
            return true;
        }
        // A stack that can't be read does not count as safe.
        let words = self.stack_words(stack, MAX_STACK_SCAN);
        words.is_none_or(|words| words.iter().any(|&word| contains_address(places, word)))
    }

    /// Whether a thread is in one of the ranges `places`, or may return there: its stack has an
    /// address there that is not only left from an earlier call, or that the kernel has saved for
    /// the end of a signal handler.
    fn may_be_in(&self, places: &[Range<u64>], pc: u64, stack: u64) -> bool {
        let words = self.stack_words(stack, MAX_STACK_SCAN);
        contains_address(places, pc)
            || words.is_none_or(|words| {
                let behind = (stack & !7) + 8;
                let mut all = words.iter().zip((behind..).step_by(8)).enumerate();
                all.any(|(i, (&word, sp))| {
                    let segment = words.get(i + SEGMENT_AFTER_PC);
                    let is_saved = segment.is_some_and(|word| word & 0xffff == CODE_SEGMENT);
                    contains_address(places, word)
                        && (is_saved || !self.tables.is_left_over(word, sp))
                })
            })
    }

    /// Reads the words of a thread's stack, from the address `stack` on, and at most `most` bytes.
    /// Returns `None` if it can't be read.
    fn stack_words(&self, stack: u64, most: u64) -> Option<Vec<u64>> {
        let stack = stack & !7;
        // The thread may have moved on while its stack is read. If the stack's mapping is not
        // known, only its page is read.
        let end = self
            .process
            .map_of(stack)
            .map_or(stack + 4096 - stack % 4096, |map| map.end);
        let len = (end.saturating_sub(stack)).min(most) as usize;
        let mut bytes = vec![0; len];
        let is_read = self.process.memory().read(stack, &mut bytes);
        let words = bytes.as_chunks::<8>().0.iter();
        is_read.then(|| words.map(|word| u64::from_ne_bytes(*word)).collect())
    }

    /// Stops a thread, whatever code it runs. Returns `None` if the thread can't be stopped now.
    fn stop_one(&self, tid: u32) -> std::io::Result<Option<StoppedThread>> {
        let is_held = || run_state(tid) == Some('D');
        self.let_go();
        if self.given_up.borrow().contains(&tid) || is_held() {
            return Ok(None);
        }
        let Some(mut stopped) = StoppedThread::new(tid, true, is_held)? else {
            self.given_up.borrow_mut().push(tid);
            return Ok(None);
        };
        stopped.prepare_restart(|before| self.process.is_call(before), || has_signals(tid));
        Ok(Some(stopped))
    }

    /// Stops a thread, and resumes it if it is not safe.
    fn try_to_stop(&self, tid: u32) -> std::io::Result<Option<StoppedThread>> {
        let Some(stopped) = self.stop_one(tid)? else {
            return Ok(None);
        };
        let memory = self.process.memory();
        let is_safe = self.is_safe(&stopped) && !stopped.is_in_sequence(|at| memory.u64(at));
        Ok(is_safe.then_some(stopped))
    }

    /// Whether a stopped thread is outside of all code that may have taken a lock.
    fn is_safe(&self, stopped: &StoppedThread) -> bool {
        let (pc, stack) = stopped.place();
        if self.ends.as_ref().is_some_and(|ends| ends.contains(&pc)) {
            return false;
        }
        if let Some(musl) = &self.musl {
            // A stack whose end is not known, or is too far, does not count as safe.
            let map = self.process.map_of(stack);
            let is_known = map.is_some_and(|map| map.end - stack <= musl::MAX_STACK_LEN);
            let is_read = || self.stack_words(stack, musl::MAX_STACK_LEN);
            return musl.is_left(pc, stopped.call_in_kernel())
                && is_known
                && is_read().is_some_and(|words| !musl.is_on_stack(&words));
        }
        let waits_outside = || {
            let call = stopped.call_in_kernel();
            call.is_some_and(|(number, _)| CALLS_OUTSIDE_ALLOCATORS.contains(&number))
        };
        if self.has_own_malloc && !waits_outside() {
            return false;
        }
        match self.tables.calls(&stopped.registers()) {
            // A signal may have interrupted the program's allocator.
            None if self.has_own_malloc => false,
            Some(calls) => !calls
                .into_iter()
                .any(|call| contains_address(&self.forbidden_code, call)),
            // The thread runs code without an unwinding table.
            None => !self.may_be_in(&self.forbidden_code, pc, stack),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::EchoProgram;

    /// Tests that threads in a system call that continues after a stop are preferred.
    #[test]
    fn activities_are_in_the_order_of_preference() {
        let mut all = [
            ThreadActivity::Waits,
            ThreadActivity::Runs,
            ThreadActivity::WaitsForThreads,
            ThreadActivity::WaitsSafely,
        ];
        all.sort_unstable();
        assert_eq!(
            all,
            [
                ThreadActivity::WaitsSafely,
                ThreadActivity::WaitsForThreads,
                ThreadActivity::Runs,
                ThreadActivity::Waits,
            ]
        );
    }

    #[test]
    fn an_address_is_in_one_of_several_ranges() {
        let places = [10..20, 30..31];
        for (address, expected) in [(9, false), (10, true), (19, true), (20, false), (30, true)] {
            assert_eq!(contains_address(&places, address), expected, "{address}");
        }
        assert!(!contains_address(&[], 0));
    }

    /// Tests that a program waiting for input is stopped, makes a system call for the test, and
    /// goes on.
    #[test]
    fn a_thread_makes_a_call_for_us_and_goes_on() {
        let mut program = EchoProgram::start(":");
        let pid = program.pid();
        let process = TargetProcess::open(pid).unwrap();
        // The kernel resumes a thread when the thread that traces it ends.
        let region = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let selector = SafeThreadSelector::new(&process, None).unwrap();
                let (tid, stopped) = selector.stop(0).unwrap();
                assert_eq!(tid, pid);
                let (pc, stack) = stopped.place();
                assert!(process.map_of(pc).unwrap().is_code);
                assert!(process.map_of(stack).unwrap().is_writable);
                assert!(!contains_address(&selector.forbidden_code, pc));
                // The calls are known up to the beginning of the program.
                let calls = selector.tables.calls(&stopped.registers()).unwrap();
                assert!(calls.len() > 2, "{calls:x?}");
                assert_eq!(calls[0], stopped.registers()[16]);
                let is_code = |at: &u64| process.map_of(*at).is_some_and(|map| map.is_code);
                assert!(calls.iter().all(is_code), "{calls:x?}");
                // The addresses that the thread returns to are found where they are.
                let words = selector.stack_words(stack, MAX_STACK_SCAN).unwrap();
                let returns: Vec<bool> = words
                    .iter()
                    .zip((stack + 8..).step_by(8))
                    .filter(|(word, _)| calls[1..].contains(word))
                    .map(|(&word, sp)| selector.tables.is_left_over(word, sp))
                    .collect();
                assert!(returns.contains(&false), "{returns:?} {calls:x?}");
                // The start of a function is no such address, nor is a return address elsewhere.
                let start = process.symbol("malloc").unwrap().address;
                assert!(selector.tables.is_left_over(start, stack));
                assert!(
                    selector
                        .tables
                        .is_left_over(calls[1], process.map_of(stack).unwrap().end - 64)
                );
                let at = process.system_call().unwrap();
                let before = stopped.registers();
                let own = stopped.call(at, libc::SYS_getpid, [0; 6]).unwrap();
                assert_eq!(own, i64::from(pid));
                let failed = stopped.call(at, libc::SYS_close, [u64::MAX, 0, 0, 0, 0, 0]);
                assert_eq!(failed.unwrap(), -i64::from(libc::EBADF));
                assert_eq!(stopped.registers(), before);
                let region = AttachRegion::make(&process, &stopped, 4096).unwrap();
                region.write_code(process.memory()).unwrap();
                region
            });
            work.join().unwrap()
        });
        program.echo();
        // The next attachment finds the region that was left.
        drop(process);
        let next = TargetProcess::open(pid).unwrap();
        assert_eq!(AttachRegion::find(&next), Some(region));
        let map = next.map_of(region.start()).unwrap();
        assert_eq!(map.range(), region.code());
        program.echo();
    }

    #[test]
    fn a_suspended_thread_goes_on_as_if_nothing_had_been() {
        let mut program = EchoProgram::start(":");
        let memory = std::fs::File::open(format!("/proc/{}/mem", program.pid())).unwrap();
        for _ in 0..20 {
            // The thread may be anywhere: before its call, in it, or behind.
            let suspended = crate::SuspendedThread::new(program.pid(), program.pid(), &memory);
            let suspended = suspended.unwrap().unwrap();
            assert_eq!(suspended.registers()[7], suspended.stack());
            drop(suspended);
            program.echo();
        }
    }
}
