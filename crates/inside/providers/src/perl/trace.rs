//! Traces interpreters' values: takes the reports of the module Devel::HeapProf, and writes values
//! into a profile.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_engine::{ENGINE, StackNumber, TracedValues};

use super::state::PerlStacks;
use super::values::{
    BROKEN_LIST, FIRST_MOMENT, IS_VALUE, LeftoverValues, NO_MEMORY, PROGRAM_ENDED, PerlValueFilter,
    PerlValueRow, PerlValueRows, TRACING, TracedInterpreter, ValueRequest, kind_of, split_label,
    stack_of, text_of, unseen_stack_text,
};

impl PerlStacks {
    /// Sets whether values are to be traced.
    pub fn want_values(&self, wants: ValueRequest) {
        self.values.wanted.store(wants as u8, Ordering::Relaxed);
    }

    /// Returns whether values are to be traced.
    pub fn wants_values(&self) -> ValueRequest {
        match self.values.wanted.load(Ordering::Relaxed) {
            0 => ValueRequest::Nothing,
            1 => ValueRequest::Values,
            _ => ValueRequest::ValuesOrNothing,
        }
    }

    /// Starts to trace an interpreter's values, if they are wanted and can be traced. `of_stale` is
    /// Perl's flag for a variable that its pad keeps until its `my` runs again. `is_copy` is true
    /// if the interpreter was made for a thread.
    ///
    /// # Safety
    /// This thread runs the interpreter, and its values lie in arenas.
    pub unsafe fn trace_values(
        &self,
        at: u64,
        of_stale: u32,
        is_copy: bool,
    ) -> Option<&'static TracedInterpreter> {
        if self.wants_values() == ValueRequest::Nothing {
            return None;
        }
        let perl = self.known_perl()?;
        let roots = perl.value_roots(perl.base_of(at))?;
        self.interpreter(at.max(1))?;
        let new = TracedInterpreter::new(at.max(1), roots, of_stale, is_copy.into())?;
        let take = |place: &&AtomicPtr<TracedInterpreter>| {
            let (old, new) = (std::ptr::null_mut(), (&raw const *new).cast_mut());
            place
                .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        self.values.traced.iter().find(take)?;
        // SAFETY: the caller's promise.
        unsafe { new.follow() };
        new.note_made_before();
        // SAFETY: as above.
        unsafe { new.remember() };
        Some(new)
    }

    /// Tracks the changes that an op has made to values. Returns the number of values that the op
    /// made.
    ///
    /// # Safety
    /// This thread runs the interpreter.
    pub unsafe fn follow_values(&self, traced: &TracedInterpreter) -> usize {
        // SAFETY: the caller's promise.
        unsafe { traced.follow() }
    }

    /// Records this thread's current stack for the new values that
    /// [`follow_values`](Self::follow_values) has counted.
    pub fn note_values_made(&self, traced: &TracedInterpreter) {
        traced.note_made(self.values.moment.load(Ordering::Relaxed));
    }

    /// Notes that the whole program is compiled and begins to run.
    ///
    /// # Safety
    /// This thread runs the interpreter.
    pub unsafe fn note_values_compiled(&self, traced: &TracedInterpreter) {
        // SAFETY: the caller's promise.
        unsafe { traced.note_compiled() };
    }

    /// Notes that this thread has run the `my` of some variables. `variables` holds the addresses
    /// of their heads.
    pub fn note_my_run(&self, traced: &TracedInterpreter, variables: &[u64]) {
        let moment = self.values.moment.load(Ordering::Relaxed);
        traced.note_my_run(variables, moment, (moment > FIRST_MOMENT).then_some(moment));
    }

