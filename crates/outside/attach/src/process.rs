//! Reads the facts about a program that must be known before the program is changed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::{self, DynamicSymbol, LoadedObject};
use heapprof_process::maps::{self, ProcessMapping};
use heapprof_process::{is_there, refused_to_root, run_state, status};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::arch::SYSTEM_CALL;
use crate::c_library::CLibrary;
use crate::error::AttachError;
use crate::memory::{TargetMemory, TargetMemoryFile};
use crate::program_file::ProgramFile;

/// Maximum number of loaded objects that are searched.
const MAX_OBJECTS: usize = 10_000;

/// How long another process may trace the target before attaching is refused.
const TRACER_TIMEOUT: Duration = Duration::from_millis(500);

/// How long another heapprof may take to attach to the target, or to detach from it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Path of heapprof's library in the mappings of a program into which it was loaded.
const OWN_LIBRARY_PATH: &[u8] = b"/memfd:libheapprof.so";

/// A process to attach to, and the objects that are loaded into it.
#[derive(Debug)]
pub(crate) struct TargetProcess {
    pub(crate) pid: u32,
    memory: TargetMemoryFile,
    pub(crate) maps: Vec<ProcessMapping>,
    objects: Vec<LoadedObject>,
    loader: u64,
    pub(crate) c_library: CLibrary,
}

fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Reads a /proc/PID file.
fn read(pid: u32, file: &str) -> Result<Vec<u8>, AttachError> {
    std::fs::read(path(pid, file)).map_err(to_refusal)
}

fn to_refusal(error: io::Error) -> AttachError {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => AttachError::NoProcess,
        (io::ErrorKind::PermissionDenied, _) => permission_error(),
        _ => AttachError::KernelError("/proc", error),
    }
}

/// Makes the error for a refusal by the kernel, with a hint that may help.
pub(crate) fn permission_error() -> AttachError {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    AttachError::NotAllowed(match scope.trim() {
        "" | "0" if geteuid().is_root() => refused_to_root(),
        "" | "0" => "; run heapprof as its user or as root",
        "3" => ", nor any other user: kernel.yama.ptrace_scope is 3",
        _ => "; run heapprof as root: kernel.yama.ptrace_scope allows only root",
    })
}

/// Returns the number of the process that traces `pid`; `None` if no process does.
fn tracer(pid: u32) -> Option<u32> {
    let [by] = status(pid, ["TracerPid:"]);
    by.parse().ok().filter(|&by| by != 0)
}

/// Whether a process has a /proc in its root folder. True if this user can't find out.
fn has_proc(pid: u32) -> bool {
    let found = std::fs::symlink_metadata(path(pid, "root/proc/self"));
    !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether an address lies in one of the ranges `places`.
pub(crate) fn contains_address(places: &[Range<u64>], address: u64) -> bool {
    places.iter().any(|place| place.contains(&address))
}

/// Whether a mapping belongs to heapprof's library.
pub(crate) fn is_ours(map: &ProcessMapping) -> bool {
    map.path.starts_with(OWN_LIBRARY_PATH)
}

/// Whether a thread's system calls are filtered. If `tid` is the id of a process, the process's
/// first thread is checked.
pub(crate) fn has_filter(tid: u32) -> bool {
    let [mode] = status(tid, ["Seccomp:"]);
    !matches!(&*mode, "" | "0")
}

/// Locks a process, so that no other heapprof attaches or detaches while `memory` is open. Only a
/// process that may write to the memory can take this lock.
fn lock(memory: &File) -> Result<(), AttachError> {
    let since = Instant::now();
    loop {
        match flock(memory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN) if since.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Errno::AGAIN) => return Err(AttachError::Busy(LOCK_TIMEOUT.as_secs())),
            Err(error) => return Err(AttachError::KernelError("flock", error.into())),
        }
    }
}

