//! Explains how much memory is held by code without names, and how to get the names.

use std::path::Path;

use heapprof_recorder::{FileFate, UnnamedCode};
use heapprof_report::percent;
use heapprof_sources::DEBUGINFOD_URLS;
use heapprof_symbolize::debug_package;

use super::words::{quoted, shown};

/// Explains that code without names holds at least half of the memory, and how to get the names. If
/// the process `has_died` without reporting, the file of that code may not be known.
pub(super) fn mostly_nameless(
    unnamed: &UnnamedCode,
    path: &Path,
    has_died: bool,
) -> Option<String> {
    let UnnamedCode {
        bytes: held, total, ..
    } = *unnamed;
    if held < total - held {
        return None;
    }
    let which = match unnamed.sample_type {
        "peak_space" => "the peak",
        "inuse_space" => "what is in use",
        _ => "what was allocated",
    };
    let mut text = format!(
        "{}: {} of {which} is held by code without names",
        shown(path),
        percent(held, total)
    );
    let Some(file) = Some(&unnamed.file).filter(|file| file.starts_with('/')) else {
        text += match has_died {
            false => ", which is not in any file",
            true => {
                ": this code is not in a file, or the process ended before its file was recorded; \
                 heapprof record --interval 10s writes profiles while the program runs, from \
                 which the file is known"
            }
        };
        return Some(text);
    };
    let Some(fate) = unnamed.fate else {
        text += &format!(", most of it in {file}; ");
        return Some(text + &how_to_name(unnamed, file, path));
    };
    let became = match fate {
        FileFate::Replaced => "replaced",
        FileFate::Deleted => "deleted or renamed",
    };
    text += &format!(
        ", most of it in {file}, which was {became} after the program had loaded it; with a copy \
         of the old file in DIR, heapprof convert symbolize --debug-dir DIR {} adds the names",
        quoted(path)
    );
    Some(text)
}

/// Describes how the code of a file can get names.
fn how_to_name(unnamed: &UnnamedCode, file: &str, path: &Path) -> String {
    let mut text = String::new();
    if let Some(package) = debug_package(Path::new(file)) {
        text += &format!("the package {package} has the names (apt install {package}), ");
    }
    let has_server = std::env::var_os(DEBUGINFOD_URLS).is_some_and(|urls| !urls.is_empty());
    if has_server && !unnamed.build_id.is_empty() {
        let path = quoted(path);
        return text + &format!("heapprof convert symbolize --debuginfod {path} fetches them");
    }
    text += &format!(
        "heapprof convert symbolize --debug-dir DIR {} reads them from DIR",
        quoted(path)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_known_is_not_said_to_be_none() {
        let unnamed = UnnamedCode {
            sample_type: "peak_space",
            bytes: 2,
            total: 3,
            file: String::new(),
            build_id: String::new(),
            fate: None,
        };
        let said = |has_died| mostly_nameless(&unnamed, Path::new("p.pb.gz"), has_died).unwrap();
        let begin = "p.pb.gz: 66.67% of the peak is held by code without names";
        assert_eq!(said(false), format!("{begin}, which is not in any file"));
        assert!(said(true).starts_with(&format!("{begin}: this code is not in a file, or ")));
        assert!(said(true).contains("--interval"));
    }
}
