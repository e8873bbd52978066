//! Texts and names in a recording's profile. They are used by the collector when it writes a
//! profile, and by a process that makes a profile from the collector's ledger.

use crate::{ALLOCATOR_REGEX, command_line};

/// Sample types of a recording, each with its unit. A sampled recording has only the first six.
pub const SAMPLE_TYPES: [(&str, &str); 8] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("temporary_objects", "count"),
    ("temporary_space", "bytes"),
];

/// Key of the label for the name of the thread that allocated.
pub const THREAD_LABEL: &str = "thread";
/// Key of the label for the kernel's id of the thread that allocated.
pub const TID_LABEL: &str = "tid";
/// Key of the label of a forked child: the number of forks between the first process and the child.
pub const GENERATION_LABEL: &str = "generation";
/// Common name of all threads that are not listed by name.
pub const OTHER_THREADS: &str = "(other threads)";

/// Name of the frame that replaces the frames left out of a deep stack.
pub const TRUNCATED_FRAME: &str = "[truncated]";
/// Name of an interpreter's frame when there was no memory for its real name.
pub const NAMELESS_FRAME: &str = "[no memory for the name]";

/// The comment of a profile without samples.
pub const EMPTY_COMMENT: &str = "empty: nothing was allocated, or nothing was sampled";

/// Descriptions of data that a recording may lack, in the order of the collector's counts. The
/// collector's last count has no text: it is the number of bytes of the blocks whose frees were not
/// seen.
const DROPPED_TEXTS: [&str; 6] = [
    "events inside the collector or the allocator (signal handlers, fork handlers)",
    "events, for lack of memory for the tables",
    "events while another one was interrupted by a signal handler",
    "frees of blocks allocated before the recording",
    "frees that were noticed only when the address was allocated again",
    "children, forked while an event was interrupted by a signal handler: they record nothing",
];

/// The description of unseen frees in profiles of heapprof 0.2 and before.
const OLD_UNSEEN_FREES: &str = "frees that were not seen before the address came again";

/// Returns a regular expression for the functions that reports leave out. It matches the functions
/// of [`ALLOCATOR_REGEX`], and the functions of `wrappers`, which is a regular expression or empty.
pub fn drop_frames(wrappers: &str) -> String {
    match wrappers {
        "" => ALLOCATOR_REGEX.to_string(),
        more => format!("{ALLOCATOR_REGEX}|.*(?:{more}).*"),
    }
}

/// Returns the comments at the head of a profile: the recorder, the process, the mode, and the
/// reason for the profile.
pub fn head(version: &str, program: &str, pid: i64, period: u64, reason: &str) -> Vec<String> {
    let mut all = vec![format!("collector: heapprof {version}")];
    all.extend(recording_comments(program, pid, period, reason));
    all
}

/// Returns the comments about the process, the sampling, and the reason for the profile. A `period`
/// of 1 means that every allocation was recorded.
pub fn recording_comments(program: &str, pid: i64, period: u64, reason: &str) -> [String; 4] {
    [
        format!("program: {program}"),
        format!("pid: {pid}"),
        match period {
            1 => "mode: exact".to_string(),
            period => format!("mode: sampled, one in {period} bytes; values are estimates"),
        },
        format!("dump: {reason}"),
    ]
}

/// Returns the comments that distinguish a process from other processes of the same program: the
/// script that it runs, or the title that it has set. `command_line` is the text of
/// `/proc/PID/cmdline`. Nothing else is taken from it, because it may hold passwords.
pub fn process_name_comments(program: &str, command_line: &[u8]) -> impl Iterator<Item = String> {
    let script = command_line::script(program, command_line);
    let title = command_line::title(program, command_line);
    let script = script.map(|script| format!("script: {script}"));
    script
        .into_iter()
        .chain(title.map(|title| format!("title: {title}")))
}

/// Maximum number of bytes of a command line in a profile.
pub const MAX_COMMAND_LINE: usize = 16 << 10;

/// Returns the comment with the whole command line of a process; `None` if the process has none.
/// `command_line` is the text of `/proc/PID/cmdline`. It may hold passwords, so only call this if
/// the user has asked for it.
pub fn command_line(program: &str, command_line: &[u8]) -> Option<String> {
    let whole = || command_line::whole(program, command_line, MAX_COMMAND_LINE);
    (!command_line.is_empty()).then(|| format!("command line: {}", whole()))
}

/// Returns the comments about resident memory now and at its peak, in bytes.
pub fn resident(now: u64, peak: u64) -> [String; 2] {
    [
        format!("rss: {now} bytes"),
        format!("peak rss: {peak} bytes"),
    ]
}

