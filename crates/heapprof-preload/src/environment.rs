//! From environment variables to options.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use heapprof_collect::{Format, Mode, Options, Output, Triggers};

/// What the environment asks for.
pub struct Asked {
    pub options: Options,
    pub start: bool,
    pub signal: Option<i32>,
    pub mmap: bool,
    pub verbose: bool,
    /// Under `heapprof record`: ends by signals are caught.
    pub recorded: bool,
}

/// A variable with a value that is not understood.
pub struct Misunderstood {
    pub name: &'static CStr,
    pub expected: &'static str,
}

unsafe extern "C" {
    safe static environ: *const *const c_char;
}

// The loader's: where the kernel put the number of arguments, the arguments and the environment.
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

/// The environment's variables: libc's, or before libc has set itself up what the kernel passed.
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

/// Whether the environment can be read yet.
pub fn is_there() -> bool {
    !variables().is_null()
}

fn get(name: &CStr) -> Option<&'static [u8]> {
    let mut at = variables();
    loop {
        // SAFETY: the block is an array of strings that ends with null; the program does not change it while the
        // library starts.
        let variable = unsafe { at.as_ref()?.as_ref() }?;
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let value = text
            .strip_prefix(name.to_bytes())
            .and_then(|rest| rest.strip_prefix(b"="));
        if let Some(value) = value {
            return (!value.is_empty()).then_some(value);
        }
        // SAFETY: not at the end yet.
        at = unsafe { at.add(1) };
    }
}

fn parsed<T>(
    name: &'static CStr,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Misunderstood> {
    let Some(value) = get(name) else {
        return Ok(None);
    };
    let value = std::str::from_utf8(value)
        .ok()
        .map(str::trim)
        .and_then(parse);
    value.map(Some).ok_or(Misunderstood { name, expected })
}

fn yes(name: &'static CStr, default: bool) -> Result<bool, Misunderstood> {
    let answer = |text: &str| match text {
        "yes" | "1" | "true" | "on" => Some(true),
        "no" | "0" | "false" | "off" => Some(false),
        _ => None,
    };
    Ok(parsed(name, "yes or no", answer)?.unwrap_or(default))
}

