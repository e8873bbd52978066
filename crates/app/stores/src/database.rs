//! Makes and opens the database, and loads profiles into it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{AnalysisError, store::ProfileStore};
use heapprof_files::{PathTrust, TypedPath, resolve_typed};

use crate::load::{LabelledProfile, LoadCount, StoreOutcome};

/// Opens an existing database.
pub fn open_database(path: &Path) -> Result<ProfileStore> {
    if !path.exists() {
        bail!(
            "{}: there is no such database; heapprof db load creates it",
            path.display()
        );
    }
    ProfileStore::open(path).with_context(|| path.display().to_string())
}

/// Makes an empty file with the mode `mode` for a database, unless the file exists.
pub fn make_database(path: &Path, mode: u32) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    match resolve_typed(path, PathTrust::Any)? {
        TypedPath::Place(place, None) => place
            .make(mode)
            .with_context(|| format!("{}: cannot be written", path.display())),
        _ => Ok(()),
    }
}

/// Loads profiles into a database. The database is opened once. If it does not exist, it is made
/// when the first profile is stored.
pub struct DatabaseLoader<'a> {
    path: &'a Path,
    mode: u32,
    store: Option<ProfileStore>,
    /// Number of samples that were loaded so far.
    more: i64,
    count: LoadCount,
}

impl<'a> DatabaseLoader<'a> {
    /// Makes a loader for the database at `path`. A new database gets the mode `mode`.
    pub fn new(path: &'a Path, mode: u32) -> Self {
        Self {
            path,
            mode,
            store: None,
            more: 0,
            count: LoadCount::default(),
        }
    }

    /// Returns how many profiles were stored and skipped so far.
    pub fn count(&self) -> LoadCount {
        self.count
    }

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

    /// Stores a profile under `name`; `read` returns the profile. Skips the profile if the database
    /// already has it. Fails if the database has another profile of this name. `progress` gets the
    /// amount of work that is done so far, and the amount of all work.
    pub fn load(
        &mut self,
        name: &str,
        read: impl FnOnce() -> Result<LabelledProfile>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<StoreOutcome> {
        let is_taken = self.path.exists() && self.open_store()?.find(name).is_ok();
        let labelled = read()?;
        if !is_taken {
            self.add(labelled, progress)?;
            return Ok(StoreOutcome::Loaded);
        }
        let shown = self.name();
        let is_same = self.open_store()?.has_same(name, &labelled.1);
        if !is_same.with_context(|| shown.clone())? {
            return Err(AnalysisError::NameTaken(name.to_string())).with_context(|| shown);
        }
        self.count.skipped += 1;
        Ok(StoreOutcome::Skipped)
    }

    fn add(
        &mut self,
        (name, profile, labels): LabelledProfile,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let shown = self.name();
        make_database(self.path, self.mode)?;
        self.open_store()?
            .load_labelled(&name, &profile, &labels, progress)
            .with_context(|| shown)?;
        self.count.loaded += 1;
        self.more = self.more.saturating_add(profile.samples.len() as i64);
        Ok(())
    }

    /// Returns the number of samples in the database if loading has made it reach a multiple of
    /// `LARGE_DATABASE_SAMPLES`. Returns `None` otherwise.
    pub fn find_new_large_size(&mut self) -> Result<Option<i64>> {
        if self.store.is_none() {
            return Ok(None);
        }
        let (shown, more) = (self.name(), self.more);
        let samples = self.open_store()?.samples().with_context(|| shown)?;
        Ok(is_newly_large(samples, more).then_some(samples))
    }
}

/// Number of samples from which a database counts as large.
const LARGE_DATABASE_SAMPLES: i64 = 50_000_000;

/// Whether the last `more` samples made the database reach a multiple of `LARGE_DATABASE_SAMPLES`.
/// `samples` is the number of all samples now.
fn is_newly_large(samples: i64, more: i64) -> bool {
    let before = samples.saturating_sub(more);
    samples / LARGE_DATABASE_SAMPLES > before / LARGE_DATABASE_SAMPLES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_database_is_told_once() {
        assert!(!is_newly_large(LARGE_DATABASE_SAMPLES - 1, 1000));
        assert!(is_newly_large(LARGE_DATABASE_SAMPLES + 1, 1000));
        assert!(!is_newly_large(LARGE_DATABASE_SAMPLES + 1001, 1000));
        assert!(is_newly_large(2 * LARGE_DATABASE_SAMPLES, 1));
    }
}
