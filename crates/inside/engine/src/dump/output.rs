//! Chooses the names of dumps, and writes dumps so that a reader never sees an incomplete file.

mod place;

use std::ffi::{CStr, CString};
use std::io::{BufWriter, Write};

use heapprof_platform::sys::{self, EngineFile, WaitTimeout};
use heapprof_profile::HookedAllocator;

use crate::options::{DumpFormat, DumpOutput, RecordingOptions};
use crate::reason::DumpReason;
pub(crate) use place::DumpFileIdentity;
use place::DumpPlace;

impl DumpOutput {
    /// Replaces a pattern that names a folder by a pattern for files with default names in this
    /// folder.
    pub(crate) fn use_folder_names(&mut self) {
        if self.numbered_prefix || self.pattern.is_empty() {
            return;
        }
        let is_folder =
            |path: &CString| EngineFile::open(path, libc::O_PATH | libc::O_DIRECTORY, 0).is_ok();
        if CString::new(&*self.pattern).is_ok_and(|p| is_folder(&p)) {
            let folder = std::mem::take(&mut self.pattern);
            for byte in folder {
                // This is the folder's real name, so its percent signs stand for themselves.
                self.pattern.extend((byte == b'%').then_some(b'%'));
                self.pattern.push(byte);
            }
        } else if !self.pattern.ends_with(b"/") {
            return;
        }
        self.pattern.extend_from_slice(b"/heapprof.%e.%p.pb.gz");
    }
}

/// The state from which a process makes the names of its dumps.
pub(crate) struct DumpNaming {
    /// Whether this is the process for which the recording was started, and not a forked child.
    is_main: bool,
    program: Vec<u8>,
    folder: Vec<u8>,
    /// Number of dumps so far.
    count: u32,
    /// The path and identity of a dump that was made for an exec. If another dump follows, the exec
    /// has failed, and this file is removed.
    exec: Option<(CString, Option<DumpFileIdentity>)>,
}

impl DumpNaming {
    pub(crate) const fn new() -> Self {
        Self {
            is_main: false,
            program: Vec::new(),
            folder: Vec::new(),
            count: 0,
            exec: None,
        }
    }

    /// Stores the program's name, the working folder, and whether this is the main process. This is
    /// called at the start, before the program changes these facts.
    pub(crate) fn prepare(&mut self, output: &DumpOutput, format: DumpFormat, program: &[u8]) {
        self.is_main = output
            .parent
            .is_some_and(|parent| parent == sys::parent_id());
        self.program = program.to_vec();
        self.folder = output.folder.clone().unwrap_or_else(working_folder);
        // gperftools goes on counting when a program starts again.
        if !output.numbered_prefix {
            self.count = 0;
        }
        // Files that this run itself has written stay.
        if output.removes_earlier && self.is_main && self.count == 0 {
            self.remove_earlier(output, format);
        }
    }

    /// Removes the numbered files that an earlier run left, up to the first number that is missing.
    fn remove_earlier(&self, output: &DumpOutput, format: DumpFormat) {
        for number in 1.. {
            let place = DumpPlace::from_path(&self.numbered_name(output, format, number), false);
            if !place.is_ok_and(|place| place.remove()) {
                break;
            }
        }
    }

    /// Returns the folder to which a relative `pattern` refers; an empty path for an absolute
    /// pattern.
    fn start(&self, pattern: &[u8]) -> Vec<u8> {
        if pattern.starts_with(b"/") {
            Vec::new()
        } else {
            [&self.folder, &b"/"[..]].concat()
        }
    }

    /// Returns the path of dump number `number`, named as gperftools names dumps.
    fn numbered_name(&self, output: &DumpOutput, format: DumpFormat, number: u32) -> Vec<u8> {
        let mut path = self.start(&output.pattern);
        path.extend_from_slice(&output.pattern);
        if output.always_id || !self.is_main {
            path.extend_from_slice(format!("_{}", sys::process_id()).as_bytes());
        }
        path.extend_from_slice(format!(".{number:04}").as_bytes());
        path.extend_from_slice(if format == DumpFormat::Text {
            b".heap"
        } else {
            b".pb.gz"
        });
        path
    }

