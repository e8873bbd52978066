//! The target of a walk: a process or a core file, its memory, and the names of its code and data.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use heapprof_files::FileOwner;
use heapprof_heap::{
    CoreMemory, HeapWalkError, LiveMemory, ProcessImage, capture_with, object_class, release,
};
use heapprof_process::maps::ProcessMapping;
use heapprof_profile::Profile;
use heapprof_recorder::outside::{open_core, root_of};
use heapprof_recorder::rights::{ProcessRights, RightsLedger};
use heapprof_symbolize::{FileSymbols, SymbolizeOptions, class_name, demangle};

/// Longest name of a class that is shown, in bytes.
const MAX_CLASS_NAME_BYTES: usize = 1000;

/// How long a process was suspended for a copy of its memory, and how much was copied.
#[derive(Clone, Copy, Debug)]
pub struct ProcessHold {
    /// How long the process was suspended.
    pub time: Duration,
    /// Number of bytes that were copied.
    pub copied: u64,
}

/// The target of a walk.
pub struct WalkTarget {
    /// What is walked.
    pub what: WalkTargetKind,
    /// The rights for reading the files that the target names.
    pub rights: ProcessRights,
    /// The symbols of each file that was searched so far, by the file's path in the target.
    labels: Mutex<HashMap<Vec<u8>, FileSymbols>>,
}

/// A process or a core file.
pub enum WalkTargetKind {
    /// A process, by its number, and its memory as it is now.
    Process(u32, LiveMemory),
    /// A core file, by its path.
    Core(PathBuf, CoreMemory),
}

impl WalkTarget {
    /// Whether the program's executable can be read. For a process, the result is always true.
    ///
    /// # Errors
    /// The kernel may refuse the rights of the core file's owner.
    pub fn has_program(&self) -> io::Result<bool> {
        match &self.what {
            WalkTargetKind::Process(..) => Ok(true),
            WalkTargetKind::Core(_, core) => self.rights.acting(|| core.has_program()),
        }
    }

    /// Opens a core file, and reads its memory. `program` is the path where its program is now.
    ///
    /// # Errors
    /// The file may be no core file, or one that can't be read.
    pub fn from_core(
        path: &Path,
        program: Option<&Path>,
    ) -> Result<(Self, ProcessImage), HeapWalkError> {
        let (file, owner) = open_core(path)?;
        let core = CoreMemory::open(file, program.map(Path::to_path_buf))?;
        let image = core.image()?;
        let kind = WalkTargetKind::Core(path.to_path_buf(), core);
        Ok((Self::new(kind, ProcessRights::User(owner)), image))
    }

    /// Copies the memory of a process, which is suspended meanwhile.
    ///
    /// # Errors
    /// The process may be gone, or belong to another user. Another process may trace it.
    pub fn from_process(pid: u32) -> Result<(Self, ProcessImage, ProcessHold), HeapWalkError> {
        let (target, image, hold, ()) = Self::from_process_with(pid, || ())?;
        Ok((target, image, hold))
    }

    /// Copies the memory of a process as [`from_process`](Self::from_process) does, and calls
    /// `observe` while the process is suspended.
    ///
    /// # Errors
    /// The process may be gone, or belong to another user. Another process may trace it.
    pub fn from_process_with<T>(
        pid: u32,
        observe: impl FnOnce() -> T,
    ) -> Result<(Self, ProcessImage, ProcessHold, T), HeapWalkError> {
        let rights = RightsLedger::default();
        rights.open(pid, FileOwner::us());
        let (captured, observed) = capture_with(pid, observe)?;
        let hold = ProcessHold {
            time: captured.suspended,
            copied: captured.copied,
        };
        let kind = WalkTargetKind::Process(pid, captured.memory);
        let target = Self::new(kind, rights.least(pid));
        Ok((target, captured.image, hold, observed))
    }

    fn new(what: WalkTargetKind, rights: ProcessRights) -> Self {
        Self {
            what,
            rights,
            labels: Mutex::default(),
        }
    }

    /// Whether a path leads to the target's core file.
    #[must_use]
    pub fn is_file(&self, path: &Path) -> bool {
        match &self.what {
            WalkTargetKind::Core(core, _) => is_same(core, path),
            WalkTargetKind::Process(..) => false,
        }
    }