/// Bytes with a unit: `512KiB`, `1m`, `4096`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Time with a unit: `500ms`, `10s`, `2m`, `30`.
fn time(text: &str) -> Option<Duration> {
    let digits = text.len()
        - text
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
            .len();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * seconds;
    (0.001..1e9)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

fn positive(bytes: Option<u64>) -> Option<u64> {
    bytes.filter(|&b| b > 0)
}

const BYTES: &str = "a size such as 1048576 or 1MiB";
const TIME: &str = "a time such as 10, 500ms or 2m";
const SIGNAL: &str = "a signal number";

fn signal(text: &str) -> Option<i32> {
    text.parse().ok().filter(|s| (1..=64).contains(s))
}

/// Reads the environment; `None` when it asks for nothing.
pub fn read() -> Result<Option<Asked>, Misunderstood> {
    let mut options = Options::default();
    let mut found_signal = parsed(c"HEAPPROF_SIGNAL", SIGNAL, signal)?;
    let mut recorded = false;
    if let Some(pattern) = get(c"HEAPPROF_OUTPUT") {
        options.output.pattern = pattern.to_vec();
        options.output.parent = parsed(c"HEAPPROF_RECORD", "a process id", |t| t.parse().ok())?;
        recorded = options.output.parent.is_some();
        options.output.list = get(c"HEAPPROF_LIST").unwrap_or_default().to_vec();
    } else if let Some(prefix) = get(c"HEAPPROFILE") {
        options = gperftools(prefix)?;
        if found_signal.is_none() {
            found_signal = parsed(c"HEAPPROFILESIGNAL", SIGNAL, signal)?;
        }
    } else {
        return Ok(None);
    }
    let mode = |text: &str| match text {
        "sampled" => Some(Mode::Sampled),
        "exact" => Some(Mode::Exact),
        _ => None,
    };
    if let Some(mode) = parsed(c"HEAPPROF_MODE", "sampled or exact", mode)? {
        options.mode = mode;
    }
    let format = |text: &str| match text {
        "pprof" => Some(Format::Pprof),
        "text" => Some(Format::Text),
        _ => None,
    };
    if let Some(format) = parsed(c"HEAPPROF_FORMAT", "pprof or text", format)? {
        options.format = format;
    }
    let period = |text: &str| bytes(text).filter(|&b| (2..=1 << 40).contains(&b));
    if let Some(period) = parsed(
        c"HEAPPROF_PERIOD",
        "a size from 2 bytes to 1 TiB, such as 512KiB",
        period,
    )? {
        options.period = period;
    }
    let triggers = &mut options.triggers;
    triggers.interval = parsed(c"HEAPPROF_INTERVAL", TIME, time)?.or(triggers.interval);
    triggers.growth = positive(parsed(c"HEAPPROF_GROWTH", BYTES, bytes)?);
    triggers.peak = yes(c"HEAPPROF_PEAK", false)?;
    options.follow_children = follow(&mut options.output)?;
    Ok(Some(Asked {
        start: yes(c"HEAPPROF_START", true)?,
        signal: found_signal,
        mmap: yes(c"HEAPPROF_MMAP", false)?,
        verbose: yes(c"HEAPPROF_VERBOSE", false)?,
        recorded,
        options,
    }))
}

/// Whether a recorded process handed `value` on to this one. As gperftools does: the first character's upper bit
/// tells children that they are not the first process.
fn inherited(value: &'static [u8]) -> bool {
    let marked = value[0] & 0x80 != 0;
    if !marked {
        // SAFETY: the string is the program's environment, which is writable; only its first byte changes.
        unsafe { value.as_ptr().cast_mut().write(value[0] | 0x80) };
    }
    marked
}

/// Whether children are recorded. Where they are not, the output learns whether this is the first process.
fn follow(output: &mut Output) -> Result<bool, Misunderstood> {
    const NAME: &CStr = c"HEAPPROF_FOLLOW";
    let Some(value) = get(NAME) else {
        return Ok(true);
    };
    if value[0] & 0x80 != 0 {
        return Ok(false);
    }
    let follow = yes(NAME, true)?;
    // `record` and a gperftools setup tell it by other means.
    if !follow && output.parent.is_none() && !output.numbered_prefix && !inherited(value) {
        output.parent = Some(heapprof_collect::sys::parent_id());
    }
    Ok(follow)
}

/// gperftools' setup: every allocation, its intervals, its text.
fn gperftools(prefix: &'static [u8]) -> Result<Options, Misunderstood> {
    let size = |name, default: u64| {
        Ok(positive(Some(
            parsed(name, BYTES, bytes)?.unwrap_or(default),
        )))
    };
    let seconds = parsed(c"HEAP_PROFILE_TIME_INTERVAL", "seconds", |t| {
        t.parse::<u64>().ok()
    })?;
    let is_child = inherited(prefix);
    let mut pattern = prefix.to_vec();
    pattern[0] &= 0x7f;
    Ok(Options {
        mode: Mode::Exact,
        format: Format::Text,
        triggers: Triggers {
            interval: positive(seconds).map(Duration::from_secs),
            allocated: size(c"HEAP_PROFILE_ALLOCATION_INTERVAL", 1 << 30)?,
            freed: size(c"HEAP_PROFILE_DEALLOCATION_INTERVAL", 0)?,
            peak_growth: size(c"HEAP_PROFILE_INUSE_INTERVAL", 100 << 20)?,
            ..Triggers::default()
        },
        output: Output {
            pattern,
            numbered_prefix: true,
            parent: (!is_child).then(heapprof_collect::sys::parent_id),
            ..Output::default()
        },
        ..Options::default()
    })
}
