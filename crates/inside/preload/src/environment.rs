//! Converts environment variables to options.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::time::Duration;

use crate::known_file::KnownFile;
use heapprof_abi::environment as variable;
use heapprof_allocators::AllocatorChoice;
use heapprof_engine::setting::{self, SettingError, SettingForm};
use heapprof_engine::{
    DumpFormat, DumpOutput, DumpTriggers, HookedAllocator, LedgerRecipient, RecordingMode,
    RecordingOptions,
};

/// The options that the environment sets.
pub struct EnvironmentRequest {
    pub options: RecordingOptions,
    pub start: bool,
    pub signal: Option<i32>,
    pub mmap: bool,
    /// Which allocators inside files are recorded.
    pub allocators: AllocatorChoice,
    pub verbose: bool,
    /// Whether stacks show the numbers of Perl's evals.
    pub numbers_evals: bool,
    /// Whether Perl's values are traced.
    pub values: bool,
    /// Whether this process is the program that `heapprof record` started.
    pub is_program: bool,
    /// Whether this process runs under `heapprof record`, which makes the library catch signals
    /// that end the program.
    pub recorded: bool,
}

unsafe extern "C" {
    safe static environ: *const *const c_char;
}

// A variable of the loader: the address at which the kernel put the number of arguments, the
// arguments and the environment.
std::arch::global_asm!(
    ".weak __libc_stack_end",
    ".pushsection .data.rel.ro.heapprof_stack_end,\"aw\",@progbits",
    ".balign 8",
    ".globl heapprof_stack_end",
    ".hidden heapprof_stack_end",
    "heapprof_stack_end: .quad __libc_stack_end",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "heapprof_stack_end"]
    safe static STACK_END: Option<&'static *const usize>;
}

/// Returns the environment's variables: libc's list, or the list that the kernel passed if libc is
/// not initialized yet.
fn variables() -> *const *const c_char {
    if !environ.is_null() {
        return environ;
    }
    match STACK_END {
        // SAFETY: the loader keeps the address of the kernel's argument block, which stays.
        Some(&start) if !start.is_null() => unsafe { start.add(*start + 2).cast() },
        _ => std::ptr::null(),
    }
}

/// Whether the list of environment variables can be read already.
pub fn is_there() -> bool {
    !variables().is_null()
}

/// Returns the address of a variable's value, in the program's own memory, which is writable.
fn value_of(name: &str) -> Option<*mut u8> {
    let mut at = variables();
    loop {
        // SAFETY: the block is an array of strings that ends with null; the program does not change
        // it while the library starts.
        let variable = unsafe { at.as_ref() }.filter(|text| !text.is_null())?;
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(*variable) }.to_bytes();
        let value = text
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="));
        if let Some(value) = value {
            // SAFETY: the value lies inside the string, or at its end.
            return Some(unsafe { variable.cast_mut().add(text.len() - value.len()) }.cast());
        }
        // SAFETY: not at the end yet.
        at = unsafe { at.add(1) };
    }
}

/// Returns the value of a variable; `None` if it is missing or empty.
fn get(name: &str) -> Option<&'static [u8]> {
    // SAFETY: the value is the rest of a string that stays.
    let value = unsafe { CStr::from_ptr(value_of(name)?.cast()) }.to_bytes();
    (!value.is_empty()).then_some(value)
}

fn parse_variable<T>(name: &'static str, form: &SettingForm<T>) -> Result<Option<T>, SettingError> {
    setting::parse(name, get(name), form)
}

fn parse_answer(name: &'static str, default: bool) -> Result<bool, SettingError> {
    Ok(parse_variable(name, &setting::ANSWER)?.unwrap_or(default))
}

fn positive(bytes: Option<u64>) -> Option<u64> {
    bytes.filter(|&b| b > 0)
}

const SIGNAL_FORM: SettingForm<i32> = SettingForm {
    expected: "a signal number",
    read: |text| text.parse().ok().filter(|s| (1..=64).contains(s)),
};
/// Form of HEAPPROF_RECORD: the process ids of `record` and of the program. The second id is 0
/// until the program sets it.
const PROCESSES_FORM: SettingForm<(i32, i32)> = SettingForm {
    expected: "two process ids",
    read: |text| {
        let (record, program) = text.split_once(':')?;
        Some((record.parse().ok()?, program.parse().ok()?))
    },
};
const SECONDS_FORM: SettingForm<u64> = SettingForm {
    expected: "seconds",
    read: |text| text.parse().ok(),
};
/// Form of the setting for Perl's evals: true for `numbered`, false for `merged`.
const EVALS_FORM: SettingForm<bool> = SettingForm {
    expected: "merged or numbered",
    read: |text| match text {
        "merged" => Some(false),
        "numbered" => Some(true),
        _ => None,
    },
};
/// Form of the choice of allocators inside files.
const ALLOCATORS_FORM: SettingForm<AllocatorChoice> = SettingForm {
    expected: "auto, none or names of allocators",
    read: |text| AllocatorChoice::parse(text).ok(),
};
/// Form of a yes-or-no setting of gperftools, which looks only at the first letter.
const LETTER_FORM: SettingForm<bool> = SettingForm {
    expected: "1 or 0",
    read: |text| Some(text.starts_with(['t', 'T', 'y', 'Y', '1'])),
};

