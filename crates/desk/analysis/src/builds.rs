//! Mapped files without symbols that can't be compared between two profiles: the profiles have
//! different builds of the file, or only one profile has names for its code.

use std::collections::{BTreeMap, BTreeSet};

use heapprof_profile::{Profile, is_place_of_code};

use crate::diff::DiffReport;
use crate::session::AnalysisSession;

/// A mapped file that can't be compared between two profiles, because the two profiles name its
/// code differently. A diff shows the rows of the file as new or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomparableFile {
    /// The file's name, without its folders.
    pub file: String,
    /// The number of the file's rows that appear as new or gone.
    pub rows: usize,
    /// Whether the profiles have different builds of the file. If false, only one profile has names
    /// for all of the file's code.
    pub is_rebuilt: bool,
}

#[derive(Default)]
struct MappedFileCode {
    build_ids: BTreeSet<String>,
    named: usize,
    nameless: usize,
}

/// Returns the files that can't be compared between the first two profiles of the session. The list
/// is empty if the session reads a database.
pub fn incomparable_files(session: &AnalysisSession, diff: &DiffReport) -> Vec<IncomparableFile> {
    let parts = session
        .question
        .as_ref()
        .map(|question| &question.parts[..]);
    let Some([before, after, ..]) = parts else {
        return Vec::new();
    };
    let sides = [code_by_file(&before.profile), code_by_file(&after.profile)];
    let mut rows = BTreeMap::<&str, usize>::new();
    for row in diff
        .rows
        .iter()
        .filter(|row| row.existed_before != row.exists_after)
    {
        if let Some(file) = nameless_file(&row.place.function) {
            *rows.entry(file).or_default() += 1;
        }
    }
    let found = rows.into_iter().filter_map(|(file, rows)| {
        let [before, after] = [sides[0].get(file)?, sides[1].get(file)?];
        let have_ids = !before.build_ids.is_empty() && !after.build_ids.is_empty();
        let is_rebuilt = have_ids && before.build_ids.is_disjoint(&after.build_ids);
        let has_names = |code: &MappedFileCode| code.named > 0 && code.nameless == 0;
        let one_sided = has_names(before) != has_names(after);
        (is_rebuilt || one_sided).then(|| IncomparableFile {
            file: file.to_string(),
            rows,
            is_rebuilt: is_rebuilt && !one_sided,
        })
    });
    found.collect()
}

/// Returns the file name in the name of code without symbols: `libc.so` for `libc.so+0x1f`. Returns
/// `None` for other names.
fn nameless_file(name: &str) -> Option<&str> {
    let (file, _) = name.rsplit_once("+0x")?;
    is_place_of_code(name).then_some(file)
}

/// Returns, for each mapped file, its build ids and the number of its lines with and without names.
fn code_by_file(profile: &Profile) -> BTreeMap<String, MappedFileCode> {
    let mut all = BTreeMap::<String, MappedFileCode>::new();
    for location in &profile.location {
        let Some(mapping) = location.mapping else {
            continue;
        };
        let mapping = &profile.mapping[mapping.index()];
        let path = profile.text(mapping.filename);
        let name = path.rsplit('/').next().unwrap_or(path);
        if !all.contains_key(name) {
            all.insert(name.to_string(), MappedFileCode::default());
        }
        let Some(code) = all.get_mut(name) else {
            continue;
        };
        let build_id = profile.text(mapping.build_id);
        if !build_id.is_empty() && !code.build_ids.contains(build_id) {
            code.build_ids.insert(build_id.to_string());
        }
        for line in profile.lines(location) {
            let function = &profile.function[line.function.index()];
            match is_place_of_code(profile.text(function.name)) {
                true => code.nameless += 1,
                false => code.named += 1,
            }
        }
    }
    all
}
