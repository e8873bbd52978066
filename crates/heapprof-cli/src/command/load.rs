//! `heapprof load`: profiles into the database.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{Error, Source, Store, labels_of};

use super::{Shared, report};
use crate::args::{FileMode, LoadArgs};
use crate::backend::Backend;
use crate::clickhouse::{self, Labelled};
use crate::progress::Bar;
use crate::{messages, name, output};

pub(super) fn run(shared: &Shared, args: &LoadArgs) -> Result<()> {
    let mode = args.file_mode.mode()?;
    if let Some(name) = &args.name {
        if name.is_empty() || name == "-" || name.contains('/') {
            bail!(
                "--as {name:?}: a profile of this name could not be read later; use a name \
                 without /"
            );
        }
        free(shared, name)?;
        let source = shared.sources.read(&args.profiles)?;
        return match shared.sources.backend() {
            Backend::ClickHouse(address) => {
                clickhouse::load(address, std::iter::once(labelled(name, source, args)))
            }
            _ => store(shared, mode, name, source, args),
        };
    }
    let profiles = report::expanded(&shared.sources, &args.profiles)?;
    let names = profiles
        .iter()
        .map(|p| stem(p))
        .collect::<Result<Vec<_>>>()?;
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            bail!("two of the files would be loaded as {name:?}; load them one by one with --as");
        }
    }
    let mut each = profiles.iter().zip(&names);
    if let Backend::ClickHouse(address) = shared.sources.backend() {
        let each = each.map(|(profile, name)| {
            let source = shared.sources.read(std::slice::from_ref(profile))?;
            labelled(name, source, args)
        });
        return clickhouse::load(address, each);
    }
    each.try_for_each(|(profile, name)| {
        free(shared, name)?;
        let source = shared.sources.read(std::slice::from_ref(profile))?;
        store(shared, mode, name, source, args)
    })
}

/// A profile with its labels, and with the time that was typed.
fn labelled(name: &str, source: Source, args: &LoadArgs) -> Result<Labelled> {
    let mut profile = source.profile;
    if let Some(time) = args.time {
        Arc::make_mut(&mut profile).time_nanos = time;
    }
    let mut labels = labels_of(&profile);
    labels.extend(args.label.iter().cloned());
    Ok((name.to_string(), profile, labels))
}

fn store(
    shared: &Shared,
    mode: FileMode,
    name: &str,
    source: Source,
    args: &LoadArgs,
) -> Result<()> {
    let (_, profile, labels) = labelled(name, source, args)?;
    let db = shared.sources.db();
    let named = || db.display().to_string();
    output::make_for_own(db, mode)?;
    let mut store = Store::open_or_create(db).with_context(named)?;
    let mut bar = Bar::storing();
    store
        .load_labelled(name, &profile, &labels, &mut |done, all| {
            bar.at(done, Some(all))
        })
        .with_context(named)?;
    drop(bar);
    messages::note(&format!("loaded {name} into {}", db.display()));
    let samples = store.samples().with_context(named)?;
    if let Some(hint) = hint(samples, profile.samples.len() as i64) {
        messages::note(&format!("{}: {hint}", db.display()));
    }
    Ok(())
}

/// So many samples are much for one file of SQLite.
const MANY: i64 = 50_000_000;

/// What to do next, when `more` samples have filled the database up to so many. It is said once,
/// and again for each time as many.
fn hint(samples: i64, more: i64) -> Option<String> {
    let before = samples.saturating_sub(more);
    let is_next = samples / MANY > before / MANY;
    is_next.then(|| {
        format!(
            "has {} million samples, which is much for one file: questions about all of them take \
             seconds. heapprof prune thins old ones out; export --parquet and --store \
             clickhouse://… go on from here",
            samples / 1_000_000
        )
    })
}

/// Fails before a long reading if a name is taken. Loading checks that again.
fn free(shared: &Shared, name: &str) -> Result<()> {
    let Backend::Database(db) = shared.sources.backend() else {
        return Ok(());
    };
    if db.exists()
        && let Ok(store) = Store::open(db)
        && store.find(name).is_ok()
    {
        return Err(Error::NameTaken(name.to_string())).with_context(|| db.display().to_string());
    }
    Ok(())
}

/// A file's name without its folder and endings.
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
        use super::{MANY, hint};

        assert_eq!(hint(MANY - 1, 1000), None);
        let told = hint(MANY + 1, 1000).unwrap();
        assert!(told.starts_with("has 50 million samples") && told.contains("--parquet"));
        assert_eq!(hint(MANY + 1001, 1000), None);
        assert!(hint(2 * MANY, 1).is_some());
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
