//! `heapprof load`: profiles into the database.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{Error, Source, Store, labels_of};

use super::{Shared, report};
use crate::args::{FileMode, LoadArgs};
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
        return store(shared, mode, name, source, args);
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
    for (profile, name) in profiles.iter().zip(&names) {
        free(shared, name)?;
        let source = shared.sources.read(std::slice::from_ref(profile))?;
        store(shared, mode, name, source, args)?;
    }
    Ok(())
}

fn store(
    shared: &Shared,
    mode: FileMode,
    name: &str,
    source: Source,
    args: &LoadArgs,
) -> Result<()> {
    let mut profile = source.profile;
    if let Some(time) = args.time {
        Arc::make_mut(&mut profile).time_nanos = time;
    }
    let mut labels = labels_of(&profile);
    labels.extend(args.label.iter().cloned());
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
    Ok(())
}

/// Fails before a long reading if a name is taken. Loading checks that again.
fn free(shared: &Shared, name: &str) -> Result<()> {
    let db = shared.sources.db();
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
