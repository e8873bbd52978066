//! The ids and names of the threads that have allocated. Each thread has a number, which is in its
//! stacks.
//!
//! A thread gets a number at its first event of a recording that counts each thread separately, and
//! the number never changes. If the kernel reuses the id of a thread that has ended, the new thread
//! gets another number.
//!
//! Many threads change their name just after they begin. So a dump reads the current name of a
//! thread from the kernel, if the thread still exists. The last name of a thread is also stored:
//! each thread reads its own name when it has a new stack, and when it ends.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use heapprof_abi::ThreadNumber;
use heapprof_platform::pages::PageSource;
use heapprof_platform::sys::{self, EngineFile, THREAD_NAME_LEN};
use heapprof_platform::table_file::TableLifetime;
use heapprof_platform::tls::{self, ThreadSlot};
use heapprof_profile::recording::RecordedThread;
use heapprof_profile::recording_texts::thread_name;

use crate::process::EngineProcess;
use crate::tables::chunks::ChunkedArray;

/// Maximum number of threads with separate numbers. All further threads share [`OTHERS_NUMBER`],
/// because a program may start threads without end, and counters by thread are never freed.
pub(crate) const MAX_NUMBERED_THREADS: u32 = heapprof_abi::MAX_NAMED_THREADS;

/// The number that all threads without a separate number share.
pub(crate) const OTHERS_NUMBER: ThreadNumber = ThreadNumber::from_u32(u32::MAX);

/// The names of a process's threads. Thread numbers begin with 1.
pub(crate) struct ThreadNames {
    pub(crate) entry: ChunkedArray<ThreadNameEntry>,
    /// Number of threads that have requested a number.
    pub(crate) asked: AtomicU32,
    /// Number of forks between the first process of the program and this process.
    generation: AtomicU8,
}

/// Id and name of a thread. Only the thread itself writes its name.
#[repr(C)]
pub(crate) struct ThreadNameEntry {
    /// Kernel's id of the thread; 0 if it is not known.
    pub(crate) id: AtomicU32,
    /// Whether the thread has ended, so that its id may belong to another thread.
    pub(crate) is_gone: AtomicBool,
    /// Number of forks between the first process of the program and the thread's process.
    pub(crate) generation: AtomicU8,
    /// The bytes of the thread's name, up to a zero. A dump reads them only if the kernel does not
    /// know the thread any more. A dump that reads them while they change may get parts of the old
    /// and the new name.
    pub(crate) name: [AtomicU64; THREAD_NAME_LEN / 8],
}

impl ThreadNames {
    /// Makes a table without threads.
    pub(crate) const fn new() -> Self {
        Self {
            entry: ChunkedArray::new(),
            asked: AtomicU32::new(0),
            generation: AtomicU8::new(0),
        }
    }

    /// Returns the number of this thread. A thread without a number gets a new number.
    #[inline]
    pub(crate) fn current(&self, process: &EngineProcess) -> ThreadNumber {
        let slot = tls::current();
        // SAFETY: the slot is this thread's own.
        unsafe {
            if (*slot).thread == 0 {
                (*slot).thread = self.add(process).to_u32();
            }
            ThreadNumber::from_u32((*slot).thread)
        }
    }

    #[cold]
    fn add(&self, process: &EngineProcess) -> ThreadNumber {
        let more = |asked: u32| asked.checked_add(1);
        let asked = self
            .asked
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        process.pages.copy(&self.asked);
        let earlier = match asked {
            Ok(before @ 0..MAX_NUMBERED_THREADS) => before,
            _ => return OTHERS_NUMBER,
        };
        let number = ThreadNumber::from_u32(earlier + 1);
        let Some(entry) = self.make(number, &process.pages) else {
            return OTHERS_NUMBER;
        };
        if !process.is_sandboxed() {
            let id = sys::thread_id() as u32;
            // The thread that had the id before has ended, even if its end was not reported.
            let before = first_numbers(earlier).filter_map(|number| self.get(number));
            for other in before.filter(|other| other.id.load(Ordering::Relaxed) == id) {
                other.is_gone.store(true, Ordering::Release);
            }
            entry.id.store(id, Ordering::Relaxed);
        }
        // In a forked child, the parent may have written to this entry after the fork.
        entry.is_gone.store(false, Ordering::Relaxed);
        entry.generation.store(self.generation(), Ordering::Relaxed);
        self.update_name(process, number);
        number
    }

