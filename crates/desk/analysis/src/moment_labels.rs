//! The labels of a profile, which name the service, host and build that it comes from.

use std::collections::BTreeMap;

use heapprof_profile::{LabelSetIndex, Profile};

use crate::comment::find_single_value;

/// Pairs of keys: the key of a sample label, and the key of the profile label that gets its value.
const SAMPLE_LABEL_NAMES: [(&str, &str); 8] = [
    ("service", "service"),
    ("service_name", "service"),
    ("job", "service"),
    ("host", "host"),
    ("hostname", "host"),
    ("instance", "host"),
    ("build", "build"),
    ("version", "version"),
];

/// Returns the labels of a profile: `service`, `host`, `build` and `version`, as far as the profile
/// has them.
///
/// A comment such as `service: shop` or `host: web1` takes precedence over a label that all samples
/// have with the same value. If a profile has neither, `service` is the program that the collector
/// names (`program: shop`), and `build` is the build id of the first mapping.
pub fn labels_of(profile: &Profile) -> BTreeMap<String, String> {
    let comments: Vec<String> = profile
        .comment
        .iter()
        .map(|&text| profile.text(text).to_string())
        .collect();
    let mut labels = BTreeMap::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            labels.entry(key.to_string()).or_insert(value);
        }
    };
    for key in ["service", "host", "build", "version"] {
        put(key, find_single_value(&comments, key));
    }
    for (key, value) in common_sample_labels(profile) {
        let known = SAMPLE_LABEL_NAMES.iter().find(|(name, _)| *name == key);
        put(known.map_or("", |(_, is)| is), Some(value));
    }
    put("service", find_single_value(&comments, "program"));
    let first = profile.mapping.first();
    put("build", first.map(|m| profile.text(m.build_id).to_string()));
    labels.remove("");
    labels
}

/// Returns the text labels that all samples have with the same value, by key.
fn common_sample_labels(profile: &Profile) -> BTreeMap<&str, String> {
    let samples = &profile.samples;
    let mut used: Vec<u32> = (0..samples.len()).map(|i| samples.label_set(i).0).collect();
    used.sort_unstable();
    used.dedup();
    let mut common: Option<BTreeMap<&str, String>> = None;
    for set in used {
        let labels = profile.label_sets.get(LabelSetIndex(set)).iter();
        let labels = labels.filter(|label| !profile.text(label.str).is_empty());
        let texts = labels.map(|label| (profile.text(label.key), profile.text(label.str)));
        let texts: BTreeMap<&str, String> = texts.map(|(k, v)| (k, v.to_string())).collect();
        match &mut common {
            None => common = Some(texts),
            Some(common) => common.retain(|key, value| texts.get(key) == Some(value)),
        }
        if common.as_ref().is_some_and(BTreeMap::is_empty) {
            break;
        }
    }
    common.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use heapprof_profile::ProfileBuilder;

    use super::*;

    #[test]
    fn labels_come_from_comments_and_from_samples() {
        let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
        for (stack, path) in [("main;a", "/x"), ("main;b", "/y")] {
            let mut labels = [
                builder.text_label("instance", "web7"),
                builder.text_label("path", path),
            ];
            builder.add_folded_with_labels(stack, &[1], &mut labels);
        }
        for comment in ["program: shop", "version: 1.2", "pid: 7"] {
            let comment = builder.text(comment);
            builder.profile.comment.push(comment);
        }
        let labels = labels_of(&builder.finish());
        let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(
            labels,
            [("host", "web7"), ("service", "shop"), ("version", "1.2")]
        );
    }
}
