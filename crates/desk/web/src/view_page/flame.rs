//! Draws a flame graph as SVG. Its boxes are links, so the graph needs no script.

use std::fmt::Write;

use super::{UrlParameters, ViewPage};
use crate::page::escape_html;

/// The width of the drawing in its own units. The browser stretches it to the window.
const WIDTH: f64 = 1200.0;
/// The height of a row.
const ROW: i64 = 18;
/// The width of a character of a label. It is larger than most, so that labels stay in their boxes.
const CHARACTER: f64 = 6.6;

/// A flame graph.
#[derive(Clone, Debug, Default)]
pub struct ViewFlame {
    /// The boxes.
    pub boxes: Vec<ViewBox>,
}

/// A box of a flame graph.
#[derive(Clone, Debug)]
pub struct ViewBox {
    /// The whole name.
    pub name: String,
    /// A short form of the name.
    pub short_name: String,
    /// The numbers of the box, in words.
    pub details: String,
    /// The parameters of the page that shows the box as its root.
    pub parameters: UrlParameters,
    /// The row.
    pub row: i64,
    /// The left end, as a share of the whole width.
    pub start: f64,
    /// The width, as a share of the whole width.
    pub width: f64,
    /// In a difference, how much of the box has grown, as a share of the box; negative if it has
    /// shrunk.
    pub share: Option<f64>,
}

impl ViewFlame {
    /// Appends the drawing.
    pub(super) fn push_svg(&self, html: &mut String, page: &ViewPage) {
        let rows = || self.boxes.iter().map(|one| one.row);
        let (first, last) = (rows().min().unwrap_or(0), rows().max().unwrap_or(0));
        let height = (last - first + 1) * ROW;
        let _ = writeln!(
            html,
            "<svg id=\"flame\" viewBox=\"0 0 {WIDTH} {height}\" role=\"group\" aria-label=\"Flame \
             graph\">"
        );
        for one in &self.boxes {
            let (x, y) = (one.start * WIDTH, (one.row - first) * ROW);
            let width = one.width * WIDTH;
            let address = page.address("", &one.parameters);
            let (name, details) = (escape_html(&one.name), escape_html(&one.details));
            let colour = match one.share {
                None => format!("hsl({} 55% 78%)", hue(&one.name)),
                Some(_) => "#cfd5dc".to_string(),
            };
            let _ = write!(
                html,
                "<a href=\"{address}\"><title>{details} │ {name}</title><rect x=\"{x:.3}\" \
                 y=\"{y}\" width=\"{width:.3}\" height=\"{ROW}\" fill=\"{colour}\" \
                 data-name=\"{name}\" data-row=\"{}\"/>",
                one.row
            );
            if let Some(share) = one.share {
                let colour = if share < 0.0 { "#7fb3d8" } else { "#efa97a" };
                let part = width * share.abs();
                let _ = write!(
                    html,
                    "<rect x=\"{x:.3}\" y=\"{y}\" width=\"{part:.3}\" height=\"{ROW}\" \
                     fill=\"{colour}\" pointer-events=\"none\"/>"
                );
            }
            let fits = (width / CHARACTER) as usize;
            if fits >= 3 {
                let label: String = match one.short_name.chars().count() <= fits {
                    true => one.short_name.clone(),
                    false => one.short_name.chars().take(fits - 1).chain(['…']).collect(),
                };
                let (x, y) = (x + 3.0, y + ROW - 5);
                let label = escape_html(&label);
                let _ = write!(html, "<text x=\"{x:.3}\" y=\"{y}\">{label}</text>");
            }
            *html += "</a>\n";
        }
        *html += "</svg>\n";
    }
}

/// Returns a hue for a name, so that a function has the same colour everywhere.
fn hue(name: &str) -> u32 {
    // FNV-1a spreads names well, and is the same on every machine.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash % 360
}
