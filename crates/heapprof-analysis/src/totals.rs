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
            let total = i64::try_from(total).map_err(|_| Error::Overflow {
                sample_type: profile.text(profile.sample_type[column].r#type).to_string(),
            })?;
            // |net| <= total, so it fits too.
            Ok(Total {
                total,
                net: net as i64,
            })
        })
        .collect()
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
    let mut flat = vec![0i64; entities * width];
    let mut cum = vec![0i64; entities * width];
    let mut kept = vec![Total::default(); width];
    // The sample that last counted an entity, from 1.
    let mut seen = vec![0u32; entities];
    let mut stack = Vec::new();
    let mut picked = vec![0i64; width];
    let mut stamp = 0u32;
    for i in 0..profile.samples.len() {
        let values = profile.samples.values(i);
        let mut any = false;
        for (value, &column) in picked.iter_mut().zip(columns) {
            *value = values[column];
            any |= *value != 0;
        }
        if !any || !view.stack(&profile.samples, i, &mut stack) {
            continue;
        }
        for (sum, &value) in kept.iter_mut().zip(&picked) {
            sum.total += value.abs();
            sum.net += value;
        }
        if stamp == u32::MAX {
            seen.fill(0);
            stamp = 0;
        }
        stamp += 1;
        let leaf = stack
            .first()
            .map_or(empty_stack, |&f| entity_of[f as usize]) as usize;
        for (sum, value) in flat[leaf * width..].iter_mut().zip(&picked) {
            *sum += value;
        }
        let mut count = |entity: usize| {
            if seen[entity] == stamp {
                return;
            }
            seen[entity] = stamp;
            for (sum, value) in cum[entity * width..].iter_mut().zip(&picked) {
                *sum += value;
            }
        };
        if stack.is_empty() {
            count(empty_stack as usize);
        }
        for &frame in &stack {
            count(entity_of[frame as usize] as usize);
        }
    }
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
