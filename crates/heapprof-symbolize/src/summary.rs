//! What became of each file: which source answered, how much was found, and what stood in the way.

use std::path::{Path, PathBuf};

use heapprof_profile::MappingIndex;

/// What [`symbolize`](crate::symbolize) did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Each mapped file that locations point into, in the order of the profile's mappings.
    pub files: Vec<FileSummary>,
    /// Locations that belong to no mapping; nothing can be known of them.
    pub unmapped: usize,
    /// Locations that had lines already and were left alone.
    pub kept: usize,
}

impl Summary {
    /// Locations that lines were looked for.
    pub fn seen(&self) -> usize {
        self.unmapped + self.files.iter().map(|f| f.seen).sum::<usize>()
    }

    /// Locations without a name that are known by where their function begins.
    pub fn numbered(&self) -> usize {
        self.files.iter().map(|f| f.numbered).sum()
    }

    /// Locations that lines were found for.
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
    /// Its mappings: the same file is often mapped in several pieces.
    pub mappings: Vec<MappingIndex>,
    /// The file on this machine that stands for it, if one was accepted.
    pub binary: Option<PathBuf>,
    /// The separate debug file that was used, if any.
    pub debug_file: Option<PathBuf>,
    /// The best source that answered for at least one location.
    pub source: Option<Source>,
    /// Locations that lines were looked for.
    pub seen: usize,
    /// Locations that lines were found for.
    pub resolved: usize,
    /// Locations without a name that are known by where their function begins.
    pub numbered: usize,
    /// What stood in the way, also where another source answered.
    pub warnings: Vec<Warning>,
}

/// Where names come from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
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
pub enum Warning {
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
    /// The file is no ELF file.
    #[error("{}: is not an ELF file: not used", .file.display())]
    NotElf {
        /// The file.
        file: PathBuf,
    },
    /// The file is another one than the program had mapped.
    #[error("{}: build id {found}, the profile wants {wanted}: not used", .file.display())]
    BuildId {
        /// The file.
        file: PathBuf,
        /// Its build id.
        found: String,
        /// The build id that the profile, or the file it belongs to, has.
        wanted: String,
    },
    /// The file was deleted while the program ran, and nothing shows that the one there now is the
    /// same.
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
        /// CRC-32 of the debug file.
        found: u32,
        /// CRC-32 that the link says.
        wanted: u32,
    },
    /// The file, or a part of it, is damaged; the next source was tried.
    #[error("{}: is damaged: {what}", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Which part, and how.
        what: String,
    },
    /// Debug information leads to a file that is not here.
    #[error("{}: its debug information is also in {missing}, which is not here", .file.display())]
    Elsewhere {
        /// The file with the reference.
        file: PathBuf,
        /// The name it refers to.
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

/// What the debug file had to say, or what to do for one.
fn beside(debug_file: Option<&Path>) -> String {
    match debug_file {
        Some(file) => format!("nor has its debug file {}", file.display()),
        None => "and no debug file was found; install its debug package, or name a folder with \
                 --debug-dir"
            .to_string(),
    }
}
