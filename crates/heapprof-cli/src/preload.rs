//! `libheapprof.so` and its header, carried in this binary and unpacked where programs can load them.

use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheapprof.so"));
static HEADER: &[u8] = include_bytes!("../../../include/heapprof.h");

/// The library's path; it is unpacked at the first call of this version.
pub(crate) fn library() -> Result<PathBuf> {
    if LIBRARY.is_empty() {
        bail!(
            "this heapprof was built for a machine that libheapprof.so does not support (x86-64 Linux with glibc is)"
        );
    }
    unpack("libheapprof.so", LIBRARY)
}

/// The header's path.
pub(crate) fn header() -> Result<PathBuf> {
    unpack("heapprof.h", HEADER)
}

/// Writes `content` to the folder of what this binary carries, unless it is there.
fn unpack(name: &str, content: &[u8]) -> Result<PathBuf> {
    let folder = cache()?.join(concat!(
        env!("CARGO_PKG_VERSION"),
        "-",
        env!("HEAPPROF_CARRIED")
    ));
    let path = folder.join(name);
    if holds(&path, content).unwrap_or(false) {
        return Ok(path);
    }
    let failed = || {
        format!(
            "{}: cannot be written; set XDG_CACHE_HOME to a folder that can",
            path.display()
        )
    };
    make(&folder).with_context(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(&folder).with_context(failed)?;
    file.write_all(content).with_context(failed)?;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o755))
        .with_context(failed)?;
    file.persist(&path).with_context(failed)?;
    Ok(path)
}

fn make(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)?;
    // Whatever root's umask is: a program may become another user, who loads the library, too. Not through another's link.
    let user = rustix::process::getuid();
    if user.is_root() && is_ours(folder, user.as_raw()) {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder, flags, Mode::empty())?;
        let mode = rustix::fs::fstat(&opened)?.st_mode;
        if mode & 0o755 != 0o755 {
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode & 0o7777 | 0o755))?;
        }
    }
    Ok(())
}

/// Whether the loader may map code from there.
fn may_run(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|fs| !fs.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// A folder of this user's that the loader can name: LD_PRELOAD has no way to write a space or a colon.
fn cache() -> Result<PathBuf> {
    let user = rustix::process::getuid();
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let home = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let shared = PathBuf::from(format!("/tmp/heapprof-{}", user.as_raw()));
    // Programs of root may become another user, who must still be able to read the library.
    let preferred = match user.is_root() && set("XDG_CACHE_HOME").is_none() {
        true => Some(PathBuf::from("/var/cache/heapprof")),
        false => home.map(|home| home.join("heapprof")),
    };
    for folder in preferred.into_iter().chain([shared]) {
        let nameable = folder
            .to_str()
            .is_some_and(|p| !p.contains([' ', ':', '\n', '\t', '$']));
        if nameable && make(&folder).is_ok() && is_ours(&folder, user.as_raw()) && may_run(&folder)
        {
            return Ok(folder);
        }
    }
    bail!(
        "no folder for libheapprof.so can be written, or programs may not run what is there; set XDG_CACHE_HOME to one \
whose path has no space or colon, on a file system without noexec"
    )
}

/// Whether nobody else can put files there: what lies there is loaded into programs.
fn is_ours(folder: &Path, user: u32) -> bool {
    std::fs::symlink_metadata(folder)
        .is_ok_and(|m| m.is_dir() && m.uid() == user && m.mode() & 0o022 == 0)
}

/// Whether a file is `content` to the byte, read in pieces: `record` asks at each start.
fn holds(path: &Path, content: &[u8]) -> std::io::Result<bool> {
    let mut file = std::fs::File::open(path)?;
    if file.metadata()?.len() != content.len() as u64 {
        return Ok(false);
    }
    let mut piece = [0; 16 << 10];
    for expected in content.chunks(piece.len()) {
        let found = &mut piece[..expected.len()];
        file.read_exact(found)?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}