    /// Replaces the paths in a core file's profile by the paths where the files are now.
    pub fn place_files(&self, profile: &mut Profile) {
        let WalkTargetKind::Core(_, core) = &self.what else {
            return;
        };
        for i in 0..profile.mapping.len() {
            let start = profile.mapping[i].memory_start;
            let now = self
                .rights
                .acting(|| core.path_at(start).map(Path::to_path_buf));
            if let Ok(Some(now)) = now {
                profile.mapping[i].filename = profile.strings.intern(&now.to_string_lossy());
            }
        }
    }

    /// Returns the version of glibc in the program, as glibc itself states it.
    #[must_use]
    pub fn release(&self, image: &ProcessImage) -> Option<String> {
        let found = self.rights.acting(|| match &self.what {
            WalkTargetKind::Process(_, memory) => release(image, memory),
            WalkTargetKind::Core(_, core) => release(image, core),
        });
        found.ok().flatten()
    }

    /// Returns the name of the object whose first word is `address`: the object's class, or the
    /// name of a function or variable, with `&` in front.
    #[must_use]
    pub fn name(&self, image: &ProcessImage, address: u64) -> Option<String> {
        let class = self.rights.acting(|| match &self.what {
            WalkTargetKind::Process(_, memory) => object_class(memory, address),
            WalkTargetKind::Core(_, core) => object_class(core, address),
        });
        let class = class.ok().flatten();
        let class = class.and_then(|mangled| class_name(&mangled));
        let mut name = class.or_else(|| self.label(image, address))?;
        if name.len() > MAX_CLASS_NAME_BYTES {
            let end = (0..=MAX_CLASS_NAME_BYTES)
                .rev()
                .find(|&at| name.is_char_boundary(at));
            name.truncate(end.unwrap_or(0));
            name.push('…');
        }
        Some(name)
    }

    fn label(&self, image: &ProcessImage, address: u64) -> Option<String> {
        image.file(address)?;
        let (map, place) = image.place(address)?;
        let name = self.with_labels(map, |labels| labels.at(place))?;
        Some(match name.strip_prefix("vtable for ") {
            Some(class) => class.to_string(),
            None => format!("&{name}"),
        })
    }

    /// Returns the start address and the name of the variable that contains an address.
    #[must_use]
    pub fn variable(&self, image: &ProcessImage, address: u64) -> Option<(u64, String)> {
        let (map, place) = image.place(address)?;
        self.with_labels(map, |labels| {
            let (start, name) = labels.around(place)?;
            let name = demangle(name).unwrap_or_else(|| name.to_string());
            Some((map.start + start, name))
        })
    }

    /// Calls `ask` with the symbols of a mapped file. Each file is read once.
    fn with_labels<T>(
        &self,
        map: &ProcessMapping,
        ask: impl FnOnce(&FileSymbols) -> Option<T>,
    ) -> Option<T> {
        let mut labels = self.labels.lock().ok()?;
        if !labels.contains_key(&map.path) {
            let options = SymbolizeOptions {
                public_files_only: self.rights == ProcessRights::Public,
                ..SymbolizeOptions::default()
            };
            let found = self.rights.acting(|| {
                let path = match &self.what {
                    WalkTargetKind::Process(pid, _) => Some(path_of(*pid, &map.path)),
                    WalkTargetKind::Core(_, core) => core.path_at(map.start).map(Path::to_path_buf),
                };
                path.map_or_else(FileSymbols::default, |path| {
                    FileSymbols::open(&path, &options)
                })
            });
            labels.insert(map.path.clone(), found.unwrap_or_default());
        }
        ask(&labels[&map.path])
    }
}

/// Whether two paths lead to the same file.
#[must_use]
pub fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    id(one).is_some_and(|found| Some(found) == id(other))
}

/// Returns the path at which heapprof can open a file of a process, which may have another root
/// folder.
fn path_of(pid: u32, path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    match (root_of(pid), path.strip_prefix("/")) {
        (Some(root), Ok(path)) => root.join(path),
        _ => path.to_path_buf(),
    }
}
