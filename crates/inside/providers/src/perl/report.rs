//! Reports for a profile how many values Perl has, and how much of its arenas is used and free, by
//! the type of value.
//!
//! When perl ends, it frees its interpreter, but not the arenas. This happens before the last
//! profile is made. So the content of an interpreter's arenas is stored before the interpreter is
//! freed.

use std::ffi::{CString, c_void};
use std::sync::atomic::Ordering;

use heapprof_engine::{ENGINE, PoolPart, ReportSink};
use heapprof_perl::PerlRuntime;

use super::arenas::{ArenaHoldings, read_holdings};
use super::state::{GONE_INTERPRETER, PerlStacks};

impl PerlStacks {
    /// Adds up the content of all interpreters' arenas. Leaves out arenas that can't be read: other
    /// threads may change them meanwhile.
    fn sum_holdings(&self, perl: &PerlRuntime) -> ArenaHoldings {
        let mut all = ArenaHoldings::NONE;
        self.left.with(|left| all = *left);
        for known in &self.interpreters {
            let at = known.at.load(Ordering::Acquire);
            if at == 0 || at == GONE_INTERPRETER {
                continue;
            }
            match read_holdings(perl, at) {
                Some(of_one) => all.add(&of_one),
                None => all.unread += 1,
            }
        }
        all
    }
}

/// Reports the number of values in arenas, the number of values that Perl counts, and how much of
/// the arenas is used and free.
pub(super) unsafe extern "C" fn report(context: *mut c_void, report: *const ReportSink) {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, report) = unsafe { (&*context.cast::<PerlStacks>(), &*report) };
    let Some(perl) = this.perl() else { return };
    let held = this.sum_holdings(perl);
    let remark = |said: String| {
        if let Ok(said) = CString::new(said) {
            // SAFETY: the engine gave both.
            unsafe { (report.remark)(report.to, said.as_ptr()) };
        }
    };
    if this.has_too_many.load(Ordering::Relaxed) {
        let most = this.interpreters.len();
        remark(format!(
            "more than {most} interpreters at once: the others have only native frames"
        ));
    }
    for said in this.value_remarks() {
        remark(said.to_string());
    }
    if held.unread != 0 {
        remark(format!(
            "interpreters whose arenas could not be read: {}",
            held.unread
        ));
    }
    let said = match held.interpreters {
        0 => return,
        1 => String::new(),
        many => format!(" of {many} interpreters"),
    };
    let (used, counted) = (held.arenas.values(), held.values);
    remark(format!(
        "values: {used} in arenas{said}, PL_sv_count {counted}"
    ));
    account(report, &held);
    for (of, held) in held.arenas.types() {
        let free = held.bytes.saturating_sub(held.used_bytes);
        let name = of.name();
        // An arena is counted as used or as free, whichever the larger part of its memory is.
        let is_mostly_used = held.used_bytes >= free;
        for (state, bytes, has_arenas) in [
            ("used", held.used_bytes, is_mostly_used),
            ("free", free, !is_mostly_used),
        ] {
            let Ok(name) = CString::new(format!("{name} ({state})")) else {
                continue;
            };
            let part = PoolPart {
                name: name.as_ptr(),
                objects: if has_arenas { held.arenas } else { 0 },
                bytes,
            };
            // SAFETY: the engine gave both.
            unsafe { (report.part)(report.to, &raw const part) };
        }
    }
}

/// Reports how much of the memory in use belongs to Perl's arenas, and how much to the content of
/// values, in bytes. Does nothing if allocations are sampled.
fn account(report: &ReportSink, held: &ArenaHoldings) {
    if !ENGINE.stack_providers().is_exact() {
        return;
    }
    let types = held.arenas.types();
    let (all, used) = types.fold((0, 0), |(all, used), (_, of)| {
        (all + of.bytes, used + of.used_bytes)
    });
    let [texts, arrays, hashes] = held.buffers;
    for (name, bytes) in [
        (c"arenas, used", used),
        (c"arenas, free", all.saturating_sub(used)),
        (c"buffers of strings", texts),
        (c"buffers of arrays", arrays),
        (c"buffers of hashes", hashes),
    ] {
        // SAFETY: the engine gave both.
        unsafe { (report.account)(report.to, name.as_ptr(), bytes) };
    }
}
