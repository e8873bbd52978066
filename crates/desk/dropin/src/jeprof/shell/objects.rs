//! The files whose code is in a profile, in the order in which the scripts look through them.

use std::path::PathBuf;

use anyhow::Result;
use heapprof_profile::Profile;
use regex::Regex;

use super::binutils;
use crate::jeprof::tool::PerlTool;

/// A file whose code is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedObject {
    pub(super) file: PathBuf,
    /// The difference between addresses in the process and in the file.
    pub(super) bias: u64,
}

/// Returns the mapped libraries and the program, which is the first mapping. At the end, the
/// program comes once more, at the addresses that its file has.
pub(super) fn mapped_objects(profile: &Profile, tool: PerlTool) -> Result<Vec<MappedObject>> {
    let kinds = match tool {
        PerlTool::Jeprof => "so|dll|dylib|bundle",
        PerlTool::GooglePprof => "so|dll|dylib|bundle|node",
    };
    let library = Regex::new(&format!(r"(?i)\.({kinds})((\.\d+)+\w*(\.\d+){{0,3}})?$"))?;
    let mut objects = Vec::new();
    let program = profile.mapping.first().map(|m| profile.text(m.filename));
    for mapping in &profile.mapping {
        let name = profile.text(mapping.filename);
        let is_program = Some(name) == program;
        if name.is_empty() || !is_program && !library.is_match(name) {
            continue;
        }
        let file = PathBuf::from(name);
        let shift = match binutils::debug_file(&file) {
            Some(_) => 0,
            None => binutils::code_shift(&file)?,
        };
        let in_file = mapping.file_offset.wrapping_add(shift);
        let bias = mapping.memory_start.wrapping_sub(in_file);
        let object = MappedObject { file, bias };
        objects.push(object);
    }
    if let Some(program) = program.filter(|name| !name.is_empty()) {
        objects.push(MappedObject {
            file: PathBuf::from(program),
            bias: 0,
        });
    }
    Ok(objects)
}
