//! Reports what a recording left: symbolizes the profiles in place, and prints one line about where
//! they are and what is in them.

use std::path::Path;

use anyhow::Result;
use heapprof_analysis::{ManagedRuntime, SumSpread};
use heapprof_report::{beside_heap, coverage, early_ends, give_or_take, unseen_frees};

use super::child::ProgramExit;
use super::ending::ProcessEndings;
use super::files::{self, EntryTarget, ProfileDetails};
use super::no_profile;
use super::small_children::{self, least_of_child};
use super::unhooked;
use super::unnamed::mostly_nameless;
use super::words::{bytes, plural, quoted, shown};
use super::written::{ListContents, WrittenProfile};
use super::{CHILDREN_SUFFIX, ProfileNamePatterns};
use crate::advice::ADVICE_WORDS;
use crate::args::RecordArgs;
use crate::args::record::YesOrNo;
use crate::messages;
use heapprof_recorder::rights::ProcessRights;

/// A profile that exists, and the details that were read from it.
struct RecordedProfile {
    written: WrittenProfile,
    details: Result<ProfileDetails>,
}

impl RecordedProfile {
    /// Returns the largest resident memory of the program.
    fn peak_resident(&self) -> i64 {
        let details = self.details.as_ref().ok();
        let peak = details.and_then(|details| details.peak);
        peak.map_or(0, |peak| peak.program_bytes())
    }
}

/// Symbolizes the profiles and reports what the recording left. Returns false if values of a perl
/// were asked for, and none were found.
pub(super) fn report(
    said: ListContents,
    ended: &ProgramExit,
    ending: &ProcessEndings,
    names: &ProfileNamePatterns,
    args: &RecordArgs,
) -> bool {
    let ListContents {
        written,
        failed,
        small,
        ..
    } = said;
    for failed in &failed {
        messages::note(&failed.text());
    }
    let (mut written, piped, refused) = split_by_target(written);
    let left_own = written.iter().any(|one| one.process == ended.process);
    let is_unwritten = ending.unwritten.contains(&ended.process);
    let Some(main) = find_main(&written, ended) else {
        match piped {
            Some(piped) => messages::note(&format!(
                "{}: the profile was written into it; its addresses have no names",
                piped.path.display()
            )),
            None if failed.is_empty() && refused == 0 && !is_unwritten => {
                messages::note(&no_profile::reason(
                    ended,
                    ending,
                    small_children::distinct_processes(&small).count(),
                ));
            }
            None => {}
        }
        return !args.perl_values;
    };
    let processes = [ended.process, written[main].process];
    let small = match least_of_child(args) {
        None => 0,
        Some(least) => small_children::leave_out(&mut written, &small, processes, least),
    };
    if let Some(folder) = names.folder_of_children(ended.process) {
        files::remove_folder(&folder);
        name_folder(&mut written, &folder, ended);
    }
    // The main profile may have another position among those that are left.
    let main = find_main(&written, ended).unwrap_or_default();
    let entries: Vec<&WrittenProfile> = written.iter().collect();
    let details = files::read(
        &entries,
        !args.no_symbolize,
        &ending.residents,
        &ending.executables,
    );
    files::touch(&written[main]);
    let recorded: Vec<RecordedProfile> = written
        .into_iter()
        .zip(details)
        .map(|(written, details)| RecordedProfile { written, details })
        .collect();
    report_profiles(&recorded, main, small, ending, args);
    let all = recorded.iter().map(|one| &one.written);
    for line in ending.describe_deaths(ended, all) {
        messages::note(&line);
    }
    let of_main = &recorded[main].written;
    if let Some(why) = explain_filter(&recorded, main) {
        messages::note(&why);
    }
    // A profile that could not be written may have been the last one.
    if failed.is_empty()
        && !is_unwritten
        && let Some(why) = explain_not_last(ended, left_own, of_main)
    {
        messages::note(&why);
    }
    !args.perl_values || has_values(&recorded, main)
}