impl TargetProcess {
    /// Reads a process, and refuses one that can't be attached to. Does not change the process.
    pub(crate) fn open(pid: u32) -> Result<Self, AttachError> {
        if pid == std::process::id() {
            return Err(AttachError::OwnProcess);
        }
        if !is_there(pid) {
            return Err(AttachError::NoProcess);
        }
        let since = Instant::now();
        // Another heapprof may be attaching, which takes some milliseconds.
        while let Some(by) = tracer(pid) {
            if since.elapsed() > TRACER_TIMEOUT {
                return Err(AttachError::AlreadyTraced(by));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if matches!(run_state(pid), Some('T' | 't')) {
            return Err(AttachError::ProcessStopped);
        }
        // The first thread may have ended before the others.
        if run_state(pid) == Some('Z') {
            return Err(AttachError::NoProcess);
        }
        if !has_proc(pid) {
            return Err(AttachError::NoProc);
        }
        let [features] = status(pid, ["x86_Thread_features:"]);
        if features.split_whitespace().any(|word| word == "shstk") {
            return Err(AttachError::ShadowStack);
        }
        let mut options = File::options();
        let memory = options.read(true).write(true);
        let memory = memory.open(path(pid, "mem")).map_err(to_refusal)?;
        lock(&memory)?;
        let maps = maps::parse(&read(pid, "maps")?);
        if maps.is_empty() {
            // The process is a kernel thread.
            return Err(AttachError::NoProcess);
        }
        let mut process = Self {
            pid,
            memory: TargetMemoryFile::new(memory),
            maps,
            objects: Vec::new(),
            loader: 0,
            c_library: CLibrary::Glibc,
        };
        process.find_loader()?;
        Ok(process)
    }

    /// Returns the address ranges of the loader's code.
    pub(crate) fn loader_code(&self) -> Vec<Range<u64>> {
        self.code_of(self.loader)
    }

    /// Returns the address of the loader.
    pub(crate) fn loader(&self) -> u64 {
        self.loader
    }

    /// Returns the memory of the process.
    pub(crate) fn memory(&self) -> TargetMemory<'_> {
        self.memory.memory()
    }

    /// Reads the process's mappings as they are now.
    pub(crate) fn read_maps(&self) -> Result<Vec<u8>, AttachError> {
        read(self.pid, "maps")
    }

    /// Returns the number of the objects that are loaded now, and the sum of their addresses and of
    /// those of their dynamic sections.
    pub(crate) fn loaded_objects(&self) -> (u32, u64) {
        let executable = self.objects.first().copied();
        let all = executable.into_iter().flat_map(|executable| {
            loaded_modules::objects_from_executable(self.memory(), executable)
        });
        all.take(MAX_OBJECTS).fold((0, 0), |(count, sum), object| {
            let sum = u64::wrapping_add(sum, object.base);
            (count + 1, sum.wrapping_add(object.dynamic))
        })
    }

    /// Finds the loader, and the objects that it has loaded.
    fn find_loader(&mut self) -> Result<(), AttachError> {
        const AT_BASE: u64 = 7;
        let auxiliary = read(self.pid, "auxv")?;
        // A 32-bit program has another auxiliary vector, which can't be read here.
        let program = ProgramFile::read(self.pid).map_err(to_refusal)?;
        if !program.is_for_this_machine {
            return Err(AttachError::OtherMachine);
        }
        let memory = self.memory.memory();
        let executable = loaded_modules::executable(memory, &auxiliary);
        let Some((executable, interpreter)) = executable.and_then(|of| Some((of, of.loader?)))
        else {
            return Err(match program.loader {
                // The kernel is still starting the program from its file.
                Some(_) => AttachError::Starting,
                None => AttachError::StaticallyLinked,
            });
        };
        let mut name = [0; 256];
        let read = memory.text(interpreter, &mut name);
        let name = String::from_utf8_lossy(&name[..read.unwrap_or(0)]).into_owned();
        self.c_library = CLibrary::from_loader(&name).ok_or(AttachError::OtherLibrary)?;
        self.loader = loaded_modules::auxiliary_value(&auxiliary, AT_BASE).unwrap_or(0);
        let objects = loaded_modules::objects_from_executable(memory, executable.object);
        self.objects = objects.take(MAX_OBJECTS).collect();
        if self.objects.len() < 2 || !self.has_c_library() {
            return Err(AttachError::Starting);
        }
        Ok(())
    }

    /// Whether the C library is mapped. glibc's loader maps it before any code of the program runs.
    fn has_c_library(&self) -> bool {
        self.c_library == CLibrary::Musl
            || self.maps.iter().any(|map| {
                let name = map.path.rsplit(|&byte| byte == b'/').next();
                name.is_some_and(|name| name.starts_with(b"libc.so") || name.starts_with(b"libc-"))
            })
    }

    /// Finds a symbol in the first object that defines it.
    pub(crate) fn symbol(&self, name: &str) -> Option<DynamicSymbol> {
        let mut all = self.objects.iter();
        all.find_map(|object| object.symbol(self.memory(), name))
    }

    /// Whether the executable defines malloc.
    pub(crate) fn has_malloc(&self) -> bool {
        let executable = self.objects.first();
        executable.is_some_and(|of| of.symbol(self.memory(), "malloc").is_some())
    }

    /// Returns the mapping that contains an address.
    pub(crate) fn map_of(&self, address: u64) -> Option<&ProcessMapping> {
        self.maps.iter().find(|map| map.range().contains(&address))
    }

    /// Returns the address ranges of all code of the file that is mapped at an address.
    pub(crate) fn code_of(&self, address: u64) -> Vec<Range<u64>> {
        let Some(path) = self.map_of(address).map(|map| &map.path) else {
            return Vec::new();
        };
        let all = self.maps.iter();
        let same = all.filter(|map| map.is_code && map.path == *path && !path.is_empty());
        same.map(ProcessMapping::range).collect()
    }

    /// Returns the code of heapprof's library in the program.
    pub(crate) fn own_code(&self) -> impl Iterator<Item = Range<u64>> {
        let ours = self.maps.iter().filter(|map| is_ours(map) && map.is_code);
        ours.map(ProcessMapping::range)
    }

    /// Returns the code in which a diverted thread of glibc must not be, and to which it must not
    /// return: the loader, the allocator, unless it is the program's own, and the functions that
    /// start threads and fork.
    pub(crate) fn forbidden_code(&self) -> Vec<Range<u64>> {
        /// Number of bytes of glibc's allocator code before its first exported function.
        const ALLOCATOR_MARGIN: u64 = 20 << 10;
        let memory = self.memory();
        // Other allocators have some of the same names.
        let mut objects = self.objects.iter();
        let glibc = objects.find(|object| object.symbol(memory, "__libc_malloc").is_some());
        let names_of = |names: &[&str]| {
            let found = names.iter().filter_map(|name| glibc?.symbol(memory, name));
            let found: Vec<DynamicSymbol> = found.collect();
            let from = found.iter().map(|of| of.address).min()?;
            let end = found.iter().map(|of| of.address + of.size).max()?;
            Some(from..end)
        };
        let mut all = self.code_of(self.loader);
        let libc = glibc.and_then(|glibc| glibc.symbol(memory, "__libc_malloc"));
        // What a program with its own malloc calls is not told apart from its other code.
        if let Some(malloc) = self.symbol("malloc")
            && libc.map(|of| of.address) != Some(malloc.address)
            && !self.has_malloc()
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
        let glibcs = names_of(&glibcs).map(|of| of.start.saturating_sub(ALLOCATOR_MARGIN)..of.end);
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
            "__libc_dlopen_mode",
            "__libc_dlsym",
            "pthread_create",
            "fork",
            "_Fork",
            "vfork",
            "__register_atfork",
        ];
        all.extend(apart.iter().filter_map(|name| names_of(&[name])));
        all
    }

