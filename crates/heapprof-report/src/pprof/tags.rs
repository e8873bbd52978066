//! `-tags`: what the values of each label key are worth.
//!
//! Source: google/pprof, internal/report.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use heapprof_profile::{LabelSetIndex, Profile};

use super::columns::right_aligned;
use super::measurement::{percentage, scaled_label};
use super::options::Options;

/// Prints all label keys with their values, the largest first.
pub fn tags(profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let values = options.values();
    let total = options.total;
    let mut text = String::new();
    for (key, of_key) in worth(profile, options) {
        let sum = of_key
            .iter()
            .fold(0i64, |sum, (_, worth)| sum.wrapping_add(*worth));
        let share = |worth: i64| percentage(worth, total);
        text += &format!(
            "{key}:\t Total {} of {}",
            values.show(sum),
            values.show(total)
        );
        if total > 0 {
            text += &format!(" ({})", share(sum));
        }
        text.push('\n');
        for (name, worth) in of_key {
            text += &format!(" \t{}", values.show(worth));
            if total > 0 {
                text += &format!(" ({})", share(worth));
            }
            text += &format!(":\t {name}\n");
        }
        text.push('\n');
    }
    out.write_all(right_aligned(&text).as_bytes())
}

/// For each key the sums of its values' samples: by size, then by name.
fn worth(profile: &Profile, options: &Options) -> BTreeMap<String, Vec<(String, i64)>> {
    let mut of_set = vec![0i64; profile.label_sets.len()];
    let mut used = vec![false; profile.label_sets.len()];
    for i in 0..profile.samples.len() {
        let set = profile.samples.label_set(i).index();
        of_set[set] = of_set[set].wrapping_add(profile.samples.values(i)[options.column]);
        used[set] = true;
    }
    let mut sums: BTreeMap<String, HashMap<String, i64>> = BTreeMap::new();
    for (set, worth) in of_set.iter().enumerate().filter(|(set, _)| used[*set]) {
        for label in profile.label_sets.get(LabelSetIndex(set as u32)) {
            let key = profile.text(label.key);
            let value = match label.str.is_empty() {
                true => {
                    let unit = options.num_label_units.get(key).map_or("", String::as_str);
                    scaled_label(label.num, unit, &options.output_unit)
                }
                false => profile.text(label.str).to_string(),
            };
            let sum = sums.entry(key.to_string()).or_default();
            let sum = sum.entry(value).or_default();
            *sum = sum.wrapping_add(*worth);
        }
    }
    let ordered = sums.into_iter().map(|(key, sums)| {
        let mut sums: Vec<(String, i64)> = sums.into_iter().collect();
        sums.sort_by(|a, b| {
            let size = |worth: i64| worth.wrapping_abs();
            size(b.1).cmp(&size(a.1)).then_with(|| a.0.cmp(&b.0))
        });
        (key, sums)
    });
    ordered.collect()
}
