//! Candidate paths of binaries and debug files, in the layouts of distributions, debuggers and
//! users.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::SymbolizeOptions;
use crate::elf::hex;

/// Generates candidate paths, the likeliest first. A candidate need not exist.
pub(crate) struct CandidatePaths<'o> {
    options: &'o SymbolizeOptions,
}

impl<'o> CandidatePaths<'o> {
    pub(crate) fn new(options: &'o SymbolizeOptions) -> Self {
        Self { options }
    }

    /// Returns the options of the symbolization.
    pub(crate) fn options(&self) -> &'o SymbolizeOptions {
        self.options
    }

    /// Whether an address outside all symbols gets the name of the symbol before it.
    pub(crate) fn nearest(&self) -> bool {
        self.options.nearest
    }

    /// Whether code without names is named by the start of its function.
    pub(crate) fn numbers_functions(&self) -> bool {
        self.options.number_functions
    }

    /// Returns the path on this machine for a path of the profiled machine.
    pub(crate) fn here(&self, path: &Path) -> PathBuf {
        match &self.options.root {
            Some(root) => root.join(relative(path)),
            None => path.into(),
        }
    }

    /// Returns candidates for the binary that the profile names.
    pub(crate) fn binary(&self, name: &Path, build_id: Option<&[u8]>) -> Vec<PathBuf> {
        let mut places = vec![self.here(name)];
        for folder in &self.options.debug_dirs {
            places.push(folder.join(relative(name)));
            places.extend(name.file_name().map(|name| folder.join(name)));
            // Fedora also links binaries by build id. debuginfod's cache has binaries beside the
            // debug files.
            if let Some((first, rest)) = split(build_id) {
                places.push(folder.join(".build-id").join(&first).join(&rest));
                places.push(folder.join(first + &rest).join("executable"));
            }
        }
        places
    }

    /// Returns further candidates for a binary, to be tried after those of
    /// [`binary`](Self::binary). Only the build id proves that a candidate is the right file.
    pub(crate) fn elsewhere(&self, name: &Path) -> Vec<PathBuf> {
        let mut places = Vec::new();
        if !name.as_os_str().is_empty() {
            // The kernel appends this to the name of a deleted file, but a file's own name may end
            // like this, too.
            let mut ending = name.as_os_str().to_os_string();
            ending.push(" (deleted)");
            places.push(self.here(Path::new(&ending)));
            let bytes = name.as_os_str().as_bytes();
            // The kernel writes a newline like an escape that a file's own name may contain.
            let with_escapes = bytes.contains(&b'\n').then(|| {
                let parts: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
                parts.join(&br"\012"[..])
            });
            for bytes in [unescaped(bytes), with_escapes].into_iter().flatten() {
                places.push(self.here(Path::new(OsStr::from_bytes(&bytes))));
            }
        }
        places.extend_from_slice(&self.options.opened);
        places
    }

    /// Returns candidates for the debug file with a build id.
    pub(crate) fn by_build_id(&self, build_id: Option<&[u8]>) -> Vec<PathBuf> {
        let Some((first, rest)) = split(build_id) else {
            return Vec::new();
        };
        let name = format!("{rest}.debug");
        let mut places = Vec::new();
        for folder in self.folders() {
            places.push(folder.join(".build-id").join(&first).join(&name));
            places.push(folder.join(&first).join(&name));
            places.push(folder.join(format!("{first}{rest}")).join("debuginfo"));
            places.push(folder.join(format!("{first}{rest}.debug")));
        }
        places
    }

    /// Returns candidates for debug files with the name in a binary's `.gnu_debuglink`. `binary` is
    /// the binary's path on the profiled machine, and `opened` is the path at which it was found on
    /// this machine.
    pub(crate) fn by_link(&self, binary: &Path, opened: &Path, link: &[u8]) -> Vec<PathBuf> {
        let link = Path::new(OsStr::from_bytes(link));
        // The name should have no folder. A folder in it is ignored, because it could lead
        // anywhere.
        let Some(link) = link.file_name() else {
            return Vec::new();
        };
        let mut places = Vec::new();
        for folder in [self.here(binary).parent(), opened.parent()] {
            let folder = folder.unwrap_or(Path::new(""));
            places.push(folder.join(link));
            places.push(folder.join(".debug").join(link));
        }
        let folder = relative(binary.parent().unwrap_or(Path::new("")));
        for root in self.folders() {
            places.push(root.join(&folder).join(link));
        }
        for root in &self.options.debug_dirs {
            places.push(root.join(link));
        }
        places.dedup();
        places
    }

    /// Returns candidates for debug files that are found by the name of the binary alone.
    pub(crate) fn by_name(&self, binary: &Path) -> Vec<PathBuf> {
        let Some(name) = binary.file_name() else {
            return Vec::new();
        };
        let mut debug = name.to_os_string();
        debug.push(".debug");
        let folder = relative(binary.parent().unwrap_or(Path::new("")));
        let mut places = Vec::new();
        for root in &self.options.debug_dirs {
            places.push(root.join(&folder).join(&debug));
            places.push(root.join(&debug));
            places.push(root.join(name));
        }
        places
    }

    /// Returns candidates for a file that debug information refers to, such as a `.dwo` file or the
    /// file shared by dwz. `from` is the file with the reference.
    pub(crate) fn by_reference(&self, from: &Path, path: &Path) -> Vec<PathBuf> {
        let mut places = vec![match path.is_absolute() {
            true => self.here(path),
            false => from.parent().unwrap_or(Path::new("")).join(path),
        }];
        let below = relative(path);
        let below = below.strip_prefix(DEBUG_FOLDER).unwrap_or(&below);
        for folder in self.folders() {
            places.push(folder.join(below));
            places.extend(path.file_name().map(|name| folder.join(name)));
        }
        places
    }

    /// Returns the folders that contain debug files. A `--debug-dir` may be the root of an unpacked
    /// package.
    fn folders(&self) -> Vec<PathBuf> {
        let own = self.options.debug_dirs.iter();
        let own = own.flat_map(|folder| [folder.clone(), folder.join(DEBUG_FOLDER)]);
        own.chain([self.here(&Path::new("/").join(DEBUG_FOLDER))])
            .collect()
    }
}

const DEBUG_FOLDER: &str = "usr/lib/debug";

/// Returns a path that, joined to a folder, stays inside this folder.
fn relative(path: &Path) -> PathBuf {
    let parts = path.components();
    parts
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// Splits a build id, in hex, into its first byte (the name of a folder) and its other bytes (the
/// name of a file).
fn split(build_id: Option<&[u8]>) -> Option<(String, String)> {
    let (first, rest) = build_id?.split_first()?;
    (!rest.is_empty()).then(|| (hex(&[*first]), hex(rest)))
}

/// Replaces `\xff` and the like in a name by the bytes that they stand for; `None` without such
/// escapes.
fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.strip_prefix(b"x").and_then(|digits| digits.get(..2));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| first == b'\\' && *byte >= 0x80) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    (bytes != name).then_some(bytes)
}
