//! Reports the outcome of a recording: prints one line about where the profiles are and what is in
//! them.

use std::path::PathBuf;

use heapprof_analysis::{SumSpread, coverage::ManagedRuntime};
use heapprof_profile::{Error as ProfileError, PEAK, default_of_finished_program};
use heapprof_recorder::{
    ProfileDetails, ProgramExit, RecordedProfile, RecordingOutcome, WriteFailure, WrittenProfile,
    own_allocator,
};
use heapprof_report::{beside_heap, coverage, early_ends, give_or_take, unseen_frees};

use super::ending::{describe_deaths, describe_private, describe_unrecorded};
use super::no_profile;
use super::unhooked;
use super::unnamed::mostly_nameless;
use super::words::{bytes, describe_left_out, plural, quoted, shown};
use crate::advice::ADVICE_WORDS;
use crate::args::RecordArgs;
use crate::args::record::YesOrNo;
use crate::messages;

/// Reports the outcome of a recording. Returns false if the user wanted Perl's values and none were
/// found.
pub(super) fn report(outcome: &RecordingOutcome, args: &RecordArgs) -> bool {
    let RecordingOutcome {
        ended,
        ending,
        profiles: recorded,
        ..
    } = outcome;
    let is_unwritten = ending.unwritten.contains(&ended.process);
    let Some(main) = outcome.main else {
        match &outcome.piped {
            Some(piped) => messages::note(&format!(
                "{}: the profile was written into it; its addresses have no names",
                piped.path.display()
            )),
            None if !outcome.has_failed_writes && outcome.refused == 0 && !is_unwritten => {
                messages::note(&no_profile::reason(outcome));
            }
            None => {}
        }
        return !args.perl_values;
    };
    report_profiles(outcome, main, args);
    let all = recorded.iter().map(|one| &one.written);
    for line in describe_deaths(ending, ended, all) {
        messages::note(&line);
    }
    let of_main = &recorded[main].written;
    if let Some(why) = explain_filter(recorded, main) {
        messages::note(&why);
    }
    // A profile that could not be written may have been the last one.
    if !outcome.has_failed_writes
        && !is_unwritten
        && let Some(why) = explain_not_last(ended, outcome.has_own_profile, of_main)
    {
        messages::note(&why);
    }
    !args.perl_values || has_values(recorded, main)
}

/// Describes profiles that could not be written, in one line.
pub(super) fn describe_failure(failure: &WriteFailure) -> String {
    let why = &failure.why;
    let mut text = match (failure.count, &failure.path) {
        (1, Some(path)) => format!("a profile could not be written: {path}: {why}"),
        (1, None) => format!("a profile could not be written: {why}"),
        (n, Some(path)) => {
            format!("{n} profiles could not be written, the first one {path}: {why}")
        }
        (n, None) => format!("{n} profiles could not be written: {why}"),
    };
    if let Some(user) = failure.without_place {
        text += &format!(
            "; user {user} may not write there: -o DIR/%e.%p.pb.gz, with a DIR of mode 1777, \
             keeps it"
        );
    }
    text
}

/// Describes the profiles that symbolizing was not allowed to change. Returns `None` if there are
/// none.
pub(super) fn describe_refused(refused: &[(PathBuf, std::io::Error)]) -> Option<String> {
    let (path, why) = refused.first()?;
    let more = match refused.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    Some(format!(
        "{}: was left unchanged ({why}){more}; heapprof convert symbolize -o OUT FILE writes a \
         copy with names to OUT",
        path.display()
    ))
}

/// Whether the recording has Perl values. If values are missing, prints the reason.
fn has_values(recorded: &[RecordedProfile], main: usize) -> bool {
    let details = || recorded.iter().filter_map(|one| one.details.as_ref().ok());
    let why = |details: &ProfileDetails| details.missing_values.clone();
    let main = recorded[main].details.as_ref().ok();
    let missing = main.and_then(why).or_else(|| details().find_map(why));
    let missing = missing.map(|missing| heapprof_text::printable(&missing).into_owned());
    if details().any(|details| details.has_values) {
        if let Some(missing) = missing {
            messages::note(&format!("--perl-values: {missing}"));
        }
        return true;
    }
    let missing = missing.unwrap_or_else(|| "no perl ran that heapprof can read".to_string());
    messages::note(&format!("--perl-values: no values were traced: {missing}"));
    false
}

