//! `flame`: the call tree as a picture, drawn by inferno; one file that needs nothing else.
//!
//! Of one profile the widths are its values. Of two the widths are the larger of both sides, so that
//! what vanished is there too; orange grew, blue shrank.

use std::io::Write;

use heapprof_analysis::{Tree, TreeRow};
use inferno::flamegraph::{self, Options, TextTruncateDirection};
use regex::Regex;

use crate::error::Error;
use crate::measure::Measure;
use crate::style::Style;
use crate::table::printable;

/// What to draw.
#[derive(Clone, Debug, Default)]
pub struct FlameOptions {
    /// A title instead of the one made of metric and total.
    pub title: Option<String>,
}

/// Writes folded stacks, root first: `main;parse;alloc 96`. With a second profile each line has both values.
pub fn flame_folded(tree: &Tree, mut writer: impl Write) -> Result<(), Error> {
    for (stack, own) in stacks(tree) {
        let values: Vec<String> = own.iter().map(ToString::to_string).collect();
        writeln!(writer, "{stack} {}", values.join(" "))?;
    }
    Ok(())
}

/// Each node with a value of its own: its stack and its values.
fn stacks(tree: &Tree) -> impl Iterator<Item = (String, &Vec<i64>)> {
    let mut path: Vec<String> = Vec::new();
    tree.rows.iter().filter_map(move |row: &TreeRow| {
        path.truncate(row.depth);
        path.push(frame(&row.place.label()));
        row.own
            .iter()
            .any(|&v| v != 0)
            .then(|| (path.join(";"), &row.own))
    })
}

/// A name as a frame of a folded stack: `;` parts frames, and a line is one stack.
fn frame(name: &str) -> String {
    let name = printable(name).replace(';', ":");
    if name.trim().is_empty() {
        "(no name)".to_string()
    } else {
        name
    }
}

/// Draws the graph as SVG.
pub fn flame_svg(
    tree: &Tree,
    options: &FlameOptions,
    style: &Style,
    mut writer: impl Write,
) -> Result<(), Error> {
    let header = &tree.header;
    let measure = Measure::new(&header.sample_type.unit, style.unit.as_deref())?;
    // A profile with negative values is a difference already: what is negative shrank.
    let signed = tree.others.is_empty() && stacks(tree).any(|(_, own)| own[0] < 0);
    let two_sided = signed || !tree.others.is_empty();
    let sides = |own: &[i64]| -> (i64, i64) {
        match own {
            [value] if signed => (value.min(&0).saturating_neg(), *value.max(&0)),
            [value] => (0, *value),
            [before, after, ..] => (*before, *after),
            [] => (0, 0),
        }
    };
    let widest: i128 = stacks(tree)
        .map(|(_, own)| {
            let (before, after) = sides(own);
            i128::from(before.max(after).max(0))
        })
        .sum();
    if widest == 0 {
        let why = crate::head::empty(header, &measure)
            .unwrap_or_else(|| "there is nothing to draw".to_string());
        return Err(Error::Empty(why));
    }
    // inferno computes with percentages of these numbers in 64 bits.
    let divisor = (widest / (1 << 48)).max(1) as i64;
    let mut lines: Vec<String> = stacks(tree)
        .filter_map(|(stack, own)| {
            let (before, after) = sides(own);
            let (before, after) = (before.max(0) / divisor, after.max(0) / divisor);
            let width = before.max(after);
            if width == 0 {
                return None;
            }
            Some(match two_sided {
                false => format!("{stack} {width}"),
                // inferno's width is the second number, its difference the second less the first.
                true => format!("{stack} {} {width}", width - (after - before)),
            })
        })
        .collect();
    lines.sort_unstable();

    let mut svg = Options::default();
    svg.title = options
        .title
        .clone()
        .unwrap_or_else(|| title(tree, &measure));
    svg.subtitle = Some(subtitle(tree, &measure, two_sided));
    svg.count_name = header.sample_type.unit.clone();
    if two_sided {
        svg.count_name.push_str(" (larger side)");
    }
    svg.name_type = "Function:".to_string();
    svg.factor = divisor as f64;
    svg.hash = true;
    svg.colors = flamegraph::color::Palette::Basic(flamegraph::color::BasicPalette::Orange);
    svg.bgcolors = "#ffffff".parse().ok();
    svg.text_truncate_direction = TextTruncateDirection::Right;
    svg.min_width = 0.05;
    if tree.reverse {
        svg.direction = flamegraph::Direction::Inverted;
    }
    let mut drawn = Vec::new();
    flamegraph::from_lines(&mut svg, lines.iter().map(String::as_str), &mut drawn)?;
    match two_sided {
        false => writer.write_all(&drawn)?,
        true => writer.write_all(recoloured(&String::from_utf8_lossy(&drawn)).as_bytes())?,
    }
    Ok(())
}

