//! What a recording left: profiles symbolized in place, and one line that says where they are and what is in them.

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use heapprof_profile::{Profile, decode, encode};
use heapprof_report::Measure;
use heapprof_symbolize::program::{Obstacle, inspect};
use heapprof_symbolize::{Options, Summary, Symbolizer};

use super::child::Ended;
use super::written::{Failed, Written};
use crate::{messages, output};

/// Symbolizes and tells.
pub(super) fn report(written: Vec<Written>, failed: &[Failed], ended: &Ended, with_symbols: bool) {
    for failed in failed {
        messages::note(&failed.text());
    }
    // An exec that failed takes its profile back. What went into a pipe is there no more.
    let (written, elsewhere): (Vec<_>, Vec<_>) =
        written.into_iter().partition(|one| one.path.is_file());
    let left_own = written.iter().any(|one| one.process == ended.process);
    // The last is not always the latest: what it waits for may go on meanwhile.
    let of_main = |one: &&Written| one.process == ended.process;
    let own = written.iter().filter(of_main).max_by_key(|one| one.is_last);
    let Some(main) = own.or(written.first()) else {
        match elsewhere.iter().find(|one| one.path.exists()) {
            Some(piped) => messages::note(&format!(
                "{}: the profile was written into it; its addresses have no names",
                piped.path.display()
            )),
            None if failed.is_empty() => messages::note(&nothing(ended)),
            None => {}
        }
        return;
    };
    // What a script starts may be what was meant.
    let largest = largest(&written).filter(|one| one.peak / 2 > main.peak);
    let next = largest.unwrap_or(main);
    let addresses = match with_symbols {
        true => name_all(&written, main, next),
        false => None,
    };
    let path = shown(&main.path);
    let mut line = format!("{path}: {}", summary(main));
    if written.len() > 1 {
        line += &format!(" ({})", others(&written, main));
    }
    let question = match next.in_use < next.peak / 10 {
        true => "-t peak_space ",
        false => "",
    };
    line += &format!(
        "; next: heapprof top {question}{}",
        quoted(&shown(&next.path))
    );
    messages::note(&line);
    if let Some(addresses) = addresses {
        messages::note(&addresses);
    }
    if main.lost > 0 {
        messages::note(&format!(
            "{} allocations and frees could not be recorded, so the numbers are too low or too high; heapprof info {} says why",
            main.lost,
            quoted(&path)
        ));
    } else if main.stacks == 0 {
        match own_allocator(main) {
            Some(reason) => messages::note(&reason),
            None if written.iter().all(|one| one.stacks == 0) && !main.is_exact => messages::note(
                "nothing was sampled, for little was allocated; --exact records every allocation, a shorter --period more of them",
            ),
            None => {}
        }
    }
    // What could not be written may have been the last one.
    if failed.is_empty()
        && let Some(why) = not_the_last(ended, left_own, main)
    {
        messages::note(&why);
    }
}

/// Symbolizes all profiles. The main one stays the newest here, which commands read when none is named. That most of the `next`
/// one to look at has no names, if so.
fn name_all(written: &[Written], main: &Written, next: &Written) -> Option<String> {
    // The processes of a recording have the same libraries.
    let mut symbolizer = Symbolizer::new(Options::default());
    let (mut unnamed, mut addresses) = (Vec::new(), None);
    for one in written {
        match name_frames(&one.path, &mut symbolizer) {
            Ok(summary) if one.path == next.path => {
                addresses = mostly_addresses(&summary, &shown(&one.path));
            }
            Ok(_) => {}
            Err(error) => unnamed.push(error),
        }
    }
    if let Ok(file) = File::options().append(true).open(&main.path) {
        let _ = file.set_modified(SystemTime::now());
    }
    if let Some(why) = nameless(&unnamed) {
        messages::note(&why);
    }
    addresses
}

/// How many profiles there are beside the main one, and which had the most, if that had more.
fn others(written: &[Written], main: &Written) -> String {
    let n = written.len() - 1;
    let mut text = format!("and {n} more profile{}", plural(n));
    if let Some(largest) = largest(written).filter(|one| one.peak > main.peak) {
        text += &format!(
            ", the largest {} with a peak of {}{}",
            shown(&largest.path),
            about(largest),
            bytes(largest.peak)
        );
    }
    text
}

fn largest(written: &[Written]) -> Option<&Written> {
    written.iter().max_by_key(|one| one.peak)
}

