//! The target of heapwalk and perl-heap: a process or a core file, its memory, and the names of its
//! code and data.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use heapprof_files::FileOwner;
use heapprof_heap::{
    CoreMemory, HeapWalkError, LiveMemory, ProcessImage, capture, object_class, release,
};
use heapprof_process::maps::ProcessMapping;
use heapprof_profile::Profile;
use heapprof_recorder::outside::{open_core, root_of};
use heapprof_recorder::rights::{ProcessRights, RightsLedger, is_root};
use heapprof_report::UnitFormatter;
use heapprof_symbolize::{FileSymbols, SymbolizeOptions, class_name, demangle};

use crate::{name, named_process};

/// Longest name of a class that is shown, in bytes.
const MAX_CLASS_NAME_BYTES: usize = 1000;

/// The target of a heap walk.
pub(in crate::command) struct WalkTarget {
    pub(in crate::command) what: WalkTargetKind,
    /// The rights for reading the files that the target names.
    pub(in crate::command) rights: ProcessRights,
    /// The symbols of each file that was searched so far, by the file's path in the target.
    labels: Mutex<HashMap<Vec<u8>, FileSymbols>>,
}

/// A process or a core file.
pub(in crate::command) enum WalkTargetKind {
    Process(u32, LiveMemory),
    Core(PathBuf, CoreMemory),
}

impl WalkTarget {
    /// Finds the target, and copies or reads its memory. Also returns notes for the user. `program`
    /// is the path where the program of a core file is now.
    pub(in crate::command) fn open(
        target: &str,
        program: Option<&Path>,
    ) -> Result<(Self, ProcessImage, Vec<String>)> {
        match target.strip_prefix("core:") {
            Some(path) => {
                let of_core = Self::from_core(&name::path(path), program);
                let (target, image) = of_core.map_err(|error| with_advice(target, error))?;
                Ok((target, image, Vec::new()))
            }
            None if program.is_some() => {
                bail!("--exe: is for core files; a process says itself what it runs")
            }
            None => Self::from_process(target),
        }
    }

    /// Whether the program's executable can be read. For a process, the result is always true.
    pub(in crate::command) fn has_program(&self) -> Result<bool> {
        match &self.what {
            WalkTargetKind::Process(..) => Ok(true),
            WalkTargetKind::Core(_, core) => Ok(self.rights.acting(|| core.has_program())?),
        }
    }

    fn from_core(
        path: &Path,
        program: Option<&Path>,
    ) -> Result<(Self, ProcessImage), HeapWalkError> {
        let (file, owner) = open_core(path)?;
        let core = CoreMemory::open(file, program.map(Path::to_path_buf))?;
        let image = core.image()?;
        Ok((
            Self::new(
                WalkTargetKind::Core(path.to_path_buf(), core),
                ProcessRights::User(owner),
            ),
            image,
        ))
    }

    fn from_process(target: &str) -> Result<(Self, ProcessImage, Vec<String>)> {
        let path = name::path(target);
        let pid = named_process::find(target).map_err(|error| match path.is_file() {
            true => error.context(format!("to walk the core file, write core:{target}")),
            false => error,
        })?;
        let of_process = || -> Result<_, HeapWalkError> {
            let rights = RightsLedger::default();
            rights.open(pid, FileOwner::us());
            let captured = capture(pid)?;
            Ok((captured, rights.least(pid)))
        };
        let (captured, rights) = of_process().map_err(|error| with_advice(target, error))?;
        let bytes = UnitFormatter::new("bytes", None)?;
        let note = format!(
            "it was held for {} while {} were copied",
            millis(captured.suspended),
            bytes.show(i128::from(captured.copied))
        );
        let own = Self::new(WalkTargetKind::Process(pid, captured.memory), rights);
        Ok((own, captured.image, vec![note]))
    }

    fn new(what: WalkTargetKind, rights: ProcessRights) -> Self {
        Self {
            what,
            rights,
            labels: Mutex::default(),
        }
    }

    /// Whether a path leads to the target's core file.
    pub(in crate::command) fn is_file(&self, path: &Path) -> bool {
        match &self.what {
            WalkTargetKind::Core(core, _) => is_same(core, path),
            WalkTargetKind::Process(..) => false,
        }
    }

    /// Replaces the paths in a core file's profile by the paths where the files are now.
    pub(in crate::command) fn place_files(&self, profile: &mut Profile) {
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
    pub(in crate::command) fn release(&self, image: &ProcessImage) -> Option<String> {
        let found = self.rights.acting(|| match &self.what {
            WalkTargetKind::Process(_, memory) => release(image, memory),
            WalkTargetKind::Core(_, core) => release(image, core),
        });
        found.ok().flatten()
    }

    /// Returns the name of the object whose first word is `address`: the object's class, or the
    /// name of a function or variable, with `&` in front.
    pub(in crate::command) fn name(&self, image: &ProcessImage, address: u64) -> Option<String> {
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
    pub(in crate::command) fn variable(
        &self,
        image: &ProcessImage,
        address: u64,
    ) -> Option<(u64, String)> {
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
pub(in crate::command) fn is_same(one: &Path, other: &Path) -> bool {
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

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Adds advice to the error of a heap walk.
pub(in crate::command) fn with_advice(target: &str, error: HeapWalkError) -> anyhow::Error {
    let advice = match error {
        HeapWalkError::NotAllowed if is_root() => heapprof_process::REFUSED_TO_ROOT,
        HeapWalkError::NotAllowed => {
            "; ask as its user or as root (where kernel.yama.ptrace_scope is not 0, as root)"
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
            anyhow!("{target}: the file of --exe is not that of this core file: {why}")
        }
        error => anyhow!("{target}: {error}{advice}"),
    }
}
