//! Attaching to a program that was not started with the library: the attaching process writes a
//! letter (`heapprof-abi`), and this module answers it.
//!
//! Allocators get jumps at the entries of their functions (`entry_hooks.rs`), which the attaching
//! process writes. Other functions are reached through the import slots of objects, which this
//! module changes. If the code can't be written, malloc is reached through slots, too.
//!
//! * `attach/slots.rs`: the slots through which objects call functions.
//! * `attach/hooks.rs`: the hooks that the slots are pointed at.
//! * `attach/opened_objects.rs`: objects that are loaded later.

mod hooks;
mod opened_objects;
mod slots;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use heapprof_abi::letter::{
    AttachLetter, LETTER_VERSION, failure, progress, request, slots_reason, stopped_call,
};
use heapprof_allocators::AllocatorChoice;
use heapprof_engine::{
    DumpOutput, ENGINE, FrameChoice, LedgerRecipient, LedgerTaker, MAX_PERIOD, RecordingMode,
    RecordingOptions,
};
use heapprof_platform::sys;

use self::hooks::HOOKS;
use self::slots::{ImportSlot, SettledObjects};
use crate::loader_objects::{LoaderObject, each_object};
use crate::{allocator, atfork, end, entry_hooks, operators, real_functions, start, start_state};
use heapprof_providers::{interpreters, python};

/// Maximum time in milliseconds to wait until the attaching process takes the ledger's file. It is
/// short, because a thread of the program waits.
const HAND_OVER_TIMEOUT_MS: u32 = 100;

/// Maximum number of attempts to take the lock on the slots. A thread that changes slots keeps them
/// locked for about a millisecond.
const MAX_LOCK_ATTEMPTS: u32 = 20_000;

/// State of an attachment to this process.
pub struct AttachState {
    /// Whether slots point at the library's hooks.
    is_there: AtomicBool,
    /// Whether this process was forked from a process with an attachment. Its slots point at the
    /// hooks. It never calls the loader, because a thread that exists only in the parent may have
    /// taken the loader's lock.
    is_child: AtomicBool,
    /// Lock for changing slots. A thread that needs the loader's lock, too, takes this lock first.
    is_locked: AtomicBool,
    /// Whether [`prepare`](Self::prepare) has succeeded. It must succeed only once.
    is_ready: AtomicBool,
    /// Addresses of the real functions behind the hooks, in the order of `HOOKS`.
    behind: [AtomicUsize; HOOKS.len()],
    /// Whether the library that defines malloc defines C++'s operators, too.
    has_operators: AtomicBool,
    /// The first object that defines malloc: its base, and the address of its dynamic section.
    malloc_object: [AtomicUsize; 2],
    /// Whether this object is the program itself.
    is_own_malloc: AtomicBool,
    /// Whether malloc's family is reached by jumps at its entries, and not through slots.
    uses_entries: AtomicBool,
    /// The letter that is being answered; null if there is none.
    letter: AtomicPtr<AttachLetter>,
}

/// The state of the attachment to this process.
pub static ATTACH_STATE: AttachState = AttachState {
    is_there: AtomicBool::new(false),
    is_child: AtomicBool::new(false),
    is_locked: AtomicBool::new(false),
    is_ready: AtomicBool::new(false),
    behind: [const { AtomicUsize::new(0) }; HOOKS.len()],
    has_operators: AtomicBool::new(false),
    malloc_object: [const { AtomicUsize::new(0) }; 2],
    is_own_malloc: AtomicBool::new(false),
    uses_entries: AtomicBool::new(false),
    letter: AtomicPtr::new(std::ptr::null_mut()),
};

/// Reads a letter and answers it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_letter(letter: *mut AttachLetter) {
    // SAFETY: the caller gives a letter that stays, and of which other code writes only the
    // atomics.
    let letter = unsafe { &*letter };
    letter.progress.store(progress::LOADED, Ordering::Release);
    let failed = match letter.version == LETTER_VERSION
        && letter.size as usize == size_of::<AttachLetter>()
    {
        true => ENGINE
            .lifecycle()
            .with_guard_and_signals_blocked(|| answer(letter)),
        false => failure::OTHER_VERSION,
    };
    letter.failure.store(failed, Ordering::Release);
    end_call(letter);
}

