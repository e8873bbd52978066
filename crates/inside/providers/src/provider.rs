//! What each interpreter implements.

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::LoadedObject;

/// An interpreter whose stacks can be read inside the program.
pub(crate) trait InterpreterProvider: Sync {
    /// Looks for the interpreter in an object that was not scanned before. If it is there, and is
    /// the first of its kind, its provider is registered.
    fn examine<M: Memory>(&'static self, memory: M, object: &ScannedObject)
    where
        Self: Sized;

    /// Stops reading stacks, because the program may unload the interpreter's library. Returns
    /// whether they were read.
    fn pause(&self) -> bool;

    /// Reads stacks again after a [`pause`](Self::pause) that returned `true`, if the library is
    /// still there.
    fn resume(&self);
}

/// An object of the program that is searched for interpreters.
pub(crate) struct ScannedObject {
    /// The object.
    pub(crate) object: LoadedObject,
    /// The program's executable.
    pub(crate) executable: Option<LoadedObject>,
    /// Whether there are no other threads yet.
    pub(crate) is_early: bool,
}