/// Why the profile is not the one that the program would have written at its end, if it is not.
fn not_the_last(ended: &Ended, left_own: bool, main: &Written) -> Option<String> {
    let how = match ended.signal {
        Some(signal) => format!("was ended by signal {signal}"),
        None => "ended".to_string(),
    };
    if !left_own {
        return Some(format!(
            "the program {how} and left no profile of its own; this is one of a child's"
        ));
    }
    if main.is_before_exec {
        return Some(
            "the program became another one by exec, which left no profile (static, setuid, of another C library, or \
             started with an environment of its own); this is of what it was before"
                .to_string(),
        );
    }
    (!main.is_last).then(|| {
        format!("the program {how} without a last profile; this is the last one it wrote before")
    })
}

fn read(path: &Path) -> Result<Profile> {
    let unreadable = || path.display().to_string();
    decode(File::open(path).with_context(unreadable)?).with_context(unreadable)
}

/// Symbolizes a profile in its place.
fn name_frames(path: &Path, symbolizer: &mut Symbolizer) -> Result<Summary> {
    let mut profile = read(path)?;
    let summary = symbolizer.symbolize(&mut profile);
    if summary.resolved() > 0 {
        output::write(Some(path), |writer| Ok(encode(&profile, writer)?))?;
    }
    Ok(summary)
}

/// That the reports will show addresses, if more than half of the places are without names, and what would help.
fn mostly_addresses(summary: &Summary, path: &str) -> Option<String> {
    let (seen, resolved) = (summary.seen(), summary.resolved());
    if resolved * 2 >= seen {
        return None;
    }
    let worst = summary.files.iter().max_by_key(|f| f.seen - f.resolved);
    let Some(worst) = worst.filter(|f| f.seen - f.resolved >= summary.unmapped) else {
        return Some(format!(
            "{path}: {} of {seen} places have no names: their code is in no file",
            seen - resolved
        ));
    };
    Some(format!(
        "{path}: {} of {seen} places have no names, most of them in {}, which has no symbols for them; heapprof symbolize --debug-dir DIR {} names them \
         when its debug file is in DIR",
        seen - resolved,
        worst.name,
        quoted(path)
    ))
}

/// Why profiles have addresses only, which are no less right.
fn nameless(unnamed: &[anyhow::Error]) -> Option<String> {
    let first = unnamed.first()?;
    let which = match unnamed.len() {
        1 => "a profile is without names".to_string(),
        n => format!("{n} profiles are without names, the first one because"),
    };
    Some(format!(
        "{which}: {first:#}; heapprof symbolize -o OUT FILE writes them elsewhere"
    ))
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn bytes(n: i64) -> String {
    Measure::new("bytes", None).map_or_else(|_| n.to_string(), |m| m.show(i128::from(n)))
}

/// What stands before an estimate.
fn about(of: &Written) -> &'static str {
    if of.is_exact { "" } else { "about " }
}

fn summary(main: &Written) -> String {
    let (about, kind) = (
        about(main),
        if main.is_exact {
            "stack"
        } else {
            "sampled stack"
        },
    );
    format!(
        "{about}{} in use {}, peak {about}{}, {} {kind}{}",
        bytes(main.in_use),
        if main.is_last { "at the end" } else { "then" },
        bytes(main.peak),
        main.stacks,
        plural(main.stacks)
    )
}

/// Why a profile is empty, if the program (perhaps one that a script started) has malloc inside itself.
fn own_allocator(main: &Written) -> Option<String> {
    let profile = read(&main.path).ok()?;
    let program = profile.text(profile.mapping.first()?.filename);
    let own = inspect(Path::new(program)).obstacles;
    let function = own.iter().find_map(|obstacle| match obstacle {
        Obstacle::OwnAllocator(function) => Some(function),
        _ => None,
    })?;
    Some(format!(
        "nothing was recorded because {program} has an allocator of its own linked in ({function}), which no library \
         is asked before"
    ))
}

/// Why there is no profile at all.
fn nothing(ended: &Ended) -> String {
    match ended.signal {
        Some(signal) => format!(
            "no profile: the program was ended by signal {signal} before it could write one; --interval 10s writes on \
             the way"
        ),
        None => "no profile was written: the program was not reached by the library (static, setuid, of another C library, or \
                 started with an environment of its own), ended by a bare exit_group, or could not write where it should"
            .to_string(),
    }
}

/// The path from here, if it is below here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// As a shell wants it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if path.starts_with('-') {
        return quoted(&format!("./{path}"));
    }
    if path.chars().all(plain) {
        path.to_string()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}
