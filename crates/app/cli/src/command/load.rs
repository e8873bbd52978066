//! `heapprof db load`: loads profiles into the database.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Result, bail};
use heapprof_analysis::{QuestionSource, moment_labels::labels_of};
use heapprof_stores::{
    DatabaseLoader, LabelledProfile, StoreBackend, StoreOutcome, load_into_clickhouse,
};

use super::report;
use crate::args::LoadArgs;
use crate::context::CommandContext;
use crate::progress::WorkBar;
use crate::{messages, name};

pub(super) fn run(context: &CommandContext, args: &LoadArgs) -> Result<()> {
    let mode = args.file_mode.mode()?;
    let (names, profiles) = match &args.name {
        Some(name) => {
            if name.is_empty() || name == "-" || name.contains('/') {
                bail!(
                    "--as {name:?}: a profile of this name could not be read later; use a name \
                     without /"
                );
            }
            (vec![name.clone()], vec![args.profiles.clone()])
        }
        None => {
            let profiles = report::expand_names(&args.profiles)?;
            let names = profiles.iter().map(|p| stem(p));
            let names = names.collect::<Result<Vec<_>>>()?;
            (names, profiles.into_iter().map(|p| vec![p]).collect())
        }
    };
    let mut seen = HashSet::new();
    if let Some(name) = names.iter().find(|name| !seen.insert(*name)) {
        bail!("two of the files would be loaded as {name:?}; load them one by one with --as");
    }
    let each = names.iter().zip(&profiles);
    match context.sources.backend() {
        StoreBackend::ClickHouse(address) if args.file_mode.is_typed() => {
            bail!("{address}: --file-mode has no effect there")
        }
        StoreBackend::ClickHouse(address) => {
            let labelled =
                each.map(|(name, files)| label_profile(name, context.sources.read(files)?, args));
            let count = load_into_clickhouse(address, labelled)?;
            let there = messages::already_stored_suffix(count.skipped);
            let loaded = count.loaded;
            messages::note(&format!("loaded {loaded} profiles into {address}{there}"));
            Ok(())
        }
        _ => {
            let db = context.sources.db();
            let shown = db.display();
            let mut database = DatabaseLoader::new(db, mode.0);
            let count = names.len();
            let says_so = count <= MAX_LISTED_PROFILES;
            let mut failed = 0;
            for (name, files) in each {
                let read = || label_profile(name, context.sources.read(files)?, args);
                let mut bar = None;
                let stored = database.load(name, read, &mut |done, all| {
                    bar.get_or_insert_with(WorkBar::storing).at(done, Some(all));
                });
                drop(bar);
                match stored {
                    Err(error) if count > 1 => {
                        messages::note(&format!("{error:#}"));
                        failed += 1;
                    }
                    Err(error) => return Err(error),
                    Ok(StoreOutcome::Loaded) if says_so => {
                        messages::note(&format!("loaded {name} into {shown}"));
                    }
                    Ok(StoreOutcome::Skipped) if says_so => {
                        messages::note(&format!("{shown} has {name} already"));
                    }
                    Ok(_) => {}
                }
            }
            if !says_so {
                let loaded = database.count().loaded;
                let there = messages::already_stored_suffix(database.count().skipped);
                messages::note(&format!("loaded {loaded} profiles into {shown}{there}"));
            }
            if let Some(samples) = database.find_new_large_size()? {
                messages::note(&format!("{shown}: {}", size_hint(samples)));
            }
            if failed > 0 {
                bail!("{failed} of {count} profiles were not loaded");
            }
            Ok(())
        }
    }
}

/// Maximum number of profiles that the output names one by one.
const MAX_LISTED_PROFILES: usize = 20;

/// Returns a profile with its labels, and with the time that the user gave.
fn label_profile(name: &str, source: QuestionSource, args: &LoadArgs) -> Result<LabelledProfile> {
    let mut profile = source.profile;
    if let Some(time) = args.time {
        Arc::make_mut(&mut profile).time_nanos = time;
    }
    let mut labels = labels_of(&profile);
    labels.extend(args.label.iter().cloned());
    Ok((name.to_string(), profile, labels))
}

/// Returns the advice for a database that has become too large for one file.
fn size_hint(samples: i64) -> String {
    format!(
        "has {} million samples, a lot for one file: queries over all of them take seconds. \
         heapprof db prune thins out old ones; export --parquet and --store clickhouse://… can \
         handle more",
        samples / 1_000_000
    )
}

/// Returns a file's name without its folder and endings.
fn stem(profile: &str) -> Result<String> {
    let path = name::path(profile);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let name = match name {
        Some(name) if profile != "-" && !profile.contains("://") => name,
        _ => bail!("{profile}: has no file name to load it under; give a name with --as"),
    };
    let mut stem = name.as_str();
    for ending in [".gz", ".pb", ".pprof", ".prof", ".heap"] {
        stem = stem.strip_suffix(ending).unwrap_or(stem);
    }
    Ok(if stem.is_empty() {
        name
    } else {
        stem.to_string()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn stems() {
        let table = [
            ("a/b.pb.gz", "b"),
            ("x.heap", "x"),
            ("monday", "monday"),
            (".gz", ".gz"),
        ];
        for (file, expected) in table {
            assert_eq!(super::stem(file).unwrap(), expected);
        }
        assert!(super::stem("-").is_err());
        assert!(super::stem("http://localhost:6060/debug/pprof/heap").is_err());
    }
}
