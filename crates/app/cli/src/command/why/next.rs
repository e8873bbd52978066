//! The commands that answer the next question about a program's memory, by what was found.

use std::ffi::OsString;

use heapprof_profile::PEAK;
use heapprof_report::{MemoryAnswer, NextCommand, PartKind};

use super::WhyTarget;
use crate::name;

/// Maximum number of commands.
const MAX_COMMANDS: usize = 3;
/// The share of the memory from which a part is worth a command.
const MIN_SHARE: f64 = 0.1;
/// The share of the memory from which leaked blocks are worth a command.
const LEAK_SHARE: f64 = 0.01;
/// The share of the memory from which a part is most of it.
const MAJORITY_SHARE: f64 = 0.5;
/// The share of the memory from which what was not recorded is worth a command.
const UNRECORDED_SHARE: f64 = 0.4;
/// The share of the memory from which what processes share since a fork is worth a command.
const FORK_SHARE: f64 = 1.0 / 3.0;
/// Maximum number of characters of a command line that is repeated.
const MAX_COMMAND_LINE: usize = 40;

/// Returns the commands that answer the next question, the most useful first.
pub(super) fn next_commands(target: &WhyTarget, answer: &MemoryAnswer) -> Vec<NextCommand> {
    let mut all = match target {
        WhyTarget::Process(pid) => of_process(*pid, answer),
        WhyTarget::Core(path) => of_core(&quoted(&format!("core:{path}")), answer),
        WhyTarget::Profile(profile, words) => of_profile(&quoted(profile), words, answer),
    };
    all.truncate(MAX_COMMANDS);
    all
}

fn quoted(word: &str) -> String {
    name::quoted(name::path(word).as_os_str())
}

fn command(command: String, shows: &str) -> NextCommand {
    NextCommand {
        command,
        shows: shows.to_string(),
    }
}

/// Whether enough has leaked to be worth a command. Of a perl, Perl's values say more.
fn has_leaked(answer: &MemoryAnswer) -> bool {
    !answer.is_perl && answer.leaked as f64 > LEAK_SHARE * answer.total as f64
}

fn of_process(pid: u32, answer: &MemoryAnswer) -> Vec<NextCommand> {
    let is_large = |kind| answer.share(kind) >= MIN_SHARE;
    let is_seen = answer.hold.is_some();
    let mut all = Vec::new();
    if answer.is_perl {
        all.push(command(
            format!("heapprof heap values {pid}"),
            "every Perl variable",
        ));
    }
    // The command about the largest part comes first.
    let is_mostly_free = answer.share(PartKind::MallocFree) >= MAJORITY_SHARE;
    let allocator = command(
        format!("heapprof heap blocks {pid} --allocator"),
        "why malloc keeps free memory",
    );
    if is_mostly_free {
        all.push(allocator.clone());
    }
    if answer.recording.is_some() {
        all.push(command(
            format!("heapprof top pid:{pid}"),
            "all functions, by what they hold",
        ));
    } else if is_seen {
        let shows = "which functions allocate, from now on";
        all.push(command(format!("heapprof attach {pid} --for 1m"), shows));
    }
    if has_leaked(answer) {
        all.push(command(
            format!("heapprof heap blocks {pid}"),
            "what leaked, block by block",
        ));
    }
    if is_large(PartKind::MallocFree) && !is_mostly_free {
        all.push(allocator);
    }
    if answer.recording.is_some() && answer.peak.is_some_and(|peak| peak / 2 > answer.total) {
        all.push(command(
            format!("heapprof top -t peak pid:{pid}"),
            "which functions had the memory at its peak",
        ));
    }
    if answer.shared_by_fork as f64 > FORK_SHARE * answer.total as f64 {
        all.push(command(
            "heapprof fork-audit -- COMMAND".to_string(),
            "what forked children load and copy",
        ));
    }
    if answer.span.is_none() && is_seen {
        all.push(command(
            format!("heapprof why {pid} --for 10s"),
            "which part grows",
        ));
    }
    let maps = [
        PartKind::Anonymous,
        PartKind::V8Heap,
        PartKind::Code,
        PartKind::Files,
        PartKind::Shared,
    ];
    if maps.into_iter().any(is_large) && is_seen {
        all.push(command(
            format!("heapprof proc {pid} --maps"),
            "every mapping",
        ));
    }
    all
}

fn of_core(core: &str, answer: &MemoryAnswer) -> Vec<NextCommand> {
    let mut all = Vec::new();
    if answer.recording.is_some() {
        all.push(command(
            format!("heapprof top {core}"),
            "all functions, by what they held",
        ));
    }
    if answer.is_perl {
        all.push(command(
            format!("heapprof heap values {core}"),
            "every Perl variable",
        ));
    }
    if answer.part(PartKind::MallocInUse).is_some() {
        all.push(command(
            format!("heapprof heap blocks {core}"),
            "what leaked, block by block",
        ));
        let shows = "malloc's memory by arena";
        all.push(command(
            format!("heapprof heap blocks {core} --allocator"),
            shows,
        ));
    }
    all
}

fn of_profile(profile: &str, words: &[OsString], answer: &MemoryAnswer) -> Vec<NextCommand> {
    let mut all = Vec::new();
    let quoted = |word: &OsString| shlex::try_quote(&word.to_string_lossy()).map(String::from);
    let words: Result<Vec<String>, _> = words.iter().map(quoted).collect();
    let words = words.unwrap_or_default();
    let line = words.join(" ");
    if answer.share(PartKind::Unrecorded) >= UNRECORDED_SHARE
        && (1..=MAX_COMMAND_LINE).contains(&line.chars().count())
    {
        let mappings = format!("heapprof record --mmap -- {line}");
        all.push(command(mappings, "what maps memory itself"));
    }
    if answer.kept_at_end && answer.share(PartKind::Recorded) >= MIN_SHARE {
        let leaks = format!("heapprof leaks {profile}");
        all.push(command(leaks, "what was never freed"));
    }
    let recorded = answer.part(PartKind::Recorded);
    let when = match recorded.is_some_and(|part| part.detail.starts_with(PEAK)) {
        true => " -t peak",
        false => "",
    };
    all.extend([
        command(format!("heapprof top{when} -g lines {profile}"), "by line"),
        command(format!("heapprof tree{when} {profile}"), "who calls them"),
        command(
            format!("heapprof report {profile} -o page.html"),
            "a page for the browser",
        ),
    ]);
    all
}
