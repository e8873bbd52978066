//! Computes flat and cum, for all reports.
//!
//! The `flat` (exclusive) of an entity is the sum over the samples whose leaf frame is the entity.
//! Its `cum` (inclusive) is the sum over the samples that contain the entity anywhere. Each sample
//! counts once, however often the entity occurs in it.

use heapprof_profile::Profile;

use crate::error::TotalsError;
use crate::estimate::SumSpread;
use crate::view::ProfileView;

/// Sums of one sample type over the samples of one profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalAndNet {
    /// The sum of the absolute values.
    pub total: i64,
    /// The signed sum.
    pub net: i64,
}

/// Flat and cum of every entity, for some sample types of one profile.
#[derive(Debug, Default)]
pub struct EntityTotals {
    /// The columns of the profile's samples for which sums were computed, in order.
    pub columns: Vec<usize>,
    /// The exclusive sums. The sum of an entity in a column is at `entity * columns + column`.
    pub flat: Vec<i64>,
    /// The inclusive sums, in the order of `flat`.
    pub cum: Vec<i64>,
    /// For each column, the entities whose flat or cum is not 0, in ascending order.
    pub present: Vec<Vec<u32>>,
    /// The sums over the samples that the filters kept.
    pub kept: Vec<TotalAndNet>,
    /// The spread of each sum, if the profile has the spread of its values.
    pub spread: Option<SpreadTotals>,
}

/// The spread of each sum of [`EntityTotals`], in the same order.
#[derive(Debug, Default)]
pub struct SpreadTotals {
    /// The spread of each sum of [`EntityTotals::flat`].
    pub flat: Vec<SumSpread>,
    /// The spread of each sum of [`EntityTotals::cum`].
    pub cum: Vec<SumSpread>,
    /// The spread of each sum of [`EntityTotals::kept`].
    pub kept: Vec<SumSpread>,
}

/// A term that is added up: a value, or a value with its spread.
pub trait SumTerm: Copy + Default {
    /// Adds another term.
    fn plus(&mut self, other: Self);

    /// Returns the value.
    fn value(self) -> i64;

    /// Reads the terms of sample `i` in the columns. Returns false if all terms are zero, because
    /// such a sample has no effect.
    fn pick(profile: &Profile, i: usize, columns: &[usize], picked: &mut [Self]) -> bool;
}

impl SumTerm for i64 {
    #[inline]
    fn plus(&mut self, other: Self) {
        *self = self.wrapping_add(other);
    }

    #[inline]
    fn value(self) -> i64 {
        self
    }

    #[inline]
    fn pick(profile: &Profile, i: usize, columns: &[usize], picked: &mut [Self]) -> bool {
        pick(profile, i, columns, picked)
    }
}

/// A value with its spread.
#[derive(Clone, Copy, Debug, Default)]
pub struct UncertainValue {
    value: i64,
    spread: SumSpread,
}

impl SumTerm for UncertainValue {
    #[inline]
    fn plus(&mut self, other: Self) {
        self.value.plus(other.value);
        self.spread = self.spread.combine(other.spread);
    }

    #[inline]
    fn value(self) -> i64 {
        self.value
    }

    fn pick(profile: &Profile, i: usize, columns: &[usize], picked: &mut [Self]) -> bool {
        let values = profile.samples.values(i);
        let mut any = false;
        for (known, &column) in picked.iter_mut().zip(columns) {
            *known = UncertainValue {
                value: values[column],
                spread: spread_of(profile, i, column),
            };
            any |= known.value != 0 || known.spread.variance != 0.0;
        }
        any
    }
}

/// Returns the spread of a sample's value.
pub fn spread_of(profile: &Profile, i: usize, column: usize) -> SumSpread {
    let spread = profile.samples.spread(i);
    spread.map_or_else(SumSpread::default, |spread| SumSpread {
        samples: spread.sampled[column],
        variance: spread.variance[column],
    })
}

/// Returns the spread of the sum of a column over all samples. Filters are ignored.
pub fn whole_spread(profile: &Profile, column: usize) -> SumSpread {
    let all = 0..profile.samples.len();
    all.fold(SumSpread::default(), |sum, i| {
        sum.combine(spread_of(profile, i, column))
    })
}

/// Adds up all samples of each column. Filters are ignored. It is an error if a total does not fit
/// in 64 bits.
pub fn whole_totals(profile: &Profile, columns: &[usize]) -> Result<Vec<TotalAndNet>, TotalsError> {
    let mut sums = vec![(0i128, 0i128); columns.len()];
    for i in 0..profile.samples.len() {
        let values = profile.samples.values(i);
        for (sum, &column) in sums.iter_mut().zip(columns) {
            sum.0 += i128::from(values[column].unsigned_abs());
            sum.1 += i128::from(values[column]);
        }
    }
    sums.into_iter()
        .zip(columns)
        .map(|((total, net), &column)| {
            let total = i64::try_from(total).map_err(|_| overflow(profile, column))?;
            // |net| <= total, so it fits, too.
            Ok(TotalAndNet {
                total,
                net: net as i64,
            })
        })
        .collect()
}

