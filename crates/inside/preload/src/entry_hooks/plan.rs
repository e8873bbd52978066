//! Plans the jumps of an allocator's functions.

use heapprof_entry::{EntryPlan, FunctionCode, calls_one_of};
use heapprof_platform::sys;

use super::functions::{FunctionPlace, InnerFunction};
use super::object_file::ObjectFile;
use super::stubs::PlannedHook;

/// Plans the jumps of all functions of an allocator. A function that can't have one is left out if
/// it calls another one: its calls are recorded there.
pub(super) fn plan_all(
    object: &ObjectFile,
    functions: &[InnerFunction],
) -> Result<Vec<PlannedHook>, String> {
    let (mut hooks, mut refused, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for inner in functions {
        let code = code_of(object, &inner.name, inner.place)?;
        let plan = match inner.refusal {
            Some(why) => Err(why.to_string()),
            None => EntryPlan::new(&code).map_err(|why| why.to_string()),
        };
        match plan {
            Ok(plan) => {
                starts.push(code.start);
                let call = Some(inner.function.call);
                hooks.push(PlannedHook { plan, call });
            }
            Err(why) => refused.push((inner, code, why)),
        }
    }
    let wrong = refused
        .iter()
        .find(|(_, code, _)| !calls_one_of(code, &starts));
    match wrong {
        Some((inner, _, why)) => Err(format!("{} can't be hooked: {why}", inner.name)),
        None => Ok(hooks),
    }
}

/// Returns the code of a function at an address of the file, which has to be in memory as it is in
/// the file.
pub(super) fn code_of<'a>(
    object: &'a ObjectFile,
    name: &str,
    at: FunctionPlace,
) -> Result<FunctionCode<'a>, String> {
    let refuse = |why: &str| format!("{name} {why}");
    let start = object.base.wrapping_add(at.start as usize);
    let segment = object
        .segment(start)
        .ok_or_else(|| refuse("is not in code"))?;
    let bytes = object
        .bytes()
        .get(segment.offset..segment.offset + segment.len);
    let bytes = bytes.ok_or_else(|| refuse("is not in the file"))?;
    let from = start - segment.start;
    let expected = &bytes[from..bytes.len().min(from + CHECKED_LEN)];
    let mut loaded = [0; CHECKED_LEN];
    let loaded = &mut loaded[..expected.len()];
    if sys::read_memory(start, loaded) != loaded.len() || loaded != expected {
        return Err(refuse("was changed in memory"));
    }
    let next = match at.next {
        u64::MAX => usize::MAX,
        next => object.base.wrapping_add(next as usize),
    };
    Ok(FunctionCode {
        segment: bytes,
        segment_start: segment.start as u64,
        start: start as u64,
        size: at.size,
        next: next.min(segment.start + segment.len) as u64,
    })
}

/// Number of bytes of a function that are compared with its file.
const CHECKED_LEN: usize = 16;