    /// Whether this is the process for which the recording was started, and not a forked child.
    pub(crate) fn is_main(&self) -> bool {
        self.is_main
    }

    /// Resets the state in a forked child, which is not the main process.
    pub(crate) fn reset_in_child(&mut self) {
        (self.is_main, self.count, self.exec) = (false, 0, None);
    }

    /// Returns the path of the next dump; `None` if the recording writes no dumps.
    pub(crate) fn next_path(
        &mut self,
        output: &DumpOutput,
        format: DumpFormat,
        reason: DumpReason,
    ) -> Option<CString> {
        if let Some((failed, file)) = self.exec.take() {
            if let (Some(file), Ok(place)) = (file, DumpPlace::from_path(failed.to_bytes(), false))
            {
                place.remove_only(file);
            }
            self.count = self.count.saturating_sub(1);
        }
        if output.pattern.is_empty() {
            return None;
        }
        self.count += 1;
        let mut path;
        if output.numbered_prefix {
            path = self.numbered_name(output, format, self.count);
        } else {
            let is_child = !self.is_main && !output.children.is_empty();
            let pattern = match is_child {
                true => &output.children,
                false => &output.pattern,
            };
            path = self.start(pattern);
            let (patterned, numbered) = self.expand(pattern, &mut path);
            let plain_name = self.is_main && reason != DumpReason::Exec;
            if !patterned && !plain_name {
                insert_part(&mut path, &sys::process_id().to_string());
            }
            if !numbered && !reason.is_last() {
                insert_part(&mut path, &format!("{:04}", self.count));
            } else if !numbered && reason == DumpReason::Exec
                || ((!self.is_main || patterned) && exists(&path))
            {
                // An earlier image of this process may have had the name.
                let plain = path.clone();
                for n in 1.. {
                    path.clone_from(&plain);
                    insert_part(&mut path, &n.to_string());
                    if !exists(&path) {
                        break;
                    }
                }
            }
        }
        let path = CString::new(path).ok()?;
        if reason == DumpReason::Exec {
            self.exec = Some((path.clone(), None));
        }
        Some(path)
    }

    /// Records which file was written for an exec. It is removed again if the exec fails.
    pub(crate) fn note_exec_file(&mut self, file: Option<DumpFileIdentity>) {
        if let Some(exec) = &mut self.exec {
            exec.1 = file;
        }
    }

    /// Appends `pattern` to `path`, with its `%p`, `%e`, `%n` and `%%` replaced. Returns two
    /// values: whether the pattern has `%p`, `%e` or `%n`, and whether it has `%n`. A percent sign
    /// before any other character stands for itself.
    fn expand(&self, pattern: &[u8], path: &mut Vec<u8>) -> (bool, bool) {
        let (mut patterned, mut numbered, mut bytes) = (false, false, pattern.iter());
        while let Some(&byte) = bytes.next() {
            if byte != b'%' {
                path.push(byte);
                continue;
            }
            let letter = bytes.next();
            patterned |= matches!(letter, Some(b'p' | b'e' | b'n'));
            match letter {
                Some(b'p') => path.extend_from_slice(sys::process_id().to_string().as_bytes()),
                Some(b'e') => path.extend_from_slice(&self.program),
                Some(b'n') => {
                    numbered = true;
                    path.extend_from_slice(format!("{:04}", self.count).as_bytes());
                }
                Some(b'%') | None => path.push(b'%'),
                Some(&other) => path.extend_from_slice(&[b'%', other]),
            }
        }
        (patterned, numbered)
    }
}

/// Inserts a dot and `part` before the extension of a file name.
fn insert_part(path: &mut Vec<u8>, part: &str) {
    let end = [&b".pb.gz"[..], b".heap"]
        .into_iter()
        .find(|e| path.ends_with(e))
        .map_or(0, <[u8]>::len);
    let at = path.len() - end;
    path.splice(at..at, [b".", part.as_bytes()].concat());
}

fn exists(path: &[u8]) -> bool {
    CString::new(path)
        .is_ok_and(|path| EngineFile::open(&path, libc::O_RDONLY | libc::O_PATH, 0).is_ok())
}