/// Makes the system call of a stopped thread fail with EINTR, if a pending signal would interrupt
/// the call. Otherwise the call is restarted. The signal's handler runs when the thread continues.
fn end_call(letter: &AttachLetter) {
    const RAX: usize = 0;
    const RIP: usize = 16;
    /// Length of the `syscall` instruction in bytes.
    const SYSCALL_INSTRUCTION_LEN: u64 = 2;
    if letter.stopped_call == stopped_call::NONE {
        return;
    }
    let waiting = sys::waiting_signals() & !letter.mask;
    let ends = |signal: u32| match sys::signal_handler(signal) {
        Some(restarts) => letter.stopped_call == stopped_call::ENDS || !restarts,
        None => false,
    };
    let mut signals = (0..64).filter(|signal| waiting >> signal & 1 != 0);
    if signals.any(|signal| ends(signal + 1)) {
        let interrupted = -i64::from(libc::EINTR);
        letter.registers[RAX].store(interrupted as u64, Ordering::Relaxed);
        letter.registers[RIP].fetch_add(SYSCALL_INSTRUCTION_LEN, Ordering::Relaxed);
    }
}

fn answer(letter: &AttachLetter) -> u32 {
    if ENGINE.lifecycle().is_sandboxed() {
        return failure::SANDBOXED;
    }
    let done = match letter.request {
        request::ATTACH => ATTACH_STATE.attach(letter),
        request::DETACH => ATTACH_STATE.detach(letter),
        _ => Err(failure::OTHER_VERSION),
    };
    let is_attached = ATTACH_STATE.is_there() || ATTACH_STATE.is_child.load(Ordering::Relaxed);
    letter
        .is_attached
        .store(u32::from(is_attached), Ordering::Relaxed);
    done.err().unwrap_or(0)
}

impl AttachState {
    /// Whether slots point at the library's hooks.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// Runs `work` with the slots locked. Returns `None` if another thread has locked them at each
    /// of `looks` attempts.
    fn with_slots<R>(&self, looks: u32, work: impl FnOnce() -> R) -> Option<R> {
        let mut looked = 0;
        while self.is_locked.swap(true, Ordering::Acquire) {
            looked += 1;
            if looked >= looks {
                return None;
            }
            sys::sleep(50_000);
        }
        let done = work();
        self.is_locked.store(false, Ordering::Release);
        Some(done)
    }

    fn attach(&'static self, letter: &AttachLetter) -> Result<(), u32> {
        if self.is_child.load(Ordering::Relaxed) {
            return Err(failure::FORKED);
        }
        if !start_state::is_attached() && ENGINE.lifecycle().was_started() {
            return Err(failure::ALREADY_RECORDING);
        }
        self.prepare()?;
        start_state::set_attached(opened_objects::at_allocation);
        let jump_count = self.prepare_entries(letter)?;
        let led = self.with_slots(MAX_LOCK_ATTEMPTS, || {
            self.is_there.store(true, Ordering::Relaxed);
            self.lead()
        });
        let led = led.ok_or(failure::BUSY)?;
        letter.slots.store(led, Ordering::Relaxed);
        if led == 0 && jump_count == 0 {
            entry_hooks::end_for_attacher();
            self.give_back()?;
            return Err(failure::NO_SLOTS);
        }
        // Another thread may be loading an object.
        opened_objects::expect();
        interpreters::scan_loaded_objects(on_new_code);
        let from = std::ptr::from_ref(letter).cast_mut();
        self.letter.store(from, Ordering::Release);
        let options = options(letter);
        python::PYTHON_OBJECTS.begin(options.mode);
        let started = start::begin_recording(options);
        self.letter.store(std::ptr::null_mut(), Ordering::Release);
        if !started {
            entry_hooks::end_for_attacher();
            python::PYTHON_OBJECTS.give_back();
            self.give_back()?;
            return Err(failure::NOT_BEGUN);
        }
        Ok(())
    }

