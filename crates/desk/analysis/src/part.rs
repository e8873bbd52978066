//! One profile of a question, and the spread of its totals.

use std::sync::{Arc, OnceLock};

use heapprof_profile::Profile;
use heapprof_totals::entity::ProfileEntities;
use heapprof_totals::estimate::{SampleStep, SumSpread, ValueEstimate, period_in_bytes};
use heapprof_totals::totals::{self, EntityTotals, TotalAndNet};
use heapprof_totals::view::ProfileView;

/// One profile of a question.
pub(crate) struct QuestionPart {
    pub(crate) name: String,
    pub(crate) profile: Arc<Profile>,
    pub(crate) view: ProfileView,
    pub(crate) entities: ProfileEntities,
    /// For each sample type of the profile, its number in the question.
    pub(crate) types: Vec<usize>,
    /// The sample type that the query asks for.
    pub(crate) column: usize,
    /// The sample types that are computed.
    pub(crate) columns: Vec<usize>,
    /// The totals of `columns`, before filters.
    pub(crate) whole: Vec<TotalAndNet>,
    /// The spread of each total in `whole`; `None` for an exact total, or if the spread is not
    /// known.
    pub(crate) whole_spreads: Vec<Option<WholeSpread>>,
    pub(crate) totals: OnceLock<EntityTotals>,
}

/// The spread of a total, and the amount that one sample stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeSpread {
    pub(crate) spread: SumSpread,
    pub(crate) step: SampleStep,
}

impl QuestionPart {
    /// Returns the range of a sum of a column; `None` if the sum is exact, or if it contains no
    /// sample.
    pub(crate) fn estimate(
        &self,
        column: usize,
        value: i64,
        spread: SumSpread,
    ) -> Option<ValueEstimate> {
        let known = self.whole_spreads[column]?;
        let is_known = spread.samples > 0 || spread.variance > 0.0;
        is_known.then(|| spread.estimate(value, known.step))
    }

    /// Returns the range of the total of a column, before filters; `None` if it is not known.
    pub(crate) fn whole_estimate(&self, column: usize) -> Option<ValueEstimate> {
        let WholeSpread { spread, step } = self.whole_spreads[column]?;
        let net = self.whole[column].net;
        match net == 0 && spread.samples == 0 && step.each <= 0.0 {
            true => None,
            false => Some(spread.estimate(net, step)),
        }
    }
}

/// Returns the spread of the total of a column; `None` if it is exact or not known.
///
/// The spread of a peak is not known, because the peak is the moment at which the estimate was
/// largest.
pub(crate) fn find_whole_spread(
    profile: &Profile,
    column: usize,
    whole: TotalAndNet,
) -> Option<WholeSpread> {
    let value_type = profile.sample_type[column];
    let name = profile.text(value_type.r#type);
    if is_peak(name) || is_counted(name) {
        return None;
    }
    let period_type = profile.period_type?;
    let period = period_in_bytes(
        profile.text(period_type.r#type),
        profile.text(period_type.unit),
        profile.period,
    );
    let spread = totals::whole_spread(profile, column);
    let step = SampleStep::for_bytes(period, profile.text(value_type.unit));
    let step = step.or_mean_of(Some(spread), whole.total);
    // If nothing was sampled, the total is 0, and its range follows from the period alone.
    let nothing = period.is_some() && whole.total == 0;
    (spread.samples > 0 || spread.variance > 0.0 || nothing).then_some(WholeSpread { spread, step })
}

/// Whether values of a sample type are the amount of memory in use at a moment. This is true for
/// `inuse_space` with any prefix, such as `sv_inuse_space` for an interpreter's values.
pub(crate) fn is_heap(sample_type: &str) -> bool {
    sample_type.contains("inuse_")
}

/// Whether values of a sample type are counted one by one even in a sampled recording. This is true
/// for the types of Perl's values.
pub(crate) fn is_counted(sample_type: &str) -> bool {
    sample_type.starts_with("sv_")
}

/// Whether values of a sample type were taken at the moment when the heap was largest.
pub(crate) fn is_peak(sample_type: &str) -> bool {
    sample_type.starts_with("peak_")
}
