//! Updates the view's data: stores the feed's news, and computes the answers that the screen shows.
//! Each answer is computed only once.

use std::sync::Arc;

use anyhow::Result;

use super::answer::{self, ViewAnswer, ViewFunction, ViewQuestion};
use super::feed::{FeedNews, ViewSnapshot};
use super::state::{ViewMode, ViewState};
use super::view_data::{FlatByFunction, ViewData};

/// Number of moments in a trend.
const TREND_MOMENTS: usize = 7;
/// Maximum number of moments from which the view Growth is computed.
const MAX_GROWTH_MOMENTS: usize = 40;

impl ViewData {
    /// Stores the feed's news, and computes the answers that the screen shows.
    pub(crate) fn refresh(&mut self, news: FeedNews, state: &mut ViewState) {
        self.news = news;
        let Some(snapshot) = self.news.snapshot.clone() else {
            return;
        };
        if let Err(error) = self.ask(&snapshot, state) {
            self.trouble = Some(format!("{error:#}"));
        }
    }

    fn ask(&mut self, snapshot: &Arc<ViewSnapshot>, state: &mut ViewState) -> Result<()> {
        let key = (snapshot.id, state.ask.clone());
        if self.answered.as_ref() != Some(&key) {
            self.answered = Some(key.clone());
            self.trouble = None;
            let answer = answer::answer(&snapshot.source, &state.ask)?;
            self.trend(&key, &answer, state)?;
            self.answer = Some(answer);
        }
        self.compare(state)?;
        match state.view {
            ViewMode::Table => self.refresh_detail(&key, snapshot, state)?,
            ViewMode::Tree if self.treed.as_ref() != Some(&key) => {
                let is_first = self.treed.replace(key).is_none();
                self.nodes = answer::nodes(&snapshot.source, &state.ask)?;
                if is_first {
                    super::outline::unfold_largest(&self.nodes, &mut state.unfolded);
                }
            }
            ViewMode::Growth if self.grew.as_ref() != Some(&key) => {
                self.grew = Some(key);
                let series = &self.news.series;
                let step = series.len().div_ceil(MAX_GROWTH_MOMENTS).max(1);
                // The last moment is among them.
                let some = series.iter().rev().step_by(step);
                let mut sources: Vec<_> = some.map(|one| one.source.clone()).collect();
                sources.reverse();
                self.grown = answer::grown(&sources, &state.ask)?;
            }
            ViewMode::Tree | ViewMode::Growth | ViewMode::Timeline => {}
        }
        Ok(())
    }

    /// Computes the values with which rows are compared: the values at the marked moment, or at the
    /// first moment if none is marked.
    fn compare(&mut self, state: &ViewState) -> Result<()> {
        let base = self.mark.as_ref().or_else(|| self.news.series.first());
        let Some(base) = base else { return Ok(()) };
        let key = (base.id, state.ask.clone());
        if self.based.as_ref() != Some(&key) {
            self.based = Some(key);
            self.base_seconds = base.seconds;
            self.base = flats(&answer::answer(&base.source, &state.ask)?);
        }
        Ok(())
    }

    /// Adds the newest moment to the trend. If the question has changed, the earlier moments are
    /// computed anew.
    fn trend(
        &mut self,
        key: &(u64, ViewQuestion),
        answer: &ViewAnswer,
        state: &ViewState,
    ) -> Result<()> {
        let now = self.news.series.iter().rposition(|one| one.id == key.0);
        let first = now.map_or(0, |now| (now + 1).saturating_sub(TREND_MOMENTS));
        let wanted = &self.news.series[first..now.unwrap_or(first)];
        let mut trend = Vec::with_capacity(TREND_MOMENTS);
        let mut keys = Vec::with_capacity(TREND_MOMENTS);
        for one in wanted {
            let key = (one.id, state.ask.clone());
            let known = self.trended.iter().position(|known| *known == key);
            trend.push(match known {
                Some(at) => std::mem::take(&mut self.trend[at]),
                None => flats(&answer::answer(&one.source, &state.ask)?),
            });
            keys.push(key);
        }
        trend.push(flats(answer));
        keys.push(key.clone());
        (self.trend, self.trended) = (trend, keys);
        Ok(())
    }

    /// Computes the callers, callees and lines of the selected row's function.
    fn refresh_detail(
        &mut self,
        key: &(u64, ViewQuestion),
        snapshot: &ViewSnapshot,
        state: &mut ViewState,
    ) -> Result<()> {
        let Some(answer) = &self.answer else {
            return Ok(());
        };
        let is_there =
            |function: &ViewFunction| answer.rows.iter().any(|row| row.function == *function);
        let function = state.selected.clone().filter(is_there);
        // Without a choice the cursor is on the first row, wherever that row is by size.
        let first = || state.order.iter().find(|of| is_there(of)).cloned();
        let function = function.or_else(first);
        let function = function.or_else(|| Some(answer.rows.first()?.function.clone()));
        let Some(function) = function else {
            self.detail = None;
            return Ok(());
        };
        let key = (key.0, key.1.clone(), function);
        if self.detailed.as_ref() != Some(&key) {
            self.detail = Some(answer::detail(&snapshot.source, &state.ask, &key.2)?);
            self.detailed = Some(key);
        }
        Ok(())
    }
}

fn flats(answer: &ViewAnswer) -> FlatByFunction {
    let rows = answer.rows.iter();
    rows.map(|row| (row.function.clone(), row.flat)).collect()
}
