//! Finds the tools: in the folders of `-tools`, otherwise in those of PATH.
//!
//! The value of `-tools` is a list separated by commas. An entry is a folder for all tools, or
//! `NAME:FOLDER` for one tool. An empty value stands for PATH.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::tool_process::ToolCommand;

/// Maximum number of bytes that a tool may print about its version.
const MAX_VERSION_BYTES: u64 = 64 << 10;

/// An objdump, of GNU binutils or of LLVM.
#[derive(Clone, Debug)]
pub(super) struct ObjdumpTool {
    pub(super) path: PathBuf,
    pub(super) is_llvm: bool,
}

/// The tools that were found.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolPlaces {
    pub(super) llvm_symbolizer: Option<PathBuf>,
    pub(super) addr2line: Option<PathBuf>,
    pub(super) nm: Option<PathBuf>,
    pub(super) objdump: Option<ObjdumpTool>,
    /// When the tools are ended; `None` for never.
    pub(super) deadline: Option<Instant>,
}

impl ToolPlaces {
    /// Finds the tools for a value of `-tools`. They are ended at the deadline.
    pub(super) fn find(given: &str, deadline: Option<Instant>) -> Self {
        let find = |names: &[&str], entry: &str| {
            let folders = folders(given, entry);
            names.iter().find_map(|name| find_tool(name, &folders))
        };
        let folders = folders(given, "objdump");
        let objdumps = ["llvm-objdump", "objdump"];
        Self {
            llvm_symbolizer: find(&["llvm-symbolizer"], "llvm-symbolizer"),
            addr2line: find(&["addr2line"], "addr2line"),
            nm: find(&["llvm-nm", "nm"], "nm"),
            objdump: objdumps
                .iter()
                .find_map(|name| identify(find_tool(name, &folders)?, deadline)),
            deadline,
        }
    }
}

/// Returns the folders for a tool: its own ones, then those for all tools.
fn folders<'g>(given: &'g str, tool: &str) -> Vec<&'g str> {
    let entries = given.split(',').map(|entry| match entry.split_once(':') {
        Some((name, folder)) => (name, folder),
        None => ("", entry),
    });
    let of = |wanted: &str| -> Vec<&'g str> {
        let entries = entries.clone().filter(|(name, _)| *name == wanted);
        entries.map(|(_, folder)| folder).collect()
    };
    let mut folders = of(tool);
    folders.extend(of(""));
    folders
}

/// Returns the path of a program in PATH.
pub(super) fn find_in_path(name: &str) -> Option<PathBuf> {
    find_tool(name, &[""])
}

/// Returns the path of a program in one of the folders. An empty folder and `.` stand for PATH, as
/// in pprof.
fn find_tool(name: &str, folders: &[&str]) -> Option<PathBuf> {
    folders.iter().find_map(|folder| match *folder {
        "" | "." => {
            let path = env::var_os("PATH")?;
            let mut found = env::split_paths(&path).map(|folder| folder.join(name));
            found.find(|path| path.is_absolute() && is_program(path))
        }
        folder => Some(Path::new(folder).join(name)).filter(|path| is_program(path)),
    })
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Asks an objdump for its version. Returns `None` if it is neither GNU's nor LLVM's.
fn identify(path: PathBuf, deadline: Option<Instant>) -> Option<ObjdumpTool> {
    let mut command = ToolCommand::new(&path);
    command.deadline(deadline);
    command.arg("--version");
    let mut version = String::new();
    let read = command.run(MAX_VERSION_BYTES, &mut |line| version.push_str(line));
    read.ok()?;
    let is_llvm = is_llvm_objdump(&version)?;
    Some(ObjdumpTool { path, is_llvm })
}

/// The first version of LLVM's objdump that knows the options.
const LEAST_LLVM_VERSION: u32 = 8;

/// Whether an objdump with this version text is LLVM's. Returns `None` if it is unknown or too old.
fn is_llvm_objdump(version: &str) -> Option<bool> {
    let known = version.lines().find_map(|line| {
        let (_, version) = line.split_once("LLVM version ")?;
        let mut parts = version.splitn(3, '.');
        let number = |part: Option<&str>| -> Option<u32> {
            let part = part?;
            let end = part.find(|c: char| !c.is_ascii_digit());
            part[..end.unwrap_or(part.len())].parse().ok()
        };
        let (major, minor, patch) = (parts.next(), parts.next(), parts.next());
        match (major?.parse::<u32>(), minor, number(patch)) {
            (Ok(major), Some(_), Some(_)) => Some(major >= LEAST_LLVM_VERSION),
            _ => Some(version.contains("trunk")),
        }
    });
    if known == Some(true) {
        return Some(true);
    }
    version.contains("GNU objdump").then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("GNU objdump (GNU Binutils for Debian) 2.40\n", Some(false)),
            ("Debian LLVM version 14.0.6\n  Optimized", Some(true)),
            ("LLVM (http://llvm.org/):\n  LLVM version 3.8.1\n", None),
            ("LLVM version 9.0.0svn", Some(true)),
            ("LLVM version custom-trunk 124ffeb592a00bfe", Some(true)),
            ("Apple LLVM version", None),
            ("something else", None),
        ] {
            assert_eq!(is_llvm_objdump(text), expected, "{text}");
        }
    }

    #[test]
    fn folders_of_tools() {
        for (given, tool, expected) in [
            ("", "nm", &[""][..]),
            ("/a", "nm", &["/a"]),
            ("/a,/b", "nm", &["/a", "/b"]),
            ("nm:/a,objdump:/b", "nm", &["/a"]),
            ("/x,nm:/a", "nm", &["/a", "/x"]),
            ("objdump:/b", "nm", &[]),
        ] {
            assert_eq!(folders(given, tool), expected, "{given}");
        }
    }
}