/// Prints where the profiles are, what they contain, and what is missing in them.
fn report_profiles(outcome: &RecordingOutcome, main: usize, args: &RecordArgs) {
    let (recorded, ending) = (&outcome.profiles, &outcome.ending);
    let unnamed: Vec<&anyhow::Error> = recorded
        .iter()
        .filter_map(|one| one.details.as_ref().err())
        .collect();
    if let Some(why) = explain_missing_names(&unnamed) {
        messages::note(&why);
    }
    if args.quiet {
        return;
    }
    let main = &recorded[main];
    let next = next_to_look_at(recorded, main);
    let (of, details) = (&main.written, main.details.as_ref().ok());
    let path = shown(&of.path);
    let mut line = format!("{path}: {}", summary(of, details));
    line += &others(recorded, main, outcome.small_children);
    line += &describe_private(ending, of.process);
    line += &describe_unrecorded(ending);
    let next_path = shown(&next.written.path);
    let has_values = next
        .details
        .as_ref()
        .is_ok_and(|details| details.has_values);
    let command = match has_values {
        true => "leaks -t sv_inuse_space".to_string(),
        false => "top".to_string(),
    };
    line += &format!("; next: heapprof {command} {}", quoted(&next.written.path));
    messages::note(&line);
    let of_next = next.details.as_ref().ok();
    if let Some(unnamed) = of_next.and_then(|details| details.unnamed.as_ref())
        && let has_died = ending.has_died(next.written.process)
        && let Some(text) = mostly_nameless(unnamed, &next.written.path, has_died)
    {
        messages::note(&text);
    }
    if let Some(text) = of_next.and_then(|details| details.hooked.as_deref()) {
        messages::note(&format!("{next_path}: {text}"));
    }
    let unhooked = of_next.map_or(&[][..], |details| &details.unhooked);
    for text in unhooked::lines(unhooked, of_next.and_then(|details| details.peak)) {
        messages::note(&format!("{next_path}: {text}"));
    }
    if unhooked.is_empty()
        && let Some(text) = of_next.and_then(|details| {
            let runtime = details.runtime.as_ref();
            // The user is not advised to do what is done already.
            let is_new = |of: &&ManagedRuntime| {
                **of != ManagedRuntime::Python || args.python_objects != Some(YesOrNo::Yes)
            };
            beside_heap(details.peak?, runtime.filter(is_new), ADVICE_WORDS)
        })
    {
        let already = if args.mmap { "; --mmap was given" } else { "" };
        messages::note(&format!("{next_path}: {text}{already}"));
    }
    if let Some(text) =
        of_next.and_then(|details| early_ends(&details.early_ends, details.allocated))
    {
        messages::note(&format!("{next_path}: {text}"));
    }
    if next.written.is_exact
        && let Some(text) = of_next.and_then(|details| unseen_frees(details.unseen_frees))
    {
        messages::note(&format!(
            "{next_path}: {text}: the program frees memory through calls that heapprof does not see"
        ));
    }
    if let Some(missing) = of_next.and_then(|details| details.missing_frames.as_ref()) {
        messages::note(&format!(
            "{next_path}: has native frames only: {}",
            heapprof_text::printable(missing)
        ));
    }
    if of.lost > 0 {
        messages::note(&format!(
            "{} allocations and frees could not be recorded, so the numbers are too low or too \
             high; heapprof info {} says why",
            of.lost,
            quoted(&of.path)
        ));
    } else if of.stacks == 0
        && unhooked.is_empty()
        && let Some(reason) = details.and_then(|details| own_allocator(of, &details.program))
    {
        messages::note(&reason);
    } else if let Some(text) = few_samples(next).filter(|_| unhooked.is_empty()) {
        messages::note(&format!("{next_path}: {text}"));
    }
}

/// Returns the profile that is most worth reading: the main profile, unless another profile has
/// more than twice as much memory. The main profile may belong to a script that only starts the
/// program of interest.
fn next_to_look_at<'a>(
    recorded: &'a [RecordedProfile],
    main: &'a RecordedProfile,
) -> &'a RecordedProfile {
    let mut next = main;
    if let Some(heap) = largest(recorded)
        && heap.written.peak / 2 > main.written.peak
    {
        next = heap;
    }
    // A profile without stacks, such as that of a program with an allocator of its own, shows
    // nothing.
    let with_stacks = recorded.iter().filter(|one| one.written.stacks > 0);
    match with_stacks.max_by_key(|one| one.peak_resident()) {
        Some(most) if most.peak_resident() / 2 > next.peak_resident() => most,
        _ => next,
    }
}

