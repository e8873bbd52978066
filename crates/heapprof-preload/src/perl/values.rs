//! The values of Perl's interpreters: which are alive, and which stack made each of them.
//!
//! Devel::HeapProf has a run loop of its own, which tells after each op whether values were made or
//! freed. So values are known exactly, one by one, where the memory that they lie in is taken by
//! whoever comes when a list is empty.
//!
//! * `values/heads.rs`: which heads have a value, and who made it.
//! * `values/traced.rs`: an interpreter whose values are traced.
//! * `values/rows.rs`: the values that are alive, counted.
//! * `values/grown.rs`: lists in memory of their own.

mod grown;
mod heads;
mod rows;
mod traced;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use heapprof_collect::{ENGINE, Value};
use heapprof_perl::{NAMES, Perl};

use self::grown::Grown;
use self::heads::{NEWER, UNSEEN};
use self::rows::{IS_VALUE, Names, Row, Rows, Wanted};
pub use self::traced::Traced;
use self::traced::{ENDED, NO_MEMORY, NOT_A_LIST, TRACING};
use super::state::PerlStacks;
use super::turn::Turn;

/// The values of all interpreters.
pub struct Values {
    wanted: AtomicU8,
    traced: [AtomicPtr<Traced>; 64],
    /// It counts up with each mark, and tells values that were made before one from later ones.
    moment: AtomicU32,
    turn: Turn,
    shared: UnsafeCell<Shared>,
    /// Why a profile may have less than there is.
    lacks_some: AtomicBool,
    /// Whether the run loop was another module's.
    is_replaced: AtomicBool,
}

/// The moment before the first mark.
const FIRST_MOMENT: u32 = 1;

/// What belongs to the thread whose turn it is.
struct Shared {
    names: Names,
    /// Each mark: its moment, and the number of its text.
    marks: Grown<u64>,
    /// The values of interpreters that have ended.
    left: Rows,
    /// The recording in which stacks have the numbers that are there.
    recording: u64,
    /// What a profile that is being written gets.
    shown: Rows,
}

// SAFETY: what is shared belongs to the thread whose turn it is.
unsafe impl Sync for Values {}

/// Whether values are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wants {
    /// They are not.
    Nothing = 0,
    /// They are, wherever the module is.
    Values = 1,
    /// They are, and without the module this program is not to run.
    ValuesOrNothing = 2,
}

/// What a block of Perl code has left, of one stack and kind.
pub struct Left {
    /// Each frame on a line, the newest first.
    pub stack: String,
    pub kind: &'static str,
    pub class: String,
    pub objects: u64,
    pub bytes: u64,
}

/// What stands for the stack of values that nobody saw being made: those of a thread, or others.
fn unseen(stack: u32, origin: u32) -> &'static CStr {
    match (stack, origin) {
        (NEWER, _) => c"(made just now)",
        (_, 0) => c"(before the recording)",
        _ => c"(copied for a thread)",
    }
}

impl Values {
    pub(super) const fn new() -> Self {
        Self {
            wanted: AtomicU8::new(0),
            traced: [const { AtomicPtr::new(std::ptr::null_mut()) }; 64],
            moment: AtomicU32::new(FIRST_MOMENT),
            turn: Turn::new(),
            shared: UnsafeCell::new(Shared {
                names: Names::new(),
                marks: Grown::new(),
                left: Rows::new(),
                recording: 0,
                shown: Rows::new(),
            }),
            lacks_some: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Shared) -> R) -> Option<R> {
        self.turn.with(|| {
            // SAFETY: one thread has it at a time.
            let shared = unsafe { &mut *self.shared.get() };
            let recording = ENGINE.stack_providers().recording();
            if shared.recording != recording {
                (shared.recording, shared.left) = (recording, Rows::new());
            }
            work(shared)
        })
    }

    fn all(&self) -> impl Iterator<Item = &'static Traced> {
        // SAFETY: they stay for good.
        let of = |place: &AtomicPtr<Traced>| unsafe { place.load(Ordering::Acquire).as_ref() };
        self.traced.iter().filter_map(of)
    }
}

impl Shared {
    /// Adds the values of an interpreter to what is shown, or to what is left.
    fn add(&mut self, perl: &Perl, traced: &Traced, is_left: bool) -> bool {
        let wanted = Wanted {
            since: 0,
            stale: true,
        };
        let (marks, names) = (&self.marks, &mut self.names);
        let rows = if is_left {
            &mut self.left
        } else {
            &mut self.shown
        };
        let mark = |moment| mark_at(marks, moment);
        rows.add_values(perl, traced, names, wanted, mark)
    }
}

/// The number of the mark that came last before a moment; 0 if there was none.
fn mark_at(marks: &Grown<u64>, moment: u32) -> u32 {
    let marks: &[[u64; 2]] = marks.all().as_chunks().0;
    marks.partition_point(|&[at, _]| at <= u64::from(moment)) as u32
}