    /// Prepares jumps at the entries of allocators, which the attaching process writes. Returns
    /// their number. If malloc's family can't have any, its slots are to be changed.
    fn prepare_entries(&self, letter: &AttachLetter) -> Result<usize, u32> {
        let relaxed = Ordering::Relaxed;
        let [base, dynamic] = &self.malloc_object;
        let malloc_object = (base.load(relaxed), dynamic.load(relaxed));
        let choice = u8::try_from(letter.allocators).map(AllocatorChoice::from_bits);
        let plan = match (letter.may_write_entries, choice) {
            (0, _) | (_, Err(_)) => Err(slots_reason::NOT_WANTED),
            (_, Ok(choice)) => {
                entry_hooks::prepare_for_attacher(choice, malloc_object).ok_or(slots_reason::BUSY)
            }
        };
        let reason = match &plan {
            Ok(plan) if plan.hooks_malloc => 0,
            Ok(_) => slots_reason::NO_JUMP,
            Err(reason) => *reason,
        };
        self.uses_entries.store(reason == 0, relaxed);
        letter.slots_reason.store(reason, relaxed);
        // Slots and jumps at once would count twice.
        let plan = match plan {
            Ok(plan) if reason == 0 => plan,
            _ => {
                entry_hooks::end_for_attacher();
                letter.entry_patches.store(0, relaxed);
                letter.allocator_text_len.store(0, relaxed);
                return match self.is_own_malloc.load(relaxed) {
                    true => Err(failure::OWN_MALLOC),
                    false => Ok(0),
                };
            }
        };
        letter.entry_patches.store(plan.table as u64, relaxed);
        let count = u32::try_from(plan.object_count).unwrap_or(u32::MAX);
        letter.object_count.store(count, relaxed);
        letter.object_sum.store(plan.object_sum as u64, relaxed);
        letter.missed_at.store(plan.missed_mark as u64, relaxed);
        show_allocators(letter, plan.allocator_text);
        Ok(plan.jump_count)
    }

    fn detach(&self, letter: &AttachLetter) -> Result<(), u32> {
        if !self.is_there() && !self.is_child.load(Ordering::Relaxed) {
            return Err(failure::NOT_ATTACHED);
        }
        show_allocators(letter, entry_hooks::end_for_attacher());
        ENGINE.lifecycle().stop();
        python::PYTHON_OBJECTS.give_back();
        let given = self.give_back()?;
        self.is_child.store(false, Ordering::Relaxed);
        letter.slots.store(given, Ordering::Relaxed);
        Ok(())
    }

