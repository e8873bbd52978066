//! `-raw`: the whole content of the profile, as text.
//!
//! The text of each location and label set is built once and copied for each sample. Source:
//! google/pprof, profile/profile.go.

use std::io::{self, Write};

use heapprof_profile::{Label, LabelSetIndex, Location, LocationIndex, Mapping, Profile};

use super::labels::{LabelTexts, by_key};
use super::text::{TextPieces, TextSpool, push_number, push_padded};
use super::zone::ReportTimeZone;

/// Prints the profile.
pub fn raw(profile: &Profile, zone: &ReportTimeZone, out: &mut dyn Write) -> io::Result<()> {
    let mut out = TextSpool::new(out);
    head(profile, zone, out.text());
    samples(profile, &mut out)?;
    out.text().push_str("Locations\n");
    for location in &profile.location {
        show_location(profile, location, out.text());
        out.spill()?;
    }
    out.text().push_str("Mappings\n");
    for mapping in &profile.mapping {
        show_mapping(profile, mapping, out.text());
    }
    out.finish()
}

fn head(profile: &Profile, zone: &ReportTimeZone, out: &mut String) {
    for &comment in &profile.comment {
        *out += &format!("Comment: {}\n", profile.text(comment));
    }
    if !profile.doc_url.is_empty() {
        *out += &format!("Doc: {}\n", profile.text(profile.doc_url));
    }
    let (r#type, unit) = match profile.period_type {
        Some(t) => (profile.text(t.r#type), profile.text(t.unit)),
        None => ("", ""),
    };
    *out += &format!("PeriodType: {type} {unit}\nPeriod: {}\n", profile.period);
    if profile.time_nanos != 0 {
        *out += &format!("Time: {}\n", zone.show_precisely(profile.time_nanos));
    }
    if profile.duration_nanos != 0 {
        // This is Go's %.4v: the first four characters of the text.
        let text: String = duration(profile.duration_nanos).chars().take(4).collect();
        *out += &format!("Duration: {text}\n");
    }
    *out += "Samples:\n";
    let types = profile.sample_type.iter().map(|t| {
        let default = match t.r#type == profile.default_sample_type {
            true => "[dflt]",
            false => "",
        };
        let (r#type, unit) = (profile.text(t.r#type), profile.text(t.unit));
        format!("{type}/{unit}{default}")
    });
    let types: Vec<String> = types.collect();
    *out += types.join(" ").trim();
    out.push('\n');
}

fn samples(profile: &Profile, out: &mut TextSpool<'_>) -> io::Result<()> {
    let mut ids = TextPieces::default();
    for location in &profile.location {
        push_number(ids.text(), location.id as i128);
        ids.text().push(' ');
        ids.end();
    }
    let mut labels = LabelTexts::new(profile, |set, text| {
        label_lines(profile, profile.label_sets.get(set), text);
    });
    let samples = &profile.samples;
    for i in 0..samples.len() {
        let text = out.text();
        for &value in samples.values(i) {
            text.push(' ');
            push_padded(text, value, 10);
        }
        text.push_str(": ");
        for &LocationIndex(l) in samples.stack(i) {
            text.push_str(ids.get(l as usize));
        }
        text.push('\n');
        let set: LabelSetIndex = samples.label_set(i);
        text.push_str(labels.get(set));
        out.spill()?;
    }
    Ok(())
}

/// Writes text labels on one line and number labels on the next, each sorted by their text.
fn label_lines(profile: &Profile, labels: &[Label], out: &mut String) {
    let (texts, numbers): (Vec<Label>, Vec<Label>) =
        labels.iter().partition(|label| !label.str.is_empty());
    let mut line = |mut shown: Vec<String>| {
        if shown.is_empty() {
            return;
        }
        shown.sort();
        *out += "                ";
        *out += &shown.join(" ");
        out.push('\n');
    };
    let shown = |labels: &[Label], value: &dyn Fn(&Label) -> String| -> String {
        let values: Vec<String> = labels.iter().map(value).collect();
        format!("{}:[{}]", profile.text(labels[0].key), values.join(" "))
    };
    let text = |label: &Label| profile.text(label.str).to_string();
    line(by_key(&texts).map(|one| shown(one, &text)).collect());
    let number = |one: &[Label]| {
        // If one number of the key has a unit, all are shown with their unit, even if it is empty.
        let has_units = one.iter().any(|label| !label.num_unit.is_empty());
        shown(one, &|label| match has_units {
            true => format!("{} {}", label.num, profile.text(label.num_unit)),
            false => label.num.to_string(),
        })
    };
    line(by_key(&numbers).map(number).collect());
}

fn show_location(profile: &Profile, location: &Location, out: &mut String) {
    *out += &format!("{:>6}: {:#x} ", location.id, location.address);
    if let Some(mapping) = location.mapping {
        *out += &format!("M={} ", profile.mapping[mapping.index()].id);
    }
    if location.is_folded {
        *out += "[F] ";
    }
    for (i, line) in profile.lines(location).iter().enumerate() {
        if i > 0 {
            *out += "\n             ";
        }
        let function = &profile.function[line.function.index()];
        out.push_str(profile.text(function.name));
        out.push(' ');
        out.push_str(profile.text(function.filename));
        *out += &format!(":{}:{} s={}", line.line, line.column, function.start_line);
        if function.name != function.system_name {
            *out += &format!("({})", profile.text(function.system_name));
        }
    }
    out.push('\n');
}

fn show_mapping(profile: &Profile, mapping: &Mapping, out: &mut String) {
    *out += &format!(
        "{}: {:#x}/{:#x}/{:#x} {} {} ",
        mapping.id,
        mapping.memory_start,
        mapping.memory_limit,
        mapping.file_offset,
        profile.text(mapping.filename),
        profile.text(mapping.build_id),
    );
    let flags = [
        (mapping.has_functions, "[FN]"),
        (mapping.has_filenames, "[FL]"),
        (mapping.has_line_numbers, "[LN]"),
        (mapping.has_inline_frames, "[IN]"),
    ];
    for (has, flag) in flags {
        if has {
            *out += flag;
        }
    }
    out.push('\n');
}

/// Returns a duration as Go writes it: `1h2m3.5s`, `1.5ms`.
fn duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let decimal = |whole: u64, part: u64, digits: usize| {
        let part = format!("{part:0digits$}");
        match part.trim_end_matches('0') {
            "" => whole.to_string(),
            part => format!("{whole}.{part}"),
        }
    };
    let text = match size {
        0 => "0s".to_string(),
        1..1_000 => format!("{size}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(size / 1_000, size % 1_000, 3)),
        1_000_000..1_000_000_000 => {
            format!("{}ms", decimal(size / 1_000_000, size % 1_000_000, 6))
        }
        _ => {
            let (seconds, part) = (size / 1_000_000_000, size % 1_000_000_000);
            let (minutes, hours) = (seconds / 60, seconds / 3600);
            let seconds = decimal(seconds % 60, part, 9);
            match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{}m{seconds}s", minutes % 60),
            }
        }
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations() {
        let table = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (-3_300_000_000, "-3.3s"),
            (245_000_000_000, "4m5s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, expected) in table {
            assert_eq!(duration(nanos), expected);
        }
    }
}
