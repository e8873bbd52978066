//! `libheapprof.so` and its header, carried in this binary and unpacked where programs can load
//! them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Result, bail};
use heapprof_files::{
    FileAccess, FileOwner, FilePlace, OpenedFile, PathTrust, make_folder, open_folder,
};
use rustix::fs::{MemfdFlags, SealFlags, StatVfsMountFlags, fcntl_add_seals, memfd_create};

static LIBRARY_BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheapprof.so"));
static HEADER_BYTES: &[u8] = include_bytes!("../include/heapprof.h");

const UNSUPPORTED_MACHINE_TEXT: &str = "this heapprof was built for a machine that libheapprof.so does not \
                             support (it supports x86-64 Linux with glibc)";

/// The name of the folder for this version's files.
const CARRIED_FOLDER: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("HEAPPROF_CARRIED"));

/// The file name of the library in the folder for carried files.
const LIBRARY_FILE: &str = "libheapprof.so";

/// Returns the content of the library.
pub fn bytes() -> Result<&'static [u8]> {
    match LIBRARY_BYTES {
        [] => bail!(UNSUPPORTED_MACHINE_TEXT),
        library => Ok(library),
    }
}

/// Returns the library's path. The first call of each version of heapprof unpacks the library.
pub fn library() -> Result<PathBuf> {
    if LIBRARY_BYTES.is_empty() {
        bail!(UNSUPPORTED_MACHINE_TEXT);
    }
    unpack(LIBRARY_FILE, LIBRARY_BYTES)
}

/// Returns the path at which programs that this process starts can load the library. If no folder
/// is suitable for it, the path leads to a file in memory, which this process keeps open as long as
/// it runs.
pub fn library_for_children() -> Result<PathBuf> {
    static IN_MEMORY: OnceLock<File> = OnceLock::new();
    let unpacked = library();
    if unpacked.is_ok() || LIBRARY_BYTES.is_empty() {
        return unpacked;
    }
    let file = match (IN_MEMORY.get(), file_in_memory(LIBRARY_BYTES)) {
        (Some(file), _) => file,
        (None, Ok(file)) => IN_MEMORY.get_or_init(|| file),
        (None, Err(_)) => return unpacked,
    };
    let number = file.as_raw_fd();
    let path = PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id()));
    // Without /proc, the path leads nowhere.
    match path.exists() {
        true => Ok(path),
        false => unpacked,
    }
}

/// Makes a file in memory with this content, which nobody can change.
fn file_in_memory(content: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create(LIBRARY_FILE, flags)?);
    file.write_all(content)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// A file to be stored beside the library.
pub struct CarriedFile<'a> {
    /// The folder of the file, relative to the library's folder.
    pub folder: &'a str,
    /// The path of the file, relative to `folder`.
    pub name: &'a str,
    /// The content of the file.
    pub content: &'a [u8],
}

/// Stores a file beside the library. Returns the folder to which the file's name is relative.
pub fn unpack_beside_library(file: &CarriedFile<'_>) -> Result<PathBuf> {
    let folder = format!("{}/{}", file.folder, parent(file.name));
    let (_, last) = file.name.rsplit_once('/').unwrap_or(("", file.name));
    let mut path = unpack_into(&folder, last, file.content)?;
    for _ in file.name.split('/') {
        path.pop();
    }
    Ok(path)
}

