//! Shows a profile as text, for tests. Each sample is a line:
//! `root;leaf@file:line [label=text] VALUES`.

use heapprof_profile::{Profile, StringId};

use crate::reading::FormatReadOptions;

/// Reads a text with the default options.
pub(crate) fn read(text: &str) -> Profile {
    read_with(text, FormatReadOptions::default())
}

/// Reads a text with options.
pub(crate) fn read_with(text: &str, options: FormatReadOptions) -> Profile {
    let reading = crate::read(text.as_bytes(), &options);
    reading
        .unwrap_or_else(|error| panic!("{error}:\n{text}"))
        .profile
}

/// Returns the sample types of a profile, e.g. `inuse_space/bytes`.
pub(crate) fn types(profile: &Profile) -> Vec<String> {
    let types = profile.sample_type.iter();
    types
        .map(|t| format!("{}/{}", profile.text(t.r#type), profile.text(t.unit)))
        .collect()
}

/// Returns the samples of a profile as lines, in order.
pub(crate) fn samples(profile: &Profile) -> Vec<String> {
    let frame = |(name, file, line): (StringId, StringId, i64)| {
        let place = match (profile.text(file), line) {
            ("", _) => String::new(),
            (file, 0) => format!("@{file}"),
            (file, line) => format!("@{file}:{line}"),
        };
        format!("{}{place}", profile.text(name))
    };
    let sample = |i: usize| {
        let mut frames: Vec<String> = Vec::new();
        for location in profile.samples.stack(i) {
            let location = &profile.location[location.index()];
            let lines = profile.lines(location).iter().map(|line| {
                let function = &profile.function[line.function.index()];
                frame((function.name, function.filename, line.line))
            });
            // Inlined functions belong to one location.
            let lines: Vec<String> = lines.rev().collect();
            frames.push(match lines.is_empty() {
                false => lines.join(">>"),
                true => match location.mapping {
                    Some(mapping) => {
                        let mapping = &profile.mapping[mapping.index()];
                        format!("{:#x}@{}", location.address, profile.text(mapping.filename))
                    }
                    None => format!("{:#x}", location.address),
                },
            });
        }
        frames.reverse();
        let labels = profile.label_sets.get(profile.samples.label_set(i)).iter();
        let labels: String = labels
            .map(|l| format!(" [{}={}]", profile.text(l.key), profile.text(l.str)))
            .collect();
        let values: Vec<String> = profile
            .samples
            .values(i)
            .iter()
            .map(i64::to_string)
            .collect();
        format!("{}{labels} {}", frames.join(";"), values.join(" "))
    };
    (0..profile.samples.len()).map(sample).collect()
}

/// Returns the path of a folder of the repository.
pub(crate) fn folder(name: &str) -> std::path::PathBuf {
    std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../..")
        .join(name)
}

/// Reads bytes, which must be a profile.
pub(crate) fn read_bytes(bytes: &[u8]) -> crate::ProfileReading {
    crate::read(bytes, &crate::FormatReadOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the error for bytes that are not a profile. It must be one line.
pub(crate) fn error(bytes: &[u8]) -> String {
    let error = crate::read(bytes, &crate::FormatReadOptions::default()).unwrap_err();
    let error = error.to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}
