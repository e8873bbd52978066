//! Draws the first lines: the program, its clock, the heap, RSS, the peak, and their uncertainty.

use heapprof_report::{UnitFormatter, give_or_take};
use ratatui_core::layout::Rect;

use super::canvas::ScreenCanvas;
use super::feed::ProcessChoice;
use super::state::ViewState;
use super::view_data::ViewData;

/// Smallest width, in columns, at which the first two lines are drawn as one line.
const MIN_ONE_LINE_COLUMNS: u16 = 150;

/// Returns the text of the heap, RSS and the peak, shortened to `room` columns. The words that mark
/// estimates are left out first, because the first line has them, too. Then the rate is left out,
/// and then the range.
fn fitting(data: &ViewData, room: usize) -> String {
    let fits = |text: &String| text.chars().count() <= room;
    let whole = heap_text(data, true, true);
    if fits(&whole) {
        return whole;
    }
    let short = |text: String| text.replace("about ", "").replace("   ", "  ");
    let options = [
        short(whole),
        short(heap_text(data, false, true)),
        short(heap_text(data, false, false)),
    ];
    let last = options[2].clone();
    options.into_iter().find(fits).unwrap_or(last)
}

/// Draws the first lines. Returns the number of the row after them.
pub(super) fn draw(
    canvas: &mut ScreenCanvas<'_>,
    area: Rect,
    data: &ViewData,
    state: &ViewState,
) -> u16 {
    let who = process_text(data, state);
    let room = usize::from(area.width) - 1;
    let what = fitting(data, room);
    let style = canvas.style.strong();
    if area.width >= MIN_ONE_LINE_COLUMNS {
        canvas.line(area, area.y, &format!("{who}    {what}"), style);
        return area.y + 1;
    }
    canvas.line(area, area.y, &who, style);
    canvas.line(area, area.y + 1, &what, style);
    area.y + 2
}

/// Returns the text about the process that is shown: its name, its time, and how it ended.
pub(super) fn process_text(data: &ViewData, state: &ViewState) -> String {
    let news = &data.news;
    let facts = news.snapshot.as_ref().map(|snapshot| &snapshot.facts);
    let program = match facts.map(|facts| facts.program.as_str()) {
        Some(program) if !program.is_empty() => program,
        _ => &news.program,
    };
    let mut text = match news.which {
        ProcessChoice::All => format!("all {} processes", news.processes.len()),
        _ => program.to_string(),
    };
    let process = facts.and_then(|facts| facts.process).or(news.process);
    if let Some(process) = process.filter(|_| news.which != ProcessChoice::All) {
        text += &format!("  pid {process}");
    }
    if news.processes.len() > 1 && news.which != ProcessChoice::All {
        text += &format!(" (of {} processes)", news.processes.len());
    }
    if let Some(seconds) = news.clock {
        text += &format!("  {}", clock(seconds));
    }
    if let Some(facts) = facts {
        text += if facts.is_exact {
            "  exact"
        } else {
            "  estimate"
        };
    }
    if let (true, None, Some(at)) = (
        news.is_live,
        &news.ended,
        news.snapshot.as_ref().and_then(|snapshot| snapshot.seconds),
    ) && news.clock.is_some_and(|now| now - at > 5.0)
    {
        text += &format!("  as it was at {}", clock(at));
    }
    if state.is_frozen {
        text += "  FROZEN";
    }
    if let Some(ended) = &news.ended {
        text += &format!("  {ended}");
    }
    text
}

/// Returns the text of the heap, RSS and the peak. `with_rate` adds the heap's growth rate and the
/// peak RSS, and `with_range` the range of the heap's estimate.
pub(super) fn heap_text(data: &ViewData, with_rate: bool, with_range: bool) -> String {
    let news = &data.news;
    let Some(facts) = news.snapshot.as_ref().map(|snapshot| &snapshot.facts) else {
        return String::new();
    };
    let bytes = UnitFormatter::new("bytes", None).unwrap_or_else(|_| UnitFormatter::raw());
    let mut text = match (facts.in_use, &facts.estimate) {
        (None, _) => "In use not known".to_string(),
        (Some(in_use), Some(estimate)) if with_range => {
            let range = give_or_take(in_use, estimate);
            format!("In use about {}{range}", bytes.show(in_use))
        }
        (Some(in_use), _) => format!("In use {}", bytes.show(in_use)),
    };
    if let Some(rate) = rate(data).filter(|_| with_rate) {
        text += &match rate {
            0 => " steady".to_string(),
            rate if rate > 0 => format!(" ▲{}/s", bytes.show_signed(rate)),
            rate => format!(" ▼{}/s", bytes.show_signed(rate)),
        };
    }
    text += &match news.rss {
        Some(rss) => format!("   RSS {}", bytes.show(rss)),
        None => "   RSS not known".to_string(),
    };
    if let Some(peak) = facts.peak {
        let about = if facts.is_exact { "" } else { "about " };
        text += &format!("   peak {about}{}", bytes.show(peak.bytes));
    }
    if let Some(peak) = facts.peak_rss.filter(|_| with_rate) {
        // RSS was read a little later.
        let peak = peak.max(news.rss.unwrap_or(0));
        text += &format!("   peak RSS {}", bytes.show(peak));
    }
    text
}

/// Returns the growth of the heap between the last two moments, in bytes per second.
fn rate(data: &ViewData) -> Option<i64> {
    let [.., before, now] = &data.news.history[..] else {
        return None;
    };
    let seconds = now.seconds - before.seconds;
    let grown = now.heap.saturating_sub(before.heap) as f64;
    (data.news.is_live && seconds > 0.0).then(|| (grown / seconds).round() as i64)
}

/// Formats seconds like a clock.
pub(super) fn clock(seconds: f64) -> String {
    let tenths = (seconds.max(0.0) * 10.0) as u64;
    let (minutes, rest) = (tenths / 600, tenths % 600);
    match minutes / 60 {
        0 => format!("{minutes:02}:{:02}.{}", rest / 10, rest % 10),
        hours => format!("{hours}:{:02}:{:02}", minutes % 60, rest / 10),
    }
}