    /// Notes the current name of this thread, whose number is `number`.
    #[cold]
    pub(crate) fn update_name(&self, process: &EngineProcess, number: ThreadNumber) {
        let Some(entry) = self.get(number).filter(|_| !process.is_sandboxed()) else {
            return;
        };
        let name = sys::thread_name();
        for (to, bytes) in entry.name.iter().zip(name.as_chunks::<8>().0) {
            to.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Notes the last name of the thread with this slot, and that the thread has ended. The thread
    /// itself calls this.
    ///
    /// # Safety
    /// The slot is this thread's own.
    pub(crate) unsafe fn end(&self, process: &EngineProcess, slot: *const ThreadSlot) {
        // SAFETY: the caller's promise.
        let number = ThreadNumber::from_u32(unsafe { (*slot).thread });
        self.update_name(process, number);
        if let Some(entry) = self.get(number) {
            entry.is_gone.store(true, Ordering::Release);
        }
    }

    /// Notes in a forked child that all threads of the parent have ended. The thread that forked
    /// counts as a new thread in the child.
    pub(crate) fn forget_all(&self) {
        let all = first_numbers(self.len()).filter_map(|number| self.get(number));
        all.for_each(|entry| entry.is_gone.store(true, Ordering::Relaxed));
        // SAFETY: the slot is this thread's own.
        unsafe { (*tls::current()).thread = 0 };
    }

    /// Notes that this process is now a forked child.
    pub(crate) fn note_fork(&self) {
        let next = self.generation().saturating_add(1);
        self.generation.store(next, Ordering::Relaxed);
    }

    /// Returns the number of forks between the first process of the program and this process; 255
    /// if there are more.
    pub(crate) fn generation(&self) -> u8 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns how many threads have a separate number.
    pub(crate) fn len(&self) -> u32 {
        self.asked.load(Ordering::Relaxed).min(MAX_NUMBERED_THREADS)
    }

    /// Returns how many threads share [`OTHERS_NUMBER`].
    pub(crate) fn others(&self) -> u32 {
        self.asked
            .load(Ordering::Relaxed)
            .saturating_sub(MAX_NUMBERED_THREADS)
    }

    /// Returns the thread with this number.
    pub(crate) fn find_named(&self, number: ThreadNumber) -> RecordedThread {
        let Some(entry) = self.get(number) else {
            return RecordedThread::others();
        };
        let is_gone = entry.is_gone.load(Ordering::Acquire);
        let id = Some(entry.id.load(Ordering::Relaxed)).filter(|&id| id != 0);
        let name = id.filter(|_| !is_gone).and_then(name_now);
        let name = name.unwrap_or_else(|| {
            let words = entry.name.each_ref();
            let bytes = words.map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            thread_name(bytes.as_flattened())
        });
        let generation = entry.generation.load(Ordering::Relaxed);
        RecordedThread {
            id,
            name,
            generation,
        }
    }

    /// Returns how many bytes of the table are resident.
    pub(crate) fn resident(&self, pages: &PageSource) -> usize {
        self.entry.resident(pages)
    }

    fn get(&self, number: ThreadNumber) -> Option<&ThreadNameEntry> {
        let index = number
            .to_index()
            .filter(|&index| index < MAX_NUMBERED_THREADS as usize)?;
        // SAFETY: mapped entries stay mapped for good, and are made of atomics.
        unsafe { self.entry.get(index).as_ref() }
    }

    fn make(&self, number: ThreadNumber, pages: &PageSource) -> Option<&ThreadNameEntry> {
        let index = number.to_index()?;
        // SAFETY: mapped entries stay mapped for good, and are made of atomics.
        unsafe {
            self.entry
                .touch(index, pages, TableLifetime::Lasting)
                .as_ref()
        }
    }
}

/// Returns the numbers of the first `len` threads.
fn first_numbers(len: u32) -> impl Iterator<Item = ThreadNumber> {
    (1..=len).map(ThreadNumber::from_u32)
}

/// Returns the current name of a thread of this process; `None` if the kernel does not report it.
fn name_now(id: u32) -> Option<String> {
    // The process that dumps may be another one, which works for this one.
    let path = format!("/proc/{}/task/{id}/comm\0", sys::process_id());
    let path = std::ffi::CStr::from_bytes_with_nul(path.as_bytes()).ok()?;
    let file = EngineFile::open(path, libc::O_RDONLY, 0).ok()?;
    let mut bytes = [0; 64];
    let len = file.read(&mut bytes);
    let bytes = bytes[..len].strip_suffix(b"\n")?;
    Some(thread_name(bytes))
}

#[cfg(all(test, not(any(miri, shuttle))))]
mod tests {
    use std::thread::Builder;

    use super::*;

    fn rename(name: &[u8]) {
        let mut bytes = [0u8; THREAD_NAME_LEN];
        bytes[..name.len()].copy_from_slice(name);
        let args = [
            libc::PR_SET_NAME as usize,
            bytes.as_ptr() as usize,
            0,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel reads a text with a zero at its end.
        unsafe { sys::call(libc::SYS_prctl, args) };
    }

    #[test]
    fn a_thread_is_called_what_it_was_called_last() {
        let process = EngineProcess::new(PageSource::from_kernel());
        let names = ThreadNames::new();
        let threads = [
            (b"one" as &[u8], "one"),
            (b"\xff two\n", "\u{fffd} two\n"),
            (b"", "(unnamed)"),
        ];
        for (number, (bytes, text)) in (1..).map(ThreadNumber::from_u32).zip(threads) {
            let look = || {
                assert_eq!(names.current(&process), number);
                rename(bytes);
                let id = Some(sys::thread_id() as u32);
                let name = text.to_string();
                let generation = 0;
                let named = RecordedThread {
                    id,
                    name,
                    generation,
                };
                assert_eq!(names.find_named(number), named);
                // SAFETY: the slot is this thread's own.
                unsafe { names.end(&process, tls::current()) };
            };
            std::thread::scope(|scope| {
                let thread = Builder::new().name("first".into());
                thread.spawn_scoped(scope, look).unwrap().join().unwrap();
            });
            // The name stays, whichever thread has the id now.
            assert_eq!(names.find_named(number).name, text);
        }
        assert_eq!((names.len(), names.others()), (3, 0));
        assert_eq!(names.find_named(OTHERS_NUMBER).id, None);
    }

    #[test]
    fn countless_threads_are_one() {
        let process = EngineProcess::new(PageSource::from_kernel());
        let names = ThreadNames::new();
        names
            .asked
            .store(MAX_NUMBERED_THREADS - 1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let number = || scope.spawn(|| names.current(&process)).join().unwrap();
            assert_eq!(
                [number(), number(), number()],
                [
                    ThreadNumber::from_u32(MAX_NUMBERED_THREADS),
                    OTHERS_NUMBER,
                    OTHERS_NUMBER
                ]
            );
        });
        assert_eq!((names.len(), names.others()), (MAX_NUMBERED_THREADS, 2));
        names.asked.store(u32::MAX, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let number = scope.spawn(|| names.current(&process)).join();
            assert_eq!(number.unwrap(), OTHERS_NUMBER);
        });
        assert_eq!(names.others(), u32::MAX - MAX_NUMBERED_THREADS);
    }
}