/// Describes the profiles besides the main profile: their number, the largest of them if it is
/// larger than the main profile, and the number of profiles that were left out.
fn others(recorded: &[RecordedProfile], main: &RecordedProfile, small: usize) -> String {
    let n = recorded.len() - 1;
    let mut parts = Vec::new();
    if n > 0 {
        parts.push(format!("and {n} more profile{}", plural(n)));
    }
    if let Some(heap) = largest(recorded).filter(|one| one.written.peak > main.written.peak) {
        let (of, peak) = (&heap.written, heap.written.peak);
        parts.push(format!(
            "the largest by peak heap {} with {}{}",
            shown(&of.path),
            about(of),
            bytes(peak)
        ));
        if let Some(most) = most_resident(recorded)
            && most.written.path != of.path
            && most.peak_resident() > main.peak_resident()
        {
            parts.push(by_residence(most));
        }
    } else if let Some(most) = most_resident(recorded)
        && most.peak_resident() / 2 > main.peak_resident()
    {
        parts.push(by_residence(most));
    }
    let mut said = match parts.is_empty() {
        true => Vec::new(),
        false => vec![parts.join(", ")],
    };
    if small > 0 {
        said.push(describe_left_out(small));
    }
    match said.is_empty() {
        true => String::new(),
        false => format!(" ({})", said.join("; ")),
    }
}

fn by_residence(one: &RecordedProfile) -> String {
    format!(
        "the largest by peak RSS {} with {}",
        shown(&one.written.path),
        bytes(one.peak_resident())
    )
}

fn largest(recorded: &[RecordedProfile]) -> Option<&RecordedProfile> {
    recorded.iter().max_by_key(|one| one.written.peak)
}

/// Returns the profile of the process that had the most memory; `None` if that is not known.
pub(super) fn most_resident(recorded: &[RecordedProfile]) -> Option<&RecordedProfile> {
    recorded
        .iter()
        .max_by_key(|one| one.peak_resident())
        .filter(|one| one.peak_resident() > 0)
}

/// Explains that values rest on few samples or are uncertain, and which options would improve them.
fn few_samples(one: &RecordedProfile) -> Option<String> {
    /// Number of samples below which an error of a third is usual.
    const MIN_SAMPLES: u64 = 30;
    const WANTED_SAMPLES: i64 = 1000;
    /// Number of samples of equal weight for which a sum is wrong by at most a fifth, with 95 %
    /// confidence.
    const MIN_SAMPLES_FOR_A_FIFTH: f64 = 96.0;
    /// Number of samples of equal weight for which a sum is wrong by at most a tenth, with 95 %
    /// confidence.
    const MIN_SAMPLES_FOR_A_TENTH: f64 = 384.0;
    let sampled = one.details.as_ref().ok()?.sampled?;
    let taken = sampled.taken;
    if taken == 0 {
        return Some(
            "nothing was sampled, because little was allocated; --exact records every allocation, \
             and a shorter --period records more of them"
                .to_string(),
        );
    }
    if taken < MIN_SAMPLES {
        let shorter = match period(sampled.allocated / WANTED_SAMPLES) {
            None => String::new(),
            Some(period) => {
                format!(", and --period {period} records about {WANTED_SAMPLES} of them")
            }
        };
        return Some(format!(
            "the values are rough, because only {taken} allocation{} sampled; --exact records \
             every allocation{shorter}",
            if taken == 1 { " was" } else { "s were" }
        ));
    }
    let (value, variance) = (sampled.in_use as f64, sampled.spread.variance);
    let equal = value * value / variance;
    // If nothing is in use, no estimate can be better. If little is, reports show the peak.
    let (in_use, peak) = (one.written.in_use, one.written.peak);
    let shows_peak = default_of_finished_program(in_use, peak) == PEAK;
    if shows_peak || variance <= 0.0 || equal >= MIN_SAMPLES_FOR_A_FIFTH {
        return None;
    }
    let shorter = match period((sampled.period as f64 * equal / MIN_SAMPLES_FOR_A_TENTH) as i64) {
        None => String::new(),
        Some(period) => format!("; --period {period} would make that about 10%"),
    };
    Some(format!(
        "what is in use may be off by about {:.0}%{shorter}; --exact records every allocation",
        196.0 / equal.sqrt()
    ))
}

/// Returns the largest power of two that is at most `at_most`, in the form that `--period` takes.
/// Returns `None` if it is below 1 KiB.
fn period(at_most: i64) -> Option<String> {
    let shorter = 1_i64 << at_most.max(1).ilog2();
    (shorter >= 1024).then(|| bytes(shorter).replace(' ', ""))
}

