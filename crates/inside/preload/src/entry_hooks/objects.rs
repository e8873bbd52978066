//! The loaded objects whose allocators were searched. The loader tells when there are others.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use heapprof_allocators::AllocatorChoice;
use heapprof_engine::{ENGINE, HookedAllocator};
use heapprof_entry::EntryPlan;
use heapprof_platform::loader::{self, ListedObject};
use heapprof_platform::sys::EngineFile;

use super::functions::{FunctionPlace, HookedFunctions, inner_functions};
use super::object_file::ObjectFile;
use super::patch_table;
use super::plan::{code_of, plan_all};
use super::stubs::{PlannedHook, PreparedHooks, StubPages};
use crate::environment;

/// What tells a loaded object from the others: its base, and the address of its dynamic section.
pub(super) type ObjectId = (usize, usize);

/// An object in a copy of the loader's list.
pub(super) struct CopiedObject {
    pub id: ObjectId,
    pub path: CString,
    pub is_program: bool,
}

/// The process or thread that writes the jumps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JumpWriter {
    /// This thread: no other one runs in the object.
    OwnThread,
    /// The process that attaches, when all threads are stopped.
    Attacher,
}

/// What tells a file from another one that takes its place: its device, its inode, its size and the
/// time of its last change.
type FileId = (u64, u64, i64, i64);

/// An object that was searched.
struct SearchedObject {
    /// Its file, if that could be read and may be replaced.
    file: Option<FileId>,
    /// The pages for its hooks.
    pages: Vec<StubPages>,
    /// The allocators inside it.
    found: Vec<HookedAllocator>,
    /// Whether it was left alone, because it may have run already.
    was_missed: bool,
}

/// The objects that were searched.
pub(super) struct SearchedObjects {
    searched: BTreeMap<ObjectId, SearchedObject>,
    /// Those whose function malloc has a hook.
    hooked_mallocs: Vec<ObjectId>,
    /// The allocators that the last process that attached has chosen.
    attacher_choice: AllocatorChoice,
    /// Whether the loader tells of changes.
    has_notice: bool,
}

impl SearchedObjects {
    pub(super) const fn new() -> Self {
        Self {
            searched: BTreeMap::new(),
            hooked_mallocs: Vec::new(),
            attacher_choice: AllocatorChoice::NONE,
            has_notice: false,
        }
    }

