//! What must be known of a program before anything is done in it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heapprof_memory::Memory;
use heapprof_memory::loaded::{Object, Symbol, objects};

use crate::error::Error;
use crate::memory::{Its, Other};

/// A mapping of a process.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) range: Range<u64>,
    pub(crate) rights: [u8; 4],
    /// Where it begins in its file.
    pub(crate) offset: u64,
    pub(crate) path: String,
}

/// More objects than that are not looked at.
const MOST_OBJECTS: usize = 10_000;

/// So long somebody else may trace a process before it is refused.
const TRACED: Duration = Duration::from_millis(500);

/// What the library is called in the maps of a program that it was loaded into by us.
const OURS: &str = "/memfd:libheapprof.so";

/// A process, and what is loaded into it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    memory: Its,
    pub(crate) maps: Vec<Map>,
    objects: Vec<Object>,
    loader: u64,
}

pub(crate) fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Reads a file of a process.
fn read(pid: u32, file: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(path(pid, file)).map_err(refused)
}

fn refused(error: io::Error) -> Error {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => Error::NoProcess,
        (io::ErrorKind::PermissionDenied, _) => not_allowed(),
        _ => Error::Kernel("/proc", error),
    }
}

/// The kernel's refusal, with what may help.
pub(crate) fn not_allowed() -> Error {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    Error::NotAllowed(match scope.trim() {
        "" | "0" => "; ask as its user, or as root",
        "3" => ", nor anybody else: kernel.yama.ptrace_scope is 3",
        _ => "; ask as root: kernel.yama.ptrace_scope lets only root",
    })
}

