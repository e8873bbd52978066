//! Stops a thread of another process for a moment by ptrace.
//!
//! All methods must be called from one thread. When the calling thread ends, the kernel resumes all
//! threads that the calling thread still traces.

use std::io;
use std::time::{Duration, Instant};

use heapprof_abi::letter::{REGISTER_COUNT, stopped_call};
use libc::{c_long, c_void, pid_t};

use crate::arch::{IO_PGETEVENTS, StoppedCall, ThreadRegisters};

/// How long a thread may take to stop if it is in the kernel and can't be interrupted.
const QUICK_STOP_TIMEOUT: Duration = Duration::from_millis(20);
/// How long a thread may take to stop if it only needs a processor for that.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a system call that a thread makes for heapprof may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Flag that the kernel adds to SIGTRAP when a thread stops at a system call. It distinguishes the
/// stop from the signal.
const SYSCALL_STOP_FLAG: i32 = 0x80;

/// System calls that fail with EINTR when their thread is stopped, and that heapprof repeats,
/// because they had no effect: read, readv, preadv2, write, writev, pwritev2 and splice of sockets
/// with a time limit, sendmmsg, io_uring_enter, epoll_wait, epoll_pwait, epoll_pwait2,
/// rt_sigtimedwait, semop,
/// semtimedop, recvfrom, recvmsg, recvmmsg, accept, accept4, sendto, sendmsg, io_getevents,
/// io_pgetevents, msgrcv, msgsnd.
const RESTARTED_CALLS: [i64; 27] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwritev2,
    libc::SYS_splice,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_io_uring_enter,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
];

/// A system call that is repeated.
#[derive(Clone, Copy, Debug)]
struct RestartedCall {
    /// Number of the system call to make: the interrupted call, or the call that continues it.
    number: i64,
    /// The effect of a signal on the call: one of the constants of [`stopped_call`].
    class: u32,
}

/// A thread that was asked to stop.
#[derive(Debug)]
pub(crate) struct StoppingThread(pid_t);

/// A stopped thread. The thread is resumed when this value is dropped.
#[derive(Debug)]
pub(crate) struct StoppedThread {
    tid: pid_t,
    /// The registers with which the thread will be resumed.
    registers: ThreadRegisters,
    /// Whether the registers must be written before the thread is resumed.
    is_changed: bool,
    /// The system call in which the thread was stopped, if the call must be repeated.
    restarted_call: Option<RestartedCall>,
    has_gone_on: bool,
}

/// The type of a request to ptrace.
#[cfg(target_env = "gnu")]
pub(crate) type PtraceRequest = libc::c_uint;
#[cfg(not(target_env = "gnu"))]
pub(crate) type PtraceRequest = libc::c_int;

// Requests to which libc gives another type, or no name.
const GET_SIGNAL_MASK: PtraceRequest = 0x420a;
const SET_SIGNAL_MASK: PtraceRequest = 0x420b;
const GET_RSEQ_CONFIGURATION: PtraceRequest = 0x420f;

