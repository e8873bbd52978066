//! Hooks at the entries of allocators that are linked into the program or its libraries, and that
//! it calls past the hooks of symbols.
//!
//! A jump is written over the first instructions of each function of such an allocator
//! (`heapprof-entry` says where that is right): at the library's start, before the program has
//! threads, and when an object is loaded later, before any thread can run in it. The jump leads to
//! a stub, which leads to a hook (`calls.rs`). If one function of an allocator can't have a jump,
//! the allocator gets none: blocks that are freed unseen would look like leaks.
//!
//! The loader calls an empty function for debuggers before and after each change of its list of
//! objects, and after it has mapped an object, before it runs any code of it. This function gets a
//! jump, too.
//!
//! If a process attaches to a running program, all threads have to be stopped when the jumps are
//! written. So the library only prepares them (`patch_table.rs`), and the process writes them.
//!
//! What is written: the text of the functions, through /proc/self/mem, so that no page is writable
//! and executable at once; and pages of stubs and trampolines within reach of the functions, which
//! are executable once they are complete.

mod calls;
mod fast_calls;
mod functions;
mod hook_choice;
mod object_file;
mod objects;
mod patch_table;
mod plan;
mod stub_code;
mod stubs;
mod turn;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use heapprof_allocators::AllocatorChoice;
use heapprof_engine::{ENGINE, is_inside_engine};
use heapprof_platform::loader;
use heapprof_platform::stack_switch::OwnStack;
use heapprof_platform::sys::{self, EngineFile};
use objects::{CopiedObject, SearchedObjects};
use turn::SearchTurn;

use crate::loader_objects::each_object;

/// The allocators inside files that are to be hooked, as bits.
static CHOICE: AtomicU8 = AtomicU8::new(AllocatorChoice::NONE.to_bits());
/// The objects that were searched. Only the thread that has the turn uses them.
static OBJECTS: Mutex<SearchedObjects> = Mutex::new(SearchedObjects::new());
static TURN: SearchTurn = SearchTurn::new();
/// Whether an object may have been loaded without a search.
static WAS_MISSED: AtomicBool = AtomicBool::new(false);
/// The stack for searches. That of a thread that loads a library may be small.
static STACK: OwnStack = OwnStack::new();

/// Sets which allocators [`install`] hooks.
pub fn request(choice: AllocatorChoice) {
    CHOICE.store(choice.to_bits(), Ordering::Relaxed);
}

/// Returns the allocators that are to be hooked.
fn choice() -> AllocatorChoice {
    AllocatorChoice::from_bits(CHOICE.load(Ordering::Relaxed))
}

/// Hooks nothing any more, because the program installs a filter of system calls.
pub fn end() {
    request(AllocatorChoice::NONE);
}

/// Hooks the allocators of all loaded objects, if that is requested and the program has one thread.
pub fn install() {
    if choice() != AllocatorChoice::NONE && has_one_thread() {
        ENGINE.lifecycle().with_guard_and_signals_blocked(update);
    }
}

/// What is prepared for a process that attaches.
pub struct AttacherPlan {
    /// Address of the table of jumps.
    pub table: usize,
    /// Number of jumps.
    pub jump_count: usize,
    /// Address of the mark that objects may be loaded without a search.
    pub missed_mark: usize,
    /// Number of loaded objects.
    pub object_count: usize,
    /// Sum of the addresses of these objects and of their dynamic sections.
    pub object_sum: usize,
    /// Whether the function malloc that the program's symbols lead to is among the functions.
    pub hooks_malloc: bool,
    /// The allocators inside the loaded objects, as comments of a profile, one in each line.
    pub allocator_text: String,
}

/// Prepares hooks for a process that attaches, which writes the jumps. `malloc_object` has the
/// address of the first object that defines malloc, and of its dynamic section. Returns `None` if
/// another thread searches objects for long.
pub fn prepare_for_attacher(
    choice: AllocatorChoice,
    malloc_object: (usize, usize),
) -> Option<AttacherPlan> {
    if !TURN.begin_search() {
        return None;
    }
    request(choice);
    let table = patch_table::begin_use();
    let (mut listed, mut object_sum) = (Vec::new(), 0_usize);
    each_object(|object| {
        let id = (object.base as usize, object.object.dynamic as usize);
        object_sum = object_sum.wrapping_add(id.0).wrapping_add(id.1);
        listed.push(CopiedObject {
            id,
            path: object.path.to_owned(),
            is_program: object.is_executable,
        });
    });
    let (mut hooks_malloc, mut allocator_text) = (false, String::new());
    let objects = OBJECTS.try_lock();
    let is_free = objects.is_ok();
    if let Ok(mut objects) = objects {
        STACK.run(|| objects.prepare_for_attacher(&listed, choice));
        hooks_malloc = objects.hooks_malloc_of(malloc_object);
        allocator_text = objects.allocator_text();
    }
    TURN.end();
    if !is_free {
        return None;
    }
    Some(AttacherPlan {
        table,
        jump_count: patch_table::len(),
        missed_mark: WAS_MISSED.as_ptr() as usize,
        object_count: listed.len(),
        object_sum,
        hooks_malloc,
        allocator_text,
    })
}

/// Ends the search for objects that are loaded later. The process that attached takes the jumps
/// away. Returns the allocators inside the loaded objects, as comments of a profile.
pub fn end_for_attacher() -> String {
    let has_turn = TURN.begin_search();
    end();
    let objects = OBJECTS.try_lock();
    let text = objects.map_or_else(|_| String::new(), |objects| objects.allocator_text());
    if has_turn {
        TURN.end();
    }
    text
}

/// Forgets a search that another thread made when this process was forked.
pub fn end_in_child() {
    end();
    TURN.end();
}

/// Waits for the end of a search, and lets none begin until [`after_fork`] is called.
pub fn before_fork() {
    if choice() == AllocatorChoice::NONE {
        return;
    }
    TURN.begin_fork();
    // The child finds the loader's list as it is now. Its loader refuses to work with a list that
    // is being changed, so a change gets the time to end. It waits for this fork then.
    const MAX_NAPS: usize = 200;
    for _ in 0..MAX_NAPS {
        if loader::is_consistent() {
            return;
        }
        sys::nap();
    }
}

/// Lets searches begin again, in the parent of a fork and in its child.
pub fn after_fork() {
    TURN.end();
}

/// Hooks the allocators of objects that were loaded. The loader has called the function for changes
/// of its list.
fn note_change() {
    // A search waits for a fork. In the middle of a change, the child would find the loader's list
    // so, and its loader would refuse to work.
    let is_requested = choice() != AllocatorChoice::NONE;
    if is_requested && loader::is_consistent() && !is_inside_engine() {
        ENGINE.lifecycle().with_guard_and_signals_blocked(update);
    }
}

fn update() {
    if !TURN.begin_search() {
        WAS_MISSED.store(true, Ordering::Relaxed);
        return;
    }
    if let Ok(mut objects) = OBJECTS.try_lock() {
        let was_missed = WAS_MISSED.swap(false, Ordering::Relaxed);
        // SAFETY: the process has one thread, or this thread has the loader's lock, and what the
        // loader has mapped does not run yet, unless a notice was missed.
        STACK.run(|| unsafe { objects.update(was_missed) });
    }
    TURN.end();
}

fn has_one_thread() -> bool {
    let Ok(folder) = EngineFile::open(c"/proc/self/task", libc::O_PATH, 0) else {
        return false;
    };
    // The folder has a link for each thread, beside its own two.
    folder.stat().is_some_and(|found| found.st_nlink == 3)
}
