//! Opens the target that the user names for heapwalk and perl-heap, and puts its errors into words.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use heapprof_heap::{HeapWalkError, ProcessImage};
use heapprof_inspect::WalkTarget;
use heapprof_recorder::rights::is_root;
use heapprof_report::UnitFormatter;

use crate::name;
use crate::process_choice;

/// Finds the target, and copies or reads its memory. Also returns notes for the user. `program` is
/// the path where the program of a core file is now.
pub(in crate::command) fn open(
    target: &str,
    program: Option<&Path>,
) -> Result<(WalkTarget, ProcessImage, Vec<String>)> {
    if let Some(path) = target.strip_prefix("core:") {
        let of_core = WalkTarget::from_core(&name::path(path), program);
        let (target, image) = of_core.map_err(|error| with_advice(target, error))?;
        return Ok((target, image, Vec::new()));
    }
    if program.is_some() {
        bail!("--exe: is for core files; for a process, heapprof finds the program itself")
    }
    let path = name::path(target);
    let pid = process_choice::find(target).map_err(|error| match path.is_file() {
        true => error.context(format!("to walk the core file, write core:{target}")),
        false => error,
    })?;
    let (own, image, hold) =
        WalkTarget::from_process(pid).map_err(|error| with_advice(target, error))?;
    let bytes = UnitFormatter::new("bytes", None)?;
    let note = format!(
        "it was suspended for {:.1} ms while {} were copied",
        hold.time.as_secs_f64() * 1000.0,
        bytes.show(i128::from(hold.copied))
    );
    Ok((own, image, vec![note]))
}

/// Adds advice to the error of a heap walk.
pub(in crate::command) fn with_advice(target: &str, error: HeapWalkError) -> anyhow::Error {
    let advice = match error {
        HeapWalkError::NotAllowed if is_root() => heapprof_process::refused_to_root(),
        HeapWalkError::NotAllowed => {
            "; run heapprof as its user or as root (where kernel.yama.ptrace_scope is not 0, as \
             root)"
        }
        HeapWalkError::Traced(_) => "; end that first",
        HeapWalkError::Busy(_) => "; try again",
        _ => "",
    };
    let target = name::shown(target);
    match error {
        // An error of the kernel needs no advice.
        HeapWalkError::Io(error) => anyhow!(error).context(target.into_owned()),
        HeapWalkError::OtherProgram(why) => {
            anyhow!("{target}: the --exe file is not the program of this core file: {why}")
        }
        error => anyhow!("{target}: {error}{advice}"),
    }
}