pub(crate) fn ptrace(
    request: PtraceRequest,
    tid: pid_t,
    at: usize,
    data: usize,
) -> io::Result<c_long> {
    // SAFETY: the requests of this crate read and write the memory that `at` and `data` lead to,
    // which their callers pass for that.
    let done = unsafe { libc::ptrace(request, tid, at as *mut c_void, data as *mut c_void) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

/// Waits until a thread stops. Returns the signal and the ptrace event that the kernel reports.
fn wait(tid: pid_t, until: Instant) -> io::Result<Option<(i32, i32)>> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        match found {
            -1 => return Err(io::Error::last_os_error()),
            0 if Instant::now() > until => return Ok(None),
            0 => std::thread::sleep(Duration::from_micros(20)),
            _ if libc::WIFSTOPPED(status) => {
                return Ok(Some((libc::WSTOPSIG(status), status >> 16)));
            }
            _ => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

impl StoppingThread {
    /// Asks a thread to stop, and does not wait for it.
    ///
    /// # Errors
    /// The thread may be gone, or belong to another user.
    pub(crate) fn new(tid: u32) -> io::Result<Self> {
        let tid = pid_t::try_from(tid).map_err(|_| io::ErrorKind::NotFound)?;
        // With this option, stops at system calls differ from signals.
        let options = libc::PTRACE_O_TRACESYSGOOD as usize;
        ptrace(libc::PTRACE_SEIZE, tid, 0, options)?;
        ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0)?;
        Ok(Self(tid))
    }

    /// Waits until the thread has stopped. The arguments and the results are those of
    /// [`StoppedThread::new`].
    pub(crate) fn wait(
        self,
        needs_to_run: bool,
        is_held: impl Fn() -> bool,
    ) -> io::Result<Option<StoppedThread>> {
        let Self(tid) = self;
        let until = Instant::now() + STOP_TIMEOUT;
        loop {
            let Some((signal, event)) = wait(tid, Instant::now() + QUICK_STOP_TIMEOUT)? else {
                if is_held() || Instant::now() > until {
                    return Ok(None);
                }
                continue;
            };
            let is_stop = event == libc::PTRACE_EVENT_STOP;
            if is_stop && (signal == libc::SIGTRAP || !needs_to_run) {
                break;
            }
            if Instant::now() > until {
                // The thread is stopped now, and goes on without us.
                let signal = if event == 0 { signal } else { 0 };
                ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize)?;
                return Ok(None);
            }
            // The thread's own signals come first, and are delivered. A stop of the whole process
            // is no signal. The requested stop may be lost if the whole process stops, so it is
            // requested again.
            let signal = if event == 0 { signal } else { 0 };
            ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0)?;
            ptrace(libc::PTRACE_CONT, tid, 0, signal as usize)?;
        }
        let mut stopped = StoppedThread {
            tid,
            registers: ThreadRegisters::zeroed(),
            is_changed: false,
            restarted_call: None,
            has_gone_on: false,
        };
        stopped.registers = stopped.read()?;
        Ok(Some(stopped))
    }
}

impl StoppedThread {
    /// Stops a thread. Returns `None` if it can't be stopped now. After such a failure, another
    /// attempt is possible only when the calling thread has ended.
    ///
    /// `is_held` returns whether the thread is in the kernel and can't be interrupted. If
    /// `needs_to_run` is true, a thread that SIGSTOP has stopped is resumed first. If it is false,
    /// such a thread stays stopped.
    ///
    /// # Errors
    /// The thread may be gone, or belong to another user.
    pub(crate) fn new(
        tid: u32,
        needs_to_run: bool,
        is_held: impl Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        StoppingThread::new(tid)?.wait(needs_to_run, is_held)
    }

    fn read(&self) -> io::Result<ThreadRegisters> {
        let mut registers = ThreadRegisters::zeroed();
        let to = &raw mut registers as usize;
        ptrace(libc::PTRACE_GETREGS, self.tid, 0, to)?;
        Ok(registers)
    }

    fn write(&self, registers: &ThreadRegisters) -> io::Result<()> {
        let from = std::ptr::from_ref(registers) as usize;
        ptrace(libc::PTRACE_SETREGS, self.tid, 0, from).map(drop)
    }

    /// Returns the address of the thread's next instruction, and its stack pointer.
    pub(crate) fn place(&self) -> (u64, u64) {
        self.registers.place()
    }

    /// Resumes the thread at another instruction. The thread must not be in a system call.
    pub(crate) fn move_to(&mut self, at: u64) -> io::Result<()> {
        self.registers.set_next_instruction(at);
        self.write(&self.registers)
    }

    /// Returns the number and the first argument of the system call in which the thread was
    /// stopped; `None` if it was stopped elsewhere.
    pub(crate) fn call_in_kernel(&self) -> Option<(i64, u64)> {
        let call = self.registers.stopped_call()?;
        Some((call.number, self.registers.first_argument()))
    }

