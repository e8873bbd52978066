//! What a recording left: profiles symbolized in place, and one line that says where they are and what is in them.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use heapprof_profile::{Profile, decode, encode};
use heapprof_report::Measure;
use heapprof_symbolize::program::{Obstacle, inspect};
use heapprof_symbolize::{Options, symbolize};

use super::child::Ended;
use crate::{messages, output};

/// Reads, symbolizes and tells.
pub(super) fn report(written: &[PathBuf], ended: &Ended, with_symbols: bool) {
    let mut paths: Vec<&PathBuf> = Vec::new();
    let failed = written
        .iter()
        .filter_map(|line| line.to_str()?.strip_prefix('!'));
    let failed: std::collections::BTreeSet<&str> = failed.collect();
    for error in &failed {
        messages::note(&format!("a profile could not be written: {error}"));
    }
    for path in written {
        // An exec that failed takes its profile back; a name that is written twice holds the last.
        if !paths.contains(&path) && path.exists() {
            paths.push(path);
        }
    }
    let mut main = None;
    for &path in &paths {
        match finish(path, with_symbols) {
            Ok(profile) => {
                let own = comment(&profile, "pid: ").and_then(|pid| pid.parse().ok())
                    == Some(ended.process);
                if own || main.is_none() {
                    main = Some((path, profile));
                }
            }
            Err(error) => messages::error(&error),
        }
    }
    let Some((path, profile)) = main else {
        if failed.is_empty() {
            messages::note(&nothing(ended));
        }
        return;
    };
    let mut line = format!("{}: {}", shown(path), summary(&profile));
    if paths.len() > 1 {
        let others = paths.len() - 1;
        line += &format!(
            " (and {others} more profile{})",
            if others == 1 { "" } else { "s" }
        );
    }
    line += &format!("; next: heapprof top {}", quoted(&shown(path)));
    messages::note(&line);
    if let Some(reason) = own_allocator(&profile) {
        messages::note(&reason);
    }
    let last = comment(&profile, "dump: ")
        .is_some_and(|d| ["exit", "terminated by a signal"].contains(&d));
    if let (Some(signal), false) = (ended.signal, last) {
        messages::note(&format!(
            "the program was ended by signal {signal} without a last profile; this is the last one it wrote before"
        ));
    }
}

/// Symbolizes a profile in its place.
fn finish(path: &Path, with_symbols: bool) -> Result<Profile> {
    let unreadable = || path.display().to_string();
    let mut profile =
        decode(File::open(path).with_context(unreadable)?).with_context(unreadable)?;
    if with_symbols {
        let summary = symbolize(&mut profile, &Options::default());
        if summary.resolved() > 0 {
            output::write(Some(path), |writer| Ok(encode(&profile, writer)?))?;
        }
    }
    Ok(profile)
}

fn comment<'a>(profile: &'a Profile, key: &str) -> Option<&'a str> {
    profile
        .comment
        .iter()
        .find_map(|&c| profile.text(c).strip_prefix(key))
}

fn total(profile: &Profile, sample_type: &str) -> i128 {
    let Ok(column) = profile.find_sample_type(sample_type) else {
        return 0;
    };
    let samples = &profile.samples;
    (0..samples.len())
        .map(|i| i128::from(samples.values(i)[column]))
        .sum()
}

fn summary(profile: &Profile) -> String {
    let bytes = |sample_type| match Measure::new("bytes", None) {
        Ok(measure) => measure.show(total(profile, sample_type)),
        Err(_) => total(profile, sample_type).to_string(),
    };
    let sampled = profile.period > 1;
    let n = profile.samples.len();
    let about = if sampled { "about " } else { "" };
    let kind = if sampled { "sampled stack" } else { "stack" };
    format!(
        "{about}{} in use at the end, peak {about}{}, {n} {kind}{}",
        bytes("inuse_space"),
        bytes("peak_space"),
        if n == 1 { "" } else { "s" }
    )
}

/// Why a profile is empty, where the program (perhaps one that a script started) has malloc inside itself.
fn own_allocator(profile: &Profile) -> Option<String> {
    let program = profile.text(profile.mapping.first()?.filename);
    if !profile.samples.is_empty() {
        return None;
    }
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
        None => "no profile was written: the program was not reached by the library (static, setuid, or started with \
                 an environment of its own), or could not write where it should"
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
    if path.chars().all(plain) {
        path.to_string()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}