    /// Finds the real functions behind the hooks. Later calls do nothing, because the functions
    /// stay the same.
    fn prepare(&'static self) -> Result<(), u32> {
        if self.is_ready.load(Ordering::Acquire) {
            return Ok(());
        }
        self.find()?;
        let find = |name: &CStr| self.real_function(name) as *const c_void;
        real_functions::set_real_functions(find);
        if self.has_operators.load(Ordering::Relaxed) {
            operators::set_real_operators(find);
        }
        hooks::prepare(find);
        allocator::prepare();
        ENGINE.lifecycle().prepare();
        // A forked child has no part in the recording: our locks would have to be taken after those
        // of all libraries, whose handlers were registered before.
        atfork::register_child(after_fork_in_child);
        self.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Finds the first definition of each hooked function, as the loader does.
    fn find(&self) -> Result<(), u32> {
        let (mut malloc_in, mut news_in) = (0, 0);
        let own = (&raw const ATTACH_STATE) as u64;
        let mut number = 0;
        each_object(|shown| {
            number += 1;
            if shown.contains(own) {
                return;
            }
            for (hook, behind) in HOOKS.iter().zip(&self.behind) {
                if behind.load(Ordering::Relaxed) != 0 {
                    continue;
                }
                let Some(found) = shown.function(hook.name) else {
                    continue;
                };
                behind.store(found as usize, Ordering::Relaxed);
                match hook.name {
                    name if name == c"malloc" => {
                        self.is_own_malloc
                            .store(shown.is_executable, Ordering::Relaxed);
                        let found = [shown.object.base, shown.object.dynamic];
                        for (word, found) in self.malloc_object.iter().zip(found) {
                            word.store(found as usize, Ordering::Relaxed);
                        }
                        malloc_in = number;
                    }
                    name if name == c"_Znwm" => news_in = number,
                    _ => {}
                }
            }
        });
        if malloc_in == 0 {
            return Err(failure::NO_SLOTS);
        }
        // Other libraries' operators call malloc.
        self.has_operators
            .store(malloc_in == news_in, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the address of the function behind the hook with this name; 0 if there is none.
    fn real_function(&self, name: &CStr) -> usize {
        let found = HOOKS.iter().position(|hook| hook.name == name);
        found.map_or(0, |i| self.behind[i].load(Ordering::Relaxed))
    }

    /// Points the slots of new objects at the hooks, unless another thread is changing slots.
    fn lead_new(&self) {
        self.with_slots(1, || {
            if self.is_there() {
                self.lead();
            }
        });
    }

    /// Points all slots of the real functions at the hooks. Returns the number of slots that point
    /// at hooks afterwards.
    fn lead(&self) -> u32 {
        let own = (&raw const ATTACH_STATE) as u64;
        let mut led = 0;
        let settled = SettledObjects::now();
        let has_others = self.has_others();
        for frees in [true, false] {
            each_object(|shown| {
                if shown.contains(own) || !settled.has(shown) {
                    return;
                }
                shown.lead(&HOOKS, &mut |slot| {
                    if slot.hook.frees != frees {
                        return None;
                    }
                    let ours = self.hook_for_slot(shown, slot, has_others)?;
                    led += 1;
                    (ours != slot.leads_to).then_some(ours)
                });
            });
        }
        settled.end();
        led
    }

    /// Whether a second library, besides the one whose functions the hooks call, defines malloc or
    /// free. For some objects, the loader may find the second library's function first
    /// (RTLD_DEEPBIND).
    fn has_others(&self) -> bool {
        let names = [c"malloc", c"free"];
        let mut has_others = false;
        each_object(|shown| {
            let is_other = |name| {
                let found = shown.function(name);
                found.is_some_and(|found| found != self.real_function(name) as u64)
            };
            let is_libc = shown.function(c"__libc_malloc").is_some();
            let is_us = shown.contains((&raw const ATTACH_STATE) as u64);
            has_others |= !is_libc && !is_us && names.into_iter().any(is_other);
        });
        has_others
    }

    /// Returns the hook for a slot of an object; `None` if the slot must not change. `has_others`
    /// is the result of [`has_others`](Self::has_others). It matters for a slot that the loader has
    /// not filled yet.
    fn hook_for_slot(
        &self,
        shown: LoaderObject<'_>,
        slot: ImportSlot,
        has_others: bool,
    ) -> Option<u64> {
        let ImportSlot { hook, leads_to, .. } = slot;
        let ours = hook.ours as *const c_void as u64;
        let behind = self.real_function(hook.name) as u64;
        if hook.is_allocator && self.uses_entries.load(Ordering::Relaxed) {
            // An earlier attacher may have changed the slot. The jump is enough.
            return (leads_to == ours && behind != 0).then_some(behind);
        }
        if behind == 0 || hook.is_operator && !self.has_operators.load(Ordering::Relaxed) {
            return None;
        }
        // A slot that was not used yet leads into its own object, which then asks the loader.
        let is_known = shown.is_executable || !has_others;
        let is_unused = is_known
            && slot.is_called
            && shown.contains(leads_to)
            && shown.function(hook.name).is_none();
        (leads_to == behind || leads_to == ours || is_unused).then_some(ours)
    }

    /// Points all slots back at the real functions. Returns the number of changed slots, or the
    /// reason why the slots cannot be changed now.
    fn give_back(&self) -> Result<u32, u32> {
        let given = self.with_slots(MAX_LOCK_ATTEMPTS, || {
            self.is_there.store(false, Ordering::Relaxed);
            start_state::scan_at_next_allocation(false);
            let mut given = 0;
            let settled = SettledObjects::now();
            for frees in [false, true] {
                each_object(|shown| {
                    // No slot of an object that is still being loaded was pointed at our hooks.
                    if !settled.has(shown) {
                        return;
                    }
                    given += shown.lead(&HOOKS, &mut |ImportSlot { hook, leads_to, .. }| {
                        let ours = hook.ours as *const c_void as u64;
                        let is_ours = hook.frees == frees && leads_to == ours;
                        is_ours.then(|| self.real_function(hook.name) as u64)
                    });
                });
            }
            given
        });
        given.ok_or(failure::BUSY)
    }
}

/// Shows the attaching process the allocators inside files that were found.
fn show_allocators(letter: &AttachLetter, text: String) {
    // The process reads it when the letter is answered, and each letter has its own.
    let text = Box::leak(text.into_boxed_str());
    let at = text.as_ptr() as u64;
    letter.allocator_text.store(at, Ordering::Relaxed);
    let len = text.len() as u64;
    letter.allocator_text_len.store(len, Ordering::Relaxed);
}

/// Converts a letter's request to recording options.
fn options(letter: &AttachLetter) -> RecordingOptions {
    let is_exact = letter.is_exact != 0;
    let period = letter.period.clamp(1, MAX_PERIOD);
    RecordingOptions {
        mode: if is_exact {
            RecordingMode::Exact
        } else {
            RecordingMode::Sampled
        },
        period: if is_exact { 1 } else { period },
        frames: FrameChoice::from_number(u8::try_from(letter.frames).unwrap_or_default()),
        by_thread: letter.by_thread != 0,
        logs: letter.log != 0,
        follow_children: false,
        output: DumpOutput {
            recipient: match letter.may_share_ledger {
                0 => LedgerRecipient::Private,
                _ => LedgerRecipient::Taker(LedgerTaker(hand_over)),
            },
            ..DumpOutput::default()
        },
        ..RecordingOptions::default()
    }
}

/// Offers a file to the attaching process and waits briefly until that process has taken it. The
/// wait is short because it delays a thread of the program.
fn hand_over(file: i32) {
    let letter = ATTACH_STATE.letter.load(Ordering::Acquire);
    // SAFETY: it is null, or the letter that is being answered, in this thread.
    let Some(letter) = (unsafe { letter.as_ref() }) else {
        return;
    };
    letter.file.store(file, Ordering::Release);
    letter
        .progress
        .store(progress::OFFERS_LEDGER, Ordering::Release);
    for _ in 0..HAND_OVER_TIMEOUT_MS {
        if letter.is_file_taken.load(Ordering::Acquire) != 0 {
            break;
        }
        sys::sleep(1_000_000);
    }
    letter.file.store(-1, Ordering::Release);
}

/// Handles the first allocation whose stack contains code of an unknown object, which begins at
/// `start`. The program may have loaded the object without dlopen.
fn on_new_code(start: usize) {
    opened_objects::scan();
    interpreters::scan_new_object(start);
}

unsafe extern "C" fn after_fork_in_child() {
    // The thread that had locked the slots does not exist here.
    ATTACH_STATE.is_locked.store(false, Ordering::Relaxed);
    if ATTACH_STATE.is_there.swap(false, Ordering::Relaxed) {
        ATTACH_STATE.is_child.store(true, Ordering::Relaxed);
    }
    start_state::scan_at_next_allocation(false);
    entry_hooks::end_in_child();
    python::PYTHON_OBJECTS.give_back();
    end::forget_end();
    ENGINE.forks().in_child();
}
