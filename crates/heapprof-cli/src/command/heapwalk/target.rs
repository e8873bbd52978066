//! What is walked: a process or a core file, its memory, and the names of what is in it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use heapprof_heapwalk::{Core, Error, Image, Outside, capture, class, release};
use heapprof_report::Measure;
use heapprof_symbolize::{Labels, class_name};
use rustix::fs::fstat;
use rustix::process::geteuid;

use crate::outside::root_of;
use crate::place::{Owner, acting};
use crate::{name, named_process};

/// What is walked.
pub(super) struct Target {
    pub(super) what: What,
    /// With whose rights the files are read that it names.
    pub(super) owner: Owner,
    /// The symbols of each file that was asked about, by its path then.
    labels: Mutex<HashMap<Vec<u8>, Labels>>,
}

/// A process or a core file.
pub(super) enum What {
    Process(u32, Outside),
    Core(PathBuf, Core),
}

impl Target {
    /// Finds what is walked, and copies or reads its memory. Returns notes about that, too.
    /// `program` is where the program of a core file is now.
    pub(super) fn open(target: &str, program: Option<&Path>) -> Result<(Self, Image, Vec<String>)> {
        match target.strip_prefix("core:") {
            Some(path) => {
                let of_core = Self::of_core(&name::path(path), program);
                let (target, image) = of_core.map_err(|error| advised(target, error))?;
                Ok((target, image, Vec::new()))
            }
            None if program.is_some() => {
                bail!("--exe: is for core files; a process says itself what it runs")
            }
            None => Self::of_process(target),
        }
    }

    fn of_core(path: &Path, program: Option<&Path>) -> Result<(Self, Image), Error> {
        let file = File::open(path)?;
        // A core file may name any files, so root reads them with the rights of whoever has it.
        let owner = match geteuid().is_root() {
            true => Owner::of(&fstat(&file).map_err(std::io::Error::from)?),
            false => Owner::us(),
        };
        let core = Core::open(file, program.map(Path::to_path_buf))?;
        let image = core.image()?;
        Ok((
            Self::new(What::Core(path.to_path_buf(), core), owner),
            image,
        ))
    }

    fn of_process(target: &str) -> Result<(Self, Image, Vec<String>)> {
        let pid = named_process::find(target)?;
        let of_process = || -> Result<_, Error> {
            let proc = File::open(format!("/proc/{pid}")).map_err(|_| Error::NoProcess)?;
            let owner = Owner::of(&fstat(&proc).map_err(std::io::Error::from)?);
            Ok((capture(pid)?, owner))
        };
        let (captured, owner) = of_process().map_err(|error| advised(target, error))?;
        let bytes = Measure::new("bytes", None)?;
        let note = format!(
            "it was held for {} while {} were copied",
            millis(captured.held),
            bytes.show(i128::from(captured.copied))
        );
        let own = Self::new(What::Process(pid, captured.memory), owner);
        Ok((own, captured.image, vec![note]))
    }

    fn new(what: What, owner: Owner) -> Self {
        Self {
            what,
            owner,
            labels: Mutex::default(),
        }
    }

    /// The release of glibc that the program has, by libc's own words.
    pub(super) fn release(&self, image: &Image) -> Option<String> {
        let found = acting(self.owner, || match &self.what {
            What::Process(_, memory) => release(image, memory),
            What::Core(_, core) => release(image, core),
        });
        found.ok().flatten()
    }

    /// The name of what an object's first word leads to: its class, or a function or variable with
    /// `&` in front.
    pub(super) fn name(&self, image: &Image, address: u64) -> Option<String> {
        let found = acting(self.owner, || {
            let class = match &self.what {
                What::Process(_, memory) => class(memory, address),
                What::Core(_, core) => class(core, address),
            };
            let class = class.and_then(|mangled| class_name(&mangled));
            class.or_else(|| self.label(image, address))
        });
        found.ok().flatten()
    }

    fn label(&self, image: &Image, address: u64) -> Option<String> {
        let (map, place) = image.place_in_file(address)?;
        let mut labels = self.labels.lock().ok()?;
        let labels = labels.entry(map.path.clone()).or_insert_with(|| {
            let path = match &self.what {
                What::Process(pid, _) => Some(path_of(*pid, &map.path)),
                What::Core(_, core) => core.path_at(map.start).map(Path::to_path_buf),
            };
            path.map_or_else(Labels::default, |path| Labels::open(&path))
        });
        let name = labels.at(place)?;
        Some(match name.strip_prefix("vtable for ") {
            Some(class) => class.to_string(),
            None => format!("&{name}"),
        })
    }
}

/// Where a file of a process is.
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

/// An error with what to do about it.
pub(super) fn advised(target: &str, error: Error) -> anyhow::Error {
    let advice = match error {
        Error::NotAllowed => {
            "; ask as its user or as root (where kernel.yama.ptrace_scope is not 0, as root)"
        }
        Error::Traced(_) => "; end that first",
        Error::Busy(_) => "; try again",
        _ => "",
    };
    let target = name::shown(target);
    match error {
        // What the kernel says stands for itself.
        Error::Io(error) => anyhow!(error).context(target.into_owned()),
        error => anyhow!("{target}: {error}{advice}"),
    }
}
