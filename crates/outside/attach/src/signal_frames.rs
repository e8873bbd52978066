//! The registers that the kernel has saved on a thread's stack before it ran a signal handler.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use heapprof_memory::Memory;
use heapprof_process::maps::{self, ProcessMapping};

use crate::arch::signal_frame::{CODE_SEGMENT, PC_OFFSET, RESTORERS, SEGMENT_OFFSET, STACK_OFFSET};
use crate::error::AttachError;
use crate::process::TargetProcess;

/// Maximum number of bytes of a stack that are searched.
const MAX_STACK_LEN: u64 = 16 << 20;

/// Registers that the kernel has saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalFrame {
    /// Address of the saved program counter.
    pub(crate) pc_at: u64,
    /// The saved program counter.
    pub(crate) pc: u64,
    /// The saved stack pointer.
    stack: u64,
}

/// Searches the stacks of stopped threads.
pub(crate) struct StackSearch<'a> {
    process: &'a TargetProcess,
    maps: Vec<ProcessMapping>,
    /// Whether an address is that of code that ends a handler.
    restorers: RefCell<HashMap<u64, bool>>,
}

impl<'a> StackSearch<'a> {
    /// Reads the mappings of a process whose threads are stopped.
    pub(crate) fn new(process: &'a TargetProcess) -> Result<Self, AttachError> {
        Ok(Self {
            process,
            maps: maps::parse(&process.read_maps()?),
            restorers: RefCell::new(HashMap::new()),
        })
    }

    /// Returns the frames on the stack at `stack`, and on those that it leads to: a handler may run
    /// on a stack of its own. `searched` has the stacks that were searched, by the ends of their
    /// mappings.
    pub(crate) fn signal_frames(
        &self,
        stack: u64,
        searched: &mut HashSet<(u64, u64)>,
    ) -> Result<Vec<SignalFrame>, AttachError> {
        let (mut found, mut left) = (Vec::new(), vec![stack]);
        while let Some(stack) = left.pop() {
            // The thread may be in the code that ends the handler, which the address led to.
            let from = (stack & !7).saturating_sub(8);
            let map = self.maps.iter().find(|map| map.range().contains(&from));
            let Some(map) = map.filter(|map| searched.insert((from, map.end))) else {
                continue;
            };
            for frame in self.frames_in(from, map.end)? {
                if !(from..map.end).contains(&frame.stack) {
                    left.push(frame.stack);
                }
                found.push(frame);
            }
        }
        Ok(found)
    }

    fn frames_in(&self, from: u64, end: u64) -> Result<Vec<SignalFrame>, AttachError> {
        let mut bytes = vec![0; (end - from).min(MAX_STACK_LEN) as usize];
        if !self.process.memory().read(from, &mut bytes) {
            return Err(AttachError::Missing("a stack that can be read"));
        }
        let words: Vec<u64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_ne_bytes(*word))
            .collect();
        let mut found = Vec::new();
        for (i, &word) in words.iter().enumerate() {
            // The segments of the program are the rarest of these words.
            if word & 0xffff != CODE_SEGMENT {
                continue;
            }
            let Some(first) = i.checked_sub(SEGMENT_OFFSET as usize / 8) else {
                continue;
            };
            if self.is_restorer(words[first]) {
                let field = |offset: u64| words[first + offset as usize / 8];
                found.push(SignalFrame {
                    pc_at: from + 8 * first as u64 + PC_OFFSET,
                    pc: field(PC_OFFSET),
                    stack: field(STACK_OFFSET),
                });
            }
        }
        Ok(found)
    }

    /// Whether the code at an address ends a signal handler.
    fn is_restorer(&self, at: u64) -> bool {
        let look = || {
            let mut maps = self.maps.iter();
            let is_code = maps.any(|map| map.is_code && map.range().contains(&at));
            is_code
                && RESTORERS.iter().any(|restorer| {
                    let mut code = vec![0; restorer.len()];
                    self.process.memory().read(at, &mut code) && code == *restorer
                })
        };
        *self.restorers.borrow_mut().entry(at).or_insert_with(look)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::FromRawFd;

    use super::*;
    use crate::thread::StoppedThread;

    extern "C" fn wait_for_ever(_: libc::c_int) {
        // SAFETY: these calls may be made in a handler.
        unsafe {
            libc::write(1, c"x".as_ptr().cast(), 1);
            loop {
                libc::pause();
            }
        }
    }

    /// Makes a child that waits in a signal handler on a stack for signals. Returns its number.
    fn waiting_child() -> libc::pid_t {
        let mut ends = [0; 2];
        // SAFETY: the child makes only system calls.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let child = libc::fork();
            if child == 0 {
                let len = 64 << 10;
                let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
                let flags = flags | libc::MAP_ANONYMOUS;
                let at = libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0);
                // The stack has a mapping of its own, between two that can't be read.
                libc::mprotect(at, 4096, libc::PROT_NONE);
                libc::mprotect(at.byte_add(len - 4096), 4096, libc::PROT_NONE);
                let stack = libc::stack_t {
                    ss_sp: at.byte_add(4096),
                    ss_flags: 0,
                    ss_size: len - 8192,
                };
                libc::sigaltstack(&raw const stack, std::ptr::null_mut());
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = wait_for_ever as *const () as usize;
                action.sa_flags = libc::SA_ONSTACK;
                libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
                libc::dup2(ends[1], 1);
                libc::raise(libc::SIGUSR1);
                libc::_exit(0);
            }
            libc::close(ends[1]);
            let mut reads = std::fs::File::from_raw_fd(ends[0]);
            reads.read_exact(&mut [0]).unwrap();
            child
        }
    }

    /// Tests that the registers of a handler's caller are found, and that they lead from a stack
    /// for signals to the thread's own.
    #[test]
    fn the_registers_below_a_handler_are_found() {
        let child = waiting_child();
        let process = TargetProcess::open(child as u32).unwrap();
        let search = StackSearch::new(&process).unwrap();
        let stack = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let stopped = StoppedThread::new(child as u32, false, || false);
                stopped.unwrap().unwrap().place().1
            });
            work.join().unwrap()
        });
        let mut searched = HashSet::new();
        let found = search.signal_frames(stack, &mut searched).unwrap();
        assert_eq!(found.len(), 1, "{found:x?}");
        let frame = found[0];
        assert!(process.map_of(frame.pc).unwrap().is_code);
        assert_eq!(process.memory().u64(frame.pc_at), Some(frame.pc));
        assert!(frame.stack.abs_diff(stack) > 64 << 10);
        assert_eq!(searched.len(), 2, "both stacks were searched");
        assert_eq!(search.signal_frames(stack, &mut searched).unwrap(), []);
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}