/// Whether a perl of the recording has traced its values. Prints the reason if not.
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

/// Returns the profiles that exist, a profile that went into a pipe if there is one, and the number
/// of profiles that must not be touched.
fn split_by_target(
    written: Vec<WrittenProfile>,
) -> (Vec<WrittenProfile>, Option<WrittenProfile>, usize) {
    let entries: Vec<&WrittenProfile> = written.iter().collect();
    let found = files::resolve_entries(&entries);
    let (mut there, mut piped, mut refused) = (Vec::new(), None, Vec::new());
    for (mut one, found) in written.into_iter().zip(found) {
        match found {
            EntryTarget::Profile(owner) => {
                one.owner = owner;
                one.rights = one.rights.with(ProcessRights::User(owner));
                there.push(one);
            }
            EntryTarget::Special => piped = piped.or(Some(one)),
            EntryTarget::Nothing => {}
            EntryTarget::Refused(why) => refused.push((one.path, why)),
        }
    }
    if let Some((path, why)) = refused.first() {
        let more = match refused.len() {
            1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        messages::note(&format!(
            "{}: is left as it is ({why}){more}; heapprof symbolize -o OUT FILE writes it with \
             names elsewhere",
            path.display()
        ));
    }
    (there, piped, refused.len())
}

/// Returns the position of the profile that the recording was for: the program's own, or the first
/// one if there is no such profile.
fn find_main(written: &[WrittenProfile], ended: &ProgramExit) -> Option<usize> {
    let of_main = |(_, one): &(usize, &WrittenProfile)| one.process == ended.process;
    // The profile of a process's end is not always the latest in the list, because what the process
    // waits for may go on meanwhile.
    let own = written.iter().enumerate().filter(of_main);
    let own = own
        .max_by_key(|(_, one)| (one.owner.is_us(), one.is_last))
        .map(|(i, _)| i);
    own.or((!written.is_empty()).then_some(0))
}

/// Names the children's folder after the program's profile, because the program may have become
/// another one meanwhile.
fn name_folder(written: &mut [WrittenProfile], folder: &Path, ended: &ProgramExit) {
    // Other users may report any name, but the folder is renamed with heapprof's rights. So only a
    // process with all of this user's rights names the folder.
    let of_main = |one: &&WrittenProfile| {
        let is_ours = one.owner.is_us() && one.rights.are_ours();
        is_ours && one.process == ended.process && one.is_last
    };
    let Some(main) = written.iter().find(of_main) else {
        return;
    };
    let Some(name) = main.path.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    let name = name.strip_suffix(".pb.gz").unwrap_or(name).to_string() + CHILDREN_SUFFIX;
    let wanted = main.path.with_file_name(name);
    let is_beside = folder.parent() == wanted.parent();
    if !is_beside || folder == wanted || !files::rename_folder(folder, &wanted) {
        return;
    }
    for one in written {
        if one.path.parent() == Some(folder)
            && let Some(name) = one.path.file_name()
        {
            one.path = wanted.join(name);
        }
    }
}

/// Prints where the profiles are, what is in them, and what is missing in them.
fn report_profiles(
    recorded: &[RecordedProfile],
    main: usize,
    small: usize,
    ending: &ProcessEndings,
    args: &RecordArgs,
) {
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
    line += &others(recorded, main, small);
    line += &ending.describe_private(of.process);
    line += &ending.describe_unrecorded();
    let question = match next.written.in_use < next.written.peak / 10 {
        true => "-t peak_space ",
        false => "",
    };
    let next_path = shown(&next.written.path);
    let has_values = next
        .details
        .as_ref()
        .is_ok_and(|details| details.has_values);
    let command = match has_values {
        true => "leaks -t sv_inuse_space".to_string(),
        false => format!("top {question}").trim_end().to_string(),
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
            "{next_path}: {text}: the program frees by calls that heapprof does not see"
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
        && let Some(reason) =
            details.and_then(|details| unhooked::own_allocator(of, &details.program))
    {
        messages::note(&reason);
    } else if let Some(text) = few_samples(next) {
        messages::note(&format!("{next_path}: {text}"));
    }
}

/// Returns the profile in which there is most to see. A program that a script starts may be the one
/// that the user meant.
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

/// Describes how many profiles there are besides the main one, which of them are the largest if
/// they exceed the main one, and how many were left out.
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
        said.push(small_children::describe_left_out(small));
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

fn most_resident(recorded: &[RecordedProfile]) -> Option<&RecordedProfile> {
    recorded
        .iter()
        .max_by_key(|one| one.peak_resident())
        .filter(|one| one.peak_resident() > 0)
}

/// Explains that values are made of few samples or are uncertain, and what would make them better.
fn few_samples(one: &RecordedProfile) -> Option<String> {
    /// With fewer samples than this, an error of a third is usual.
    const MIN_SAMPLES: u64 = 30;
    const WANTED_SAMPLES: i64 = 1000;
    /// Number of samples of equal weight that make a sum certain to a fifth, with 95 % confidence.
    const MIN_SAMPLES_FOR_A_FIFTH: f64 = 96.0;
    /// Number of samples of equal weight that make a sum certain to a tenth, with 95 % confidence.
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
    // If nothing is in use, no estimate can be better.
    if variance <= 0.0 || equal >= MIN_SAMPLES_FOR_A_FIFTH {
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

/// Explains why the profile is not the one that the program would have written at its end, if it is
/// not.
fn explain_not_last(ended: &ProgramExit, left_own: bool, main: &WrittenProfile) -> Option<String> {
    let how = match ended.signal {
        Some(signal) => format!("was ended by signal {signal}"),
        None => "ended".to_string(),
    };
    if !left_own {
        return Some(format!(
            "the program {how} and left no profile of its own; this is the profile of a child"
        ));
    }
    if main.is_before_exec {
        return Some(
            "the program became another one by exec, which left no profile (static, setuid, of \
             another C library, or started with an environment of its own); this is the profile of \
             what it was before"
                .to_string(),
        );
    }
    (!main.is_last).then(|| {
        format!("the program {how} without a last profile; this is the last one it wrote before")
    })
}

/// Explains that a process went on after its profile, without being recorded.
fn explain_filter(recorded: &[RecordedProfile], main: usize) -> Option<String> {
    let is_one = |one: &&RecordedProfile| one.written.is_before_filter;
    let all = recorded.iter().filter(is_one).count();
    let first = Some(&recorded[main]).filter(is_one);
    let first = first.or_else(|| recorded.iter().find(is_one))?;
    let others = match all - 1 {
        0 => String::new(),
        n => format!(" (and so do {n} more profile{})", plural(n)),
    };
    Some(format!(
        "{}: ends where the program installed a filter of system calls (seccomp) that would have \
         ended it for writing a profile{others}; what it held afterwards is not in it; heapprof \
         watch shows how much that is",
        shown(&first.written.path)
    ))
}

/// Explains why profiles have only addresses. Addresses are no less right than names.
fn explain_missing_names(unnamed: &[&anyhow::Error]) -> Option<String> {
    let first = unnamed.first()?;
    let which = match unnamed.len() {
        1 => "a profile is without names".to_string(),
        n => format!("{n} profiles are without names, the first one because"),
    };
    Some(format!(
        "{which}: {first:#}; heapprof symbolize -o OUT FILE writes a profile with names elsewhere"
    ))
}

/// Returns the word before an estimate.
fn about(of: &WrittenProfile) -> &'static str {
    if of.is_exact { "" } else { "about " }
}

/// Summarises the program's own profile. How certain the peak is can't be computed, because the
/// estimate chooses its moment.
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
