//! Makes the file of the saved ledger, writes the file's header, and hands the file to the ledger
//! keeper. The file outlives the process.

use std::ffi::{CStr, CString};
use std::ptr::{addr_of_mut, copy_nonoverlapping};
use std::sync::atomic::{AtomicU32, Ordering};

use heapprof_abi::{LEDGER_VERSION, SHARED_LEDGER_MAGIC, SharedLedgerHeader as Header};
use heapprof_platform::sys::{self, EngineFile};
use heapprof_platform::table_file::TABLE_FILE_LEN;
use heapprof_platform::trial;

use crate::dump::output;
use crate::engine::Engine;
use crate::options::{LedgerRecipient, RecordingOptions};
use crate::outside;

/// The message that accompanies the file to the ledger keeper.
const GREETING: &[u8] = b"heapprof's kept books 1\n";
/// The message that accompanies the file and the root folder of a process that the ledger keeper
/// can't reach by its paths.
const GREETING_WITH_ROOT: &[u8] = b"heapprof's kept books 1 in another root\n";
/// The beginning of the path of a socket that a process in another root folder has inherited.
const INHERITED_FOLDER: &[u8] = b"/proc/self/fd/";
/// Makes a file for the ledger, if the options request it. If this fails, the reason is added to
/// the list of dumps.
pub(super) fn make_file_if_asked(
    engine: &Engine,
    options: &RecordingOptions,
) -> Option<EngineFile> {
    if options.output.recipient == LedgerRecipient::Private {
        return None;
    }
    match make(engine) {
        Ok(file) => Some(file),
        Err((errno, why)) => {
            report_failure(options, errno, &why);
            None
        }
    }
}

/// Begins to keep the ledger in a file, if the options request this and nothing was recorded yet.
/// Returns the file. If `may_wait` is true, there is no file yet, and the ledger is in private
/// memory for now.
pub(super) fn begin(
    engine: &Engine,
    options: &RecordingOptions,
    may_wait: bool,
) -> Option<EngineFile> {
    let (process, kept) = (&engine.process, &engine.process.pages.table_file);
    // Tables that lie in private memory by now would be missing.
    let is_first = process.recorded.epoch().to_u64() == 0 && !kept.is_there();
    if !is_first || options.output.recipient == LedgerRecipient::Private {
        return None;
    }
    if sys::read_file(c"/proc/sys/vm/overcommit_memory").starts_with(b"2") {
        report_failure(
            options,
            0,
            "the kernel does not overcommit memory (vm.overcommit_memory is 2)",
        );
        return None;
    }
    if !process.is_marked() {
        report_failure(
            options,
            0,
            "a forked copy of the process could not be told apart from it",
        );
        return None;
    }
    if may_wait && kept.begin(None) {
        return None;
    }
    let file = make_file_if_asked(engine, options)?;
    if !kept.begin(Some(&file)) {
        report_failure(
            options,
            0,
            "a file in memory could not be mapped and sealed",
        );
        return None;
    }
    Some(file)
}

/// Writes the header of the saved ledger, and hands over the ledger's file if the file is new.
/// While the file is delayed, no process reads the header.
pub(super) fn publish(engine: &'static Engine, handed: Option<(&EngineFile, &RecordingOptions)>) {
    let kept = &engine.process.pages.table_file;
    if !kept.is_there() || kept.is_waiting() {
        return;
    }
    write_header(engine);
    kept.copy_all();
    let Some((file, options)) = handed else {
        return;
    };
    let executable_handed = &engine.process.executable_handed;
    let handed =
        match &options.output.recipient {
            LedgerRecipient::Private => Ok(()),
            LedgerRecipient::Socket(path) => CString::new(&**path)
                .map_err(|_| libc::EINVAL)
                .and_then(|path| {
                    let (root, executable) = (other_root(&path), executable(engine));
                    let greeting = root.as_ref().map_or(GREETING, |_| GREETING_WITH_ROOT);
                    let others = root.iter().chain(&executable);
                    let files: Vec<&EngineFile> = std::iter::once(file).chain(others).collect();
                    sys::hand_over(&files, &path, greeting)?;
                    if executable.is_some() {
                        executable_handed.store(true, Ordering::Relaxed);
                    }
                    Ok(())
                }),
            LedgerRecipient::Taker(taker) => {
                (taker.0)(file.number());
                Ok(())
            }
        };
    if let Err(errno) = handed {
        report_failure(options, errno, "it could not be handed over");
    }
}

/// Opens the root folder of this process, if it is not that of the ledger keeper, which listens at
/// `path`. The process may have ended when the keeper looks for the folder.
fn other_root(path: &CStr) -> Option<EngineFile> {
    let is_other = path.to_bytes().starts_with(INHERITED_FOLDER);
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    is_other.then(|| EngineFile::open(c"/", flags, 0).ok())?
}

/// Opens the executable of this process, for a reader that searches it for symbols later. By then,
/// the executable's path may lead to another file. Returns `None` if the executable was handed over
/// before, for example by the parent of a forked child.
fn executable(engine: &Engine) -> Option<EngineFile> {
    match engine.process.executable_handed.load(Ordering::Relaxed) {
        true => None,
        false => EngineFile::open(c"/proc/thread-self/exe", libc::O_RDONLY, 0).ok(),
    }
}

/// Makes a file in memory. The error is an errno, or 0, and a text.
fn make(engine: &Engine) -> Result<EngineFile, (i32, String)> {
    if engine.process.is_filtered() && !engine.process.may_share_ledger(trial::may_share_ledger) {
        let why = "a system call filter kills processes that create a file in memory";
        return Err((0, why.to_string()));
    }
    // Beyond this limit the kernel sends a signal.
    if let Some(most) = sys::soft_limit(libc::RLIMIT_FSIZE as usize)
        && most < TABLE_FILE_LEN as u64
    {
        return Err((0, format!("files may have no more than {most} bytes")));
    }
    sys::memory_file(TABLE_FILE_LEN)
        .map_err(|errno| (errno, "a file in memory could not be created".into()))
}

/// Adds an entry to the list of dumps with the reason why there is no saved ledger: a text, and an
/// errno if it is not 0.
pub(super) fn report_failure(options: &RecordingOptions, errno: i32, why: &str) {
    let entry = format!("~{} {errno} {why}", sys::process_id());
    let entry = CString::new(entry).unwrap_or_default();
    output::add_to_list(&options.output.list, &entry);
}

fn write_header(engine: &'static Engine) {
    let process = &engine.process;
    let header = process.pages.table_file.header();
    let program = process.name();
    // SAFETY: the header is a part of the file that nothing else writes, and which begins with
    // zeros or with the header of the process that this one was forked from.
    unsafe {
        addr_of_mut!((*header).magic).write([0; 16]);
        addr_of_mut!((*header).version).write(LEDGER_VERSION);
        addr_of_mut!((*header).size).write(size_of::<Header>() as u32);
        addr_of_mut!((*header).state).write(AtomicU32::new(heapprof_abi::process_state::NOT_ENDED));
        let to = addr_of_mut!((*header).program).cast::<u8>();
        let len = program.len().min(255);
        to.write_bytes(0, 256);
        copy_nonoverlapping(program.as_ptr(), to, len);
        let ledger = addr_of_mut!((*header).ledger);
        ledger.write(outside::build_shared_header(
            engine,
            &process.pages.table_file,
        ));
        std::sync::atomic::fence(Ordering::Release);
        addr_of_mut!((*header).magic).write(SHARED_LEDGER_MAGIC);
    }
}
