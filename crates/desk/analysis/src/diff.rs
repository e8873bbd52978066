//! The report `diff`: what grew, what shrank, what is new and what is gone between two profiles.

use rusqlite::Row;

use crate::error::AnalysisError;
use crate::header::{ReportHeader, header, period};
use crate::place::{self, CodePlace};
use crate::session::{AnalysisSession, SPREAD_COLUMN_COUNT, read_spread};
use heapprof_totals::estimate::{
    ComparisonSide, ConfidenceLevel, SampleStep, SumSpread, ValueEstimate, difference,
    smallest_growth,
};
use heapprof_totals::query::{Query, SortKey};

/// How a row changed between the earlier and the later profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffStatus {
    /// Only the later profile has the row.
    New,
    /// Only the earlier profile has the row.
    Gone,
    /// The value is larger.
    Grown,
    /// The value is smaller.
    Shrunk,
    /// The value is unchanged.
    Same,
    /// The change is within the noise of sampling: two samplings of the same heap can differ as
    /// much.
    WithinNoise,
}

impl DiffStatus {
    /// Returns the words that reports show for the status.
    pub fn word(self) -> &'static str {
        match self {
            DiffStatus::New => "new",
            DiffStatus::Gone => "gone",
            DiffStatus::Grown => "grown",
            DiffStatus::Shrunk => "shrunk",
            DiffStatus::Same => "same",
            DiffStatus::WithinNoise => "within noise",
        }
    }
}

/// A value in the earlier and in the later profile of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueChange {
    /// The value in the earlier profile.
    pub before: i64,
    /// The value in the later profile.
    pub after: i64,
}

impl ValueChange {
    /// Returns `after` minus `before`. The difference need not fit in 64 bits.
    pub fn delta(self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }

    /// Returns the delta as a share of `before`; `None` if `before` is 0.
    pub fn growth(self) -> Option<f64> {
        match self.before {
            0 => None,
            before => Some(self.delta() as f64 / (before as f64).abs()),
        }
    }
}

/// The spread of a value in the earlier and in the later profile, and the amount that one sample
/// stands for in each profile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ChangeSpread {
    pub(crate) spread: [Option<SumSpread>; 2],
    pub(crate) step: [SampleStep; 2],
}

impl ChangeSpread {
    /// Returns both values of a change, with their spreads.
    pub(crate) fn sides_of(&self, change: ValueChange) -> [ComparisonSide; 2] {
        let values = [change.before as f64, change.after as f64];
        [0, 1].map(|at| ComparisonSide {
            value: values[at],
            spread: self.spread[at],
            step: self.step[at],
        })
    }

    /// Returns the range of a change's delta; `None` if both values are exact.
    pub(crate) fn delta(&self, change: ValueChange) -> Option<ValueEstimate> {
        if self.spread == [None, None] {
            return None;
        }
        let [before, after] = self.sides_of(change);
        let (low, high) = difference(before, after, 1.0, ConfidenceLevel::DEFAULT_LEVEL);
        let samples = self.spread.iter().flatten().map(|spread| spread.samples);
        let delta = change.after.saturating_sub(change.before);
        Some(ValueEstimate {
            low: delta.min(low.floor() as i64),
            high: delta.max(high.ceil() as i64),
            samples: samples.fold(0, u64::saturating_add),
        })
    }
}

/// A row of `diff`.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffRow {
    /// The place in the code that the row is about.
    pub place: CodePlace,
    /// The change of flat, which is the sum over the samples whose leaf is the place.
    pub flat: ValueChange,
    /// The change of cum, which is the sum over the samples that have the place anywhere in their
    /// stack.
    pub cum: ValueChange,
    /// Whether the earlier profile has the row.
    pub existed_before: bool,
    /// Whether the later profile has the row.
    pub exists_after: bool,
    /// The spreads of flat and of cum in both profiles.
    pub(crate) spread: [ChangeSpread; 2],
}

impl DiffRow {
    /// Returns the change of the value that `sort` names: flat or cum.
    pub fn change(&self, sort: SortKey) -> ValueChange {
        match sort {
            SortKey::Flat => self.flat,
            SortKey::Cum => self.cum,
        }
    }

    /// Returns the spread of the value that `sort` names: flat or cum.
    pub(crate) fn change_spread(&self, sort: SortKey) -> ChangeSpread {
        self.spread[match sort {
            SortKey::Flat => 0,
            SortKey::Cum => 1,
        }]
    }

    /// Returns the range of the delta of the value that `sort` names (flat or cum); `None` if both
    /// values are exact.
    pub fn estimate(&self, sort: SortKey) -> Option<ValueEstimate> {
        self.change_spread(sort).delta(self.change(sort))
    }

