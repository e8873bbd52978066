//! The trait that each interpreter's provider implements.

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::LoadedObject;

/// Reads the stacks of one kind of interpreter inside the program.
pub(crate) trait InterpreterProvider: Sync {
    /// Looks for the interpreter in an object that was not scanned before. If it is the first
    /// interpreter of its kind, stores it and registers its provider.
    fn examine<M: Memory>(&'static self, memory: M, object: &ScannedObject)
    where
        Self: Sized;

    /// Stops reading stacks, because the program may unload the interpreter's library. Returns
    /// whether stacks were read before.
    fn pause(&self) -> bool;

    /// Ends a [`pause`](Self::pause) that returned `true`: from now on stacks are read, if the
    /// library is still loaded.
    fn resume(&self);
}

/// A loaded object that is searched for interpreters.
pub(crate) struct ScannedObject {
    /// The object to search.
    pub(crate) object: LoadedObject,
    /// The program's executable.
    pub(crate) executable: Option<LoadedObject>,
    /// Whether the program has no other threads yet.
    pub(crate) is_early: bool,
}