/// Settings from gperftools' variables. They apply however a recording is started.
#[derive(Clone, Copy)]
pub struct GperftoolsSetup {
    pub triggers: DumpTriggers,
    pub mmap: bool,
}

/// The settings from gperftools' variables. They are read only once, as in gperftools, because
/// another thread of the program may change the environment later.
static GPERFTOOLS: OnceLock<Result<GperftoolsSetup, SettingError>> = OnceLock::new();

/// Returns the settings from gperftools' variables at the start of the library, or gperftools'
/// defaults if the variables were not read.
pub fn gperftools() -> Result<GperftoolsSetup, SettingError> {
    let default = DumpTriggers {
        allocated: Some(1 << 30),
        peak_growth: Some(100 << 20),
        ..DumpTriggers::default()
    };
    GPERFTOOLS.get().copied().unwrap_or(Ok(GperftoolsSetup {
        triggers: default,
        mmap: false,
    }))
}

fn read_gperftools() -> Result<GperftoolsSetup, SettingError> {
    let size = |name, default: Option<u64>| {
        let asked = parse_variable(name, &setting::SIZE)?;
        Ok(positive(asked.or(default)))
    };
    let GperftoolsSetup { triggers, mmap } = gperftools()?;
    let seconds = parse_variable(variable::PREFIX_TIME.name, &SECONDS_FORM)?;
    Ok(GperftoolsSetup {
        triggers: DumpTriggers {
            interval: positive(seconds).map(Duration::from_secs),
            allocated: size(variable::PREFIX_ALLOCATED.name, triggers.allocated)?,
            freed: size(variable::PREFIX_FREED.name, triggers.freed)?,
            peak_growth: size(variable::PREFIX_PEAK.name, triggers.peak_growth)?,
            ..triggers
        },
        mmap: parse_variable(variable::PREFIX_MMAP.name, &LETTER_FORM)?.unwrap_or(mmap),
    })
}

/// Returns the current value of `PATH`: the folders in which programs are searched by name.
pub fn search_path() -> Option<&'static [u8]> {
    get("PATH")
}

/// Reports to `record`, if it follows children, why this process is not recorded.
pub fn report_unrecorded(why: &str) {
    if let Some(list) = list() {
        heapprof_engine::report_unrecorded(list, why);
    }
}

/// Reports to `record`, if it follows children, that this process is about to execute a program
/// that is not recorded, and why. If `lacks_library`, the program gets an environment without the
/// library.
pub fn report_becoming_unrecorded(why: &str, program: &[u8], lacks_library: bool) {
    let Some(list) = list() else {
        return;
    };
    let opened = heapprof_engine::open_list(list);
    let kept = || OPENED_LIST.get().and_then(KnownFile::get);
    if let Some(file) = opened.as_ref().or_else(kept) {
        heapprof_engine::report_becoming_unrecorded(file, why, program, lacks_library);
    }
}

/// Reports to `record`, if it follows children, an allocator that this process has hooked.
pub fn report_hooked_allocator(hooked: &HookedAllocator) {
    if let Some(list) = list() {
        heapprof_engine::report_hooked_allocator(list, hooked);
    }
}

/// The file in which this process reports to `record`, if it may leave the root folder that has it.
static OPENED_LIST: OnceLock<KnownFile> = OnceLock::new();

/// Keeps the file open in which this process reports to `record`, because its path may lead nowhere
/// later.
pub fn keep_list_open() {
    let file = list().and_then(heapprof_engine::open_list);
    if let Some(file) = file.and_then(KnownFile::new) {
        let _ = OPENED_LIST.set(file);
    }
}

/// Returns the current value of `LD_PRELOAD`.
pub fn preloaded() -> Option<&'static [u8]> {
    get("LD_PRELOAD")
}

/// Returns the address of the program's current list of variables.
pub fn address() -> usize {
    variables() as usize
}

/// Returns the path of the ledger keeper's socket; `None` without `record`.
pub fn keeper() -> Option<&'static [u8]> {
    get(variable::KEEP.name)
}

