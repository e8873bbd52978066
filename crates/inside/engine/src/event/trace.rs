//! Events in which an interpreter has made values. Such an event finds the number of the stack that
//! made the values.

use heapprof_abi::StackNumber;
use heapprof_platform::tls;

use crate::engine::Engine;
use crate::event::entry::{CountdownState, StateOwnership, ThreadEvent};
use crate::event::stack::find_script_stack;

/// A thread's event in which an interpreter traces values. What the thread allocates meanwhile is
/// not recorded, and dumps that a signal requests are made afterwards.
pub struct ValueTracer {
    engine: &'static Engine,
    event: ThreadEvent,
}

impl ValueTracer {
    /// Returns the number of the stack of the interpreter that this thread runs; `None` if the
    /// thread runs none, or if there is no memory.
    pub fn stack(&mut self) -> Option<StackNumber> {
        let here = 0u8;
        let (_, own) = self.event.tables();
        find_script_stack(self.engine, own, (&raw const here).addr())
    }
}

/// Runs `work`, unless nothing is recorded or the thread is inside the engine already.
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