    /// Returns the status of the value that `sort` names: flat or cum.
    pub fn status(&self, sort: SortKey) -> DiffStatus {
        match self.change(sort).delta() {
            0 => DiffStatus::Same,
            _ if self.estimate(sort).is_some_and(|e| e.contains_zero()) => DiffStatus::WithinNoise,
            _ if !self.existed_before => DiffStatus::New,
            _ if !self.exists_after => DiffStatus::Gone,
            1.. => DiffStatus::Grown,
            _ => DiffStatus::Shrunk,
        }
    }
}

/// The smallest growths that a comparison of estimates shows. Smaller ones are within the noise of
/// sampling. A growth is `None` if nothing is known of what one sample stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallestGrowth {
    /// The growth of a row that had nothing before. A row that had something needs a larger growth.
    pub row: Option<i64>,
    /// The growth of the total.
    pub total: Option<i64>,
}

/// The report `diff`.
#[derive(Clone, Debug, Default)]
pub struct DiffReport {
    /// The header of the earlier profile.
    pub before: ReportHeader,
    /// The header of the later profile.
    pub after: ReportHeader,
    /// The value that the rows are ordered by.
    pub sort: SortKey,
    /// The signed sum of the values of each profile.
    pub total: ValueChange,
    /// The factor by which the values of the later profile were scaled to make both totals equal;
    /// `None` if they were not scaled.
    pub normalized: Option<f64>,
    /// All rows, including rows without a change, ordered by the size of the change, then by name.
    pub rows: Vec<DiffRow>,
    /// Every sample type that both profiles have, with its signed sum in each profile, in the order
    /// of the earlier profile.
    pub types: Vec<(crate::SampleType, ValueChange)>,
    /// The spread of `total`.
    pub(crate) total_spread: ChangeSpread,
    /// The spreads of `types`, in the same order.
    pub(crate) type_spreads: Vec<ChangeSpread>,
}

