//! Flat and cum, the one place where they are computed.
//!
//! `flat` (exclusive) of an entity is the sum over samples whose leaf frame it is; `cum` (inclusive)
//! the sum over samples that hold it anywhere, each sample once however often it recurs.

use heapprof_profile::Profile;

use crate::error::Error;
use crate::view::View;

/// Sums of one sample type over the samples of one profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Sum of the values regardless of sign.
    pub total: i64,
    /// Signed sum.
    pub net: i64,
}

/// Flat and cum of every entity for some sample types of one profile.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Columns of the profile's samples, in the order of the sums below.
    pub(crate) columns: Vec<usize>,
    /// `entity * columns + column`.
    pub(crate) flat: Vec<i64>,
    pub(crate) cum: Vec<i64>,
    /// For each column the entities that have a flat or cum other than 0, in ascending order.
    pub(crate) present: Vec<Vec<u32>>,
    /// Over the samples that the filters kept.
    pub(crate) kept: Vec<Total>,
}

/// Adds up all samples of each column, filters aside. Errors where 64 bits do not hold the total.
pub(crate) fn whole(profile: &Profile, columns: &[usize]) -> Result<Vec<Total>, Error> {
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
            // |net| <= total, so it fits too.
            Ok(Total {
                total,
                net: net as i64,
            })
        })
        .collect()
}

/// Sums of this column do not fit in 64 bits.
pub(crate) fn overflow(profile: &Profile, column: usize) -> Error {
    Error::Overflow {
        sample_type: profile.text(profile.sample_type[column].r#type).to_string(),
    }
}

/// The kernel: flat and cum of entities, `width` sums each, sample by sample.
///
/// Sums are bounded by the total of the values that are added ([`whole`]), once a sample and entity; so
/// whoever made sure of that total needs no checks here. Who did not (pprof's face, which prints what pprof prints) has
/// sums that wrap.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) width: usize,
    /// `entity * width + column`.
    pub(crate) flat: Vec<i64>,
    pub(crate) cum: Vec<i64>,
    /// The sample that last counted an entity, from 1.
    seen: Vec<u32>,
    stamp: u32,
}

impl Sums {
    pub(crate) fn new(entities: usize, width: usize) -> Self {
        let mut sums = Self {
            width,
            ..Self::default()
        };
        sums.grow(entities);
        sums
    }

    /// Makes room for entities that were found on the way.
    pub(crate) fn grow(&mut self, entities: usize) {
        self.flat.resize(entities * self.width, 0);
        self.cum.resize(entities * self.width, 0);
        self.seen.resize(entities, 0);
    }

    /// Adds a sample: to the flat of `leaf`, if there is one, and to the cum of each of `entities` once.
    #[inline]
    pub(crate) fn add(
        &mut self,
        values: &[i64],
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
                *sum = sum.wrapping_add(*value);
            }
        }
        for entity in entities {
            let entity = entity as usize;
            if self.seen[entity] == self.stamp {
                continue;
            }
            self.seen[entity] = self.stamp;
            for (sum, value) in self.cum[entity * width..].iter_mut().zip(values) {
                *sum = sum.wrapping_add(*value);
            }
        }
    }
}

/// Computes [`Totals`]. `whole` must have succeeded for the columns: it bounds every sum made here,
/// so that none of the plain additions below can overflow.
pub(crate) fn totals(
    profile: &Profile,
    view: &View,
    entity_of: &[u32],
    entities: usize,
    empty_stack: u32,
    columns: &[usize],
) -> Totals {
    let width = columns.len();
    let mut sums = Sums::new(entities, width);
    let mut kept = vec![Total::default(); width];
    let mut stack = Vec::new();
    let mut picked = vec![0i64; width];
    for i in 0..profile.samples.len() {
        if !pick(profile, i, columns, &mut picked) || !view.stack(&profile.samples, i, &mut stack) {
            continue;
        }
        for (sum, &value) in kept.iter_mut().zip(&picked) {
            sum.total += value.abs();
            sum.net += value;
        }
        let entities = stack.iter().map(|&frame| entity_of[frame as usize]);
        match entities.clone().next() {
            None => sums.add(&picked, Some(empty_stack), [empty_stack]),
            leaf => sums.add(&picked, leaf, entities),
        }
    }
    let Sums { flat, cum, .. } = sums;
    let present = (0..width)
        .map(|column| {
            (0..entities as u32)
                .filter(|&e| {
                    let at = e as usize * width + column;
                    flat[at] != 0 || cum[at] != 0
                })
                .collect()
        })
        .collect();
    Totals {
        columns: columns.to_vec(),
        flat,
        cum,
        present,
        kept,
    }
}

/// The values of sample `i` in the columns. False when all are 0: such a sample counts nowhere.
#[inline]
pub(crate) fn pick(profile: &Profile, i: usize, columns: &[usize], picked: &mut [i64]) -> bool {
    let values = profile.samples.values(i);
    let mut any = false;
    for (value, &column) in picked.iter_mut().zip(columns) {
        *value = values[column];
        any |= *value != 0;
    }
    any
}
