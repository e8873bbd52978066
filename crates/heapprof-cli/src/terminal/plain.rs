//! The view for a log: a plain block of lines each time, where there is no terminal.

use heapprof_report::UnitFormatter;
use heapprof_text::{printable, shorten_one};

use super::canvas::signed;
use super::feed::News;
use super::head;
use super::known::Data;
use super::state::State;

/// So many functions a block has.
const ROWS: usize = 10;
/// The columns of a name.
const NAME: usize = 60;

/// Makes blocks.
#[derive(Default)]
pub(crate) struct Plain {
    data: Data,
    state: State,
    shown: Option<u64>,
}

impl Plain {
    /// The block of these news; `None` if they are the same as before.
    pub(crate) fn block(&mut self, news: News) -> Option<String> {
        let id = news.snapshot.as_ref()?.id;
        let is_new = self.shown.replace(id) != Some(id) || news.ended.is_some();
        self.data.refresh(news, &mut self.state);
        let answer = self.data.answer.as_ref().filter(|_| is_new)?;
        let measure =
            UnitFormatter::new(&answer.unit, None).unwrap_or_else(|_| UnitFormatter::raw());
        let mut text = format!(
            "{}   {}\n",
            head::who(&self.data, &self.state),
            head::what(&self.data, true, true)
        );
        for row in answer.rows.iter().filter(|row| row.flat != 0).take(ROWS) {
            let change = super::state::change(row, &self.data.base);
            text += &format!(
                "{:>10} {:>13}  {}\n",
                measure.show(row.flat),
                signed(&measure, change),
                shorten_one(&printable(&row.name), NAME)
            );
        }
        let lines = text.lines().map(|line| printable(line).into_owned() + "\n");
        Some(lines.collect())
    }
}
