//! The view without a terminal: prints a plain block of lines in each interval, for a log.

use heapprof_report::UnitFormatter;
use heapprof_text::printable;

use super::canvas::{short_names, signed};
use super::feed::FeedNews;
use super::head;
use super::state::ViewState;
use super::view_data::ViewData;

/// Maximum number of functions in a block.
const MAX_ROWS: usize = 10;
/// Number of columns for a name.
const NAME_COLUMNS: u16 = 60;

/// Makes plain blocks of lines from the states of a feed.
#[derive(Default)]
pub struct PlainBlocks {
    data: ViewData,
    state: ViewState,
    shown: Option<u64>,
}

impl PlainBlocks {
    /// Returns the block for the feed's state. Returns `None` if the program still runs and has no
    /// new snapshot.
    pub fn block(&mut self, news: FeedNews) -> Option<String> {
        let id = news.snapshot.as_ref()?.id;
        let is_new = self.shown.replace(id) != Some(id) || news.ended.is_some();
        self.data.refresh(news, &mut self.state);
        let answer = self.data.answer.as_ref().filter(|_| is_new)?;
        let measure =
            UnitFormatter::new(&answer.unit, None).unwrap_or_else(|_| UnitFormatter::raw());
        let mut text = format!(
            "{}   {}\n",
            head::process_text(&self.data, &self.state),
            head::heap_text(&self.data, true, true)
        );
        let rows = answer.rows.iter().filter(|row| row.flat != 0);
        let rows: Vec<_> = rows.take(MAX_ROWS).collect();
        let names = short_names(rows.iter().map(|row| &*row.name), NAME_COLUMNS);
        for (row, name) in rows.into_iter().zip(names) {
            let change = super::state::change(row, &self.data.base);
            text += &format!(
                "{:>10} {:>13}  {name}\n",
                measure.show(row.flat),
                signed(&measure, change),
            );
        }
        let lines = text.lines().map(|line| printable(line).into_owned() + "\n");
        Some(lines.collect())
    }
}