    /// Returns the code of glibc in which threads begin and end. No thread is diverted there.
    pub(crate) fn thread_end_code(&self) -> Option<Range<u64>> {
        /// Largest distance from `pthread_create` back to the code in which a new thread begins.
        const THREAD_START_MARGIN: u64 = 8 << 10;
        let found = self.symbol("pthread_create")?;
        Some(found.address.saturating_sub(THREAD_START_MARGIN)..found.address + found.size)
    }

    /// Returns the address of an instruction that makes a system call.
    pub(crate) fn system_call(&self) -> Option<u64> {
        let found = self.symbol("syscall")?;
        let mut code = [0; 256];
        let code = &mut code[..found.size.min(256) as usize];
        self.memory().read(found.address, code);
        let at = code.windows(2).position(|two| two == SYSTEM_CALL)?;
        Some(found.address + at as u64)
    }

    /// Whether the instruction that ends at `before` makes a system call.
    pub(crate) fn is_call(&self, before: u64) -> bool {
        let mut code = [0; 2];
        self.memory().read(before.wrapping_sub(2), &mut code) && code == SYSTEM_CALL
    }

    /// Whether system calls of the process are filtered.
    pub(crate) fn is_filtered(&self) -> bool {
        has_filter(self.pid)
    }

    /// Whether all threads have the same number of system-call filters.
    pub(crate) fn has_one_filter(&self) -> bool {
        let filters = |tid| status(tid, ["Seccomp:", "Seccomp_filters:"]);
        let all = self.threads().into_iter().map(filters);
        // A thread that has ended has no such lines.
        let mut all = all.filter(|[mode, _]| !mode.is_empty());
        let first = all.next();
        all.all(|other| Some(other) == first)
    }

