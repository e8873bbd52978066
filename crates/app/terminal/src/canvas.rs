//! Puts styled text onto the screen. All text goes through [`ScreenCanvas::put`], which lets no
//! control character through.

use heapprof_report::UnitFormatter;
use heapprof_text::{printable, shorten, shorten_one};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::chart;
use super::view_data::ViewData;

/// The style of the screen. It has at most 16 colours. A colour never carries information that is
/// not in the text as well.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScreenStyle {
    /// Whether colours are used.
    pub is_coloured: bool,
}

impl ScreenStyle {
    fn colour(self, colour: Color) -> Style {
        match self.is_coloured {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub(super) fn muted(self) -> Style {
        match self.is_coloured {
            true => Style::new().fg(Color::DarkGray),
            false => Style::new().add_modifier(Modifier::DIM),
        }
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of a value that grew or shrank.
    pub(super) fn change(self, change: i64) -> Style {
        match change {
            0 => self.muted(),
            more if more > 0 => self.colour(Color::Yellow),
            _ => self.colour(Color::LightBlue),
        }
    }

    pub(super) fn chart(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(super) fn trouble(self) -> Style {
        self.colour(Color::Yellow).add_modifier(Modifier::BOLD)
    }
}

/// A buffer for a drawing, and the style of the screen.
pub(super) struct ScreenCanvas<'b> {
    pub(super) buffer: &'b mut Buffer,
    pub(super) style: ScreenStyle,
}

impl ScreenCanvas<'_> {
    /// Puts text into at most `width` columns. Text that does not fit is cut. Returns the number of
    /// used columns.
    pub(super) fn put(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if y >= area.bottom() || x >= area.right() {
            return 0;
        }
        let width = width.min(area.right() - x);
        let text = heapprof_text::cut(&printable(text), usize::from(width));
        let (end, _) = self
            .buffer
            .set_stringn(x, y, text, usize::from(width), style);
        end - x
    }

    /// Puts text at the beginning of a row. The rest of the row gets the same style.
    pub(super) fn line(&mut self, area: Rect, y: u16, text: &str, style: Style) -> u16 {
        let blank = " ".repeat(usize::from(area.width));
        self.put(area.x, y, area.width, &blank, style);
        1 + self.put(area.x + 1, y, area.width.saturating_sub(1), text, style)
    }

    /// Returns the style of a row. The selected row has a special style.
    pub(super) fn row_style(&self, is_selected: bool) -> Style {
        match is_selected {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        }
    }

    /// Returns a name, shortened to at most `width` columns.
    pub(super) fn name(&self, name: &str, width: u16) -> String {
        shorten_one(&printable(name), usize::from(width))
    }

    /// Returns the formatter for values of the current sample type.
    pub(super) fn measure(&self, data: &ViewData) -> UnitFormatter {
        let unit = data.answer.as_ref().map_or("", |answer| &answer.unit);
        UnitFormatter::new(unit, None).unwrap_or_else(|_| UnitFormatter::raw())
    }
}

/// Returns the names of rows, shortened to at most `width` columns. Different names stay different.
pub(super) fn short_names<'n>(names: impl Iterator<Item = &'n str>, width: u16) -> Vec<String> {
    let whole: Vec<_> = names.map(printable).collect();
    let whole: Vec<&str> = whole.iter().map(|name| &**name).collect();
    shorten(&whole, |_| usize::from(width))
}

/// Returns the text of a buffer, without the blanks at the ends of lines.
#[cfg(test)]
pub(super) fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content.chunks(width);
    let row = |cells: &[ratatui_core::buffer::Cell]| {
        let mut text = String::new();
        let mut skip = 0;
        for cell in cells {
            if skip == 0 {
                text.push_str(cell.symbol());
                skip = ratatui_core::text::Line::from(cell.symbol()).width();
            }
            skip = skip.saturating_sub(1);
        }
        text.trim_end().to_string()
    };
    rows.map(row).collect::<Vec<_>>().join("\n") + "\n"
}

/// Formats a change with a sign that is clear without colours: `▲ +1.5MiB`, `▼ -3KiB`, `0`.
pub(super) fn signed(measure: &UnitFormatter, change: i64) -> String {
    match change {
        0 => "0".to_string(),
        more if more > 0 => format!("▲ {}", measure.show_signed(more)),
        less => format!("▼ {}", measure.show_signed(less)),
    }
}

/// Returns the bar for a value, filled up with blanks to `width` columns.
pub(super) fn bar(value: i64, most: i64, width: usize) -> String {
    format!("{:<width$}", chart::bar(value, most, width))
}

#[cfg(test)]
mod tests {
    use super::short_names;

    #[test]
    fn names_of_rows_stay_apart() {
        let names = [
            "map<Key, my::Order>::at(Key)",
            "map<Other, my::Order>::at(Key)",
        ];
        let short = short_names(names.into_iter(), 20);
        assert_eq!(short, ["map<Key, …>::at", "map<Other, …>::at"]);
    }
}
