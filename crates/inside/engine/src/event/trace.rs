//! Events in which an interpreter has made values. Such an event finds the number of the stack that
//! made the values.

use heapprof_abi::StackNumber;
use heapprof_platform::tls;

use crate::engine::Engine;
use crate::event::entry::{CountdownState, StateOwnership, ThreadEvent};
use crate::event::stack::find_script_stack;

/// An event in which an interpreter traces values. Meanwhile, the thread's allocations are not
/// recorded. Dumps that a signal requests are made after the event.
pub struct ValueTracer {
    engine: &'static Engine,
    event: ThreadEvent,
}

impl ValueTracer {
    /// Returns the number of the stack of the interpreter that this thread runs; `None` if the
    /// thread runs no interpreter, or if there is no memory.
    pub fn stack(&mut self) -> Option<StackNumber> {
        let here = 0u8;
        let (_, own) = self.event.tables();
        find_script_stack(self.engine, own, (&raw const here).addr())
    }
}

/// Runs `work`. Returns `None` without running `work` if nothing is recorded, or if the thread is
/// already inside the engine.
pub(super) fn trace<R>(
    engine: &'static Engine,
    work: impl FnOnce(&mut ValueTracer) -> R,
) -> Option<R> {
    let (slot, recorded) = (tls::current(), &engine.process.recorded);
    // SAFETY: the slot is this thread's own, and not busy when the event begins.
    let (event, countdown) = unsafe {
        if (*slot).busy != 0 || !recorded.is_running() {
            return None;
        }
        let (epoch, countdown) = (recorded.epoch(), (*slot).countdown);
        let goes_on = CountdownState::GoesOn;
        let event =
            ThreadEvent::enter(engine, slot, StateOwnership::Own, goes_on, epoch, countdown)?;
        (event, countdown)
    };
    let mut tracer = ValueTracer { engine, event };
    let done = work(&mut tracer);
    tracer.event.finish(countdown);
    Some(done)
}
