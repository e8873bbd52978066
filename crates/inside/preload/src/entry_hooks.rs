//! Hooks at the entries of allocators that are linked into the program or its libraries, and that
//! it calls past the hooks of symbols.
//!
//! At the library's start, before the program has threads, a jump is written over the first
//! instructions of each function of such an allocator (`heapprof-entry` says where that is right).
//! It leads to a stub, which leads to a hook (`calls.rs`). If one function of an allocator can't
//! have a jump, the allocator gets none: blocks that are freed unseen would look like leaks.
//!
//! What is written: the text of the functions, through /proc/self/mem, so that no page is writable
//! and executable at once; and pages of stubs and trampolines within reach of the functions, which
//! are executable once they are complete.

mod calls;
mod objects;
mod stubs;

use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_allocators::AllocatorFunction;
use heapprof_engine::{ENGINE, HookedAllocator};
use heapprof_entry::{EntryPlan, FunctionCode, calls_one_of};
use heapprof_platform::sys::{self, EngineFile};
use objects::{CodeSegment, InnerFunction, MappedFile, ObjectCode};
use stubs::EntryPatch;

/// Whether the allocators inside files are to be hooked.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Sets whether [`install`] hooks anything.
pub fn request(is_requested: bool) {
    IS_REQUESTED.store(is_requested, Ordering::Relaxed);
}

/// Hooks the allocators of all loaded objects, if that is requested and the program has one thread.
pub fn install() {
    if !IS_REQUESTED.load(Ordering::Relaxed) || !has_one_thread() {
        return;
    }
    let mut found = Vec::new();
    for object in objects::loaded_code() {
        let Some(mapped) = MappedFile::open(&object.path) else {
            continue;
        };
        let builds = objects::inner_functions(mapped.bytes(), object.is_program);
        for ((allocator, _), functions) in builds.unwrap_or_default() {
            let plans = plan_all(&object, mapped.bytes(), &functions);
            let file = match object.is_program {
                true => String::from_utf8_lossy(&program_path()).into_owned(),
                false => object.path.to_string_lossy().into_owned(),
            };
            let written = plans.and_then(|plans| stubs::write(&plans).map_err(str::to_string));
            found.push(HookedAllocator {
                name: allocator.to_string(),
                file,
                functions: written.map(|()| functions.len()),
            });
        }
    }
    ENGINE.dumps().set_hooked_allocators(found);
}

/// Returns the path of the program's file.
fn program_path() -> Vec<u8> {
    let mut buffer = [0; 4096];
    sys::read_link(c"/proc/self/exe", &mut buffer).to_vec()
}

fn has_one_thread() -> bool {
    let Ok(folder) = EngineFile::open(c"/proc/self/task", libc::O_PATH, 0) else {
        return false;
    };
    // The folder has a link for each thread, beside its own two.
    folder.stat().is_some_and(|found| found.st_nlink == 3)
}

/// Plans the jumps of all functions of an allocator. A function that can't have one is left out if
/// it calls another one: its calls are recorded there.
fn plan_all(
    object: &ObjectCode,
    file: &[u8],
    functions: &[InnerFunction],
) -> Result<Vec<EntryPatch>, String> {
    let (mut patches, mut refused, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for inner in functions {
        let code = code_of(object, file, inner)?;
        let plan = match inner.is_clone {
            true => Err("its arguments are not those of the source".to_string()),
            false => EntryPlan::new(&code).map_err(|why| why.to_string()),
        };
        match plan {
            Ok(plan) => {
                starts.push(code.start);
                let AllocatorFunction { call, .. } = inner.function;
                patches.push(EntryPatch { plan, call });
            }
            Err(why) => refused.push((inner, code, why)),
        }
    }
    let wrong = refused
        .iter()
        .find(|(_, code, _)| !calls_one_of(code, &starts));
    match wrong {
        Some((inner, _, why)) => Err(format!("{} can't be hooked: {why}", inner.name)),
        None => Ok(patches),
    }
}

/// Returns the code of a function, which has to be in memory as it is in the file.
fn code_of<'a>(
    object: &ObjectCode,
    file: &'a [u8],
    inner: &InnerFunction,
) -> Result<FunctionCode<'a>, String> {
    let refuse = |why: &str| format!("{} {why}", inner.name);
    let start = object.base.wrapping_add(inner.start as usize);
    let holds = |code: &&CodeSegment| (code.start..code.start + code.len).contains(&start);
    let segment = object.segments.iter().find(holds);
    let segment = segment.ok_or_else(|| refuse("is not in code"))?;
    let bytes = file.get(segment.offset..segment.offset + segment.len);
    let bytes = bytes.ok_or_else(|| refuse("is not in the file"))?;
    let from = start - segment.start;
    let expected = &bytes[from..bytes.len().min(from + CHECKED_LEN)];
    let mut loaded = [0; CHECKED_LEN];
    let loaded = &mut loaded[..expected.len()];
    if sys::read_memory(start, loaded) != loaded.len() || loaded != expected {
        return Err(refuse("was changed in memory"));
    }
    let next = match inner.next {
        u64::MAX => usize::MAX,
        next => object.base.wrapping_add(next as usize),
    };
    Ok(FunctionCode {
        segment: bytes,
        segment_start: segment.start as u64,
        start: start as u64,
        size: inner.size,
        next: next.min(segment.start + segment.len) as u64,
    })
}

/// Number of bytes of a function that are compared with its file.
const CHECKED_LEN: usize = 16;
