//! Tests of the meaning of arguments, with a front end that only records notes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use heapprof_profile::ProfileBuilder;

use super::*;

/// A front end that records the notes that it gets.
#[derive(Default)]
struct NoteKeeper {
    notes: Mutex<Vec<String>>,
    read: Arc<Mutex<u64>>,
}

impl SourceHost for NoteKeeper {
    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_string());
    }

    fn progress(&self, _: Option<u64>) -> Box<dyn FnMut(u64)> {
        let read = Arc::clone(&self.read);
        Box::new(move |bytes| *read.lock().unwrap() = bytes)
    }

    fn explain(&self, error: SourceError) -> anyhow::Error {
        anyhow::anyhow!("{error}; explained")
    }

    fn name_own_code(&self, _profile: &mut Profile) {}

    fn is_outside(&self, argument: &str) -> bool {
        argument.starts_with("outside:")
    }

    fn read_outside(&self, argument: &str) -> Result<Option<QuestionSource>> {
        let is_outside = self.is_outside(argument);
        Ok(is_outside.then(|| QuestionSource::new(argument, profile(1))))
    }
}

fn profile(bytes: i64) -> Profile {
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    builder.add_named(&["main"], &[bytes], &mut []);
    builder.finish()
}

fn total(source: &QuestionSource) -> i64 {
    let samples = &source.profile.samples;
    (0..samples.len()).map(|i| samples.values(i)[0]).sum()
}

/// Returns sources with a database in this folder, and their front end.
fn sources(folder: &Path) -> (ProfileSources, Arc<NoteKeeper>) {
    let db = folder.join("heapprof.db");
    let settings = SourceSettings {
        db: db.clone(),
        is_db_named: true,
        options: FormatReadOptions::default(),
        names_in_use: false,
        backend: StoreBackend::Database(db),
        is_loading: false,
        sum: false,
        over_time: MomentAggregation::Last,
        clock: || 0,
    };
    let host = Arc::new(NoteKeeper::default());
    (ProfileSources::new(settings, host.clone()), host)
}

#[test]
fn a_selector_returns_what_it_added_up() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, host) = sources(folder.path());
    let mut store = ProfileStore::open_or_create(sources.db()).unwrap();
    for (name, bytes) in [("one", 3), ("two", 4)] {
        let label = |key: &str, value: &str| (key.to_string(), value.to_string());
        let labels = BTreeMap::from([label("service", "shop"), label("host", name)]);
        let profile = Arc::new(profile(bytes));
        let stored = store.load_labelled(name, &profile, &labels, &mut |_, _| {});
        stored.unwrap();
    }
    drop(store);
    let read = |name: &str| sources.read_selected(&[name.to_string()]).unwrap();
    let all = read("service=shop");
    let mut names = all.selected.unwrap();
    names.sort();
    assert_eq!(
        (total(&all.source), &names[..]),
        (7, &["one".to_string(), "two".to_string()][..])
    );
    assert!(host.notes.lock().unwrap()[0].starts_with("service=shop: 2 profiles"));
    let one = read("one");
    assert_eq!((total(&one.source), one.selected), (3, None));
    let both = sources.read_selected(&["one".to_string(), "service=shop".to_string()]);
    let both = both.unwrap();
    assert_eq!((total(&both.source), both.selected), (10, None));
}

#[test]
fn the_front_end_reads_processes_and_explains_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, host) = sources(folder.path());
    let outside = sources.read(&["outside:7".to_string()]).unwrap();
    assert_eq!((outside.name.as_str(), total(&outside)), ("outside:7", 1));
    let path = folder.path().join("wrong.pb.gz");
    std::fs::write(&path, "this is no profile").unwrap();
    let path = path.to_str().unwrap();
    let error = sources.read(&[path.to_string()]).unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.starts_with(path) && text.ends_with("; explained"),
        "{text}"
    );
    assert_eq!(*host.read.lock().unwrap(), 18);
    let gone = sources.read(&["gone".to_string()]).unwrap_err().to_string();
    assert!(gone.starts_with("gone: there is no such file"), "{gone}");
}
