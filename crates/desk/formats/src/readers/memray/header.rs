//! Reads the header of a memray capture: the format version, the process, and the options.

use crate::bytes::BinaryReader;
use crate::error::FormatError;

/// First bytes of every capture.
pub(super) const MAGIC: &[u8] = b"memray\0";

/// Oldest version of the layout that can be read. The next constant is the newest version.
const OLDEST_VERSION: u32 = 10;
const NEWEST_VERSION: u32 = 13;
/// First version that describes each code object once. Its frames refer to a code object and an
/// offset in it.
const FIRST_VERSION_WITH_CODE: u32 = 12;

/// Maximum number of bytes of a command line, or of a path.
const MAX_TEXT_BYTES: usize = 1 << 20;

pub(super) struct MemrayHeader {
    pub(super) version: u32,
    /// Version of Python that memray was built for, in the form of `PY_VERSION_HEX`. It is 0 if the
    /// file does not contain it.
    pub(super) python: u32,
    /// Whether stacks of native code were recorded as well.
    pub(super) is_native: bool,
    /// Whether the file has sums instead of events.
    pub(super) is_aggregated: bool,
    /// Start of the recording in milliseconds since 1970. The next field is the end in the same
    /// unit, or 0 if the program did not record its end.
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) command: String,
    pub(super) pid: u32,
    /// The thread that began the recording. The next field is the number of this thread's outermost
    /// frames that belong to memray.
    pub(super) main_thread: u64,
    pub(super) skipped: u64,
    pub(super) allocator: &'static str,
    /// Whether blocks of Python's own allocator were recorded; `None` if the file does not state
    /// it.
    pub(super) has_python_blocks: Option<bool>,
}

impl MemrayHeader {
    pub(super) fn read(bytes: &mut BinaryReader<'_>) -> Result<Self, FormatError> {
        const EXPECTED_HEADER: &str = "the header of a memray capture";
        for &expected in MAGIC {
            let found = bytes.byte(EXPECTED_HEADER)?;
            if found != expected {
                return Err(bytes.wrong(EXPECTED_HEADER, "something else"));
            }
        }
        let version = bytes.u32(EXPECTED_HEADER)?;
        if !(OLDEST_VERSION..=NEWEST_VERSION).contains(&version) {
            return Err(FormatError::Version(format!(
                "is a memray capture of version {version}, but heapprof reads versions \
                 {OLDEST_VERSION} to {NEWEST_VERSION}, of memray 1.7 to 1.20; the memray that \
                 wrote it reads it: memray stats FILE"
            )));
        }
        let python = match version {
            FIRST_VERSION_WITH_CODE.. => bytes.u32(EXPECTED_HEADER)?,
            _ => 0,
        };
        let is_native = flag(bytes)?;
        let is_aggregated = flag(bytes)?;
        let (_allocations, _frames) = (bytes.u64(EXPECTED_HEADER)?, bytes.u64(EXPECTED_HEADER)?);
        let start = bytes.u64(EXPECTED_HEADER)?;
        let end = bytes.u64(EXPECTED_HEADER)?;
        let milliseconds = |number: u64| i64::try_from(number).unwrap_or(0);
        let command = text(bytes, "the command line")?;
        let pid = bytes.u32(EXPECTED_HEADER)?;
        let main_thread = bytes.u64(EXPECTED_HEADER)?;
        let skipped = bytes.u64(EXPECTED_HEADER)?;
        let allocator = match bytes.byte(EXPECTED_HEADER)? {
            1 => "pymalloc",
            2 => "pymalloc with debug hooks",
            3 => "malloc",
            5 => "mimalloc",
            6 => "mimalloc with debug hooks",
            _ => "another one",
        };
        let has_python_blocks = match version {
            11.. => Some(flag(bytes)?),
            _ => None,
        };
        if version >= FIRST_VERSION_WITH_CODE {
            // This flag says whether objects of Python were tracked, too.
            flag(bytes)?;
        }
        if version >= 13 {
            search_paths(bytes)?;
        }
        Ok(Self {
            version,
            python,
            is_native,
            is_aggregated,
            start: milliseconds(start),
            end: milliseconds(end),
            command: String::from_utf8_lossy(&command).into_owned(),
            pid,
            main_thread,
            skipped,
            allocator,
            has_python_blocks,
        })
    }

    /// Whether the file describes each code object once, so that frames refer to a code object and
    /// an offset in it.
    pub(super) fn has_code(&self) -> bool {
        self.version >= FIRST_VERSION_WITH_CODE
    }

    /// Returns Python's version for people, e.g. `3.11`. The third number is left out, because the
    /// program's Python may differ in it from the Python that memray was built for.
    pub(super) fn python(&self) -> Option<String> {
        let [major, minor, _micro, _level] = self.python.to_be_bytes();
        (major != 0).then(|| format!("{major}.{minor}"))
    }
}

/// Reads a byte that is 0 or 1.
fn flag(bytes: &mut BinaryReader<'_>) -> Result<bool, FormatError> {
    const EXPECTED_FLAG: &str = "a flag of the header, 0 or 1";
    match bytes.byte(EXPECTED_FLAG)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(bytes.wrong(EXPECTED_FLAG, other)),
    }
}

fn text(bytes: &mut BinaryReader<'_>, what: &str) -> Result<Vec<u8>, FormatError> {
    bytes.until(b'\0', MAX_TEXT_BYTES, what)
}

/// Skips the path of Python's library folder and the two lists of search paths. An empty path ends
/// a list.
fn search_paths(bytes: &mut BinaryReader<'_>) -> Result<(), FormatError> {
    text(bytes, "the folder of Python's library")?;
    for _ in 0..2 {
        while !text(bytes, "a search path, or the end of the list")?.is_empty() {}
    }
    Ok(())
}