/// Returns the path of the process's working folder.
pub fn working_folder() -> Vec<u8> {
    let mut buf = [0u8; 4096];
    match sys::read_link(c"/proc/thread-self/cwd", &mut buf) {
        // There is no /proc.
        [] => sys::working_folder(&mut buf).to_vec(),
        path => path.to_vec(),
    }
}

/// Writes a file under a temporary name in its folder, and renames it when it is complete. Returns
/// the file's identity if it is a plain file. The error is an errno.
pub(crate) fn write(
    path: &CStr,
    options: &RecordingOptions,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<Option<DumpFileIdentity>, i32> {
    let is_of_child = options.output.is_of_child(path.to_bytes());
    let place = DumpPlace::from_path(path.to_bytes(), is_of_child)?;
    if let Some(file) = place.open_special()? {
        return fill_up(file, fill).map(|()| None);
    }
    let mut draft = place.draft(options.file_mode)?;
    if let Some(file) = draft.file.take() {
        fill_up(file, fill)?;
    }
    draft.finish()
}

impl DumpOutput {
    /// Whether a path is in the folder for the dumps of child processes.
    fn is_of_child(&self, path: &[u8]) -> bool {
        let folder = |path: &[u8]| path.iter().rposition(|&b| b == b'/');
        let Some(end) = folder(&self.children) else {
            return false;
        };
        let mut children = Vec::new();
        // In the name of that folder, only `%%` stands for something else.
        DumpNaming::new().expand(&self.children[..end], &mut children);
        folder(path).is_some_and(|end| path[..end] == children)
    }
}

/// A file for a dump. After the first failure, nothing more is written to it: compressors try to
/// write again when they are dropped, and each write to a pipe may wait long. All writes together
/// have one time limit, so that a reader that takes a little now and then can't delay the program
/// for longer.
struct DumpWriter {
    file: EngineFile,
    patience: WaitTimeout,
    failed: Option<i32>,
}

impl Write for DumpWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.failed.is_none() {
            self.failed = self
                .file
                .write_with_timeout(bytes, &mut self.patience)
                .err();
        }
        let failed = self.failed.map(std::io::Error::from_raw_os_error);
        failed.map_or(Ok(bytes.len()), Err)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lets `fill` write to a file, and closes the file.
fn fill_up(
    file: EngineFile,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), i32> {
    let target = DumpWriter {
        file,
        patience: WaitTimeout::new(),
        failed: None,
    };
    let mut file = BufWriter::with_capacity(64 << 10, target);
    let filled = fill(&mut file).and_then(|()| file.flush());
    // After a failure, the rest of the buffer must not be written.
    let (file, _) = file.into_parts();
    drop(file);
    filled.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
}

/// Adds an entry to the list of dumps, if there is a list. The entry ends with a NUL, because paths
/// may hold any other byte. The list is a folder with a file for each user, so that it is certain
/// which user has written an entry.
pub(crate) fn add_to_list(list: &[u8], entry: &CStr) {
    if let Some(file) = open_list(list) {
        let _ = file.write_all(entry.to_bytes_with_nul());
    }
}

/// Opens the file of this user in the list of dumps, if there is a list.
pub fn open_list(list: &[u8]) -> Option<EngineFile> {
    open_own_file(list, "")
}

/// Adds an entry to a recording's list that explains why this process is not recorded.
pub fn report_unrecorded(list: &[u8], why: &str) {
    let program = sys::executed_path().map_or(&b""[..], |path| path.to_bytes());
    if let Some(file) = open_list(list) {
        report_program(&file, '?', why, program);
    }
}

/// Adds an entry to a recording's list that explains why this process will not be recorded any
/// more. The process is about to execute `program`. `list` is this user's file in the list. If
/// `lacks_library`, the program gets an environment without the library.
pub fn report_becoming_unrecorded(
    list: &EngineFile,
    why: &str,
    program: &[u8],
    lacks_library: bool,
) {
    report_program(list, if lacks_library { '=' } else { '>' }, why, program);
}

/// Adds an entry to a recording's list about an allocator that this process has hooked.
pub fn report_hooked_allocator(list: &[u8], hooked: &HookedAllocator) {
    let entry = format!("+{} {}", sys::process_id(), hooked.to_comment());
    if let Some(file) = open_list(list)
        && let Ok(entry) = CString::new(entry)
    {
        let _ = file.write_all(entry.to_bytes_with_nul());
    }
}

fn report_program(list: &EngineFile, what: char, why: &str, program: &[u8]) {
    let mut entry = format!("{what}{} {why}\n", sys::process_id()).into_bytes();
    entry.extend_from_slice(program);
    if let Ok(entry) = CString::new(entry) {
        let _ = list.write_all(entry.to_bytes_with_nul());
    }
}

fn open_own_file(list: &[u8], ending: &str) -> Option<EngineFile> {
    if list.is_empty() {
        return None;
    }
    place::open_own(&CString::new(list).ok()?, ending)
}

/// Largest size of a file of reports, in bytes. The size is limited because there may be no process
/// any more that reads the reports.
const MAX_LINES_BYTES: i64 = 256 << 20;

/// Opens the file for reports about stacks that have grown; `None` if there is no such file, or if
/// it is full.
pub(crate) fn open_lines(list: &[u8]) -> Option<EngineFile> {
    open_report(list, ".lines")
}

/// Opens the file for profiles that `record --live` requests; `None` if there is no such file, or
/// if it is full.
pub(crate) fn open_live(list: &[u8]) -> Option<EngineFile> {
    open_report(list, ".live")
}

fn open_report(list: &[u8], ending: &str) -> Option<EngineFile> {
    let file = open_own_file(list, ending)?;
    // The reader gives back the blocks that it has read, so the file's length says nothing.
    let taken = file.stat()?.st_blocks.saturating_mul(512);
    (taken < MAX_LINES_BYTES).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_pattern() {
        let pid = sys::process_id();
        let next = |naming: &mut DumpNaming, pattern: &str, reason| {
            let output = DumpOutput {
                pattern: pattern.into(),
                ..DumpOutput::default()
            };
            naming
                .next_path(&output, DumpFormat::Pprof, reason)
                .unwrap()
                .into_string()
                .unwrap()
        };
        let mut naming = DumpNaming {
            is_main: true,
            program: b"app".to_vec(),
            ..DumpNaming::new()
        };
        assert_eq!(
            next(&mut naming, "/no/a.pb.gz", DumpReason::Interval),
            "/no/a.0001.pb.gz"
        );
        assert_eq!(
            next(&mut naming, "/no/a.pb.gz", DumpReason::Exit),
            "/no/a.pb.gz"
        );
        assert_eq!(
            next(&mut naming, "/no/a.pb.gz", DumpReason::Exec),
            format!("/no/a.{pid}.1.pb.gz")
        );
        assert_eq!(
            next(&mut naming, "/no/%e.%p.%n.pb.gz", DumpReason::Exit),
            format!("/no/app.{pid}.0003.pb.gz")
        );
        naming.reset_in_child();
        let children = DumpOutput {
            pattern: b"/no/a.pb.gz".into(),
            children: b"/no/50%%/a.children/%e.%p.pb.gz".into(),
            ..DumpOutput::default()
        };
        let of_child = naming.next_path(&children, DumpFormat::Pprof, DumpReason::Growth);
        let expected = format!("/no/50%/a.children/app.{pid}.0001.pb.gz");
        assert_eq!(of_child.unwrap().to_str().unwrap(), expected);
        assert!(children.is_of_child(expected.as_bytes()));
        assert!(!children.is_of_child(b"/no/50%/app.1.pb.gz"));
        naming.reset_in_child();
        assert_eq!(
            next(&mut naming, "/no/a.pb.gz", DumpReason::Growth),
            format!("/no/a.{pid}.0001.pb.gz")
        );
        assert_eq!(
            next(&mut naming, "/no/a.pb.gz", DumpReason::Exit),
            format!("/no/a.{pid}.pb.gz")
        );
        assert_eq!(next(&mut naming, "/no/%e%%", DumpReason::Exit), "/no/app%");
        // A percent sign alone makes no pattern: the process and the number are put in.
        assert_eq!(
            next(&mut naming, "/no/50%%/a%x.pb.gz", DumpReason::Interval),
            format!("/no/50%/a%x.{pid}.0004.pb.gz")
        );
    }
}
