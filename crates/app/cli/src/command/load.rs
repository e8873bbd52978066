//! `heapprof load`: loads profiles into the database.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{AnalysisError, ProfileStore, QuestionSource, labels_of};

use super::report;
use crate::args::{FileMode, LoadArgs};
use crate::backend::StoreBackend;
use crate::clickhouse::{self, LabelledProfile};
use crate::context::CommandContext;
use crate::progress::WorkBar;
use crate::{messages, name, output};

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
            let profiles = report::expand_names(&context.sources, &args.profiles)?;
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
        StoreBackend::ClickHouse(address) => clickhouse::load(
            address,
            each.map(|(name, files)| label_profile(name, context.sources.read(files)?, args)),
        ),
        _ => {
            let mut database = LazyDatabase {
                path: context.sources.db(),
                mode,
                store: None,
                more: 0,
                loaded: 0,
                there: 0,
            };
            let count = names.len();
            let mut failed = 0;
            for (name, files) in each {
                let read = || label_profile(name, context.sources.read(files)?, args);
                match database.load(name, read, count <= MAX_LISTED_PROFILES) {
                    Err(error) if count > 1 => {
                        messages::note(&format!("{error:#}"));
                        failed += 1;
                    }
                    done => done?,
                }
            }
            database.end(count)?;
            if failed > 0 {
                bail!("{failed} of {count} profiles were not loaded");
            }
            Ok(())
        }
    }
}

/// Maximum number of profiles that are named one by one.
const MAX_LISTED_PROFILES: usize = 20;

/// Returns a profile with its labels, and with the time that was typed.
fn label_profile(name: &str, source: QuestionSource, args: &LoadArgs) -> Result<LabelledProfile> {
    let mut profile = source.profile;
    if let Some(time) = args.time {
        Arc::make_mut(&mut profile).time_nanos = time;
    }
    let mut labels = labels_of(&profile);
    labels.extend(args.label.iter().cloned());
    Ok((name.to_string(), profile, labels))
}

/// A database that is opened once, and made when there is something to store.
struct LazyDatabase<'a> {
    path: &'a Path,
    mode: FileMode,
    store: Option<ProfileStore>,
    /// Number of samples that were loaded.
    more: i64,
    /// Number of profiles that were loaded; `there` counts those that were stored already.
    loaded: usize,
    there: usize,
}

impl LazyDatabase<'_> {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn open_store(&mut self) -> Result<&mut ProfileStore> {
        if self.store.is_none() {
            let store = ProfileStore::open_or_create(self.path).with_context(|| self.name())?;
            self.store = Some(store);
        }
        Ok(self.store.as_mut().expect("it was opened"))
    }

    /// Loads the profile that `read` returns. A profile that the database has already is left as it
    /// is.
    fn load(
        &mut self,
        name: &str,
        read: impl FnOnce() -> Result<LabelledProfile>,
        says_so: bool,
    ) -> Result<()> {
        let is_taken = self.path.exists() && self.open_store()?.find(name).is_ok();
        let labelled = read()?;
        if !is_taken {
            return self.add(labelled, says_so);
        }
        let shown = self.name();
        let is_same = self.open_store()?.has_same(name, &labelled.1);
        if !is_same.with_context(|| shown.clone())? {
            return Err(AnalysisError::NameTaken(name.to_string())).with_context(|| shown);
        }
        self.there += 1;
        if says_so {
            messages::note(&format!("{shown} has {name} already"));
        }
        Ok(())
    }

    fn add(&mut self, (name, profile, labels): LabelledProfile, says_so: bool) -> Result<()> {
        let shown = self.name();
        let named = || shown.clone();
        output::make_for_own(self.path, self.mode)?;
        let store = self.open_store()?;
        let mut bar = WorkBar::storing();
        store
            .load_labelled(&name, &profile, &labels, &mut |done, all| {
                bar.at(done, Some(all))
            })
            .with_context(named)?;
        drop(bar);
        if says_so {
            messages::note(&format!("loaded {name} into {shown}"));
        }
        self.loaded += 1;
        self.more = self.more.saturating_add(profile.samples.len() as i64);
        Ok(())
    }

    /// Prints what was done with `count` profiles, and what to do next if the database has become
    /// large.
    fn end(&mut self, count: usize) -> Result<()> {
        let shown = self.name();
        if count > MAX_LISTED_PROFILES {
            let (loaded, there) = (self.loaded, messages::already_stored_suffix(self.there));
            messages::note(&format!("loaded {loaded} profiles into {shown}{there}"));
        }
        if self.store.is_none() {
            return Ok(());
        }
        let more = self.more;
        let samples = self
            .open_store()?
            .samples()
            .with_context(|| shown.clone())?;
        if let Some(hint) = hint(samples, more) {
            messages::note(&format!("{shown}: {hint}"));
        }
        Ok(())
    }
}

/// Number of samples that is large for one SQLite file.
const LARGE_DATABASE_SAMPLES: i64 = 50_000_000;

/// Returns advice if the last `more` samples have filled the database to a multiple of
/// `LARGE_DATABASE_SAMPLES`. `samples` is the number of samples that it has now.
fn hint(samples: i64, more: i64) -> Option<String> {
    let before = samples.saturating_sub(more);
    let is_next = samples / LARGE_DATABASE_SAMPLES > before / LARGE_DATABASE_SAMPLES;
    is_next.then(|| {
        format!(
            "has {} million samples, which is much for one file: questions about all of them take \
             seconds. heapprof prune thins old ones out; export --parquet and --store \
             clickhouse://… go on from here",
            samples / 1_000_000
        )
    })
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
    fn a_full_database_is_told_once() {
        use super::{LARGE_DATABASE_SAMPLES, hint};

        assert_eq!(hint(LARGE_DATABASE_SAMPLES - 1, 1000), None);
        let note = hint(LARGE_DATABASE_SAMPLES + 1, 1000).unwrap();
        assert!(note.starts_with("has 50 million samples") && note.contains("--parquet"));
        assert_eq!(hint(LARGE_DATABASE_SAMPLES + 1001, 1000), None);
        assert!(hint(2 * LARGE_DATABASE_SAMPLES, 1).is_some());
    }

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
