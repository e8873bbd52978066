//! The report `growth`: how the values of functions and stacks grew over the steps of a series.
//!
//! The steps are computed as the sample types of one profile. So filters, granularity, flat and cum
//! are the same as in every report.

use std::collections::BTreeMap;

use foldhash::HashMap;

use super::matched_functions::match_steps;
use super::sum::{MomentSelection, is_counter};
use crate::diff::{ChangeSpread, ValueChange};
use crate::error::AnalysisError;
use crate::growth::{self, FunctionGrowth};
use crate::header::SampleType;
use crate::place::{self, CodePlace, PlaceTable};
use crate::question::{ProfileQuestion, QuestionSource, TypeSelection};
use crate::sample_plan::{PlannedAddition, SamplePlan};
use crate::session::{AnalysisSession, read_spread};
use crate::stored_moment::{SeriesStore, common_type};
use heapprof_totals::estimate::{SampleStep, SumSpread, ValueEstimate};
use heapprof_totals::query::{Granularity, Query, SortKey};

/// A row of the report `growth`.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesGrowthRow {
    /// The function, or the stack's frames, the leaf first.
    pub places: Vec<CodePlace>,
    /// The growth of the row. The field `function` has no meaning here.
    pub growth: FunctionGrowth,
    /// The value at each step.
    pub values: Vec<i64>,
    /// The range of the difference between the last and the first value; `None` if both values are
    /// exact.
    pub change: Option<ValueEstimate>,
}

/// The report `growth`.
#[derive(Clone, Debug, Default)]
pub struct SeriesGrowth {
    /// The selector as it was typed.
    pub name: String,
    /// The sample type that is reported.
    pub sample_type: SampleType,
    /// The number of moments, of processes, and of processes in the last step.
    pub counts: [usize; 3],
    /// The number of processes in the first step.
    pub first_processes: usize,
    /// The time of each step, in nanoseconds since 1970 UTC.
    pub times: Vec<i64>,
    /// The sum of all values that the filters keep, at each step.
    pub totals: Vec<i64>,
    /// The value that the rows are about: flat or cum.
    pub sort: SortKey,
    /// Whether a row is a stack.
    pub is_by_stack: bool,
    /// The rows by verdict, with steady growth first, and then by slope.
    pub rows: Vec<SeriesGrowthRow>,
    /// The number of rows that the limit left out, and the sums of their first and last values.
    pub other: (usize, [i64; 2]),
    /// The filters, as `option=value`.
    pub filters: Vec<String>,
}