/// Makes an error for a column whose sums do not fit in 64 bits.
pub fn overflow(profile: &Profile, column: usize) -> TotalsError {
    TotalsError::Overflow {
        sample_type: profile.text(profile.sample_type[column].r#type).to_string(),
    }
}

/// Flat and cum of each entity, to which samples are added one by one. Each entity has `width` flat
/// sums and `width` cum sums.
///
/// A sample counts once for an entity, so no sum exceeds the total of the added values
/// ([`whole_totals`]). If the caller has checked that total, no sum can overflow. Otherwise sums
/// may wrap (as in `heapprof pprof`, which prints what pprof prints).
#[derive(Debug, Default)]
pub struct EntitySums<T = i64> {
    /// The number of sums per entity.
    pub width: usize,
    /// The exclusive sums. The sum of an entity in a column is at `entity * width + column`.
    pub flat: Vec<T>,
    /// The inclusive sums, in the order of `flat`.
    pub cum: Vec<T>,
    /// The number, from 1, of the last sample that was counted for each entity.
    seen: Vec<u32>,
    stamp: u32,
}

impl<T: SumTerm> EntitySums<T> {
    /// Makes sums that are all zero.
    pub fn new(entities: usize, width: usize) -> Self {
        let mut sums = Self {
            width,
            ..Self::default()
        };
        sums.grow(entities);
        sums
    }

    /// Enlarges the tables to `entities` entities, if new entities were found while samples were
    /// added.
    pub fn grow(&mut self, entities: usize) {
        self.flat.resize(entities * self.width, T::default());
        self.cum.resize(entities * self.width, T::default());
        self.seen.resize(entities, 0);
    }

    /// Adds a sample: to the flat of `leaf`, if there is one, and once to the cum of each entity in
    /// `entities`.
    #[inline]
    pub fn add(
        &mut self,
        values: &[T],
        leaf: Option<u32>,
        entities: impl IntoIterator<Item = u32>,
    ) {
        let width = self.width;
        if self.stamp == u32::MAX {
            self.seen.fill(0);
            self.stamp = 0;
        }
        self.stamp += 1;
        if let Some(leaf) = leaf {
            let at = leaf as usize * width;
            for (sum, value) in self.flat[at..].iter_mut().zip(values) {
                sum.plus(*value);
            }
        }
        for entity in entities {
            let entity = entity as usize;
            if self.seen[entity] == self.stamp {
                continue;
            }
            self.seen[entity] = self.stamp;
            for (sum, value) in self.cum[entity * width..].iter_mut().zip(values) {
                sum.plus(*value);
            }
        }
    }
}

/// Computes the [`EntityTotals`] of a profile. `whole_totals` must have succeeded for the columns,
/// so that no sum can overflow.
pub fn totals(
    profile: &Profile,
    view: &ProfileView,
    entity_of: &[u32],
    entities: usize,
    empty_stack: u32,
    columns: &[usize],
) -> EntityTotals {
    let kernel = TotalsKernel {
        profile,
        view,
        entity_of,
        entities,
        empty_stack,
        columns,
    };
    match profile.samples.has_spread() {
        false => {
            let (EntitySums { flat, cum, .. }, kept, _) = kernel.run::<i64>();
            kernel.totals(flat, cum, kept, None)
        }
        true => {
            let (EntitySums { flat, cum, .. }, kept, sum) = kernel.run::<UncertainValue>();
            let values = |all: &[UncertainValue]| all.iter().map(|known| known.value).collect();
            let spreads = |all: &[UncertainValue]| all.iter().map(|known| known.spread).collect();
            let spread = SpreadTotals {
                flat: spreads(&flat),
                cum: spreads(&cum),
                kept: spreads(&sum),
            };
            kernel.totals(values(&flat), values(&cum), kept, Some(spread))
        }
    }
}

/// The arguments of [`totals`].
struct TotalsKernel<'a> {
    profile: &'a Profile,
    view: &'a ProfileView,
    entity_of: &'a [u32],
    entities: usize,
    empty_stack: u32,
    columns: &'a [usize],
}

impl TotalsKernel<'_> {
    /// Computes flat and cum of all entities, and the sums over the samples that the filters keep.
    fn run<T: SumTerm>(&self) -> (EntitySums<T>, Vec<TotalAndNet>, Vec<T>) {
        let width = self.columns.len();
        let mut sums = EntitySums::new(self.entities, width);
        let mut kept = vec![TotalAndNet::default(); width];
        let mut sum_kept = vec![T::default(); width];
        let mut stack = Vec::new();
        let mut picked = vec![T::default(); width];
        let samples = &self.profile.samples;
        for i in 0..samples.len() {
            if !T::pick(self.profile, i, self.columns, &mut picked)
                || !self.view.stack(samples, i, &mut stack)
            {
                continue;
            }
            for ((total, sum), &term) in kept.iter_mut().zip(&mut sum_kept).zip(&picked) {
                total.total += term.value().abs();
                total.net += term.value();
                sum.plus(term);
            }
            let entities = stack.iter().map(|&frame| self.entity_of[frame as usize]);
            match entities.clone().next() {
                None => sums.add(&picked, Some(self.empty_stack), [self.empty_stack]),
                leaf => sums.add(&picked, leaf, entities),
            }
        }
        (sums, kept, sum_kept)
    }

    fn totals(
        &self,
        flat: Vec<i64>,
        cum: Vec<i64>,
        kept: Vec<TotalAndNet>,
        spread: Option<SpreadTotals>,
    ) -> EntityTotals {
        let width = self.columns.len();
        let present = (0..width)
            .map(|column| {
                (0..self.entities as u32)
                    .filter(|&e| {
                        let at = e as usize * width + column;
                        flat[at] != 0 || cum[at] != 0
                    })
                    .collect()
            })
            .collect();
        EntityTotals {
            columns: self.columns.to_vec(),
            flat,
            cum,
            present,
            kept,
            spread,
        }
    }
}

/// Reads the values of sample `i` in the columns. Returns false if all are 0, because such a sample
/// has no effect.
#[inline]
pub fn pick(profile: &Profile, i: usize, columns: &[usize], picked: &mut [i64]) -> bool {
    let values = profile.samples.values(i);
    let mut any = false;
    for (value, &column) in picked.iter_mut().zip(columns) {
        *value = values[column];
        any |= *value != 0;
    }
    any
}
