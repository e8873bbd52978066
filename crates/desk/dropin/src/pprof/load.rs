//! Loads the sources as one profile: reads, merges, subtracts the base, symbolizes.

use std::path::PathBuf;

use crate::report::{convertible, scale};
use crate::reshape;
use anyhow::{Result, anyhow, bail};
use heapprof_profile::{Profile, StringId, UnitRules, merge_as_pprof};

use super::config::PprofConfig;
use super::remote::RemoteAddress;
use super::remote_symbols::MappingServers;
use super::{binaries, profile_copy, remote, symbols};
use crate::host::{DropinHost, ToolReadOptions};

/// The label that marks the samples of the base of `-diff_base`.
const BASE_LABEL: (&str, &str) = ("pprof::base", "true");

const UNIT_RULES: UnitRules = UnitRules {
    scale: |value, from, to| scale(value, from, to).0,
    convertible,
};

/// Maximum number of profiles that are merged at a time. Their sum is then merged with the sum so
/// far.
const MAX_MERGED_AT_ONCE: usize = 128;

/// Selection of frames to keep, and of the style of function names.
#[derive(Clone, Copy)]
pub(super) enum PprofFrameSelection {
    /// The frames that the flags and the profile select.
    AsRequested(ToolReadOptions),
    /// All frames, with unshortened names, as another tool reads them.
    AllFrames(ToolReader),
}

/// Functions and options with which another tool reads profiles.
#[derive(Clone, Copy)]
pub(crate) struct ToolReader {
    pub(crate) how: ToolReadOptions,
    /// Function that names addresses without a symbol. The slice holds, for each mapping, whether
    /// its file is on this machine.
    pub(crate) name_unsymbolized: fn(&mut Profile, &[bool]),
}

/// Loads the profile of all sources, ready to be filtered. Also returns the file in which it was
/// saved, if a server sent it.
pub(super) fn load(
    config: &PprofConfig<'_>,
    keep: PprofFrameSelection,
) -> Result<(Profile, Option<PathBuf>)> {
    let how = match keep {
        PprofFrameSelection::AsRequested(how) => how,
        PprofFrameSelection::AllFrames(reader) => reader.how,
    };
    let mut servers = MappingServers::default();
    let (mut profile, mut save) = load_all(&config.sources, "source", config, how, &mut servers)?;
    if let Some(base) = &config.base {
        let (mut base, save_base) = load_all(
            std::slice::from_ref(base),
            "base",
            config,
            how,
            &mut servers,
        )?;
        save |= save_base;
        if config.diff {
            reshape::set_label(&mut base, BASE_LABEL.0, BASE_LABEL.1);
        }
        if config.flags.is_on("normalize") {
            profile.normalize_as_pprof(&base)?;
        }
        base.scale_as_pprof(&vec![-1.0; base.sample_type.len()]);
        profile = merge_profiles(config.host, vec![profile, base])?;
    }
    if config.flags.is_on("all_frames") || matches!(keep, PprofFrameSelection::AllFrames(_)) {
        profile.drop_frames = StringId::EMPTY;
        profile.keep_frames = StringId::EMPTY;
    }
    match keep {
        PprofFrameSelection::AsRequested(_) => {
            symbols::symbolize(config, &mut profile, &servers);
        }
        PprofFrameSelection::AllFrames(reader) => {
            symbols::symbolize_locally(config.host, &mut profile, reader.name_unsymbolized);
        }
    }
    if let Err(why) = reshape::drop_uninteresting(&mut profile) {
        config.host.note(&format!(
            "the profile's drop_frames or keep_frames is {why}; no frame is dropped"
        ));
    }
    binaries::remove_urls(&mut profile);
    let comment = config.flags.text("add_comment");
    if !comment.is_empty() {
        let comment = profile.strings.intern(comment);
        profile.comment.push(comment);
    }
    let copy = match save {
        true => profile_copy::save(config.host, &profile),
        false => None,
    };
    Ok((profile, copy))
}

/// Reads and merges sources. A source that can't be read is left out, with a note. Fails if no
/// source can be read. Also returns whether any source came from a server; `servers` learns which
/// one.
fn load_all(
    names: &[String],
    what: &str,
    config: &PprofConfig<'_>,
    how: ToolReadOptions,
    servers: &mut MappingServers,
) -> Result<(Profile, bool)> {
    let mut sum: Option<Profile> = None;
    let (mut read, mut remote) = (0, false);
    for chunk in names.chunks(MAX_MERGED_AT_ONCE) {
        let mut profiles = Vec::new();
        for name in chunk {
            match load_one(name, config, how) {
                Ok((profile, server)) => {
                    if let Some(server) = server {
                        servers.add(&profile, &server);
                        remote = true;
                    }
                    profiles.push(profile);
                }
                Err(error) => config.host.note(&format!("{error:#}")),
            }
        }
        read += profiles.len();
        if profiles.is_empty() {
            continue;
        }
        let problem = |error| anyhow!("problem fetching {what} profiles: {error}");
        let of_chunk = merge_profiles(config.host, profiles).map_err(problem)?;
        sum = Some(match sum {
            None => of_chunk,
            Some(before) => merge_profiles(config.host, vec![before, of_chunk]).map_err(problem)?,
        });
    }
    let Some(sum) = sum else {
        bail!("failed to fetch any {what} profiles");
    };
    if read < names.len() {
        config.host.note(&format!(
            "Fetched {read} {what} profiles out of {}",
            names.len()
        ));
    }
    Ok((sum, remote))
}

/// Adds up profiles. Sums beyond 64 bits wrap, as in pprof, and a note tells the user.
fn merge_profiles(
    host: &dyn DropinHost,
    profiles: Vec<Profile>,
) -> Result<Profile, heapprof_profile::Error> {
    if profiles.len() > 1 && !together_fit(&profiles) {
        host.note(
            "in at least one sample type, the sum of the profiles does not fit in 64 bits; as in \
             pprof, it wraps around",
        );
    }
    merge_as_pprof(profiles, UNIT_RULES)
}

/// Whether, in each sample type, the sum of the absolute values of all samples fits in 64 bits.
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

/// Loads the profile of one source. Also returns the address of the server that it came from.
fn load_one(
    name: &str,
    config: &PprofConfig<'_>,
    how: ToolReadOptions,
) -> Result<(Profile, Option<RemoteAddress>)> {
    let address = remote::parse_address(name, config.host.path(name).exists(), &config.flags);
    let mut profile = match &address {
        Some(address) => {
            let transfer = remote::fetch_options(address, &config.flags)?;
            config
                .host
                .note(&format!("Fetching profile over HTTP from {}", address.url));
            config.host.fetch(&address.url, &transfer, how)?
        }
        None => config.host.read(name, how)?,
    };
    // Text that is not UTF-8 was changed, which pprof would not do.
    for warning in &profile.warnings {
        config.host.note(&format!("{name}: {warning}"));
    }
    binaries::locate(&mut profile, config);
    if let Some(address) = &address {
        binaries::name_by_url(&mut profile, &address.url);
    }
    Ok((profile, address))
}
