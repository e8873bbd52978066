//! Attaches to a program, and detaches from it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use heapprof_abi::letter::{
    AttachLetter, LETTER_VERSION, LIBRARY_PATH_PREFIX, failure, progress, request, slots_reason,
};
use heapprof_memory::Memory;
use heapprof_process::{is_there, start_ticks, status};

use crate::arch::stub;
use crate::attach_options::{AttachOptions, AttachOutcome, DetachOutcome, SlotsReason};
use crate::c_library::CLibrary;
use crate::choice::SafeThreadSelector;
use crate::error::AttachError;
use crate::loader_functions::LoaderFunctions;
use crate::process::{TargetProcess, has_filter, is_ours};
use crate::region::{AttachRegion, field, map};
use crate::{child_process, entries, filter, late_library, musl, process_file};

/// How long a diverted thread may take to come back.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two reads of the letter while a thread is diverted.
const ANSWER_POLL_INTERVAL: Duration = Duration::from_micros(50);
/// How long a program may take to load its C library.
const START_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between two checks whether a program has loaded its C library.
const START_POLL_INTERVAL: Duration = Duration::from_millis(10);
const PAGE_SIZE: u64 = 4096;

/// A program that can be attached to.
#[derive(Debug)]
pub struct AttachTarget {
    process: TargetProcess,
    loader: LoaderFunctions,
    /// Address of the program's function `__errno_location`.
    errno_at: u64,
    region: Option<AttachRegion>,
}

/// The previous attachment, as the letter describes it.
#[derive(Clone, Copy)]
struct PreviousAttachment {
    is_attached: bool,
    is_loaded: bool,
    owner: Option<u32>,
    owner_lives: bool,
    thread: u32,
}

impl AttachTarget {
    /// Reads a process, and refuses one that this library can't be loaded into. Does not change the
    /// process. Waits a moment if the process is just starting and has not loaded its C library
    /// yet.
    ///
    /// # Errors
    /// The reason why the process can't be attached to.
    pub fn open(pid: u32, library: &[u8]) -> Result<Self, AttachError> {
        let since = Instant::now();
        loop {
            match Self::open_now(pid, library) {
                Err(AttachError::Starting) if since.elapsed() < START_TIMEOUT => {
                    std::thread::sleep(START_POLL_INTERVAL)
                }
                opened => return opened,
            }
        }
    }

    fn open_now(pid: u32, library: &[u8]) -> Result<Self, AttachError> {
        if !stub::is_supported() {
            return Err(AttachError::NoXsave);
        }
        let process = TargetProcess::open(pid)?;
        let is_library = |path: &[u8]| {
            let name = path.rsplit(|&byte| byte == b'/').next();
            name.is_some_and(|name| name.starts_with(b"libheapprof"))
        };
        let mut maps = process.maps.iter();
        if maps.any(|map| !is_ours(map) && is_library(&map.path)) {
            return Err(AttachError::AlreadyRecorded(pid));
        }
        let function = |name| {
            let found = process.symbol(name).map(|found| found.address);
            found.ok_or(AttachError::Missing("a usable C library"))
        };
        let loader = LoaderFunctions::find(&process)?;
        let errno_at = function("__errno_location")?;
        function("malloc")?;
        // It is not known of musl where a thread may be in such an allocator.
        if process.has_malloc() && process.c_library == CLibrary::Musl {
            return Err(AttachError::OwnMalloc);
        }
        // The kernel sends a signal to a process that exceeds this limit.
        if let Some(limit) = process
            .file_limit()
            .filter(|&most| most < library.len() as u64)
        {
            return Err(AttachError::FileLimit(limit));
        }
        if status(pid, ["Seccomp:"]) == ["1"] {
            return Err(AttachError::CallsFiltered(
                "it is in strict mode, which allows almost no calls".into(),
            ));
        }
        if !process.has_one_filter() {
            return Err(AttachError::CallsFiltered(
                "its threads have different ones".into(),
            ));
        }
        let region = AttachRegion::find(&process);
        // In a container, record puts the library into a file in memory, too.
        if region.is_none() && process.maps.iter().any(|map| is_ours(map) && map.is_code) {
            return Err(AttachError::AlreadyRecorded(pid));
        }
        Ok(Self {
            process,
            loader,
            errno_at,
            region,
        })
    }