/// Returns the folder in which `record` collects reports of its processes; `None` without `record`,
/// or if children are not followed.
fn list() -> Option<&'static [u8]> {
    let follows = parse_variable(variable::FOLLOW.name, &setting::ANSWER);
    get(variable::LIST.name).filter(|_| !matches!(follows, Ok(Some(false))))
}

/// Returns the wiretap's address, and the path of its key file; `None` if there is no wiretap.
pub fn wiretap() -> Option<(&'static [u8], Option<&'static [u8]>)> {
    let address = get(variable::WIRETAP.name)?;
    Some((address, get(variable::WIRETAP_KEY_FILE.name)))
}

/// Returns the socket address of the `heapprof watch` that runs this program, if there is one.
pub fn watch() -> Option<&'static [u8]> {
    get(variable::WATCH.name)
}

/// Returns the name of an environment variable of the wiretap, for an error message: the variable
/// for the key file if `is_of_key`, else the variable for the address.
pub fn wrong_wiretap(is_of_key: bool) -> &'static str {
    match is_of_key {
        true => variable::WIRETAP_KEY_FILE.name,
        false => variable::WIRETAP.name,
    }
}

/// Whether Python's small objects are recorded; `None` if no variable sets this.
pub fn python_objects() -> Result<Option<bool>, SettingError> {
    // Python counts no objects for that variable when its allocators are wrapped.
    if get("PYTHONMALLOCSTATS").is_some() {
        return Ok(Some(false));
    }
    parse_variable(variable::PYTHON_OBJECTS.name, &setting::ANSWER)
}

/// Whether the environment makes Python take all objects from malloc.
pub fn python_has_malloc() -> bool {
    get("PYTHONMALLOC").is_some_and(|name| name.starts_with(b"malloc"))
}

/// Reads the environment; `None` if it requests nothing.
pub fn read() -> Result<Option<EnvironmentRequest>, SettingError> {
    let _ = GPERFTOOLS.set(read_gperftools());
    let mut options = RecordingOptions::default();
    let mut mmap = false;
    let mut found_signal = parse_variable(variable::SIGNAL.name, &SIGNAL_FORM)?;
    let mut recorded = false;
    if let Some(pattern) = get(variable::OUTPUT.name) {
        options.output.pattern = pattern.to_vec();
        let processes = parse_variable(variable::RECORD.name, &PROCESSES_FORM)?;
        recorded = processes.is_some();
        options.output.parent = processes.map(parent_of_program);
        options.output.children =
            get(variable::CHILDREN.name).map_or_else(Vec::new, expand_program_id);
        options.output.list = get(variable::LIST.name).unwrap_or_default().to_vec();
        let least = parse_variable(variable::LEAST.name, &setting::SIZE)?;
        options.output.min_child_bytes = least.unwrap_or(0);
        if let Some(path) = get(variable::KEEP.name) {
            options.output.recipient = LedgerRecipient::Socket(path.to_vec());
        }
        options.output.waits_at_end = parse_answer(variable::LAST_READING.name, false)?;
        if let Some(path) = get(variable::FORK_AUDIT.name) {
            options.output.audit = path.to_vec();
        }
        let lines = parse_variable(variable::LINES.name, &setting::SIZE)?;
        let is_reported = |bytes: &u64| *bytes > 0 && !options.output.list.is_empty();
        options.triggers.line_growth = lines.filter(is_reported);
        let live = parse_answer(variable::LIVE.name, false)?;
        options.triggers.live = live && !options.output.list.is_empty();
        let is_program = options.output.parent.is_some_and(|parent| parent > 0);
        options.logs = parse_answer(variable::LOG.name, false)? && is_program;
    } else if get(variable::PREFIX.name).is_some() {
        let setup = gperftools()?;
        options = from_prefix(setup.triggers)?;
        mmap = setup.mmap;
        if found_signal.is_none() {
            found_signal = parse_variable(variable::PREFIX_SIGNAL.name, &SIGNAL_FORM)?;
        }
    } else if parse_answer(variable::START.name, true)? {
        return Ok(None);
    }
    // Without an output, the program starts a recording itself.
    // The program may be in another folder when it starts a recording again by itself.
    options.output.folder = Some(heapprof_engine::working_folder());
    // `follow` reads whether children are followed: that variable gets a mark that children see,
    // too.
    setting::apply_variables(
        |name| get(name).filter(|_| name != variable::FOLLOW.name),
        &mut options,
    )?;
    options.follow_children = follow(&mut options.output)?;
    Ok(Some(EnvironmentRequest {
        start: parse_answer(variable::START.name, true)?,
        signal: found_signal,
        mmap: parse_answer(variable::MMAP.name, mmap)?,
        allocators: parse_variable(variable::ALLOCATORS.name, &ALLOCATORS_FORM)?
            .unwrap_or(AllocatorChoice::ALL),
        verbose: parse_answer(variable::VERBOSE.name, false)?,
        numbers_evals: parse_variable(variable::PERL_EVALS.name, &EVALS_FORM)?.unwrap_or(false),
        values: parse_answer(variable::PERL_VALUES.name, false)?,
        is_program: options.output.parent.is_some_and(|parent| parent > 0),
        recorded,
        options,
    }))
}

