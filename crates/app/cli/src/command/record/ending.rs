//! Describes unusual ends of recorded processes: which processes did not write their last profile,
//! and why a killed process may have left none.

use heapprof_recorder::{
    OomKill, ProcessDeath, ProcessEndings, ProgramExit, UnrecordedProcess, WrittenProfile,
};
use signal_hook::low_level::signal_name;

use super::words::{bytes, plural, shown};

/// Returns a text about ledgers in private memory, for the end of a line about the process `main`.
/// If the ledger of `main` was not in private memory, the text is about other processes' ledgers.
/// The text is empty if no ledger was in private memory.
pub(super) fn describe_private(ending: &ProcessEndings, main: u32) -> String {
    if let Some(why) = ending.why_private(main) {
        return format!(
            "; its recorded data was in private memory ({}), so nothing would have been left of it \
             after a kill",
            why
        );
    }
    match ending.private.as_slice() {
        [] => String::new(),
        [first, ..] => format!(
            "; the recorded data of {} other process{} was in private memory ({}), so nothing \
             would have been left of it after a kill",
            ending.private.len(),
            if ending.private.len() == 1 { "" } else { "es" },
            first.why
        ),
    }
}

/// Returns a text about unrecorded processes for the end of a line.
pub(super) fn describe_unrecorded(ending: &ProcessEndings) -> String {
    match ending.unrecorded.as_slice() {
        [] => String::new(),
        [one] => format!("; {} was not recorded: {}", one.program, one.why),
        all => format!(
            "; {} processes were not recorded: {}",
            all.len(),
            group_by_reason(all)
        ),
    }
}

/// Describes processes that ended without a report: the cause of their end, and the moment that
/// their profiles show.
pub(super) fn describe_deaths<'w>(
    ending: &ProcessEndings,
    ended: &ProgramExit,
    written: impl Iterator<Item = &'w WrittenProfile> + Clone,
) -> Vec<String> {
    const MAX_REPORTED_DEATHS: usize = 3;
    let profile_of = |died: &ProcessDeath| {
        let mut last = written.clone().filter(|one| one.is_last);
        last.find(|one| one.process == died.process)
    };
    let mut lines: Vec<String> = Vec::new();
    let mut others = 0;
    for died in &ending.died {
        let Some(written) = profile_of(died) else {
            continue;
        };
        let path = shown(&written.path);
        let oom = died.oom.map_or(String::new(), describe_oom);
        if died.process == ended.process {
            let how = match ended.signal {
                Some(signal) => format!("was killed by {}", describe_signal(signal)),
                None if died.without_place.is_some() => "ended".to_string(),
                None => "ended without a profile of its own".to_string(),
            };
            let whose = died.without_place.map_or(String::new(), |user| {
                format!(
                    ", and was written by record itself, because the program ran as user {user}, \
                     who may not write there"
                )
            });
            lines.insert(
                0,
                format!("{path}: shows the moment at which the program {how}{whose}{oom}"),
            );
        } else if lines.len() < MAX_REPORTED_DEATHS {
            let process = died.process;
            lines.push(match died.without_place {
                Some(user) => format!(
                    "{path}: was written by record itself, because process {process} ran as user \
                     {user}, who may not write there{oom}"
                ),
                None => format!(
                    "{path}: shows the moment at which process {process} was killed, or ended \
                     without a profile of its own{oom}"
                ),
            });
        } else {
            others += 1;
        }
    }
    if others > 0 {
        let more = plural(others);
        lines.push(format!(
            "{others} more profile{more} of processes that were killed, or ended without a \
             profile of their own"
        ));
    }
    lines
}

fn describe_oom(oom: OomKill) -> String {
    let limit = oom.limit.and_then(|limit| i64::try_from(limit).ok());
    let limit = limit.map_or(String::new(), |limit| {
        format!(", whose limit is {}", bytes(limit))
    });
    format!("; at that moment the kernel's OOM killer killed a process in its cgroup{limit}")
}

/// Returns the common name of a signal.
fn describe_signal(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => name.to_string(),
        None => format!("signal {signal}"),
    }
}

/// Lists the programs of unrecorded processes, each once, with the reasons.
fn group_by_reason(all: &[UnrecordedProcess]) -> String {
    /// The maximum number of programs that are named for one reason.
    const MAX_NAMED_PROGRAMS: usize = 3;
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in all {
        let at = reasons.iter().position(|(why, _)| *why == one.why);
        let at = at.unwrap_or_else(|| {
            reasons.push((&one.why, Vec::new()));
            reasons.len() - 1
        });
        let programs = &mut reasons[at].1;
        if !programs.contains(&one.program.as_str()) {
            programs.push(&one.program);
        }
    }
    let each = reasons.iter().map(|(why, programs)| {
        let named = programs[..programs.len().min(MAX_NAMED_PROGRAMS)].join(", ");
        let more = match programs.len().saturating_sub(MAX_NAMED_PROGRAMS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{named}{more} ({why})")
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oom_killer_is_named_with_its_limit() {
        assert_eq!(
            describe_oom(OomKill {
                limit: Some(600 << 20)
            }),
            "; at that moment the kernel's OOM killer killed a process in its cgroup, whose limit \
             is 600MiB"
        );
        assert!(describe_oom(OomKill { limit: None }).ends_with("its cgroup"));
        assert_eq!(
            (describe_signal(9).as_str(), describe_signal(77).as_str()),
            ("SIGKILL", "signal 77")
        );
    }
}