    /// Hooks the allocators of all objects that were loaded since the last call, and forgets those
    /// that were unloaded. If `was_missed`, new objects may run already, so they are left alone,
    /// which the profile says.
    ///
    /// # Safety
    /// No other thread changes the loader's list meanwhile, or runs in an object that was not
    /// searched, unless `was_missed`.
    pub(super) unsafe fn update(&mut self, was_missed: bool) {
        let mut listed = Vec::new();
        let look = |object: ListedObject<'_>| {
            listed.push((object.base, object.dynamic));
        };
        // SAFETY: the caller's contract.
        if !unsafe { loader::for_each_object(look) } {
            return;
        }
        self.forget_all_but(&mut listed);
        if listed.len() == self.searched.len() {
            return;
        }
        let look = |object: ListedObject<'_>| {
            let id = (object.base, object.dynamic);
            if self.searched.contains_key(&id) {
                return;
            }
            // A process that attaches knows the objects of the first namespace only. Those of
            // others may run already.
            let is_unknown = patch_table::is_in_use() && !object.is_in_first_namespace;
            let (pages, found) = match was_missed || is_unknown {
                true => {
                    note_unhooked(
                        "a library was loaded while the program forked, or while heapprof attached",
                    );
                    (Vec::new(), Vec::new())
                }
                false => self.search(&object, JumpWriter::OwnThread),
            };
            // Nothing asks for the file of an object unless a process attaches again.
            let file = patch_table::is_in_use().then(|| file_id(object.path));
            let searched = SearchedObject {
                file: file.flatten(),
                pages,
                found,
                was_missed,
            };
            self.searched.insert(id, searched);
        };
        // SAFETY: the caller's contract. A search loads nothing.
        unsafe { loader::for_each_object(look) };
    }

    /// Prepares the hooks of all objects that were not searched yet, for a process that attaches.
    /// Other threads run in these objects.
    pub(super) fn prepare_for_attacher(
        &mut self,
        listed: &[CopiedObject],
        choice: AllocatorChoice,
    ) {
        let mut ids: Vec<ObjectId> = listed.iter().map(|object| object.id).collect();
        self.forget_all_but(&mut ids);
        // Objects came and went unseen while no process was attached: one may have been loaded to
        // where another one was.
        let is_other_choice = std::mem::replace(&mut self.attacher_choice, choice) != choice;
        for object in listed {
            let known = self.searched.get(&object.id);
            let is_stale = known.is_some_and(|known| {
                let is_replaced = |file| file_id(&object.path) != Some(file);
                // What an attacher has left there is still needed.
                (is_other_choice || known.was_missed || known.file.is_some_and(is_replaced))
                    && !known.pages.iter().any(StubPages::has_jumps)
            });
            if is_stale {
                self.forget(object.id);
            }
        }
        for CopiedObject {
            id,
            path,
            is_program,
        } in listed
        {
            if !self.searched.contains_key(id) {
                let object = ListedObject {
                    base: id.0,
                    path,
                    dynamic: id.1,
                    is_program: *is_program,
                    is_in_first_namespace: true,
                };
                let (pages, found) = self.search(&object, JumpWriter::Attacher);
                let searched = SearchedObject {
                    // The program itself stays.
                    file: file_id(path).filter(|_| !is_program),
                    pages,
                    found,
                    was_missed: false,
                };
                self.searched.insert(*id, searched);
            }
        }
    }

    /// Returns the allocators inside the loaded objects, as comments of a profile, one in each
    /// line.
    pub(super) fn allocator_text(&self) -> String {
        let found = self.searched.values().flat_map(|object| &object.found);
        found.map(|found| found.to_comment() + "\n").collect()
    }

    /// Whether an object's function malloc has a hook.
    pub(super) fn hooks_malloc_of(&self, object: ObjectId) -> bool {
        self.hooked_mallocs.contains(&object)
    }

    /// Forgets the objects that are not in a list, because they were unloaded.
    fn forget_all_but(&mut self, listed: &mut [ObjectId]) {
        listed.sort_unstable();
        let is_loaded = |id: &ObjectId| listed.binary_search(id).is_ok();
        self.hooked_mallocs.retain(is_loaded);
        self.searched.retain(|id, object| {
            let is_loaded = is_loaded(id);
            if !is_loaded {
                let pages = object.pages.drain(..);
                // SAFETY: no thread runs in an object that is unloaded, so none runs in its hooks.
                pages.for_each(|pages| unsafe { pages.unmap() });
            }
            is_loaded
        });
    }

    /// Forgets an object, so that it is searched again. A thread may still be in its hooks, so
    /// their pages stay.
    fn forget(&mut self, object: ObjectId) {
        self.hooked_mallocs.retain(|known| *known != object);
        if let Some(known) = self.searched.remove(&object) {
            known.pages.iter().for_each(StubPages::forget_jumps);
        }
    }

    /// Hooks the allocators of an object. Returns the pages for the hooks, and the allocators
    /// inside it.
    fn search(
        &mut self,
        object: &ListedObject<'_>,
        writer: JumpWriter,
    ) -> (Vec<StubPages>, Vec<HookedAllocator>) {
        let (mut pages, mut inside) = (Vec::new(), Vec::new());
        let Some(file) = ObjectFile::open(object) else {
            return (pages, inside);
        };
        if file.segment(Self::search as *const () as usize).is_some() {
            return (pages, inside);
        }
        let is_loader = file.segment(loader::notice_function()).is_some();
        if !self.has_notice && is_loader {
            self.has_notice = true;
            hook_notice(&file, writer);
        }
        // glibc's loader has functions of its own that stand in for malloc until libc is there.
        if is_loader && !loader::is_musl() {
            return (pages, inside);
        }
        let wanted = HookedFunctions {
            is_program: object.is_program,
            // A program that was not started with the library has no hooks of symbols.
            has_symbol_hooks: !patch_table::is_in_use(),
        };
        let debug = || file.debug_file();
        let builds = inner_functions(file.bytes(), debug, wanted);
        for ((name, _), functions) in builds.unwrap_or_default() {
            let is_of_all = functions.iter().any(|inner| inner.is_reached_by_symbol);
            let is_chosen = is_of_all || super::choice().contains(name);
            let planned = match (is_chosen, file.is_loaded()) {
                (true, true) => plan_all(&file, &functions),
                (true, false) => Err("its file was replaced".to_string()),
                (false, _) => Err("it is not among the chosen allocators".to_string()),
            };
            let written = planned.and_then(|hooks| Ok(writer.write(&hooks)?));
            if written.is_ok() && functions.iter().any(|inner| inner.name == "malloc") {
                self.hooked_mallocs.push((object.base, object.dynamic));
            }
            if !is_of_all {
                let functions = written.as_ref().map(|_| functions.len());
                inside.push(note_allocator(name, &file, functions));
            }
            pages.extend(written);
        }
        (pages, inside)
    }
}

/// Returns what tells the file of a path from others; `None` if it can't be read.
fn file_id(path: &CStr) -> Option<FileId> {
    let stat = EngineFile::open(path, libc::O_PATH, 0).ok()?.stat()?;
    Some((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime))
}

impl JumpWriter {
    fn write(self, hooks: &[PlannedHook]) -> Result<StubPages, &'static str> {
        let prepared = PreparedHooks::new(hooks)?;
        match self {
            Self::OwnThread => prepared.write(),
            Self::Attacher => prepared.leave_to_attacher(),
        }
    }
}

/// Adds an allocator inside a file to the recording: the number of its hooked functions, or the
/// reason why it is not hooked.
fn note_allocator(
    name: &str,
    file: &ObjectFile,
    functions: Result<usize, &String>,
) -> HookedAllocator {
    let found = HookedAllocator {
        name: name.to_string(),
        file: file.shown_path(),
        functions: functions.map_err(String::clone),
    };
    let is_new = ENGINE.dumps().add_hooked_allocator(found.clone());
    if is_new && found.functions.is_ok() {
        environment::report_hooked_allocator(&found);
    }
    found
}

/// Hooks the function that the loader calls for each change of its list. If that is not possible,
/// the profile says that nothing is known of libraries that are loaded later.
fn hook_notice(loader: &ObjectFile, writer: JumpWriter) {
    let place = FunctionPlace {
        start: loader::notice_function().wrapping_sub(loader.base) as u64,
        size: 1,
        next: u64::MAX,
    };
    let function = code_of(loader, "it", place);
    let plan = function.and_then(|code| EntryPlan::new(&code).map_err(|why| why.to_string()));
    let hook = plan.map(|plan| PlannedHook { plan, call: None });
    let written = hook.and_then(|hook| Ok(writer.write(&[hook])?));
    if let Err(why) = written {
        note_unhooked(&format!("the loader's notice can't be hooked: {why}"));
    }
}

/// Adds a comment about libraries that are not searched.
fn note_unhooked(why: &str) {
    ENGINE.dumps().add_hooked_allocator(HookedAllocator {
        name: "any allocator".to_string(),
        file: "libraries that are loaded later".to_string(),
        functions: Err(why.to_string()),
    });
}
