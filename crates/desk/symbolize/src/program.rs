//! Finds out whether a preloaded library can see the allocations of an executable.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

use crate::allocators::{AllocatorRole, allocator_of};
use crate::elf::{ElfBinary, hex};
use crate::storage::FileStorage;

/// Reason why a preloaded library would see only some allocations of a program, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreloadObstacle {
    /// The program names no dynamic loader.
    Static,
    /// The program uses a C library other than glibc and musl. Its loader, whose path is stored,
    /// refuses the library.
    OtherLibc(PathBuf),
    /// The program is built for another processor or word size. The text names it.
    OtherArchitecture(String),
    /// The program is built with a sanitizer that replaces malloc. The text names the sanitizer.
    Sanitizer(&'static str),
    /// An allocator is linked into the program. The text names one of the allocator's functions.
    OwnAllocator(String),
}

/// The executable that will be loaded, and the obstacles to preloading into it. For a script, the
/// executable is its interpreter.
#[derive(Clone, Debug)]
pub struct PreloadTarget {
    /// The file that the kernel will load.
    pub file: PathBuf,
    /// The dynamic loader that the file requests.
    pub loader: Option<PathBuf>,
    /// The obstacles to preloading.
    pub obstacles: Vec<PreloadObstacle>,
}

const SANITIZERS: [(&str, &str); 4] = [
    ("__asan_init", "AddressSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
];

/// Whether a program that defines this function has its own allocator.
fn is_allocator_function(function: &str) -> bool {
    let is_known =
        || allocator_of(function).is_some_and(|(_, role)| role == AllocatorRole::Allocates);
    function == "malloc" || is_known()
}

/// An object file, for callers that need only its build id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFile {
    /// The build id in hex. `None` if there is none or the file is not ELF.
    pub build_id: Option<String>,
}

/// Identifies a file that holds code: a readable ELF file, or a file whose first bytes show that it
/// is for macOS or Windows. Returns `None` for other files.
pub fn object_file(path: &Path) -> Option<ObjectFile> {
    if !path.is_file() {
        return None;
    }
    let storage = FileStorage::new();
    if let Ok(Some(elf)) = ElfBinary::open(path, &storage) {
        let build_id = elf.build_id().map(hex);
        return Some(ObjectFile { build_id });
    }
    let mut start = [0; 4];
    let mut file = std::fs::File::open(path).ok()?;
    std::io::Read::read_exact(&mut file, &mut start).ok()?;
    let foreign = matches!(
        start,
        [0xfe, 0xed, 0xfa, 0xce | 0xcf] | [0xce | 0xcf, 0xfa, 0xed, 0xfe] | [b'M', b'Z', ..]
    );
    foreign.then_some(ObjectFile { build_id: None })
}

/// Finds the obstacles to preloading into an executable. For a file that is neither an ELF file nor
/// a script, no obstacle is reported, because the kernel will report the problem.
pub fn inspect(path: &Path) -> PreloadTarget {
    let mut file = path.to_path_buf();
    for _ in 0..4 {
        match interpreter(&file) {
            Some(next) => file = next,
            None => break,
        }
    }
    let storage = FileStorage::new();
    let bytes = storage.map(&file).unwrap_or_default();
    let loader = loader::<FileHeader64<Endianness>>(bytes)
        .or_else(|| loader::<FileHeader32<Endianness>>(bytes));
    let begins = |path: &Path, with: &str| {
        let name = path.file_name().unwrap_or_default();
        name.as_bytes().starts_with(with.as_bytes())
    };
    let mut obstacles = find_obstacles(bytes);
    // The loader itself is static, but it loads the program that it is given, and preloaded
    // libraries.
    obstacles.retain(|o| *o != PreloadObstacle::Static || !begins(&file, "ld-"));
    // uClibc's loader, and Android's.
    let is_other = |loader: &&PathBuf| begins(loader, "ld-uClibc") || begins(loader, "linker");
    let other = loader.as_ref().filter(is_other);
    obstacles.extend(other.cloned().map(PreloadObstacle::OtherLibc));
    PreloadTarget {
        obstacles,
        loader,
        file,
    }
}

/// Returns the path of the dynamic loader that an executable with the word size of `H` requests.
fn loader<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Option<PathBuf> {
    let header = H::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let headers = header.program_headers(endian, bytes).ok()?;
    let path = headers
        .iter()
        .find_map(|h| h.interpreter(endian, bytes).ok()?)?;
    Some(OsStr::from_bytes(path).into())
}

/// Returns the interpreter that a `#!` line names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut start = Vec::new();
    std::fs::File::open(path)
        .ok()?
        .take(256)
        .read_to_end(&mut start)
        .ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let command = PathBuf::from(words.next()?);
    if command.file_name()? == "env" {
        let name = words.find(|w| !w.starts_with('-') && !w.contains('='))?;
        let path = std::env::var_os("PATH")?;
        return std::env::split_paths(&path)
            .map(|d| d.join(name))
            .find(|f| f.is_file());
    }
    Some(command)
}

fn find_obstacles(bytes: &[u8]) -> Vec<PreloadObstacle> {
    if !bytes.starts_with(b"\x7fELF") {
        return Vec::new();
    }
    if bytes.get(4) != Some(&2) {
        return vec![PreloadObstacle::OtherArchitecture("32-bit".to_string())];
    }
    let Ok(elf) = ElfFile64::<Endianness>::parse(bytes) else {
        return Vec::new();
    };
    let machine = elf.elf_header().e_machine(elf.endian());
    let own = match std::env::consts::ARCH {
        "x86_64" => object::elf::EM_X86_64,
        "aarch64" => object::elf::EM_AARCH64,
        _ => machine,
    };
    if machine != own {
        return vec![PreloadObstacle::OtherArchitecture(format!(
            "{:?}",
            elf.architecture()
        ))];
    }
    let mut obstacles = Vec::new();
    let mut headers = elf.elf_program_headers().iter();
    let is_dynamic = headers.any(|h| h.p_type(elf.endian()) == object::elf::PT_INTERP);
    if !is_dynamic {
        obstacles.push(PreloadObstacle::Static);
    }
    let (mut allocator, mut sanitizer, mut is_python) = (None, None, false);
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        let Ok(name) = symbol.name() else {
            continue;
        };
        if let Some((_, known)) = SANITIZERS.iter().find(|(function, _)| name == *function) {
            sanitizer = Some(*known);
        }
        if symbol.is_definition() && is_allocator_function(name) {
            allocator.get_or_insert_with(|| name.to_string());
        }
        is_python |= symbol.is_definition() && name == "PyObject_Malloc";
    }
    obstacles.extend(sanitizer.map(PreloadObstacle::Sanitizer));
    // In a static program, the linked allocator is libc's. CPython contains mimalloc since 3.13,
    // and uses it only for objects, which are recorded by the Python hooks.
    let is_other = |function: &String| !is_python || function == "malloc";
    let allocator = allocator.filter(|function| is_dynamic && is_other(function));
    obstacles.extend(allocator.map(PreloadObstacle::OwnAllocator));
    obstacles
}