/// Whether a variable was inherited from a recorded process. Also marks the variable, so that
/// children of this process see that they are not the first process. As in gperftools, the mark is
/// the upper bit of the value's first character.
fn mark_inherited(name: &str) -> bool {
    let Some(first) = value_of(name) else {
        return false;
    };
    // SAFETY: this is the program's environment, which is writable, and no code has a reference to
    // it. The zero at the end of an empty string is left alone.
    unsafe {
        let byte = first.read();
        if byte != 0 {
            first.write(byte | 0x80);
        }
        byte & 0x80 != 0
    }
}

/// Returns the id for [`DumpOutput::parent`] under `record`: the parent's id if this process is the
/// program that `record` started, otherwise an id that no process has. The first process that calls
/// this function is the program, also after an exec. The parent's id alone would not identify the
/// program, because an orphan may have the same parent.
fn parent_of_program((record, program): (i32, i32)) -> i32 {
    const NO_PARENT: i32 = -1;
    let own = heapprof_platform::sys::process_id();
    let parent = heapprof_platform::sys::parent_id();
    if program == 0 && parent == record {
        set_program_id(own);
        return parent;
    }
    if program == own { parent } else { NO_PARENT }
}

/// Returns the pattern with `%r` replaced by the id of the program that `record` started.
fn expand_program_id(pattern: &[u8]) -> Vec<u8> {
    let id = get(variable::RECORD.name).and_then(|value| value.rsplit(|&b| b == b':').next());
    let id = id.unwrap_or_default();
    let digits = id.iter().position(|&b| b != b'0').unwrap_or(id.len());
    let mut made = Vec::with_capacity(pattern.len() + id.len());
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'%', Some(b'r')) => made.extend_from_slice(&id[digits..]),
            (b'%', Some(&other)) => made.extend_from_slice(&[b'%', other]),
            _ => {
                made.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    made
}

/// Stores this process's id in the environment, for the processes that this process starts.
fn set_program_id(own: i32) {
    let digits = format!("{own:010}");
    let length = get(variable::RECORD.name).map_or(0, <[u8]>::len);
    let Some(at) = length.checked_sub(digits.len()) else {
        return;
    };
    if let Some(value) = value_of(variable::RECORD.name) {
        // SAFETY: this is the program's environment, which is writable, and no code has a reference
        // to it. The value keeps its length.
        unsafe {
            value
                .add(at)
                .copy_from_nonoverlapping(digits.as_ptr(), digits.len())
        };
    }
}

/// Whether children are recorded. If they are not, stores in `output` whether this process is the
/// first one.
fn follow(output: &mut DumpOutput) -> Result<bool, SettingError> {
    if get(variable::FOLLOW.name).is_some_and(|value| value[0] & 0x80 != 0) {
        return Ok(false);
    }
    let follow = parse_answer(variable::FOLLOW.name, true)?;
    // `record` and a gperftools setup show it by other means.
    if !follow
        && output.parent.is_none()
        && !output.numbered_prefix
        && !mark_inherited(variable::FOLLOW.name)
    {
        output.parent = Some(heapprof_platform::sys::parent_id());
    }
    Ok(follow)
}

/// Returns the options for a recording that gperftools' variables start. It records every
/// allocation, and writes files in gperftools' text format, whose prefix is in the environment.
fn from_prefix(triggers: DumpTriggers) -> Result<RecordingOptions, SettingError> {
    let answer = |name, default| Ok(parse_variable(name, &LETTER_FORM)?.unwrap_or(default));
    let (always_id, removes_earlier) = (
        answer(variable::PREFIX_USES_PID.name, false)?,
        answer(variable::PREFIX_CLEANUP.name, true)?,
    );
    let is_child = mark_inherited(variable::PREFIX.name);
    let mut pattern = get(variable::PREFIX.name).unwrap_or_default().to_vec();
    pattern[0] &= 0x7f;
    Ok(RecordingOptions {
        mode: RecordingMode::Exact,
        format: DumpFormat::Text,
        triggers,
        output: DumpOutput {
            pattern,
            numbered_prefix: true,
            always_id,
            removes_earlier,
            parent: (!is_child).then(heapprof_platform::sys::parent_id),
            ..DumpOutput::default()
        },
        ..RecordingOptions::default()
    })
}

#[cfg(test)]
#[path = "environment/tests.rs"]
mod tests;