/// What the kernel says of a process, or of a thread, under a field of its `status`.
pub(crate) fn status(folder: &str, field: &str) -> Option<String> {
    let status = std::fs::read(format!("/proc/{folder}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(value.trim().to_string())
}

/// Who traces a process; `None` if nobody does.
fn tracer(folder: &str) -> Option<u32> {
    let by = status(folder, "TracerPid:")?.parse().ok()?;
    Some(by).filter(|&by| by != 0)
}

/// When a process began, in ticks since the machine did; `None` if there is none.
pub(crate) fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read(path(pid, "stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, which may hold anything, ends at the last bracket; the state is the third field.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_there = !matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| is_there)
}

fn parse(line: &str) -> Option<Map> {
    let (range, rest) = line.split_once(' ')?;
    let (from, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let rights = rest.as_bytes().first_chunk::<4>()?;
    // Rights, offset, device, inode, and the path, which may hold spaces.
    let path = rest.splitn(5, ' ').nth(4).unwrap_or_default();
    Some(Map {
        range: number(from)?..number(end)?,
        rights: *rights,
        offset: number(rest.split(' ').nth(1)?)?,
        path: path.trim_start().to_string(),
    })
}

impl Map {
    pub(crate) fn is_code(&self) -> bool {
        self.rights[2] == b'x'
    }

    /// Whether it is of the library that we have loaded.
    pub(crate) fn is_ours(&self) -> bool {
        self.path.starts_with(OURS)
    }
}

impl Process {
    /// Looks at a process, and refuses those that nothing can be done in. Nothing is touched.
    pub(crate) fn open(pid: u32) -> Result<Self, Error> {
        if pid == std::process::id() {
            return Err(Error::Own);
        }
        began(pid).ok_or(Error::NoProcess)?;
        let whole = pid.to_string();
        let since = Instant::now();
        // Another heapprof may be at it, for some milliseconds.
        while let Some(by) = tracer(&whole) {
            if since.elapsed() > TRACED {
                return Err(Error::Traced(by));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let state = status(&whole, "State:").unwrap_or_default();
        if state.starts_with(['T', 't']) {
            return Err(Error::Stopped);
        }
        let features = status(&whole, "x86_Thread_features:").unwrap_or_default();
        if features.split_whitespace().any(|word| word == "shstk") {
            return Err(Error::ShadowStack);
        }
        let mut options = File::options();
        let memory = options.read(true).write(true);
        let memory = memory.open(path(pid, "mem")).map_err(refused)?;
        let maps = read(pid, "maps")?;
        let maps: Vec<Map> = String::from_utf8_lossy(&maps)
            .lines()
            .filter_map(parse)
            .collect();
        if maps.is_empty() {
            // A thread of the kernel.
            return Err(Error::NoProcess);
        }
        let mut process = Self {
            pid,
            memory: Its::new(memory),
            maps,
            objects: Vec::new(),
            loader: 0,
        };
        process.find_loader()?;
        Ok(process)
    }

    /// Where the loader is.
    pub(crate) fn loader(&self) -> u64 {
        self.loader
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> Other<'_> {
        self.memory.memory()
    }

    /// Finds the loader, and what it has loaded.
    fn find_loader(&mut self) -> Result<(), Error> {
        const AT_PHDR: u64 = 3;
        const AT_PHNUM: u64 = 5;
        const AT_BASE: u64 = 7;
        const PT_DYNAMIC: u32 = 2;
        const PT_INTERP: u32 = 3;
        const PT_PHDR: u32 = 6;
        const DT_DEBUG: u64 = 21;
        let auxiliary = read(self.pid, "auxv")?;
        let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        let words = auxiliary.as_chunks::<8>().0;
        let find = |key: u64| {
            let mut pairs = words.as_chunks::<2>().0.iter();
            pairs
                .find(|pair| word(&pair[0]) == key)
                .map(|pair| word(&pair[1]))
        };
        // A program of 32 bits has another auxiliary vector, and so says nothing here.
        let memory = self.memory.memory();
        let image = self.image()?;
        if image != [2, 62] {
            return Err(Error::OtherMachine);
        }
        let missing = || Error::Missing("what the kernel told it of itself");
        let headers = find(AT_PHDR).ok_or_else(missing)?;
        let count = find(AT_PHNUM).ok_or_else(missing)?.min(1000);
        let (mut base, mut dynamic, mut interpreter) = (0, None, None);
        for at in (0..count).map(|i| headers + 56 * i) {
            let kind = memory.u32(at).ok_or_else(missing)?;
            let place = memory.u64(at + 16).ok_or_else(missing)?;
            match kind {
                PT_PHDR => base = headers.wrapping_sub(place),
                PT_DYNAMIC => dynamic = Some(place),
                PT_INTERP => interpreter = Some(place),
                _ => {}
            }
        }
        let (Some(dynamic), Some(interpreter)) = (dynamic, interpreter) else {
            return Err(Error::Static);
        };
        let mut name = [0; 256];
        let read = memory.text(base.wrapping_add(interpreter), &mut name);
        let name = String::from_utf8_lossy(&name[..read.unwrap_or(0)]).into_owned();
        if name.contains("ld-musl") {
            return Err(Error::OtherLibrary("musl"));
        }
        if !name.contains("ld-linux") {
            return Err(Error::OtherLibrary("not glibc"));
        }
        self.loader = find(AT_BASE).unwrap_or(0);
        let executable = Object::at(base, base.wrapping_add(dynamic));
        let debug = executable.entry(memory, DT_DEBUG).unwrap_or(0);
        self.objects = objects(memory, debug).take(MOST_OBJECTS).collect();
        if self.objects.len() < 2 {
            return Err(Error::Missing("the list of what is loaded"));
        }
        Ok(())
    }

    /// The class and the machine of its executable, as its file says.
    fn image(&self) -> Result<[u8; 2], Error> {
        use std::io::Read;
        let mut head = [0; 20];
        let mut file = File::open(path(self.pid, "exe")).map_err(refused)?;
        let is_read = file.read_exact(&mut head).is_ok();
        Ok(if is_read { [head[4], head[18]] } else { [0, 0] })
    }

    /// A symbol, as the first object has it that defines it.
    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        let mut all = self.objects.iter();
        all.find_map(|object| object.symbol(self.memory(), name))
    }

    /// Whether its executable defines malloc.
    pub(crate) fn has_malloc(&self) -> bool {
        let executable = self.objects.first();
        executable.is_some_and(|of| of.symbol(self.memory(), "malloc").is_some())
    }

    /// The mapping that holds an address.
    pub(crate) fn map_of(&self, address: u64) -> Option<&Map> {
        self.maps.iter().find(|map| map.range.contains(&address))
    }

    /// The code of the file that is mapped at an address.
    fn code_of(&self, address: u64) -> Vec<Range<u64>> {
        let Some(path) = self.map_of(address).map(|map| &map.path) else {
            return Vec::new();
        };
        let all = self.maps.iter();
        let same = all.filter(|map| map.is_code() && map.path == *path && !path.is_empty());
        same.map(|map| map.range.clone()).collect()
    }

    /// Where a thread must not be, and must not come back to: the loader, the allocator, what
    /// starts threads and forks, and our library.
    pub(crate) fn held_code(&self) -> Vec<Range<u64>> {
        /// What lies before the first exported function of glibc's allocator, and belongs to it.
        const BEFORE: u64 = 20 << 10;
        let memory = self.memory();
        // Other allocators have some of the same names.
        let mut objects = self.objects.iter();
        let glibc = objects.find(|object| object.symbol(memory, "__libc_malloc").is_some());
        let names_of = |names: &[&str]| {
            let found = names.iter().filter_map(|name| glibc?.symbol(memory, name));
            let found: Vec<Symbol> = found.collect();
            let from = found.iter().map(|of| of.address).min()?;
            let end = found.iter().map(|of| of.address + of.size).max()?;
            Some(from..end)
        };
        let mut all = self.code_of(self.loader);
        let libc = self.symbol("__libc_malloc").map(|of| of.address);
        if let Some(malloc) = self.symbol("malloc")
            && libc != Some(malloc.address)
        {
            all.extend(self.code_of(malloc.address));
        }
        let glibcs = [
            "__libc_malloc",
            "__libc_calloc",
            "malloc_info",
            "mallinfo",
            "malloc_trim",
        ];
        let glibcs = names_of(&glibcs).map(|of| of.start.saturating_sub(BEFORE)..of.end);
        all.extend(glibcs);
        let of_loader = ["dladdr", "dlclose", "dlerror", "dlopen", "dlsym", "dlvsym"];
        all.extend(names_of(&of_loader).filter(|of| of.end - of.start < 64 << 10));
        let apart = [
            "dlopen",
            "dlsym",
            "dlvsym",
            "dlmopen",
            "dlclose",
            "dladdr",
            "dl_iterate_phdr",
            "pthread_create",
            "fork",
            "_Fork",
            "vfork",
            "__register_atfork",
        ];
        all.extend(apart.iter().filter_map(|name| names_of(&[name])));
        let ours = self
            .maps
            .iter()
            .filter(|map| map.is_ours() && map.is_code());
        all.extend(ours.map(|map| map.range.clone()));
        all
    }

    /// Code in which threads begin and end, from which no thread is taken.
    pub(crate) fn ends_of_threads(&self) -> Option<Range<u64>> {
        /// As far as what starts a thread may lie from what makes one.
        const AROUND: u64 = 8 << 10;
        let found = self.symbol("pthread_create")?;
        Some(found.address.saturating_sub(AROUND)..found.address + found.size)
    }

    /// Where an instruction is that makes a system call.
    pub(crate) fn system_call(&self) -> Option<u64> {
        let found = self.symbol("syscall")?;
        let mut code = [0; 64];
        self.memory().read(found.address, &mut code);
        let at = code.windows(2).position(|two| two == [0x0f, 0x05])?;
        Some(found.address + at as u64)
    }

    /// Whether the instruction before an address is a system call.
    pub(crate) fn is_call(&self, before: u64) -> bool {
        let mut code = [0; 2];
        self.memory().read(before.wrapping_sub(2), &mut code) && code == [0x0f, 0x05]
    }

    /// Whether any of its system calls are filtered.
    pub(crate) fn is_filtered(&self) -> bool {
        status(&self.pid.to_string(), "Seccomp:").is_some_and(|mode| mode != "0")
    }

    /// Whether all of its threads have as many filters of system calls.
    pub(crate) fn has_one_filter(&self) -> bool {
        let filters = |tid: u32| {
            let folder = format!("{}/task/{tid}", self.pid);
            ["Seccomp:", "Seccomp_filters:"].map(|field| status(&folder, field))
        };
        let all = self.threads().into_iter().map(filters);
        // A thread that has ended says nothing.
        let mut all = all.filter(|[mode, _]| mode.is_some());
        let first = all.next();
        all.all(|other| Some(other) == first)
    }

    /// How many bytes a file may have that it writes; `None` if there is no limit.
    pub(crate) fn file_limit(&self) -> Option<u64> {
        let limits = std::fs::read_to_string(path(self.pid, "limits")).ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max file size"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Its threads.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let folder = std::fs::read_dir(path(self.pid, "task"));
        let entries = folder.into_iter().flatten().filter_map(Result::ok);
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_spaces_in_their_paths() {
        let line =
            "7f0000001000-7f0000003000 r-xp 00000000 00:01 12   /memfd:libheapprof.so (deleted)";
        let map = parse(line).unwrap();
        assert_eq!(map.range, 0x7f00_0000_1000..0x7f00_0000_3000);
        assert!(map.is_code() && map.is_ours());
        assert_eq!(map.path, "/memfd:libheapprof.so (deleted)");
        let bare = parse("1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert!(bare.path.is_empty() && !bare.is_code());
        assert!(parse("nothing").is_none());
    }
}