fn title(tree: &Tree, measure: &Measure) -> String {
    let header = &tree.header;
    let name = &header.sample_type.r#type;
    match tree.others.first() {
        Some(after) => format!(
            "{name}: {} before, {} after ({})",
            measure.show(header.net),
            measure.show(after.net),
            measure.show_signed(i128::from(after.net) - i128::from(header.net)),
        ),
        None => format!("{name}: total {}", measure.show(header.net)),
    }
}

fn subtitle(tree: &Tree, measure: &Measure, two_sided: bool) -> String {
    let header = &tree.header;
    let mut parts = Vec::new();
    match tree.others.first() {
        Some(after) => parts.push(format!("{} to {}", header.profile, after.profile)),
        None => parts.push(header.profile.clone()),
    }
    if two_sided {
        parts.push(
            "orange grew, blue shrank or vanished; width: the larger of before and after"
                .to_string(),
        );
    }
    if tree.reverse {
        parts.push("from the leaves".to_string());
    }
    if let Some(period) = header.sampled {
        let shown =
            Measure::new("bytes", None).map_or_else(|_| period.to_string(), |m| m.show(period));
        parts.push(format!("estimated from samples every {shown}"));
    }
    if !header.filters.is_empty() {
        parts.push(format!(
            "{}: kept {}",
            header.filters.join(" "),
            measure.show(header.net)
        ));
    }
    printable(&parts.join(" | ")).into_owned()
}

/// inferno paints differences red and blue; ours are orange and blue, with a legend, so that people
/// who do not tell red from green (or from grey) can read them.
fn recoloured(svg: &str) -> String {
    // A fixed expression that compiles: see the test.
    let Ok(fill) = Regex::new(r#"fill="rgb\((\d+),(\d+),(\d+)\)""#) else {
        return svg.to_string();
    };
    let painted = fill.replace_all(svg, |found: &regex::Captures<'_>| {
        let channel = |at: usize| found[at].parse::<f64>().unwrap_or(250.0);
        let (r, g, b) = (channel(1), channel(2), channel(3));
        // 100 is the strongest and 250 the faintest that inferno uses in the other channels.
        let strength = (250.0 - g) / 150.0;
        let mix = |faint: f64, strong: f64| (faint + (strong - faint) * strength).round() as u8;
        match (r, b) {
            (255.0, b) if b < 255.0 => {
                paint(mix(253.0, 241.0), mix(230.0, 125.0), mix(206.0, 32.0))
            }
            (_, 255.0) => paint(mix(222.0, 67.0), mix(235.0, 147.0), mix(247.0, 207.0)),
            _ => found[0].to_string(),
        }
    });
    let legend = concat!(
        r##"<g id="legend" font-size="12" font-family="monospace">"##,
        r##"<rect x="10" y="6" width="14" height="14" fill="#f17d20"/><text x="28" y="17">grew</text>"##,
        r##"<rect x="70" y="6" width="14" height="14" fill="#4393cf"/><text x="88" y="17">shrank</text>"##,
        "</g></svg>"
    );
    match painted.rfind("</svg>") {
        Some(end) => format!("{}{legend}\n", &painted[..end]),
        None => painted.into_owned(),
    }
}

fn paint(r: u8, g: u8, b: u8) -> String {
    format!(r#"fill="rgb({r},{g},{b})""#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn red_becomes_orange() {
        let svg = r#"<svg><rect fill="rgb(255,100,100)"/><rect fill="rgb(100,100,255)"/><rect fill="rgb(250,250,250)"/></svg>"#;
        let painted = recoloured(svg);
        for expected in [
            "rgb(241,125,32)",
            "rgb(67,147,207)",
            "rgb(250,250,250)",
            "legend",
        ] {
            assert!(painted.contains(expected), "{painted}");
        }
        assert!(!painted.contains("rgb(255,100,100)"));
    }

    #[test]
    fn frames_cannot_split_a_stack() {
        assert_eq!(frame("Lfoo;bar"), "Lfoo:bar");
        assert_eq!(frame(" "), "(no name)");
    }
}