    /// Attaches to the program: loads `library`, if it is not loaded yet, and starts recording.
    ///
    /// # Errors
    /// The reason why attaching is impossible, or the step that failed. The program goes on.
    pub fn attach(self, library: &[u8], wish: AttachOptions) -> Result<AttachOutcome, AttachError> {
        run_in_own_thread(|| self.attach_here(library, wish))
    }

    /// Detaches from the program: stops recording, and restores the program's code and slots.
    ///
    /// # Errors
    /// There may be no attachment, or detaching may be impossible now.
    pub fn detach(self) -> Result<DetachOutcome, AttachError> {
        run_in_own_thread(|| self.detach_here())
    }

    fn attach_here(
        &self,
        library: &[u8],
        wished: AttachOptions,
    ) -> Result<AttachOutcome, AttachError> {
        let prepared = match self.process.c_library {
            CLibrary::Glibc => None,
            CLibrary::Musl => Some(late_library::prepare(library).ok_or(AttachError::NotForMusl)?),
        };
        let library = prepared.as_deref().unwrap_or(library);
        let choice = SafeThreadSelector::new(&self.process, self.region)?;
        let memory = self.process.memory();
        let mut before = None;
        if let Some(region) = self.region {
            self.wait_for_last(region, &choice)?;
            let found = self.previous_attachment(region)?;
            if let Some(owner) = found.owner
                && (found.is_attached || !found.is_loaded)
                && found.owner_lives
            {
                return Err(AttachError::AttachedBy(owner));
            }
            before = Some(found);
        }
        let is_loaded = before.is_some_and(|before| before.is_loaded);
        let len = library.len() as u64;
        let room = len.next_multiple_of(PAGE_SIZE);
        let (region, thread) = match self.region.filter(|_| is_loaded) {
            Some(region) => (region, before.map_or(0, |before| before.thread)),
            None => {
                let [tid, at] =
                    child_process::run(|| self.prepare(&choice, room, wished.trusts_filter))?;
                let region = AttachRegion::at(at);
                let behind = region.u64(memory, field!(library))?;
                region.write(memory, field!(library_len), &len.to_ne_bytes())?;
                region.write(memory, behind.wrapping_sub(region.start()), library)?;
                (region, tid as u32)
            }
        };
        for (at, address) in [
            (field!(dlopen), self.loader.dlopen),
            (field!(dlsym), self.loader.dlsym),
            (field!(dlerror), self.loader.dlerror),
            (field!(errno_at), self.errno_at),
        ] {
            region.write(memory, at, &address.to_ne_bytes())?;
        }
        region.write(memory, field!(dlopen_mode), &self.loader.mode.to_ne_bytes())?;
        let period = wished.period.unwrap_or(1);
        for (at, value) in [
            (field!(is_exact), u32::from(wished.period.is_none())),
            (field!(frames), wished.frames),
            (field!(by_thread), u32::from(wished.by_thread)),
            (field!(log), u32::from(wished.logs)),
            (field!(allocators), wished.allocators.to_bits().into()),
            (field!(may_write_entries), 1),
            (field!(request), request::ATTACH),
        ] {
            region.write(memory, at, &value.to_ne_bytes())?;
        }
        region.write(memory, field!(period), &period.to_ne_bytes())?;
        self.sign(region)?;
        let send = || self.send(region, &choice, thread, wished.trusts_filter);
        let (mut kept, mut held) = send()?;
        let mut reason = match region.u32(memory, field!(slots_reason))? {
            0 => None,
            slots_reason::NO_JUMP => Some(SlotsReason::NoJump),
            slots_reason::BUSY => Some(SlotsReason::Busy),
            _ => Some(SlotsReason::NotWritten("no jumps were prepared".into())),
        };
        let stopped_for = match entries::write(&self.process, region) {
            Ok(written) => written.stopped_for,
            Err(error) => {
                // Without jumps, nothing would be recorded.
                reason = Some(SlotsReason::NotWritten(error.to_string()));
                // Slots and jumps at once would count twice.
                entries::restore(&self.process, region)?;
                let write = |at, value: u32| region.write(memory, at, &value.to_ne_bytes());
                write(field!(request), request::DETACH)?;
                send()?;
                write(field!(request), request::ATTACH)?;
                write(field!(may_write_entries), 0)?;
                (kept, held) = send()?;
                Duration::ZERO
            }
        };
        let left_by = before.filter(|before| before.is_attached);
        let left_by = left_by.and_then(|before| before.owner);
        Ok(AttachOutcome {
            shared_ledger: kept,
            slots_reason: reason,
            allocators: self.allocators(region)?,
            suspended_for: held,
            stopped_for,
            left_by,
        })
    }

