//! The loaded objects whose allocators were searched. The loader tells when there are others.

use std::collections::BTreeMap;
use std::ffi::CString;

use heapprof_engine::{ENGINE, HookedAllocator};
use heapprof_entry::EntryPlan;
use heapprof_platform::loader::{self, ListedObject};

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

/// Who writes the jumps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JumpWriter {
    /// This thread: no other one runs in the object.
    OwnThread,
    /// The process that attaches, when all threads are stopped.
    Attacher,
}

/// The objects that were searched, with the pages for their hooks.
pub(super) struct SearchedObjects {
    searched: BTreeMap<ObjectId, Vec<StubPages>>,
    /// Those whose function malloc has a hook.
    hooked_mallocs: Vec<ObjectId>,
    /// Whether the loader tells of changes.
    has_notice: bool,
}

impl SearchedObjects {
    pub(super) const fn new() -> Self {
        Self {
            searched: BTreeMap::new(),
            hooked_mallocs: Vec::new(),
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
            let pages = match was_missed {
                true => {
                    note_unhooked("a library was loaded while the program forked");
                    Vec::new()
                }
                false => self.search(&object, JumpWriter::OwnThread),
            };
            self.searched.insert(id, pages);
        };
        // SAFETY: the caller's contract. A search loads nothing.
        unsafe { loader::for_each_object(look) };
    }

    /// Prepares the hooks of all objects that were not searched yet, for a process that attaches.
    /// Other threads run in these objects.
    pub(super) fn prepare_for_attacher(&mut self, listed: &[CopiedObject]) {
        let mut ids: Vec<ObjectId> = listed.iter().map(|object| object.id).collect();
        self.forget_all_but(&mut ids);
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
                };
                let pages = self.search(&object, JumpWriter::Attacher);
                self.searched.insert(*id, pages);
            }
        }
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
        self.searched.retain(|id, pages| {
            let is_loaded = is_loaded(id);
            if !is_loaded {
                // SAFETY: no thread runs in an object that is unloaded, so none runs in its hooks.
                pages.drain(..).for_each(|pages| unsafe { pages.unmap() });
            }
            is_loaded
        });
    }

    /// Hooks the allocators of an object. Returns the pages for the hooks.
    fn search(&mut self, object: &ListedObject<'_>, writer: JumpWriter) -> Vec<StubPages> {
        let Some(file) = ObjectFile::open(object) else {
            return Vec::new();
        };
        if file.segment(Self::search as *const () as usize).is_some() {
            return Vec::new();
        }
        let is_loader = file.segment(loader::notice_function()).is_some();
        if !self.has_notice && is_loader {
            self.has_notice = true;
            hook_notice(&file, writer);
        }
        // glibc's loader has functions of its own that stand in for malloc until libc is there.
        if is_loader && !loader::is_musl() {
            return Vec::new();
        }
        let mut pages = Vec::new();
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
                note_allocator(name, &file, written.as_ref().map(|_| functions.len()));
            }
            pages.extend(written);
        }
        pages
    }
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
fn note_allocator(name: &str, file: &ObjectFile, functions: Result<usize, &String>) {
    let found = HookedAllocator {
        name: name.to_string(),
        file: file.shown_path(),
        functions: functions.map_err(String::clone),
    };
    let is_new = ENGINE.dumps().add_hooked_allocator(found.clone());
    if is_new && found.functions.is_ok() {
        environment::report_hooked_allocator(&found);
    }
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