/// Explains why the program did not write the main profile at its end; `None` if it did.
fn explain_not_last(ended: &ProgramExit, left_own: bool, main: &WrittenProfile) -> Option<String> {
    let how = match ended.signal {
        Some(signal) => format!("was killed by signal {signal}"),
        None => "ended".to_string(),
    };
    if !left_own {
        return Some(format!(
            "the program {how} and left no profile of its own; this is the profile of a child"
        ));
    }
    if main.is_before_exec {
        return Some(
            "the program executed another one, which left no profile (static, setuid, for another \
             C library, or started with its own environment); this is the profile from before the \
             exec"
                .to_string(),
        );
    }
    (!main.is_last).then(|| {
        format!("the program {how} without a final profile; this is the last one it wrote before")
    })
}

/// Explains that a process was not recorded to its end, because a system-call filter would have
/// killed it for writing a profile.
fn explain_filter(recorded: &[RecordedProfile], main: usize) -> Option<String> {
    let is_one = |one: &&RecordedProfile| one.written.is_before_filter;
    let all = recorded.iter().filter(is_one).count();
    let first = Some(&recorded[main]).filter(is_one);
    let first = first.or_else(|| recorded.iter().find(is_one))?;
    let others = match all - 1 {
        0 => String::new(),
        n => format!(" (the same is true of {n} more profile{})", plural(n)),
    };
    Some(format!(
        "{}: ends where the program installed a system call filter (seccomp) that would have \
         killed it for writing a profile{others}; what it allocated afterwards is not in it; \
         heapprof watch shows how much that is",
        shown(&first.written.path)
    ))
}

/// Explains why profiles have addresses without names. The addresses themselves are correct.
fn explain_missing_names(unnamed: &[&anyhow::Error]) -> Option<String> {
    let first = unnamed.first()?;
    // The readers do not name the option that raises a limit, because only the program has options.
    let is_limit = first
        .downcast_ref::<ProfileError>()
        .is_some_and(ProfileError::is_limit);
    let advice = match is_limit {
        true => "; if that size is expected, raise the limit with --max-inflated",
        false => "",
    };
    let which = match unnamed.len() {
        1 => "a profile is without names".to_string(),
        n => format!("{n} profiles are without names, the first one because"),
    };
    Some(format!(
        "{which}: {first:#}{advice}; heapprof convert symbolize -o OUT FILE writes a copy with \
         names to OUT"
    ))
}

/// Returns "about " if a profile is an estimate, and nothing if it is exact.
fn about(of: &WrittenProfile) -> &'static str {
    if of.is_exact { "" } else { "about " }
}

/// Summarises the program's own profile. The uncertainty of the peak can't be computed, because the
/// moment of the peak is itself an estimate.
fn summary(main: &WrittenProfile, details: Option<&ProfileDetails>) -> String {
    let (about, kind) = (
        about(main),
        if main.is_exact {
            "stack"
        } else {
            "sampled stack"
        },
    );
    let peak = details.and_then(|details| details.peak);
    let share = peak.and_then(|peak| coverage(peak, "peak RSS"));
    let sampled = details.and_then(|details| details.sampled);
    let spread = sampled.filter(|sampled| sampled.spread != SumSpread::default());
    format!(
        "{about}{}{} in use {}, peak {about}{}{}, {} {kind}{}",
        bytes(main.in_use),
        spread.map_or(String::new(), |sampled| {
            let estimate = sampled.spread.estimate_bytes(main.in_use, sampled.period);
            give_or_take(main.in_use, &estimate)
        }),
        if main.is_last && !main.is_before_filter {
            "at the end"
        } else {
            "then"
        },
        bytes(main.peak),
        share.map_or(String::new(), |share| format!(" ({share})")),
        main.stacks,
        plural(main.stacks)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_keeps_the_profile() {
        let failure = |count, path: Option<&str>, without_place| WriteFailure {
            why: "no room".to_string(),
            path: path.map(str::to_string),
            count,
            without_place,
        };
        for (failure, expected) in [
            (
                failure(3, Some("/tmp/c d"), None),
                "3 profiles could not be written, the first one /tmp/c d: no room",
            ),
            (
                failure(2, None, None),
                "2 profiles could not be written: no room",
            ),
            (
                failure(1, Some("/tmp/e"), Some(7)),
                "a profile could not be written: /tmp/e: no room; user 7 may not write there: -o \
                 DIR/%e.%p.pb.gz, with a DIR of mode 1777, keeps it",
            ),
        ] {
            assert_eq!(describe_failure(&failure), expected);
        }
    }
}