/// Reports how the values of the chosen moments grew.
///
/// # Errors
/// There are fewer than three steps, or the sample type only counts what was allocated.
pub fn series_growth(
    store: &dyn SeriesStore,
    chosen: &MomentSelection,
    query: &Query,
    by_stack: bool,
) -> Result<(SeriesGrowth, AnalysisSession), AnalysisError> {
    let newest = &chosen.moments[chosen.moments.len() - 1];
    let names: Vec<&str> = newest.types.iter().map(|t| &*t.0).collect();
    let at = match &query.sample_type {
        Some(asked) => heapprof_profile::find_sample_type(&names, asked)?,
        None => common_type(&chosen.moments),
    };
    let sample_type = newest
        .types
        .get(at)
        .cloned()
        .ok_or(AnalysisError::NoTypes)?;
    if is_counter(&sample_type.0) {
        return Err(AnalysisError::OnlyGrows(sample_type.0));
    }
    if chosen.states.len() < 3 {
        return Err(AnalysisError::TooFewSteps(chosen.states.len()));
    }
    let plan = plan(chosen, &sample_type);
    let mut steps = store.sum(&plan)?;
    if query.granularity == Granularity::Functions {
        match_steps(&mut steps);
    }
    let source = QuestionSource::new(&chosen.name, steps);
    let query = &Query {
        sample_type: None,
        ..query.clone()
    };
    let question = ProfileQuestion::new(vec![source], query, TypeSelection::All)?;
    let session = AnalysisSession::new(question)?;
    let [processes, at_end] = chosen.processes();
    let mut report = SeriesGrowth {
        name: chosen.name.clone(),
        sample_type: SampleType {
            r#type: sample_type.0,
            unit: sample_type.1,
        },
        counts: [chosen.moments.len(), processes, at_end],
        first_processes: chosen.states[0].moments.len(),
        times: chosen.states.iter().map(|state| state.time_nanos).collect(),
        totals: session.rows(
            "SELECT kept_net FROM profile_total WHERE profile = 1 ORDER BY position",
            [],
            |row| row.get(0),
        )?,
        sort: query.sort,
        is_by_stack: by_stack,
        filters: query.filters.active_options(),
        ..SeriesGrowth::default()
    };
    let series = match by_stack {
        true => series_by_stack(&session, query, report.times.len())?,
        false => series_by_entity(&session, query, report.times.len())?,
    };
    let question = session.require_question()?;
    let part = &question.parts[0];
    let step = |column: usize| part.whole_spreads[column].map(|known| known.step);
    let steps = [step(0), step(report.times.len() - 1)];
    let mut judged: Vec<(FunctionGrowth, GrowthSeries)> = series
        .into_iter()
        .enumerate()
        .map(|(at, series)| {
            (
                growth::judge(at as u32, &report.times, &series.values),
                series,
            )
        })
        .collect();
    judged.sort_by(|(a, s), (b, t)| {
        let by_slope = b.slope.total_cmp(&a.slope);
        a.verdict
            .cmp(&b.verdict)
            .then(by_slope)
            .then(s.places.cmp(&t.places))
    });
    let shown = query.limit.unwrap_or(judged.len()).min(judged.len());
    let rest = &judged[shown..];
    let sum = |of: &dyn Fn(&FunctionGrowth) -> i64| rest.iter().map(|(growth, _)| of(growth)).sum();
    // A sample counts in several cums, so a sum of cums would mean nothing.
    report.other = match query.sort {
        SortKey::Cum if !by_stack => (rest.len(), [0; 2]),
        _ => (rest.len(), [sum(&|g| g.first), sum(&|g| g.last)]),
    };
    judged.truncate(shown);
    report.rows = judged
        .into_iter()
        .map(|(growth, series)| SeriesGrowthRow {
            change: series.change(steps),
            places: series.places,
            values: series.values,
            growth,
        })
        .collect();
    Ok((report, session))
}

/// Returns the plan in which each step is a column.
fn plan(chosen: &MomentSelection, sample_type: &(String, String)) -> SamplePlan {
    let last = chosen.states.len() - 1;
    let mut adds: BTreeMap<usize, Vec<PlannedAddition>> = BTreeMap::new();
    for (to, state) in chosen.states.iter().enumerate() {
        for &at in &state.moments {
            adds.entry(at).or_default().push(PlannedAddition {
                with_spread: to == 0 || to == last,
                ..PlannedAddition::once(sample_type, to)
            });
        }
    }
    SamplePlan {
        types: vec![sample_type.clone(); chosen.states.len()],
        divisor: 1,
        is_whole: false,
        parts: adds
            .into_iter()
            .map(|(at, adds)| (chosen.moments[at].id, adds))
            .collect(),
    }
}

/// The values of a row at each step, with the spreads of the first and the last value.
struct GrowthSeries {
    places: Vec<CodePlace>,
    values: Vec<i64>,
    end_spreads: [Option<SumSpread>; 2],
}

impl GrowthSeries {
    fn new(places: Vec<CodePlace>, steps: usize) -> Self {
        Self {
            places,
            values: vec![0; steps],
            end_spreads: [None; 2],
        }
    }

    /// Sets the spread of the value at a step. Only the spreads of the first and the last step are
    /// kept.
    fn set_spread(&mut self, step: usize, known: Option<SumSpread>) {
        if step == 0 {
            self.end_spreads[0] = known;
        } else if step + 1 == self.values.len() {
            self.end_spreads[1] = known;
        }
    }