    /// Reads the allocators that the library has found, as comments of a profile.
    fn allocators(&self, region: AttachRegion) -> Result<Vec<String>, AttachError> {
        const MAX_TEXT_LEN: u64 = 1 << 20;
        let memory = self.process.memory();
        let at = region.u64(memory, field!(allocator_text))?;
        let len = region.u64(memory, field!(allocator_text_len))?;
        let mut text = vec![0; len.min(MAX_TEXT_LEN) as usize];
        if !memory.read(at, &mut text) {
            return Ok(Vec::new());
        }
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().map(str::to_string).collect())
    }

    /// Makes a thread of the program map the region. If the region exists, the thread only maps
    /// `room` bytes for the library. Returns the number of the thread, and the address of the
    /// region.
    fn prepare(
        &self,
        choice: &SafeThreadSelector<'_>,
        room: u64,
        trusts_filter: bool,
    ) -> Result<[u64; 2], AttachError> {
        let (tid, stopped) = choice.stop(0)?;
        self.check_filters(tid, trusts_filter)?;
        if self.process.c_library == CLibrary::Musl {
            musl::register_barrier(&self.process, &stopped);
        }
        let memory = self.process.memory();
        let (region, behind) = match self.region {
            Some(region) => {
                // An earlier attempt may have mapped this memory, and then failed.
                let left = region.u64(memory, field!(library))?;
                let map_of = self.process.map_of(left);
                let is_there = map_of.is_some_and(|map| left + room <= map.end) && left != 0;
                let behind = match is_there {
                    true => left,
                    false => map(&self.process, &stopped, room)?,
                };
                (region, behind)
            }
            None => {
                let region = AttachRegion::make(&self.process, &stopped, room)?;
                (region, region.end())
            }
        };
        region.write_code(memory)?;
        region.write(memory, field!(library), &behind.to_ne_bytes())?;
        let at = region.start();
        Ok([tid.into(), at])
    }

    fn detach_here(&self) -> Result<DetachOutcome, AttachError> {
        let region = self.region.ok_or(AttachError::NotAttached)?;
        let memory = self.process.memory();
        let choice = SafeThreadSelector::new(&self.process, self.region)?;
        self.wait_for_last(region, &choice)?;
        let before = self.previous_attachment(region)?;
        let mut slots = 0;
        if before.is_attached {
            region.write(memory, field!(request), &request::DETACH.to_ne_bytes())?;
            // The calls that attaching needed were allowed.
            if let Err(error) = self.send(region, &choice, before.thread, true) {
                // The code can be put back without the program.
                let _ = entries::restore(&self.process, region);
                return Err(error);
            }
            slots = region.u32(memory, field!(slots))?;
        } else if !before.is_loaded || !entries::are_there(&self.process, region) {
            return Err(AttachError::NotAttached);
        }
        let restored = entries::restore(&self.process, region)?;
        Ok(DetachOutcome {
            restored: slots + restored.count,
            allocators: self.allocators(region)?,
        })
    }

    /// Reads the previous attachment from the letter.
    fn previous_attachment(&self, region: AttachRegion) -> Result<PreviousAttachment, AttachError> {
        let memory = self.process.memory();
        if !region.is_readable(memory) {
            return Err(AttachError::OtherVersion);
        }
        let u32 = |at| region.u32(memory, at);
        let is_loaded = region.u64(memory, field!(enter))? != 0;
        let owner = u32(field!(owner))?;
        let namespace = region.u64(memory, field!(owner_namespace))?;
        let owner_began = region.u64(memory, field!(owner_began))?;
        let owner_lives = namespace == own_namespace() && start_ticks(owner) == Some(owner_began);
        Ok(PreviousAttachment {
            is_attached: is_loaded && u32(field!(is_attached))? != 0,
            is_loaded,
            owner: Some(owner).filter(|&owner| owner != 0),
            owner_lives: owner_lives && owner != std::process::id(),
            thread: u32(field!(thread))?,
        })
    }

    /// Writes the id, start time and namespace of this process to the letter, because this process
    /// is now the attacher.
    fn sign(&self, region: AttachRegion) -> Result<(), AttachError> {
        let memory = self.process.memory();
        let own = std::process::id();
        let began = start_ticks(own).unwrap_or(0);
        region.write(memory, field!(owner), &own.to_ne_bytes())?;
        region.write(memory, field!(owner_began), &began.to_ne_bytes())?;
        let namespace = own_namespace().to_ne_bytes();
        region.write(memory, field!(owner_namespace), &namespace)
    }

    /// Refuses a program whose filters forbid system calls that heapprof needs. The thread must be
    /// stopped. Filters that can't be read are accepted if the user trusts them.
    fn check_filters(&self, tid: u32, trusts_filter: bool) -> Result<(), AttachError> {
        if !has_filter(tid) {
            return Ok(());
        }
        let filters = match filter::read_filters(tid) {
            Ok(filters) => filters,
            Err(_) if trusts_filter => return Ok(()),
            Err(_) => {
                return Err(AttachError::CallsFiltered(
                    "what it allows can only be read with CAP_SYS_ADMIN; attach as root outside of \
                     its container, or trust the filter, if it is the default one of Docker, \
                     containerd or CRI-O"
                        .into(),
                ));
            }
        };
        match filter::denied_calls(&filters, self.process.c_library)[..] {
            [] => Ok(()),
            [first, ..] => Err(AttachError::CallsFiltered(format!(
                "it denies system call {first}"
            ))),
        }
    }

    /// Diverts a thread to the stub, and waits until the thread is back. Returns the file that the
    /// library offered, and how long the thread was away. `trusts_filter` is as in
    /// [`AttachOptions`].
    fn send(
        &self,
        region: AttachRegion,
        choice: &SafeThreadSelector<'_>,
        first: u32,
        trusts_filter: bool,
    ) -> Result<(Option<File>, Duration), AttachError> {
        let memory = self.process.memory();
        let (tid, stopped) = choice.stop(first)?;
        let since = Instant::now();
        self.check_filters(tid, trusts_filter)?;
        let is_filtered = self.process.is_filtered();
        let size = size_of::<AttachLetter>() as u32;
        for (at, value) in [
            (field!(version), LETTER_VERSION),
            (field!(size), size),
            (field!(progress), progress::NOT_ARRIVED),
            (field!(failure), 0),
            (field!(file), u32::MAX),
            (field!(is_file_taken), 0),
            (field!(thread), tid),
            (field!(stopped_call), stopped.class()),
            (field!(may_share_ledger), u32::from(!is_filtered)),
        ] {
            region.write(memory, at, &value.to_ne_bytes())?;
        }
        let mut text = [0; 256];
        text[..LIBRARY_PATH_PREFIX.len()].copy_from_slice(LIBRARY_PATH_PREFIX.as_bytes());
        region.write(memory, field!(text), &text)?;
        region.clear_state(memory)?;
        let mask = stopped
            .mask()
            .map_err(|error| AttachError::KernelError("ptrace", error))?;
        region.write(memory, field!(mask), &mask.to_ne_bytes())?;
        let blocked = self.process.c_library.blocked_signals();
        region.write(memory, field!(blocked), &blocked.to_ne_bytes())?;
        let registers: Vec<u8> = stopped
            .registers()
            .iter()
            .flat_map(|register| register.to_ne_bytes())
            .collect();
        region.write(memory, field!(registers), &registers)?;
        let (at, stack, letter) = region.entry_addresses();
        let sent = stopped.send(at, stack, letter, blocked);
        sent.map_err(|error| AttachError::KernelError("ptrace", error))?;
        let kept = self.wait_for(region, choice, since)?;
        Ok((kept, since.elapsed()))
    }

    /// Waits until the thread that was diverted last is back. Until then it may still read the
    /// letter.
    fn wait_for_last(
        &self,
        region: AttachRegion,
        choice: &SafeThreadSelector<'_>,
    ) -> Result<(), AttachError> {
        let memory = self.process.memory();
        let last = region.u32(memory, field!(thread))?;
        let since = Instant::now();
        while last != 0 && self.process.threads().contains(&last) {
            let is_done = region.u32(memory, field!(progress))? == progress::DONE;
            if is_done && choice.is_outside(last, region) {
                break;
            }
            if since.elapsed() > ANSWER_TIMEOUT {
                return Err(AttachError::NoAnswer(ANSWER_TIMEOUT.as_secs()));
            }
            choice.let_go();
            std::thread::sleep(ANSWER_POLL_INTERVAL * 20);
        }
        Ok(())
    }

    /// Waits until the diverted thread is done. Meanwhile takes the file that the library offers.
    fn wait_for(
        &self,
        region: AttachRegion,
        choice: &SafeThreadSelector<'_>,
        since: Instant,
    ) -> Result<Option<File>, AttachError> {
        let memory = self.process.memory();
        let (mut kept, mut is_taken) = (None, false);
        loop {
            choice.let_go();
            match region.u32(memory, field!(progress))? {
                progress::DONE => break,
                progress::OFFERS_LEDGER if !is_taken => {
                    is_taken = true;
                    let number = region.u32(memory, field!(file))?;
                    kept = process_file::file(self.process.pid, number);
                    region.write(memory, field!(is_file_taken), &1u32.to_ne_bytes())?;
                }
                _ if since.elapsed() > ANSWER_TIMEOUT => {
                    return Err(AttachError::NoAnswer(ANSWER_TIMEOUT.as_secs()));
                }
                _ if !is_there(self.process.pid) => return Err(AttachError::NoProcess),
                _ => std::thread::sleep(ANSWER_POLL_INTERVAL),
            }
        }
        let number = region.u32(memory, field!(file))? as i32;
        let errno = std::io::Error::from_raw_os_error(-number);
        Err(match region.u32(memory, field!(failure))? {
            0 => return Ok(kept),
            failure::NO_FILE => AttachError::CallFailed("memfd_create", errno),
            failure::NO_ROOM => AttachError::CallFailed("writing into a file in memory", errno),
            failure::NOT_LOADED => AttachError::NotLoaded(match region.text(memory) {
                none if none.is_empty() => "it gives no reason".to_string(),
                why => why,
            }),
            failure::OWN_MALLOC => AttachError::OwnMalloc,
            failure::ALREADY_RECORDING => AttachError::AlreadyRecorded(self.process.pid),
            failure::NOT_BEGUN => AttachError::NotBegun,
            failure::NO_SLOTS => AttachError::NoSlots,
            failure::NOT_ATTACHED => AttachError::NotAttached,
            failure::BUSY => AttachError::NoAnswer(ANSWER_TIMEOUT.as_secs()),
            failure::FORKED => AttachError::ForkedFromAttached,
            failure::SANDBOXED => AttachError::SandboxedProcess,
            _ => AttachError::OtherVersion,
        })
    }
}

/// Returns the inode number of this process's PID namespace.
fn own_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |of| of.ino())
}

/// Runs `work` in a new thread. When the new thread ends, the kernel resumes all threads that the
/// new thread still traces.
fn run_in_own_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        scope
            .spawn(work)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