    /// Whether the thread is inside a restartable sequence (rseq). `read` reads a word of the
    /// program's memory.
    pub(crate) fn is_in_sequence(&self, read: impl Fn(u64) -> Option<u64>) -> bool {
        /// The kernel's answer to `GET_RSEQ_CONFIGURATION`.
        #[repr(C)]
        #[derive(Default)]
        struct RseqConfiguration {
            at: u64,
            size: u32,
            signature: u32,
            flags: u32,
            unused: u32,
        }
        let mut found = RseqConfiguration::default();
        let to = &raw mut found as usize;
        let size = size_of::<RseqConfiguration>();
        let is_known = ptrace(GET_RSEQ_CONFIGURATION, self.tid, size, to).is_ok();
        // The address of the sequence is the second word.
        is_known && found.at != 0 && read(found.at + 8) != Some(0)
    }

    /// Prepares the thread to be resumed as if it had not been stopped: a system call that the stop
    /// has interrupted is repeated. `is_call` returns whether the instruction before an address is
    /// a system call. `has_signals` returns whether the thread has a pending signal. If it has one,
    /// the signal has interrupted the call, and the call is not repeated.
    pub(crate) fn prepare_restart(
        &mut self,
        is_call: impl Fn(u64) -> bool,
        has_signals: impl Fn() -> bool,
    ) {
        const RESTARTSYS: i64 = -512;
        const RESTARTNOINTR: i64 = -513;
        const RESTARTNOHAND: i64 = -514;
        const RESTART_RESTARTBLOCK: i64 = -516;
        let interrupted = -i64::from(libc::EINTR);
        let Some(StoppedCall { number, result }) = self.registers.stopped_call() else {
            return;
        };
        if !is_call(self.registers.place().0) {
            return;
        }
        let again = |number, class| Some(RestartedCall { number, class });
        self.restarted_call = match result {
            RESTARTNOINTR => again(number, stopped_call::NONE),
            RESTARTSYS => again(number, stopped_call::RESTARTS),
            RESTARTNOHAND => again(number, stopped_call::ENDS),
            RESTART_RESTARTBLOCK => again(libc::SYS_restart_syscall, stopped_call::ENDS),
            failed
                if failed == interrupted && RESTARTED_CALLS.contains(&number) && !has_signals() =>
            {
                // The kernel would not make the call again.
                self.is_changed = true;
                again(number, stopped_call::ENDS)
            }
            _ => None,
        };
    }

    /// Returns the registers with which the thread resumes its own code.
    fn registers_on_resume(&self) -> ThreadRegisters {
        let again = self.restarted_call.map(|again| again.number);
        self.registers.on_resume(again)
    }

    /// Returns the effect of a signal on the system call that is repeated: one of the constants of
    /// [`stopped_call`].
    pub(crate) fn class(&self) -> u32 {
        self.restarted_call
            .map_or(stopped_call::NONE, |again| again.class)
    }

    /// Returns the thread's registers in the order in which an attach letter lists them.
    pub(crate) fn registers(&self) -> [u64; REGISTER_COUNT] {
        self.registers_on_resume().in_letter()
    }

    /// Makes one system call in the thread, by the instruction at `at`, and restores the thread's
    /// state. For some microseconds the thread would be lost if heapprof died.
    pub(crate) fn call(&self, at: u64, number: c_long, args: [u64; 6]) -> io::Result<i64> {
        let changed = self.registers.for_call(at, number, args);
        let (mut mask, all) = (0u64, u64::MAX);
        let size = size_of::<u64>();
        let mask_at = &raw mut mask as usize;
        ptrace(GET_SIGNAL_MASK, self.tid, size, mask_at)?;
        ptrace(SET_SIGNAL_MASK, self.tid, size, &raw const all as usize)?;
        let called = self.run_call(&changed);
        let restored = self.write(&self.registers);
        ptrace(SET_SIGNAL_MASK, self.tid, size, mask_at)?;
        restored?;
        called
    }

