//! What became of each file: which source answered, how much was found, and what stood in the way.

use std::path::{Path, PathBuf};

use heapprof_profile::MappingIndex;

/// What [`symbolize`](crate::symbolize) did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SymbolizeSummary {
    /// Each mapped file that locations point into, in the order of the profile's mappings.
    pub files: Vec<FileSummary>,
    /// How many locations belong to no mapping. Nothing can be found out about them.
    pub unmapped: usize,
    /// How many locations had names already, or are in a mapping that says so, and were left as
    /// they are.
    pub kept: usize,
}

impl SymbolizeSummary {
    /// How many locations lines were wanted for.
    pub fn seen(&self) -> usize {
        self.unmapped + self.files.iter().map(|f| f.seen).sum::<usize>()
    }

    /// How many locations without a name are named by the place where their function begins.
    pub fn numbered(&self) -> usize {
        self.files.iter().map(|f| f.numbered).sum()
    }

    /// How many locations got a function name.
    pub fn resolved(&self) -> usize {
        self.files.iter().map(|f| f.resolved).sum()
    }
}

/// What became of one file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileSummary {
    /// The file's name in the profile.
    pub name: String,
    /// Its mappings. The same file is often mapped in several pieces.
    pub mappings: Vec<MappingIndex>,
    /// The file on this machine that stands for it, if one was accepted.
    pub binary: Option<PathBuf>,
    /// The separate debug file that was used, if any.
    pub debug_file: Option<PathBuf>,
    /// The best source that answered for at least one location.
    pub source: Option<SymbolSource>,
    /// How many locations lines were wanted for.
    pub seen: usize,
    /// How many locations got a function name.
    pub resolved: usize,
    /// How many locations without a name are named by the place where their function begins.
    pub numbered: usize,
    /// What stood in the way, even if another source answered.
    pub warnings: Vec<SymbolizeWarning>,
}

/// Where names come from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SymbolSource {
    /// Debug information: functions, files, lines and inlined frames.
    Dwarf,
    /// The symbol table `.symtab`: functions only.
    SymbolTable,
    /// The compressed symbol table `.gnu_debugdata` (MiniDebugInfo): functions only.
    MiniDebugInfo,
    /// The symbols for dynamic linking, `.dynsym`: exported functions only.
    DynamicSymbols,
}

/// What stood in the way. Each displays as one line that begins with the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolizeWarning {
    /// Neither the file nor a debug file with its build id is here.
    #[error(
        "{file}: there is no such file, nor a debug file with its build id; name a folder with \
         --debug-dir"
    )]
    Missing {
        /// The file's name in the profile.
        file: String,
    },
    /// The file can't be read.
    #[error("{}: cannot be read: {error}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: String,
    },
    /// The file is not an ELF file.
    #[error("{}: is not an ELF file: not used", .file.display())]
    NotElf {
        /// The file.
        file: PathBuf,
    },
    /// The file is not the one that the program had mapped.
    #[error("{}: build id {found}, the profile wants {wanted}: not used", .file.display())]
    BuildId {
        /// The file.
        file: PathBuf,
        /// Its build id.
        found: String,
        /// The build id that the profile, or the file it belongs to, has.
        wanted: String,
    },
    /// The file was deleted while the program ran, and nothing shows that the file that is there
    /// now is the same.
    #[error("{}: was replaced while the program ran, and has no build id to tell it by: not used", .file.display())]
    Replaced {
        /// The file.
        file: PathBuf,
    },
    /// A debug file is not the one that the binary's `.gnu_debuglink` means.
    #[error("{}: checksum {found:08x}, {} wants {wanted:08x}: not used", .file.display(), .binary.display())]
    Checksum {
        /// The debug file.
        file: PathBuf,
        /// The file that links to it.
        binary: PathBuf,
        /// The CRC-32 of the debug file.
        found: u32,
        /// The CRC-32 in the link.
        wanted: u32,
    },
    /// The file, or a part of it, is damaged; the next source was tried.
    #[error("{}: is damaged: {what}", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Which part is damaged, and how.
        what: String,
    },
    /// Debug information leads to a file that is not here.
    #[error("{}: its debug information is also in {missing}, which is not here", .file.display())]
    Elsewhere {
        /// The file with the reference.
        file: PathBuf,
        /// The name that it refers to.
        missing: String,
    },
    /// The file was accepted, but says nothing about the addresses asked.
    #[error("{file}: has no symbols for these addresses, {}", beside(debug_file.as_deref()))]
    NoSymbols {
        /// The file's name in the profile.
        file: String,
        /// Its debug file, if one was found.
        debug_file: Option<PathBuf>,
    },
}

/// The end of the message: that the debug file has no symbols either, or how to get one.
fn beside(debug_file: Option<&Path>) -> String {
    match debug_file {
        Some(file) => format!("nor has its debug file {}", file.display()),
        None => "and no debug file was found; install its debug package, or name a folder with \
                 --debug-dir"
            .to_string(),
    }
}
