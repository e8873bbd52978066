//! `-tags`: the sums of samples for each value of each label key.
//!
//! Source: google/pprof, internal/report.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use crate::graph::sort_as_go;
use heapprof_profile::{Profile, StringId};

use super::columns::align_right;
use super::measurement::{percentage, scaled_label};
use super::options::PprofReportOptions;

/// Prints all label keys with their values, the largest first.
pub fn tags(
    profile: &Profile,
    options: &PprofReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
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
    out.write_all(align_right(&text).as_bytes())
}

/// Returns, for each label key, its values with the sums of their samples, sorted by the absolute
/// value of the sum and then by name.
///
/// pprof compares the absolute values of sums, and compares names only if the sums are equal. So
/// the order of two sums that differ only in sign depends on the order before the sort. In pprof,
/// this is the order of a Go map, which is mostly the order of the values' first samples.
fn worth(profile: &Profile, options: &PprofReportOptions) -> BTreeMap<String, Vec<(String, i64)>> {
    let mut of_set = vec![None; profile.label_sets.len()];
    let mut met = Vec::new();
    for i in 0..profile.samples.len() {
        let set = profile.samples.label_set(i);
        let sum = of_set[set.index()].get_or_insert_with(|| {
            met.push(set);
            0i64
        });
        *sum = sum.wrapping_add(profile.samples.values(i)[options.column]);
    }
    let mut sums: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    let mut places: HashMap<(StringId, String), usize> = HashMap::new();
    for set in met {
        let worth = of_set[set.index()].unwrap_or_default();
        for label in profile.label_sets.get(set) {
            let key = profile.text(label.key);
            let value = match label.str.is_empty() {
                true => {
                    let unit = options.num_label_units.get(key).map_or("", String::as_str);
                    scaled_label(label.num, unit, &options.output_unit)
                }
                false => profile.text(label.str).to_string(),
            };
            let of_key = sums.entry(key.to_string()).or_default();
            let place = *places.entry((label.key, value.clone())).or_insert_with(|| {
                of_key.push((value, 0));
                of_key.len() - 1
            });
            of_key[place].1 = of_key[place].1.wrapping_add(worth);
        }
    }
    for of_key in sums.values_mut() {
        sort_as_go(of_key, |a, b| match a.1 == b.1 {
            true => a.0 < b.0,
            false => a.1.wrapping_abs() > b.1.wrapping_abs(),
        });
    }
    sums
}