impl PerlStacks {
    /// Says whether values are wanted.
    pub fn want_values(&self, wants: Wants) {
        self.values.wanted.store(wants as u8, Ordering::Relaxed);
    }

    /// Whether values are wanted.
    pub fn wants_values(&self) -> Wants {
        match self.values.wanted.load(Ordering::Relaxed) {
            0 => Wants::Nothing,
            1 => Wants::Values,
            _ => Wants::ValuesOrNothing,
        }
    }

    /// Traces an interpreter's values from now on, if they are wanted and it can be done.
    /// `of_stale` is the flag of variables that a pad keeps for the next run of their `my`.
    /// `is_copy` says that it was made for a thread.
    ///
    /// # Safety
    /// This thread runs the interpreter, and its values lie in arenas.
    pub unsafe fn trace_values(
        &self,
        at: u64,
        of_stale: u32,
        is_copy: bool,
    ) -> Option<&'static Traced> {
        if self.wants_values() == Wants::Nothing {
            return None;
        }
        let perl = self.known_perl()?;
        let roots = perl.value_roots(perl.base_of(at))?;
        self.interpreter(at.max(1))?;
        let new = Traced::new(at.max(1), roots, of_stale, is_copy.into())?;
        let take = |place: &&AtomicPtr<Traced>| {
            let (old, new) = (std::ptr::null_mut(), (&raw const *new).cast_mut());
            place
                .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        self.values.traced.iter().find(take)?;
        // SAFETY: the caller's promise.
        unsafe {
            new.follow();
            new.made_before();
        }
        if self.values.moment.load(Ordering::Relaxed) > FIRST_MOMENT {
            new.want_my();
        }
        Some(new)
    }

    /// Follows what an op has changed. Returns how many values it made.
    ///
    /// # Safety
    /// This thread runs the interpreter.
    pub unsafe fn follow_values(&self, traced: &Traced) -> usize {
        // SAFETY: the caller's promise.
        unsafe { traced.follow() }
    }

    /// Says that this thread's stack made the values that were found. If it `may_leave` a block,
    /// there may be variables among them that wait for the next run of their `my`.
    ///
    /// # Safety
    /// This thread runs the interpreter.
    pub unsafe fn values_made(&self, traced: &Traced, may_leave: bool) {
        // SAFETY: the caller's promise.
        unsafe { traced.made(self.values.moment.load(Ordering::Relaxed), may_leave) };
    }

    /// Says that this thread has run the `my` of the variables whose heads are at these addresses.
    pub fn ran_my(&self, traced: &Traced, variables: &[u64]) {
        let moment = self.values.moment.load(Ordering::Relaxed);
        traced.ran_my(variables, moment, (moment > FIRST_MOMENT).then_some(moment));
    }

    /// Keeps an interpreter's values as they are: the program has ended, and what follows frees
    /// them. `is_replaced` says that another module's run loop ran it.
    pub fn end_values(&self, traced: &Traced, is_replaced: bool) {
        ENGINE.events().trace(|_| {
            let Some(perl) = self.known_perl() else {
                return;
            };
            if is_replaced {
                self.values.is_replaced.store(true, Ordering::Relaxed);
            }
            if traced.state() == TRACING {
                let added = self.values.with(|shared| shared.add(perl, traced, true));
                if added != Some(true) {
                    self.values.lacks_some.store(true, Ordering::Relaxed);
                }
                traced.end(ENDED);
            }
        });
    }

    /// Begins another part of the program, whose values are told from earlier ones. They get the
    /// label `mark` if there is a text. Returns its number.
    pub fn mark_values(&self, text: Option<&[u8]>) -> u32 {
        let moment = self.values.moment.fetch_add(1, Ordering::Relaxed) + 1;
        self.values.all().for_each(Traced::want_my);
        if let Some(text) = text {
            ENGINE.lifecycle().guarded(|| {
                self.values.with(|shared| {
                    let text = &text[..text.len().min(200)];
                    let name = shared.names.number(text);
                    if shared.marks.reserve(shared.marks.all().len() + 2) {
                        shared.marks.push(moment.into());
                        shared.marks.push(name.into());
                    }
                });
            });
        }
        moment
    }

    /// What was made since a mark and is alive, except variables that wait for the next run of their
    /// `my`. `None` if it can't be told.
    pub fn values_since(&self, traced: &Traced, since: u32) -> Option<Vec<Left>> {
        let perl = self.known_perl()?;
        if traced.state() != TRACING {
            return None;
        }
        let wanted = Wanted {
            since,
            stale: false,
        };
        self.values.with(|shared| {
            let mut rows = Rows::new();
            let is_whole = rows.add_values(perl, traced, &mut shared.names, wanted, |_| 0);
            let left = |row: &Row| Left {
                stack: stack_of(row),
                kind: kind_of(row.label),
                class: text_of(&shared.names, rows::parts(row.label).1),
                objects: row.objects,
                bytes: row.bytes,
            };
            is_whole.then(|| rows.all().iter().map(left).collect())
        })?
    }

