//! The result for each file: the source of names, the number of names that were found, and the
//! warnings.

use std::path::{Path, PathBuf};

use heapprof_profile::MappingIndex;

/// The result of [`symbolize`](crate::symbolize).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SymbolizeSummary {
    /// Each mapped file with locations in it, in the order of the profile's mappings.
    pub files: Vec<FileSummary>,
    /// Number of locations that belong to no mapping. They can't be looked up.
    pub unmapped: usize,
    /// Number of locations that were not looked up, because they have names already, or their
    /// mapping is marked as named.
    pub kept: usize,
}

impl SymbolizeSummary {
    /// Returns the number of locations that were to be looked up.
    pub fn seen(&self) -> usize {
        self.unmapped + self.files.iter().map(|f| f.seen).sum::<usize>()
    }

    /// Returns the number of locations without a name that are named by the start of their
    /// function.
    pub fn numbered(&self) -> usize {
        self.files.iter().map(|f| f.numbered).sum()
    }

    /// Returns the number of locations that got a function name.
    pub fn resolved(&self) -> usize {
        self.files.iter().map(|f| f.resolved).sum()
    }

    /// Summarizes in one line how many addresses got names, and from where.
    pub fn describe(&self) -> String {
        let resolved = self.resolved();
        let mut text = match (self.seen(), self.kept) {
            (0, 0) => "has no addresses".to_string(),
            (0, _) => "all addresses have names already".to_string(),
            (seen, _) => format!("{resolved} of {seen} addresses have names now"),
        };
        if resolved > 0 {
            let count = |is_wanted: &dyn Fn(&&FileSummary) -> bool| {
                self.files.iter().filter(is_wanted).count()
            };
            let named = count(&|file| file.resolved > 0);
            let with_lines = count(&|file| file.source == Some(SymbolSource::Dwarf));
            let ending = if named == 1 { "" } else { "s" };
            text += &format!(", in {named} file{ending}, {with_lines} with debug information");
        }
        if self.numbered() > 0 {
            text += &format!(
                "; {} without a name, shown as the file and the offset in it where the function \
                 begins",
                self.numbered()
            );
        }
        if self.seen() > 0 && self.kept > 0 {
            text += &format!("; {} had names already", self.kept);
        }
        text
    }
}

/// The outcome for one file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileSummary {
    /// The file's name in the profile.
    pub name: String,
    /// The mappings of the file. The same file is often mapped in several pieces.
    pub mappings: Vec<MappingIndex>,
    /// The binary on this machine that was accepted for the file, if any.
    pub binary: Option<PathBuf>,
    /// The separate debug file that was used, if any.
    pub debug_file: Option<PathBuf>,
    /// The best source that gave a name for at least one location.
    pub source: Option<SymbolSource>,
    /// Number of the file's locations that were to be looked up.
    pub seen: usize,
    /// Number of the file's locations that got a function name.
    pub resolved: usize,
    /// Number of the file's locations without a name that are named by the start of their function.
    pub numbered: usize,
    /// Problems with the file, including problems after which another source was used.
    pub warnings: Vec<SymbolizeWarning>,
}

/// A source of names. The best source is first.
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

/// A problem with a file. It displays as one line that begins with the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolizeWarning {
    /// Neither the file nor a debug file with its build id is on this machine.
    #[error("{file}: there is no such file, nor a debug file with its build id")]
    Missing {
        /// The file's name in the profile.
        file: String,
    },
    /// The file can't be read.
    #[error("{}: cannot be read: {error}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error text of the system.
        error: String,
    },
    /// The file is not an ELF file.
    #[error("{}: is not an ELF file: not used", .file.display())]
    NotElf {
        /// The file.
        file: PathBuf,
    },
    /// The file differs from the file that the program had mapped.
    #[error("{}: build id {found}, the profile wants {wanted}: not used", .file.display())]
    BuildId {
        /// The file.
        file: PathBuf,
        /// The build id of the file.
        found: String,
        /// The build id in the profile, or in the file that the debug file belongs to.
        wanted: String,
    },
    /// The file was deleted while the program ran, and nothing proves that the current file at its
    /// path is the same file.
    #[error(
        "{}: was replaced while the program ran, and has no build id to identify it: not used",
        .file.display()
    )]
    Replaced {
        /// The file.
        file: PathBuf,
    },
    /// The checksum of a debug file differs from the checksum in the `.gnu_debuglink` of the
    /// binary.
    #[error("{}: checksum {found:08x}, {} wants {wanted:08x}: not used", .file.display(), .binary.display())]
    Checksum {
        /// The debug file.
        file: PathBuf,
        /// The file that links to the debug file.
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
        /// Description of the damaged part and the damage.
        what: String,
    },
    /// Debug information refers to a file that is not on this machine.
    #[error(
        "{}: part of its debug information is in {missing}, which was not found",
        .file.display()
    )]
    Elsewhere {
        /// The file with the reference.
        file: PathBuf,
        /// The name of the missing file.
        missing: String,
    },
    /// The file was accepted, but has no names for the requested addresses.
    #[error("{file}: has no symbols for these addresses, {}", beside(debug_file.as_deref()))]
    NoSymbols {
        /// The file's name in the profile.
        file: String,
        /// The debug file, if one was found.
        debug_file: Option<PathBuf>,
    },
}

/// Returns the end of the message about a file without symbols. It states that the debug file has
/// no symbols either, or how to get a debug file.
fn beside(debug_file: Option<&Path>) -> String {
    match debug_file {
        Some(file) => format!("nor has its debug file {}", file.display()),
        None => "and no debug file was found; install its debug package".to_string(),
    }
}