/// Reads the bytes from the comment about the peak of resident memory; `None` if a comment is about
/// something else.
pub fn parse_peak_resident(comment: &str) -> Option<u64> {
    let bytes = comment.strip_prefix("peak rss: ")?.strip_suffix(" bytes")?;
    bytes.parse().ok()
}

/// Returns the comment about threads that the profile does not list by name. It lists the first
/// `most` threads, and does not list `others` more threads. `None` if `others` is 0.
pub fn threads(most: u32, others: u32) -> Option<String> {
    (others != 0).then(|| format!("threads: {most} by name; {others} more are {OTHER_THREADS}"))
}

/// Returns the comment about the number of sampled blocks in use.
pub fn sampled_blocks(count: u64) -> String {
    format!("sampled blocks in use: {count}")
}

/// Index of the unseen frees in [`DROPPED_TEXTS`]. Their comment also gives their bytes.
const UNSEEN_FREES: usize = 4;

/// Returns the comments about data that the recording lacks. `counts` holds the collector's count
/// for each kind of missing data, and then the bytes of unseen frees.
pub fn dropped_comments(counts: [u64; DROPPED_TEXTS.len() + 1]) -> impl Iterator<Item = String> {
    let bytes = counts[DROPPED_TEXTS.len()];
    let all = counts.into_iter().zip(DROPPED_TEXTS).enumerate();
    all.filter(|(_, (count, _))| *count != 0)
        .map(move |(i, (count, what))| match i {
            UNSEEN_FREES => format!("dropped: {count} {what}: {bytes} bytes"),
            _ => format!("dropped: {count} {what}"),
        })
}

/// Reads the number and the bytes of unseen frees from a profile's comments. The free of a block is
/// unseen if the block's address was allocated again before a free was recorded. In a sampled
/// recording, only sampled blocks count.
pub fn unseen_frees<'a>(comments: impl IntoIterator<Item = &'a str>) -> [u64; 2] {
    let parse = |comment: &str| {
        let (count, rest) = comment.strip_prefix("dropped: ")?.split_once(' ')?;
        let texts = [DROPPED_TEXTS[UNSEEN_FREES], OLD_UNSEEN_FREES];
        let bytes = texts.iter().find_map(|text| rest.strip_prefix(*text))?;
        let bytes = bytes.strip_prefix(": ")?.strip_suffix(" bytes")?;
        Some([count.parse::<u64>().ok()?, bytes.parse::<u64>().ok()?])
    };
    let all = comments.into_iter().filter_map(parse);
    all.fold([0, 0], |sum, of| {
        [0, 1].map(|i: usize| sum[i].saturating_add(of[i]))
    })
}

/// Returns the name of a thread. The name ends at a zero byte. An unnamed thread gets a substitute,
/// because a label must not be empty.
pub fn thread_name(bytes: &[u8]) -> String {
    match bytes.split(|&byte| byte == 0).next().unwrap_or_default() {
        [] => "(unnamed)".to_string(),
        bytes => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Returns the name of a mapped file. Bytes that are not text are written as `\xff`. If the file
/// was deleted or replaced and no build id identifies it, ` (deleted)` is added, as the kernel
/// does.
pub fn mapped_file(path: &[u8], is_deleted: bool, build_id: &[u8]) -> String {
    let mut name = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        name.push_str(chunk.valid());
        // Readers that open the file need its exact bytes.
        for byte in chunk.invalid() {
            name.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if is_deleted && build_id.is_empty() {
        name.push_str(" (deleted)");
    }
    name
}

/// Returns a build id as hexadecimal text.
pub fn hex(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Converts a number in units of 2^-`bits` to the nearest whole number.
pub fn rounded(number: i64, bits: u32) -> i64 {
    number.wrapping_add(1 << (bits - 1)) >> bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_frees_are_read_again() {
        let said: Vec<String> = dropped_comments([1, 0, 2, 0, 3, 4, 500]).collect();
        assert_eq!(said.len(), 4);
        let all = said.iter().chain(&said).map(String::as_str);
        assert_eq!(unseen_frees(all), [6, 1000]);
        let old = format!("dropped: 2 {OLD_UNSEEN_FREES}: 48 bytes");
        assert_eq!(unseen_frees([old.as_str()]), [2, 48]);
        assert_eq!(unseen_frees(["dropped: x frees", "dropped: "]), [0, 0]);
        assert_eq!(dropped_comments([0; 7]).count(), 0);
    }
}