    /// Forgets an interpreter that is about to be freed. What its stacks made stays counted.
    pub(super) fn values_gone(&self, at: u64) {
        for place in &self.values.traced {
            // SAFETY: they stay for good.
            let traced = unsafe { place.load(Ordering::Acquire).as_ref() };
            let Some(traced) = traced.filter(|traced| traced.at == at) else {
                continue;
            };
            if traced.state() != ENDED {
                traced.end(ENDED);
                self.values.with(|shared| {
                    traced.with(|heads| {
                        for (stack, &made) in heads.counts().iter().enumerate() {
                            let stack = stack as u32;
                            if made != 0 {
                                shared.left.add(Row {
                                    stack,
                                    made,
                                    ..Row::default()
                                });
                            }
                        }
                    });
                });
            }
            traced.clear();
            place.store(std::ptr::null_mut(), Ordering::Release);
        }
    }

    /// What a profile should say of values, besides their rows.
    pub(super) fn value_remarks(&self) -> Vec<&'static str> {
        let mut remarks = Vec::new();
        if self.wants_values() == Wants::Nothing {
            return remarks;
        }
        let values = &self.values;
        let is_any = values.all().next().is_some()
            || values.with(|shared| !shared.left.all().is_empty()) == Some(true);
        if !is_any {
            remarks.push(
                "values missing: no perl has loaded Devel::HeapProf (under -T none does unless the \
                 script or its #! line says -MDevel::HeapProf)",
            );
        }
        for traced in values.all() {
            match traced.state() {
                NO_MEMORY => remarks.push("values missing: there was no memory to go on tracing"),
                NOT_A_LIST => remarks
                    .push("values missing: Perl's list of free heads was not as Perl keeps it"),
                _ => {}
            }
        }
        if values.lacks_some.load(Ordering::Relaxed) {
            remarks.push("values missing: some could not be read");
        }
        if values.is_replaced.load(Ordering::Relaxed) {
            remarks.push(
                "values missing: another module took the run loop; what was made then has the stack \
                 of a later op",
            );
        }
        remarks
    }
}

/// The frames of a row's stack, each on a line.
fn stack_of(row: &Row) -> String {
    if row.stack >= NEWER {
        return unseen(row.stack, row.origin).to_string_lossy().into_owned();
    }
    let frames = ENGINE.stack_providers().frames_of(row.stack);
    let line = |(name, file, line): &(String, String, u32)| match file.is_empty() {
        true => name.clone(),
        false => format!("{name} {file}:{line}"),
    };
    frames.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn kind_of(label: u64) -> &'static str {
    let (kind, ..) = rows::parts(label);
    let name = usize::from(kind).checked_sub(1);
    name.and_then(|name| NAMES.get(name)).copied().unwrap_or("")
}

fn text_of(names: &Names, number: u32) -> String {
    let text = names.text(number).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The labels of values, each a key and a text; `None` if the number is a stack's.
pub(super) fn labels(this: &PerlStacks, label: u64) -> Option<Vec<(&'static str, String)>> {
    if label & IS_VALUE == 0 {
        return None;
    }
    let (_, class, mark) = rows::parts(label);
    let texts = this.values.with(|shared| {
        let mark = (mark as usize).checked_sub(1);
        let name = mark.and_then(|mark| shared.marks.all().get(2 * mark + 1));
        let mark = name.map_or_else(String::new, |&name| text_of(&shared.names, name as u32));
        [text_of(&shared.names, class), mark]
    });
    let [class, mark] = texts.unwrap_or_default();
    let all = [
        ("type", kind_of(label).to_string()),
        ("class", class),
        ("mark", mark),
    ];
    Some(
        all.into_iter()
            .filter(|(_, text)| !text.is_empty())
            .collect(),
    )
}

pub(super) unsafe extern "C" fn values(context: *mut c_void, i: usize, to: *mut Value) -> c_int {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, to) = unsafe { (&*context.cast::<PerlStacks>(), &mut *to) };
    if this.wants_values() == Wants::Nothing {
        return 1;
    }
    let Some(perl) = this.known_perl() else {
        return 1;
    };
    let given = this.values.with(|shared| {
        if i == 0 {
            shared.shown = Rows::new();
            let mut is_whole = shared.left.all().iter().all(|&row| shared.shown.add(row));
            for traced in this.values.all().filter(|traced| traced.state() != ENDED) {
                is_whole &= shared.add(perl, traced, false);
            }
            shared.shown.merge();
            this.values.lacks_some.store(!is_whole, Ordering::Relaxed);
        }
        let row = shared.shown.all().get(i).copied();
        if row.is_none() {
            shared.shown = Rows::new();
        }
        row
    });
    let Some(Some(row)) = given else { return 1 };
    *to = Value {
        stack: row.stack,
        frame: unseen(row.stack, row.origin).as_ptr(),
        label: row.label,
        made: row.made,
        objects: row.objects,
        bytes: row.bytes,
        ..Value::NONE
    };
    0
}

const _: () = assert!(UNSEEN == Value::NO_STACK);