/// Returns the folder to which `name` is relative, if a file `folder`/`name` exists beside the
/// library. Returns `None` if another user may have changed the file. Only the cache that contains
/// the library is searched.
pub fn existing(folder: &str, name: &str) -> Option<PathBuf> {
    let is_there = |folder: &Path, name: &str| {
        let (_, last) = name.rsplit_once('/').unwrap_or(("", name));
        let opened = open_folder(&folder.join(parent(name)), PathTrust::Own).ok()?;
        let there = FilePlace::in_folder(opened, last).open().ok()?;
        let owner = FileOwner::from_stat(&there.stat);
        let is_ours = (owner.is_us() || owner.user == 0) && there.stat.st_mode & 0o022 == 0;
        is_ours.then_some(())
    };
    let caches = caches().into_iter().map(|cache| cache.join(CARRIED_FOLDER));
    let mut used = caches.filter(|cache| is_there(cache, LIBRARY_FILE).is_some());
    let folder = used.next()?.join(folder);
    is_there(&folder, name).map(|()| folder)
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the path of the header. Unpacks the header if necessary.
pub fn header() -> Result<PathBuf> {
    unpack("heapprof.h", HEADER_BYTES)
}

/// Stores `content` as the file `name` in the folder for carried files, unless the file already has
/// this content. Returns the file's path.
fn unpack(name: &str, content: &[u8]) -> Result<PathBuf> {
    unpack_into("", name, content)
}

fn unpack_into(inner: &str, name: &str, content: &[u8]) -> Result<PathBuf> {
    let mut failed = None;
    for folder in caches() {
        let mut folder = folder.join(CARRIED_FOLDER);
        if !inner.is_empty() {
            folder.push(inner);
        }
        // A path in LD_PRELOAD can't contain these characters.
        let nameable = folder
            .to_str()
            .is_some_and(|p| !p.contains([' ', ':', '\n', '\t', '$']));
        if !nameable {
            continue;
        }
        match put(&folder, name, content) {
            Ok(true) => return Ok(folder.join(name)),
            Ok(false) => {}
            Err(error) => failed = Some((folder, error)),
        }
    }
    let why = failed.map_or(String::new(), |(folder, error)| {
        format!(" (the last one tried, {}: {error})", folder.display())
    });
    bail!(
        "no folder is suitable for libheapprof.so{why}: it needs a folder that only this user may \
         write to, on a file system that lets programs run code; set XDG_CACHE_HOME to a folder \
         whose path has no space or colon and only folders of this user or of root, on a file \
         system without noexec"
    )
}

/// Writes the file `name` with `content` into `folder`, unless the folder already has this file
/// with this content. Returns false if the folder's file system does not allow code to be mapped
/// (`noexec`).
fn put(folder: &Path, name: &str, content: &[u8]) -> io::Result<bool> {
    // The content is loaded into programs. So no other user may put a file there, or put another
    // folder in the folder's place.
    let folder = make_folder(folder, PathTrust::Own)?;
    if rustix::fs::fstatvfs(&folder)?
        .f_flag
        .contains(StatVfsMountFlags::NOEXEC)
    {
        return Ok(false);
    }
    let place = FilePlace::in_folder(folder, name);
    if place
        .open()
        .and_then(|there| holds(there, content))
        .unwrap_or(false)
    {
        return Ok(true);
    }
    let mut draft = place.draft(FileAccess::Exactly(0o755))?;
    draft.file().write_all(content)?;
    draft.finish()?;
    Ok(true)
}

/// Returns the folders in which this user's files may be unpacked, the preferred one first. For
/// root, `/var/cache` comes before the home folder: a program that root starts may switch to
/// another user, who must still be able to read the library.
fn caches() -> Vec<PathBuf> {
    let user = rustix::process::getuid();
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let mut caches = Vec::new();
    caches.extend(set("XDG_CACHE_HOME").map(|home| home.join("heapprof")));
    if user.is_root() {
        caches.push("/var/cache/heapprof".into());
    }
    caches.extend(set("HOME").map(|home| home.join(".cache/heapprof")));
    let shared = format!("/tmp/heapprof-{}", user.as_raw());
    // Another user may have taken the name.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    let new = format!("{shared}.{:x}", now ^ u128::from(std::process::id()) << 64);
    caches.extend([shared.into(), new.into()]);
    caches
}

/// Whether a file has exactly this content and no other user can write to it. The file is read in
/// pieces, because `record` checks it at each start.
fn holds(mut there: OpenedFile, content: &[u8]) -> io::Result<bool> {
    let (mode, owner) = (there.stat.st_mode, FileOwner::from_stat(&there.stat));
    let is_ours = (owner.is_us() || owner.user == 0) && mode & 0o022 == 0 && mode & 0o555 == 0o555;
    if !is_ours || there.stat.st_size as u64 != content.len() as u64 {
        return Ok(false);
    }
    let mut piece = [0; 16 << 10];
    for expected in content.chunks(piece.len()) {
        let found = &mut piece[..expected.len()];
        there.file.read_exact(found)?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}