    /// Makes the thread run one system call with the registers `registers`, and returns the call's
    /// result. Then stops the thread after the call, at the point where the kernel checks for
    /// signals, because there the kernel decides how the interrupted call continues.
    ///
    /// The thread is not single-stepped. The kernel would force a SIGTRAP for each step, and a
    /// forced SIGTRAP that is blocked or ignored removes the program's handler.
    fn run_call(&self, registers: &ThreadRegisters) -> io::Result<i64> {
        self.write(registers)?;
        let is_call = |signal, _| signal == libc::SIGTRAP | SYSCALL_STOP_FLAG;
        // The thread stops once at the beginning of the call, and once at its end.
        self.run_until(libc::PTRACE_SYSCALL, is_call)?;
        self.run_until(libc::PTRACE_SYSCALL, is_call)?;
        let result = self.read()?.call_result();
        ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
        self.run_until(libc::PTRACE_CONT, |_, event| {
            event == libc::PTRACE_EVENT_STOP
        })?;
        Ok(result)
    }

    /// Resumes the thread by `request` until it stops with a signal and an event for which
    /// `is_wanted` returns true. The thread's signals must be blocked. If another thread stops the
    /// whole process meanwhile, this thread stops when it is released.
    fn run_until(
        &self,
        request: PtraceRequest,
        is_wanted: impl Fn(i32, i32) -> bool,
    ) -> io::Result<()> {
        let until = Instant::now() + CALL_TIMEOUT;
        loop {
            ptrace(request, self.tid, 0, 0)?;
            match wait(self.tid, until)? {
                Some((signal, event)) if is_wanted(signal, event) => return Ok(()),
                Some((_, event)) if event != 0 && Instant::now() < until => {}
                _ => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// Returns the signals that the thread blocks. Signals that are blocked only during its present
    /// system call are left out.
    pub(crate) fn mask(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        let at = &raw mut mask as usize;
        ptrace(GET_SIGNAL_MASK, self.tid, size_of::<u64>(), at)?;
        Ok(mask)
    }

    /// Resumes the thread in the stub at `at`, with its stack at `stack` and the letter at
    /// `letter`, and with the signals `blocked` blocked. From then on the stub controls the thread.
    pub(crate) fn send(mut self, at: u64, stack: u64, letter: u64, blocked: u64) -> io::Result<()> {
        self.write(&self.registers.for_stub(at, stack, letter))?;
        self.has_gone_on = true;
        // The code there blocks these signals, too, and unblocks them at the end.
        let from = &raw const blocked as usize;
        ptrace(SET_SIGNAL_MASK, self.tid, size_of::<u64>(), from)?;
        ptrace(libc::PTRACE_DETACH, self.tid, 0, 0).map(drop)
    }
}

/// Releases a thread that was given up, if it has stopped meanwhile. Returns whether the thread is
/// released or gone.
pub(crate) fn let_go(tid: u32) -> bool {
    let Ok(tid) = pid_t::try_from(tid) else {
        return true;
    };
    match wait(tid, Instant::now()) {
        Ok(None) => false,
        Ok(Some((signal, event))) => {
            let signal = if event == 0 { signal } else { 0 };
            let _ = ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize);
            true
        }
        Err(_) => true,
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if self.has_gone_on {
            return;
        }
        if self.is_changed {
            // If the registers can't be written, the thread goes on as the kernel would let it.
            let _ = self.write(&self.registers_on_resume());
        }
        let _ = ptrace(libc::PTRACE_DETACH, self.tid, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use libc::user_regs_struct;

    use super::*;

    /// Returns a thread that was stopped in the system call `number` with this value of rax. There
    /// is no such thread on the machine.
    fn stopped(number: i64, rax: i64) -> StoppedThread {
        // SAFETY: the structure has only numbers, for which zero is a valid value.
        let zeros: user_regs_struct = unsafe { std::mem::zeroed() };
        StoppedThread {
            tid: 0,
            registers: ThreadRegisters::from(user_regs_struct {
                rip: 0x4002,
                rsp: 0x7000,
                rax: rax as u64,
                orig_rax: number as u64,
                ..zeros
            }),
            is_changed: false,
            restarted_call: None,
            has_gone_on: true,
        }
    }

    /// Tests how the kernel's values in `rax` are interpreted for a system call: the effect of a
    /// signal on the call, the call that is made again, and whether the registers must be changed.
    #[test]
    fn an_interrupted_call_is_made_again() {
        const EINTR: i64 = -(libc::EINTR as i64);
        let read = libc::SYS_read;
        for (number, rax, expected) in [
            (read, -513, Some((stopped_call::NONE, read, false))),
            (read, -512, Some((stopped_call::RESTARTS, read, false))),
            (read, -514, Some((stopped_call::ENDS, read, false))),
            (
                libc::SYS_nanosleep,
                -516,
                Some((stopped_call::ENDS, libc::SYS_restart_syscall, false)),
            ),
            (read, EINTR, Some((stopped_call::ENDS, read, true))),
            // A call that may have had an effect is not made again.
            (libc::SYS_close, EINTR, None),
            (read, 5, None),
            (read, -i64::from(libc::EIO), None),
            // The thread is in no call.
            (-1, -512, None),
        ] {
            let mut thread = stopped(number, rax);
            thread.prepare_restart(|at| at == 0x4002, || false);
            let rip = thread.registers()[16];
            let resumed = thread.registers_on_resume().stopped_call();
            assert!(resumed.is_none(), "no call is made again by the kernel");
            match expected {
                Some((class, again, is_changed)) => {
                    assert_eq!((thread.class(), rip), (class, 0x4000), "{number} {rax}");
                    assert_eq!(thread.registers()[0], again as u64, "{number} {rax}");
                    assert_eq!(thread.is_changed, is_changed, "{number} {rax}");
                }
                None => {
                    let (class, rax_now) = (thread.class(), thread.registers()[0] as i64);
                    let same = (stopped_call::NONE, 0x4002, rax);
                    assert_eq!((class, rip, rax_now), same, "{number} {rax}");
                }
            }
        }
    }

    #[test]
    fn a_call_that_a_signal_has_ended_is_not_made_again() {
        let mut thread = stopped(libc::SYS_read, -i64::from(libc::EINTR));
        thread.prepare_restart(|_| true, || true);
        assert!(thread.restarted_call.is_none() && !thread.is_changed);
        // If the thread is in no system call, no call is repeated.
        let mut thread = stopped(libc::SYS_read, -512);
        thread.prepare_restart(|_| false, || false);
        assert!(thread.restarted_call.is_none());
    }

    #[test]
    fn registers_are_in_the_order_of_a_letter() {
        // SAFETY: the structure has only numbers, for which zero is a valid value.
        let mut r: user_regs_struct = unsafe { std::mem::zeroed() };
        for (i, register) in [
            &mut r.rax,
            &mut r.rbx,
            &mut r.rcx,
            &mut r.rdx,
            &mut r.rsi,
            &mut r.rdi,
            &mut r.rbp,
            &mut r.rsp,
            &mut r.r8,
            &mut r.r9,
            &mut r.r10,
            &mut r.r11,
            &mut r.r12,
            &mut r.r13,
            &mut r.r14,
            &mut r.r15,
            &mut r.rip,
            &mut r.eflags,
        ]
        .into_iter()
        .enumerate()
        {
            *register = 100 + i as u64;
        }
        let mut thread = stopped(-1, 0);
        thread.registers = r.into();
        let expected: [u64; REGISTER_COUNT] = std::array::from_fn(|i| 100 + i as u64);
        assert_eq!(thread.registers(), expected);
        assert_eq!(thread.place(), (116, 107));
    }
}