    /// Stores an interpreter's values at the end of the program, before perl frees them.
    /// `is_replaced` is true if another module's run loop ran the program.
    pub fn end_values(&self, traced: &TracedInterpreter, is_replaced: bool) {
        let kept = ENGINE.events().trace(|_| {
            let Some(perl) = self.known_perl() else {
                return;
            };
            if is_replaced {
                self.values.is_replaced.store(true, Ordering::Relaxed);
            }
            if traced.state() == TRACING {
                let added = self.values.with(|shared| shared.add(perl, traced, true));
                if added != Some(true) {
                    self.values.has_lost.store(true, Ordering::Relaxed);
                }
                traced.end(PROGRAM_ENDED);
            }
        });
        if kept.is_none() {
            self.values.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Begins a new section of the program, whose values are distinguished from earlier values. If
    /// there is a `text`, it becomes the label `mark` of the section's values. Returns the number
    /// of the section.
    pub fn mark_values(&self, text: Option<&[u8]>) -> u32 {
        let moment = self.values.moment.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(text) = text {
            ENGINE.lifecycle().with_guard_and_signals_blocked(|| {
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

    /// Returns the live values that were made since a mark. Leaves out variables that wait in their
    /// pads until their `my` runs again. Returns `None` if the values can't be determined, for
    /// example after the recording.
    pub fn values_since(
        &self,
        traced: &TracedInterpreter,
        since: u32,
    ) -> Option<Vec<LeftoverValues>> {
        let perl = self.known_perl()?;
        if traced.state() != TRACING || !ENGINE.lifecycle().is_running() {
            return None;
        }
        let wanted = PerlValueFilter {
            since,
            stale: false,
        };
        self.values.with(|shared| {
            let mut rows = PerlValueRows::new();
            let is_whole = rows.add_values(perl, traced, &mut shared.names, wanted, |_| 0);
            let left = |row: &PerlValueRow| LeftoverValues {
                stack: stack_of(row),
                kind: kind_of(row.label),
                class: text_of(&shared.names, split_label(row.label).1),
                objects: row.objects,
                bytes: row.bytes,
            };
            is_whole.then(|| rows.all().iter().map(left).collect())
        })?
    }

    /// Forgets the values of an interpreter that is about to be freed. Stores how many values each
    /// stack made.
    pub(super) fn forget_values(&self, at: u64) {
        for place in &self.values.traced {
            // SAFETY: traced interpreters stay for good.
            let traced = unsafe { place.load(Ordering::Acquire).as_ref() };
            let Some(traced) = traced.filter(|traced| traced.at == at) else {
                continue;
            };
            if traced.state() != PROGRAM_ENDED {
                traced.end(PROGRAM_ENDED);
                let kept = self.values.with(|shared| {
                    traced
                        .with(|heads| {
                            for (stack, &made) in heads.counts().iter().enumerate() {
                                let stack = StackNumber::from_index(stack);
                                if made != 0 {
                                    shared.left.add(PerlValueRow {
                                        stack,
                                        made,
                                        ..PerlValueRow::NOTHING
                                    });
                                }
                            }
                        })
                        .is_some()
                });
                if kept != Some(true) {
                    self.values.has_lost.store(true, Ordering::Relaxed);
                }
            }
            traced.clear();
            place.store(std::ptr::null_mut(), Ordering::Release);
        }
    }

    /// Returns the remarks about values for a profile.
    pub(super) fn value_remarks(&self) -> Vec<&'static str> {
        let mut remarks = Vec::new();
        if self.wants_values() == ValueRequest::Nothing {
            return remarks;
        }
        let values = &self.values;
        let is_any = values.all().next().is_some()
            || values.with(|shared| !shared.left.all().is_empty()) == Some(true);
        if !is_any {
            remarks.push(
                "values missing: no perl has loaded Devel::HeapProf (with -T, none does unless the \
                 script or its #! line says -MDevel::HeapProf)",
            );
        }
        for traced in values.all() {
            match traced.state() {
                NO_MEMORY => {
                    remarks.push("values missing: there was not enough memory to continue tracing")
                }
                BROKEN_LIST => remarks
                    .push("values missing: Perl's list of free heads was not in its usual form"),
                _ => {}
            }
        }
        let lacks = [&values.lacks_some, &values.has_lost];
        if lacks.iter().any(|lacks| lacks.load(Ordering::Relaxed)) {
            remarks.push("values missing: some could not be read");
        }
        if values.is_stopped.load(Ordering::Relaxed) {
            remarks.push(
                "values missing: the recording was stopped before Perl ended; what Perl has freed \
                 since then is not included. Devel::HeapProf::dump before the end writes a profile \
                 with values",
            );
        }
        if values.is_replaced.load(Ordering::Relaxed) {
            remarks.push(
                "values missing: another module replaced the run loop; values created after that \
                 have the stack of a later op",
            );
        }
        remarks
    }
}

/// Returns the labels of a row of values, each as key and text; `None` if `label` belongs to a
/// stack.
pub(super) fn labels(this: &PerlStacks, label: u64) -> Option<Vec<(&'static str, String)>> {
    if label & IS_VALUE == 0 {
        return None;
    }
    let (_, class, mark) = split_label(label);
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

pub(super) unsafe extern "C" fn values(
    context: *mut c_void,
    i: usize,
    to: *mut TracedValues,
) -> c_int {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, to) = unsafe { (&*context.cast::<PerlStacks>(), &mut *to) };
    if this.wants_values() == ValueRequest::Nothing {
        return 1;
    }
    let Some(perl) = this.known_perl() else {
        return 1;
    };
    let given = this.values.with(|shared| {
        if i == 0 {
            shared.shown = PerlValueRows::new();
            let mut is_whole = shared.left.all().iter().all(|&row| shared.shown.add(row));
            for traced in this
                .values
                .all()
                .filter(|traced| traced.state() != PROGRAM_ENDED)
            {
                is_whole &= shared.add(perl, traced, false);
            }
            shared.shown.merge();
            this.values.lacks_some.store(!is_whole, Ordering::Relaxed);
        }
        let row = shared.shown.all().get(i).copied();
        if row.is_none() {
            shared.shown = PerlValueRows::new();
        }
        row
    });
    let Some(given) = given else {
        // Another thread keeps the values: this profile gets no more of them.
        this.values.has_lost.store(true, Ordering::Relaxed);
        return 1;
    };
    let Some(row) = given else { return 1 };
    *to = TracedValues {
        stack: row.stack,
        frame: unseen_stack_text(row.stack, row.origin).as_ptr(),
        label: row.label,
        made: row.made,
        objects: row.objects,
        bytes: row.bytes,
        ..TracedValues::NONE
    };
    0
}
