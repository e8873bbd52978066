//! The commands that answer the next question about a program's memory, by what was found.

use std::ffi::OsString;

use heapprof_profile::PEAK;
use heapprof_report::{MemoryAnswer, NextCommand, PartKind};

use super::WhyTarget;
use crate::args::record::DEFAULT_PERIOD;
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
/// The number of samples that a minute of attaching should take.
const WANTED_SAMPLES: u64 = 128;
/// Maximum number of characters of a command line that is repeated.
const MAX_COMMAND_LINE: usize = 40;

/// Returns the commands that answer the next question, the most useful first.
pub(super) fn next_commands(target: &WhyTarget, answer: &MemoryAnswer) -> Vec<NextCommand> {
    let mut all = NextCommands::default();
    match target {
        WhyTarget::Process(pid) => of_process(*pid, answer, &mut all),
        WhyTarget::Core(path) => of_core(&quoted(&format!("core:{path}")), answer, &mut all),
        WhyTarget::Profile(profiles, words) => {
            let profiles: Vec<String> = profiles.iter().map(|name| quoted(name)).collect();
            of_profile(&profiles.join(" "), words, answer, &mut all);
        }
    }
    all.0.truncate(MAX_COMMANDS);
    all.0
}

/// The commands so far.
#[derive(Default)]
struct NextCommands(Vec<NextCommand>);

impl NextCommands {
    fn add(&mut self, command: String, shows: &str) {
        let shows = shows.to_string();
        self.0.push(NextCommand { command, shows });
    }
}

fn quoted(word: &str) -> String {
    name::quoted(name::path(word).as_os_str())
}

/// Whether enough has leaked to be worth a command. Of a perl, Perl's values say more.
fn has_leaked(answer: &MemoryAnswer) -> bool {
    !answer.is_perl && answer.leaked as f64 > LEAK_SHARE * answer.total as f64
}

/// Returns the option of `attach` for a period with which a minute of growth gives enough samples;
/// nothing if its own period does.
fn period_option(answer: &MemoryAnswer) -> String {
    match answer.sampling_period(WANTED_SAMPLES) {
        Some(period) if period < DEFAULT_PERIOD => format!(" --period {}KiB", period >> 10),
        _ => String::new(),
    }
}

fn of_process(pid: u32, answer: &MemoryAnswer, all: &mut NextCommands) {
    let is_large = |kind| answer.share(kind) >= MIN_SHARE;
    let is_seen = answer.hold.is_some();
    if answer.is_perl {
        all.add(format!("heapprof heap values {pid}"), "every Perl variable");
    }
    // The command about the largest part comes first.
    let is_mostly_free = answer.share(PartKind::MallocFree) >= MAJORITY_SHARE;
    let allocator = format!("heapprof heap blocks {pid} --allocator");
    if is_mostly_free {
        all.add(allocator.clone(), "why malloc keeps free memory");
    }
    if answer.recording.is_some() {
        all.add(
            format!("heapprof top pid:{pid}"),
            "all functions, by what they hold",
        );
    } else if is_seen && !heapprof_attach::is_refused(pid) {
        let attach = format!("heapprof attach {pid} --for 1m{}", period_option(answer));
        all.add(attach, "which functions allocate, from now on");
    }
    if has_leaked(answer) {
        all.add(
            format!("heapprof heap blocks {pid}"),
            "what leaked, block by block",
        );
    }
    if is_large(PartKind::MallocFree) && !is_mostly_free {
        all.add(allocator, "why malloc keeps free memory");
    }
    if answer.recording.is_some() && answer.peak.is_some_and(|peak| peak / 2 > answer.total) {
        let shows = "which functions had the memory at its peak";
        all.add(format!("heapprof top -t peak pid:{pid}"), shows);
    }
    if answer.shared_by_fork as f64 > FORK_SHARE * answer.total as f64 {
        let shows = "what forked children load and copy";
        all.add("heapprof fork-audit -- COMMAND".to_string(), shows);
    }
    if answer.span.is_none() && is_seen {
        all.add(format!("heapprof why {pid} --for 10s"), "which part grows");
    }
    let maps = [
        PartKind::Anonymous,
        PartKind::V8Heap,
        PartKind::Code,
        PartKind::Files,
        PartKind::Shared,
    ];
    if maps.into_iter().any(is_large) && is_seen {
        all.add(format!("heapprof proc {pid} --maps"), "every mapping");
    }
}

fn of_core(core: &str, answer: &MemoryAnswer, all: &mut NextCommands) {
    if answer.recording.is_some() {
        all.add(
            format!("heapprof top {core}"),
            "all functions, by what they held",
        );
    }
    if answer.is_perl {
        all.add(
            format!("heapprof heap values {core}"),
            "every Perl variable",
        );
    }
    if answer.part(PartKind::MallocInUse).is_some() {
        all.add(
            format!("heapprof heap blocks {core}"),
            "what leaked, block by block",
        );
        let allocator = format!("heapprof heap blocks {core} --allocator");
        all.add(allocator, "malloc's memory by arena");
    }
}

fn of_profile(profile: &str, words: &[OsString], answer: &MemoryAnswer, all: &mut NextCommands) {
    let quoted = |word: &OsString| shlex::try_quote(&word.to_string_lossy()).map(String::from);
    let words: Result<Vec<String>, _> = words.iter().map(quoted).collect();
    let line = words.unwrap_or_default().join(" ");
    if answer.share(PartKind::Unrecorded) >= UNRECORDED_SHARE
        && (1..=MAX_COMMAND_LINE).contains(&line.chars().count())
    {
        all.add(
            format!("heapprof record --mmap -- {line}"),
            "what maps memory itself",
        );
    }
    if answer.kept_at_end && answer.share(PartKind::Recorded) >= MIN_SHARE {
        all.add(format!("heapprof leaks {profile}"), "what was never freed");
    }
    let recorded = answer.part(PartKind::Recorded);
    let is_peak = recorded.is_some_and(|part| part.detail.starts_with(PEAK));
    let when = if is_peak { " -t peak" } else { "" };
    all.add(format!("heapprof top{when} -g lines {profile}"), "by line");
    all.add(format!("heapprof tree{when} {profile}"), "who calls them");
    let page = format!("heapprof report {profile} -o page.html");
    all.add(page, "a page for the browser");
}