    /// Returns the range of the difference between the last and the first value; `None` if both
    /// values are exact.
    fn change(&self, steps: [Option<SampleStep>; 2]) -> Option<ValueEstimate> {
        let sides = ChangeSpread {
            // In a profile of estimates, memory that was not sampled may exist.
            spread: [0, 1]
                .map(|at| self.end_spreads[at].or(steps[at].map(|_| SumSpread::default()))),
            step: [0, 1].map(|at| steps[at].or(steps[1 - at]).unwrap_or_default()),
        };
        let change = ValueChange {
            before: self.values[0],
            after: self.values[self.values.len() - 1],
        };
        sides.delta(change).filter(|_| steps != [None, None])
    }
}

/// The positions of the columns in a row of [`series_by_entity`]. The columns of the row's place in
/// the code come first.
mod column {
    use crate::place::PLACE_COLUMN_COUNT;

    pub(super) const TYPE: usize = PLACE_COLUMN_COUNT;
    pub(super) const VALUE: usize = TYPE + 1;
    pub(super) const SPREAD: usize = VALUE + 1;
}

fn series_by_entity(
    session: &AnalysisSession,
    query: &Query,
    steps: usize,
) -> Result<Vec<GrowthSeries>, AnalysisError> {
    let (value, prefix) = match query.sort {
        SortKey::Flat => ("flat", ""),
        SortKey::Cum => ("cum", "cum_"),
    };
    let mut found: Vec<GrowthSeries> = Vec::new();
    let mut of: HashMap<CodePlace, usize> = HashMap::default();
    session.each(
        &format!(
            "SELECT {}, t.type, t.{value}, t.{prefix}samples, t.{prefix}variance \
             FROM function_total t JOIN function f ON f.id = t.function WHERE t.profile = 1 AND \
             t.{value} <> 0",
            place::columns(query.granularity, "t")
        ),
        [],
        |row| {
            let place = CodePlace::read(row, 0)?;
            let next = found.len();
            let at = *of.entry(place).or_insert_with_key(|place| {
                found.push(GrowthSeries::new(vec![place.clone()], steps));
                next
            });
            let step = row.get::<_, i64>(column::TYPE)? as usize - 1;
            found[at].values[step] += row.get::<_, i64>(column::VALUE)?;
            found[at].set_spread(step, read_spread(row, column::SPREAD)?);
            Ok::<_, AnalysisError>(())
        },
    )?;
    Ok(found)
}

fn series_by_stack(
    session: &AnalysisSession,
    query: &Query,
    steps: usize,
) -> Result<Vec<GrowthSeries>, AnalysisError> {
    let mut found: Vec<(i64, GrowthSeries)> = Vec::new();
    let mut of: HashMap<i64, usize> = HashMap::default();
    session.each(
        "SELECT stack, type, sum(value), sum(sampled), sum(variance) FROM sample \
         WHERE profile = 1 GROUP BY stack, type",
        [],
        |row| {
            let stack: i64 = row.get(0)?;
            let next = found.len();
            let at = *of.entry(stack).or_insert_with(|| {
                found.push((stack, GrowthSeries::new(Vec::new(), steps)));
                next
            });
            let step = row.get::<_, i64>(1)? as usize - 1;
            found[at].1.values[step] += row.get::<_, i64>(2)?;
            found[at].1.set_spread(step, read_spread(row, 3)?);
            Ok::<_, AnalysisError>(())
        },
    )?;
    let places = PlaceTable::new(session, query.granularity)?;
    let stacks = place::StackReader::new(session);
    for (stack, series) in &mut found {
        let frames = stacks.read(*stack)?;
        series.places = frames.iter().map(|&id| places.get(id).clone()).collect();
    }
    Ok(found.into_iter().map(|(_, series)| series).collect())
}
