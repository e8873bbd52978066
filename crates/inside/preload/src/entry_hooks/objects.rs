//! The loaded objects whose allocators were searched. The loader tells when there are others.

use std::collections::BTreeMap;

use heapprof_engine::{ENGINE, HookedAllocator};
use heapprof_entry::EntryPlan;
use heapprof_platform::loader::{self, ListedObject};

use super::functions::{FunctionPlace, inner_functions};
use super::object_file::ObjectFile;
use super::plan::{code_of, plan_all};
use super::stubs::{self, EntryPatch, StubPages};
use crate::environment;

/// What tells a loaded object from the others: its base, and the address of its dynamic section.
type ObjectId = (usize, usize);

/// The objects that were searched, with the pages for their hooks.
pub(super) struct SearchedObjects {
    searched: BTreeMap<ObjectId, Vec<StubPages>>,
    /// Whether the loader tells of changes.
    has_notice: bool,
}

impl SearchedObjects {
    pub(super) const fn new() -> Self {
        Self {
            searched: BTreeMap::new(),
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
        listed.sort_unstable();
        self.searched.retain(|id, pages| {
            let is_loaded = listed.binary_search(id).is_ok();
            if !is_loaded {
                // SAFETY: no thread runs in an object that is unloaded, so none runs in its hooks.
                pages.drain(..).for_each(|pages| unsafe { pages.unmap() });
            }
            is_loaded
        });
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
                false => self.search(&object),
            };
            self.searched.insert(id, pages);
        };
        // SAFETY: the caller's contract. A search loads nothing.
        unsafe { loader::for_each_object(look) };
    }

    /// Hooks the allocators of an object. Returns the pages for the hooks.
    fn search(&mut self, object: &ListedObject<'_>) -> Vec<StubPages> {
        let Some(file) = ObjectFile::open(object) else {
            return Vec::new();
        };
        if file.segment(Self::search as *const () as usize).is_some() {
            return Vec::new();
        }
        if !self.has_notice && file.segment(loader::notice_function()).is_some() {
            self.has_notice = true;
            hook_notice(&file);
        }
        let mut pages = Vec::new();
        let debug = || file.debug_file();
        let builds = inner_functions(file.bytes(), debug, object.is_program);
        for ((name, _), functions) in builds.unwrap_or_default() {
            let written = match (super::choice().contains(name), file.is_loaded()) {
                (true, true) => plan_all(&file, &functions),
                (true, false) => Err("its file was replaced".to_string()),
                (false, _) => Err("it is not among the chosen allocators".to_string()),
            };
            let written = written.and_then(|plans| Ok(stubs::write(&plans)?));
            let functions = written.as_ref().map(|_| functions.len());
            let found = HookedAllocator {
                name: name.to_string(),
                file: file.shown_path(),
                functions: functions.map_err(String::clone),
            };
            let is_new = ENGINE.dumps().add_hooked_allocator(found.clone());
            if is_new && written.is_ok() {
                environment::report_hooked_allocator(&found);
            }
            pages.extend(written);
        }
        pages
    }
}

/// Hooks the function that the loader calls for each change of its list. If that is not possible,
/// the profile says that nothing is known of libraries that are loaded later.
fn hook_notice(loader: &ObjectFile) {
    let place = FunctionPlace {
        start: loader::notice_function().wrapping_sub(loader.base) as u64,
        size: 1,
        next: u64::MAX,
    };
    let function = code_of(loader, "it", place);
    let plan = function.and_then(|code| EntryPlan::new(&code).map_err(|why| why.to_string()));
    let written = plan.and_then(|plan| Ok(stubs::write(&[EntryPatch { plan, call: None }])?));
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
