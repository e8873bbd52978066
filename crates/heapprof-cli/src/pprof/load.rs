//! From the sources to the one profile that is reported on: read, merge, subtract the base,
//! symbolize.

use anyhow::{Result, anyhow, bail};
use heapprof_analysis::reshape;
use heapprof_profile::{Profile, StringId, UnitRules, merge_as_pprof};
use heapprof_report::pprof::{convertible, scale};

use super::config::Config;
use super::{binaries, remote, saved, symbols};
use crate::messages;
use crate::source::{Seen, Sources, as_pprof_sees_it, say_warnings};

/// The label that marks samples of a base that stays in sight.
const BASE: (&str, &str) = ("pprof::base", "true");

const UNITS: UnitRules = UnitRules {
    scale: |value, from, to| scale(value, from, to).0,
    convertible,
};

/// As many profiles are merged at a time, and their sums then.
const CHUNK: usize = 128;

/// Which frames stay, and how their functions are called.
#[derive(Clone, Copy)]
pub(super) enum Keep {
    /// What the flags and the profile say.
    AsAsked,
    /// All, as another tool reads them, with whole names.
    AllFrames(Reader),
}

/// How another tool reads profiles.
#[derive(Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) seen: Seen,
    /// Names the addresses that have no symbol. It is told of each mapping whether its file is
    /// here.
    pub(crate) name_the_rest: fn(&mut Profile, &[bool]),
}

/// The profile of all sources, ready to be filtered.
pub(super) fn load(sources: &Sources, config: &Config, keep: Keep) -> Result<Profile> {
    let seen: Seen = match keep {
        Keep::AsAsked => as_pprof_sees_it,
        Keep::AllFrames(reader) => reader.seen,
    };
    let (mut profile, mut save) = all(sources, &config.sources, "source", config, seen)?;
    if let Some(base) = &config.base {
        let (mut base, save_base) = all(sources, std::slice::from_ref(base), "base", config, seen)?;
        save |= save_base;
        if config.diff {
            reshape::set_label(&mut base, BASE.0, BASE.1);
        }
        if config.flags.on("normalize") {
            profile.normalize_as_pprof(&base)?;
        }
        base.scale_as_pprof(&vec![-1.0; base.sample_type.len()]);
        profile = merged(vec![profile, base])?;
    }
    if config.flags.on("all_frames") || matches!(keep, Keep::AllFrames(_)) {
        profile.drop_frames = StringId::EMPTY;
        profile.keep_frames = StringId::EMPTY;
    }
    match keep {
        Keep::AsAsked => symbols::symbolize(&mut profile, config.flags.text("symbolize")),
        Keep::AllFrames(reader) => {
            symbols::symbolize_locally(&mut profile, reader.name_the_rest);
        }
    }
    if let Err(why) = reshape::drop_uninteresting(&mut profile) {
        messages::note(&format!(
            "the profile's drop_frames or keep_frames is {why}; no frame is dropped"
        ));
    }
    binaries::forget_urls(&mut profile);
    let comment = config.flags.text("add_comment");
    if !comment.is_empty() {
        let comment = profile.strings.intern(comment);
        profile.comment.push(comment);
    }
    if save {
        saved::save(&profile);
    }
    Ok(profile)
}

/// Reads and merges sources; those that can't be read are named and left out, unless none is left.
/// Whether any came from a server.
fn all(
    sources: &Sources,
    names: &[String],
    what: &str,
    config: &Config,
    seen: Seen,
) -> Result<(Profile, bool)> {
    let mut sum: Option<Profile> = None;
    let (mut read, mut remote) = (0, false);
    for chunk in names.chunks(CHUNK) {
        let mut profiles = Vec::new();
        for name in chunk {
            match one(sources, name, config, seen) {
                Ok((profile, from_server)) => {
                    profiles.push(profile);
                    remote |= from_server;
                }
                Err(error) => messages::note(&format!("{error:#}")),
            }
        }
        read += profiles.len();
        if profiles.is_empty() {
            continue;
        }
        let problem = |error| anyhow!("problem fetching {what} profiles: {error}");
        let of_chunk = merged(profiles).map_err(problem)?;
        sum = Some(match sum {
            None => of_chunk,
            Some(before) => merged(vec![before, of_chunk]).map_err(problem)?,
        });
    }
    let Some(sum) = sum else {
        bail!("failed to fetch any {what} profiles");
    };
    if read < names.len() {
        messages::note(&format!(
            "Fetched {read} {what} profiles out of {}",
            names.len()
        ));
    }
    Ok((sum, remote))
}

/// Profiles added up; what 64 bits do not hold wraps, as in pprof, but not without a word.
fn merged(profiles: Vec<Profile>) -> Result<Profile, heapprof_profile::Error> {
    if profiles.len() > 1 && !together_fit(&profiles) {
        messages::note(
            "the sum of the profiles does not fit in 64 bits in each of their types; as in pprof, \
             such sums wrap around",
        );
    }
    merge_as_pprof(profiles, UNITS)
}

/// Whether 64 bits hold the sum of all samples, whichever type.
fn together_fit(profiles: &[Profile]) -> bool {
    let widest = profiles.iter().map(|p| p.sample_type.len()).max();
    (0..widest.unwrap_or(0)).all(|column| {
        let sum: u128 = profiles
            .iter()
            .flat_map(|p| (0..p.samples.len()).filter_map(move |i| p.samples.values(i).get(column)))
            .map(|value| u128::from(value.unsigned_abs()))
            .sum();
        i64::try_from(sum).is_ok()
    })
}

/// One source's profile, and whether it came from a server.
fn one(sources: &Sources, name: &str, config: &Config, seen: Seen) -> Result<(Profile, bool)> {
    let address = remote::address(name, &config.flags);
    let mut profile = match &address {
        Some(address) => {
            let transfer = remote::transfer(address, &config.flags)?;
            messages::note(&format!("Fetching profile over HTTP from {}", address.url));
            sources.fetched(&address.url, &transfer, seen)?
        }
        None => sources.unmerged(name, seen)?,
    };
    // Text that is not UTF-8 is changed, which pprof would not do.
    say_warnings(name, &profile);
    binaries::locate(&mut profile, config);
    if let Some(address) = &address {
        binaries::name_by_url(&mut profile, &address.url);
    }
    Ok((profile, address.is_some()))
}