    /// Returns the largest size of a file that the process may write, in bytes; `None` if there is
    /// no limit.
    pub(crate) fn file_limit(&self) -> Option<u64> {
        let limits = std::fs::read_to_string(path(self.pid, "limits")).ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max file size"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Returns the numbers of the process's threads.
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
    use crate::fixture::EchoProgram;

    #[test]
    fn our_library_is_known_by_its_mapping() {
        let text = b"7f0000001000-7f0000003000 r-xp 00000000 00:01 12   \
            /memfd:libheapprof.so (deleted)\n1000-2000 rw-p 00000000 00:00 0 \nnothing";
        let all = maps::parse(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].range(), 0x7f00_0000_1000..0x7f00_0000_3000);
        assert!(all[0].is_code && is_ours(&all[0]));
        assert_eq!(all[0].path, b"/memfd:libheapprof.so (deleted)");
        assert!(all[1].path.is_empty() && !all[1].is_code);
    }

    fn open(pid: u32) -> Result<TargetProcess, AttachError> {
        TargetProcess::open(pid)
    }

    /// Sends a signal to a process.
    fn send(signal: rustix::process::Signal, pid: u32) {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    #[test]
    fn processes_in_which_nothing_can_be_done_are_refused() {
        let own = open(std::process::id()).unwrap_err();
        assert!(matches!(own, AttachError::OwnProcess), "{own}");
        for pid in [u32::MAX, i32::MAX as u32, 1 << 30] {
            let none = open(pid).unwrap_err();
            assert!(matches!(none, AttachError::NoProcess), "{pid}: {none}");
        }
        let program = EchoProgram::start(":");
        send(rustix::process::Signal::STOP, program.pid());
        while run_state(program.pid()) != Some('T') {
            std::thread::yield_now();
        }
        let stopped = open(program.pid()).unwrap_err();
        assert!(matches!(stopped, AttachError::ProcessStopped), "{stopped}");
        send(rustix::process::Signal::CONT, program.pid());
        while run_state(program.pid()) == Some('T') {
            std::thread::yield_now();
        }
        assert!(open(program.pid()).is_ok());
    }

    /// Tests that a 64-bit program without a loader is refused. The program waits for a signal.
    #[test]
    fn a_program_without_a_loader_is_refused() {
        // An ELF header, one segment, and a loop around the system call `pause`.
        let code = [0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
        let mut bytes = vec![0u8; 64 + 56];
        let mut put = |at: usize, new: &[u8]| bytes[at..at + new.len()].copy_from_slice(new);
        put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        put(16, &[2, 0, 62, 0, 1]);
        put(24, &0x40_0078u64.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(52, &[64, 0, 56, 0, 1]);
        put(64, &[1, 0, 0, 0, 5]);
        put(64 + 16, &0x40_0000u64.to_le_bytes());
        let len = (64 + 56 + code.len()) as u64;
        put(64 + 32, &len.to_le_bytes());
        put(64 + 40, &len.to_le_bytes());
        put(64 + 48, &4096u64.to_le_bytes());
        bytes.extend(code);
        let flags = rustix::fs::MemfdFlags::empty();
        let file = rustix::fs::memfd_create("static", flags).unwrap();
        rustix::io::write(&file, &bytes).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let program = format!("/proc/self/fd/{number}");
        // The program runs when this returns, because its file was executed by then.
        let mut child = std::process::Command::new(program).spawn().unwrap();
        let opened = open(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let error = opened.unwrap_err();
        assert!(matches!(error, AttachError::StaticallyLinked), "{error}");
    }

    #[test]
    fn a_program_s_code_is_known() {
        let mut program = EchoProgram::start(":");
        let process = open(program.pid()).unwrap();
        assert_eq!(process.threads(), [program.pid()]);
        assert!(!process.has_malloc() && !process.is_filtered() && process.has_one_filter());
        // The instruction in libc's `syscall`, in code that may be executed.
        let at = process.system_call().unwrap();
        assert!(process.is_call(at + 2) && !process.is_call(at + 3));
        assert!(process.map_of(at).unwrap().is_code);
        let forbidden = process.forbidden_code();
        let is_forbidden = |at: u64| forbidden.iter().any(|code| code.contains(&at));
        for name in [
            "malloc", "calloc", "realloc", "free", "dlopen", "dlsym", "fork",
        ] {
            let symbol = process.symbol(name).unwrap();
            assert!(is_forbidden(symbol.address), "{name}");
        }
        let loader = process.code_of(process.loader());
        assert!(!loader.is_empty() && loader.iter().all(|code| is_forbidden(code.start)));
        for name in ["read", "write", "syscall", "strlen"] {
            let symbol = process.symbol(name).unwrap();
            assert!(!is_forbidden(symbol.address), "{name}");
        }
        let begins = process.symbol("pthread_create").unwrap();
        assert!(process.thread_end_code().unwrap().contains(&begins.address));
        assert!(process.symbol("heapprof_no_such_symbol").is_none());
        program.echo();
    }

    #[test]
    fn the_limit_of_a_program_s_files_is_read() {
        let program = EchoProgram::start("ulimit -f unlimited");
        assert_eq!(open(program.pid()).unwrap().file_limit(), None);
        let program = EchoProgram::start("ulimit -S -f 8");
        // A shell counts blocks of 512 or 1024 bytes.
        let found = open(program.pid()).unwrap().file_limit();
        assert!(matches!(found, Some(4096 | 8192)), "{found:?}");
        drop(program);
        let program = EchoProgram::start("ulimit -S -f 8");
        let library = vec![0; 8193];
        let refused = crate::AttachTarget::open(program.pid(), &library).unwrap_err();
        assert!(matches!(refused, AttachError::FileLimit(_)), "{refused}");
    }

    #[test]
    fn a_refusal_of_the_kernel_has_its_reason() {
        let refused = |number| to_refusal(io::Error::from_raw_os_error(number));
        for number in [libc::ENOENT, libc::ESRCH] {
            assert!(
                matches!(refused(number), AttachError::NoProcess),
                "{number}"
            );
        }
        for number in [libc::EACCES, libc::EPERM] {
            let error = refused(number);
            assert!(matches!(error, AttachError::NotAllowed(_)), "{number}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        let other = refused(libc::EIO);
        assert!(
            matches!(other, AttachError::KernelError("/proc", _)),
            "{other}"
        );
    }
}