/// Compares the profiles with the numbers `before` and `after` of the session.
pub fn diff(
    session: &AnalysisSession,
    [before, after]: [i64; 2],
    query: &Query,
    normalize: bool,
) -> Result<DiffReport, AnalysisError> {
    let (head_before, type_before) = header(session, before, query)?;
    let (head_after, type_after) = header(session, after, query)?;
    let (a, b) = (&head_before.sample_type, &head_after.sample_type);
    if a != b {
        return Err(AnalysisError::DifferentTypes {
            before: format!("{}/{}", a.r#type, a.unit),
            after: format!("{}/{}", b.r#type, b.unit),
        });
    }
    let (types, type_sides) = types(session, before, after)?.into_iter().unzip();
    let mut diff = DiffReport {
        total_spread: total_spread(&head_before, &head_after),
        total: ValueChange {
            before: head_before.net,
            after: head_after.net,
        },
        before: head_before,
        after: head_after,
        sort: query.sort,
        types,
        type_spreads: type_sides,
        ..DiffReport::default()
    };
    let (places, order) = (
        place::columns(query.granularity, "u"),
        place::order(query.granularity, "u"),
    );
    let is_estimate = diff.total_spread.spread.map(|spread| spread.is_some());
    // If all values are exact, the statement asks for no estimates.
    let (sums, of_before, of_after) = match is_estimate.contains(&true) {
        true => spread_sql(),
        false => Default::default(),
    };
    let step = diff.total_spread.step;
    let known = |row: &Row<'_>, at| {
        if sums.is_empty() {
            return Ok(ChangeSpread::default());
        }
        let side = |at, is_estimate| match is_estimate {
            // In a profile of estimates, memory that was not sampled may exist.
            true => read_spread(row, at).map(|spread| Some(spread.unwrap_or_default())),
            false => Ok(None),
        };
        let after = at + SPREAD_COLUMN_COUNT;
        let spread = [side(at, is_estimate[0])?, side(after, is_estimate[1])?];
        Ok::<_, rusqlite::Error>(ChangeSpread { spread, step })
    };
    diff.rows = session.rows(
        &format!(
            "SELECT {places}, sum(fb), sum(fa), sum(cb), sum(ca), sum(was), sum(now){sums} FROM \
             (SELECT function, line, address, flat AS fb, 0 AS fa, cum AS cb, 0 AS ca, 1 AS was, 0 \
             AS now{of_before} FROM function_total t WHERE profile = ?1 AND type = ?2 UNION ALL \
             SELECT function, line, address, 0, flat, 0, cum, 0, 1{of_after} FROM function_total t \
             WHERE profile = ?3 AND type = ?4) u JOIN function f ON f.id = u.function \
             GROUP BY {order}"
        ),
        [before, type_before, after, type_after],
        |row| {
            let change = |before, after| {
                Ok::<_, rusqlite::Error>(ValueChange {
                    before: row.get(before)?,
                    after: row.get(after)?,
                })
            };
            Ok(DiffRow {
                place: CodePlace::read(row, 0)?,
                flat: change(column::FLAT_BEFORE, column::FLAT_AFTER)?,
                cum: change(column::CUM_BEFORE, column::CUM_AFTER)?,
                existed_before: row.get::<_, i64>(column::EXISTED_BEFORE)? > 0,
                exists_after: row.get::<_, i64>(column::EXISTS_AFTER)? > 0,
                spread: [
                    known(row, column::FLAT_SPREAD)?,
                    known(row, column::CUM_SPREAD)?,
                ],
            })
        },
    )?;
    if normalize {
        diff.normalize()?;
    }
    let size = |row: &DiffRow| row.change(query.sort).delta().unsigned_abs();
    diff.rows
        .sort_by(|a, b| (size(b), &a.place).cmp(&(size(a), &b.place)));
    Ok(diff)
}

/// The positions of the columns in a row of `diff`. The columns of the row's place in the code come
/// first.
mod column {
    use crate::place::PLACE_COLUMN_COUNT;
    use crate::session::SPREAD_COLUMN_COUNT;

    pub(super) const FLAT_BEFORE: usize = PLACE_COLUMN_COUNT;
    pub(super) const FLAT_AFTER: usize = FLAT_BEFORE + 1;
    pub(super) const CUM_BEFORE: usize = FLAT_AFTER + 1;
    pub(super) const CUM_AFTER: usize = CUM_BEFORE + 1;
    pub(super) const EXISTED_BEFORE: usize = CUM_AFTER + 1;
    pub(super) const EXISTS_AFTER: usize = EXISTED_BEFORE + 1;
    /// The position of the first column of the spreads of flat: the earlier profile's spread, then
    /// the later one's. Only estimates have spreads.
    pub(super) const FLAT_SPREAD: usize = EXISTS_AFTER + 1;
    /// The position of the first column of the spreads of cum: the earlier profile's spread, then
    /// the later one's.
    pub(super) const CUM_SPREAD: usize = FLAT_SPREAD + 2 * SPREAD_COLUMN_COUNT;
}

/// Returns the spread of both totals, and the amount that one sample stands for in each profile.
fn total_spread(before: &ReportHeader, after: &ReportHeader) -> ChangeSpread {
    let step = |header: &ReportHeader| {
        let step = SampleStep::for_bytes(header.sampled, &header.sample_type.unit);
        step.or_mean_of(header.spread, header.net)
    };
    ChangeSpread {
        spread: [before.spread, after.spread],
        step: share_steps([step(before), step(after)]),
    }
}

/// Returns the amounts that one sample stands for in both profiles. If one amount is unknown, the
/// other amount replaces it. The result is then no upper bound, because a sample may stand for
/// more.
fn share_steps(step: [SampleStep; 2]) -> [SampleStep; 2] {
    [0, 1].map(|at| match step[at].each {
        0.0 => SampleStep {
            is_upper_bound: false,
            ..step[1 - at]
        },
        _ => step[at],
    })
}

/// Returns the SQL for the spread of rows, in three lists: the sums of the columns, the columns of
/// the earlier profile, and the columns of the later profile.
fn spread_sql() -> (String, String, String) {
    // The names are samples and variance of flat before, flat after, cum before, cum after.
    let names = ["sfb", "vfb", "sfa", "vfa", "scb", "vcb", "sca", "vca"];
    let (flat, cum) = (
        AnalysisSession::spread_columns("t", ""),
        AnalysisSession::spread_columns("t", "cum_"),
    );
    let nothing = "NULL, NULL";
    let sums = names.map(|name| format!(", sum({name})")).concat();
    let of_before = [&flat, nothing, &cum, nothing].join(", ");
    let of_before = of_before.split(", ").zip(names);
    let of_before = of_before.map(|(column, name)| format!(", {column} AS {name}"));
    let of_after = format!(", {}", [nothing, &flat, nothing, &cum].join(", "));
    (sums, of_before.collect(), of_after)
}

/// A sample type with its sums in both profiles.
type TypeChange = (crate::SampleType, ValueChange);

/// Returns the sums of the sample types that both profiles have.
fn types(
    session: &AnalysisSession,
    before: i64,
    after: i64,
) -> Result<Vec<(TypeChange, ChangeSpread)>, AnalysisError> {
    let periods = [period(session, before)?, period(session, after)?];
    let (of_before, of_after) = (
        AnalysisSession::spread_columns("b", "kept_"),
        AnalysisSession::spread_columns("a", "kept_"),
    );
    session.rows(
        &format!(
            "SELECT s.type, s.unit, b.kept_net, a.kept_net, {of_before}, {of_after} \
             FROM profile_total b JOIN profile_total a ON a.type = b.type AND a.profile = ?2 \
             JOIN sample_type s ON s.id = b.type WHERE b.profile = ?1 ORDER BY b.position"
        ),
        [before, after],
        |row| {
            let sample_type = crate::SampleType {
                r#type: row.get(0)?,
                unit: row.get(1)?,
            };
            let change = ValueChange {
                before: row.get(2)?,
                after: row.get(3)?,
            };
            let (of_before, of_after) = (4, 4 + SPREAD_COLUMN_COUNT);
            let spread = [read_spread(row, of_before)?, read_spread(row, of_after)?];
            let step = |at: usize, value| {
                SampleStep::for_bytes(periods[at], &sample_type.unit).or_mean_of(spread[at], value)
            };
            let step = share_steps([step(0, change.before), step(1, change.after)]);
            Ok(((sample_type, change), ChangeSpread { spread, step }))
        },
    )
}

impl DiffReport {
    /// Returns the range of the delta of the total; `None` if both totals are exact.
    pub fn total_estimate(&self) -> Option<ValueEstimate> {
        self.total_spread.delta(self.total)
    }

    /// Returns the smallest growths that this comparison shows; `None` if both profiles are exact,
    /// or if the errors of their values are not known.
    pub fn smallest_growth(&self) -> Option<SmallestGrowth> {
        let spread = self.total_spread.spread;
        if spread == [None, None] {
            return None;
        }
        // A profile of estimates may have missed a row.
        let nothing = ChangeSpread {
            spread: spread.map(|spread| spread.map(|_| SumSpread::default())),
            ..self.total_spread
        };
        let of = |sides: &ChangeSpread, change: ValueChange| {
            let [before, after] = sides.sides_of(change);
            smallest_growth(before, after).map(|growth| growth.ceil() as i64)
        };
        Some(SmallestGrowth {
            row: of(&nothing, ValueChange::default()),
            // Both totals are made equal.
            total: of(&self.total_spread, self.total).filter(|_| self.normalized.is_none()),
        })
    }

    /// Whether no change is larger than the noise of sampling, neither that of a row nor that of
    /// the total.
    pub fn is_within_noise(&self) -> bool {
        let is_noise = |status| matches!(status, DiffStatus::Same | DiffStatus::WithinNoise);
        let mut rows = self.rows.iter();
        is_noise(self.total_status()) && rows.all(|row| is_noise(row.status(self.sort)))
    }

    /// Returns how the total changed.
    pub fn total_status(&self) -> DiffStatus {
        match self.total.delta() {
            0 => DiffStatus::Same,
            _ if self.total_estimate().is_some_and(|e| e.contains_zero()) => {
                DiffStatus::WithinNoise
            }
            1.. => DiffStatus::Grown,
            _ => DiffStatus::Shrunk,
        }
    }

    /// Scales the values of the later profile so that both totals are equal. The totals include the
    /// samples that filters left out. Flat values are rounded as a running sum, so they still add
    /// up exactly.
    fn normalize(&mut self) -> Result<(), AnalysisError> {
        let whole = |header: &ReportHeader| i128::from(header.net) + i128::from(header.left_out);
        let (mut base, mut total) = (whole(&self.before), whole(&self.after));
        if total == 0 {
            return Err(AnalysisError::NothingToScale);
        }
        if total < 0 {
            (base, total) = (-base, -total);
        }
        let beyond = || {
            AnalysisError::from(heapprof_totals::TotalsError::BeyondRange(
                "a normalized value".to_string(),
            ))
        };
        // Rounds to the nearest number, halves up.
        let scaled = |value: i128| -> Result<i128, AnalysisError> {
            let twice = value
                .checked_mul(base)
                .and_then(|v| v.checked_mul(2))
                .ok_or_else(beyond)?;
            let rounded = twice.checked_add(total).ok_or_else(beyond)?;
            Ok(rounded.div_euclid(2 * total))
        };
        let narrow = |value: i128| i64::try_from(value).map_err(|_| beyond());
        self.rows.sort_by(|a, b| a.place.cmp(&b.place));
        let (mut sum, mut sum_scaled) = (0i128, 0i128);
        for row in &mut self.rows {
            sum += i128::from(row.flat.after);
            let next = scaled(sum)?;
            row.flat.after = narrow(next - sum_scaled)?;
            sum_scaled = next;
            row.cum.after = narrow(scaled(i128::from(row.cum.after))?)?;
        }
        let ratio = base as f64 / total as f64;
        self.normalized = Some(ratio);
        let rows = self.rows.iter_mut().flat_map(|row| &mut row.spread);
        for sides in rows.chain([&mut self.total_spread]) {
            sides.spread[1] = sides.spread[1].map(|spread| spread.times(ratio));
            sides.step[1] = sides.step[1].times(ratio);
        }
        self.total.after = narrow(scaled(i128::from(self.total.after))?)?;
        Ok(())
    }
}
