//! A sample that is written as soon as it is made.

use crate::model::spread::SampleSpread;
use crate::model::{LabelSetIndex, LocationIndex};

/// A sample that [`encode_samples_quickly`](crate::encode_samples_quickly) asks its caller to fill
/// in. Each sample begins without frames and labels, and with values and a spread of 0.
#[derive(Debug)]
#[non_exhaustive]
pub struct QuickSample {
    /// Frames that this sample does not share with the previous one, leaf first.
    pub newer: Vec<LocationIndex>,
    /// Labels of the sample.
    pub labels: LabelSetIndex,
    /// One value for each sample type.
    pub values: Box<[i64]>,
    /// Number of sampled blocks behind each value; all 0 if values are exact.
    pub sampled: Box<[u64]>,
    /// The variance of each value, finite and not negative; all 0 if values are exact.
    pub variance: Box<[f64]>,
}

impl QuickSample {
    pub(super) fn new(width: usize) -> Self {
        Self {
            newer: Vec::new(),
            labels: LabelSetIndex::default(),
            values: vec![0; width].into(),
            sampled: vec![0; width].into(),
            variance: vec![0.0; width].into(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.newer.clear();
        self.labels = LabelSetIndex::default();
        self.values.fill(0);
        self.sampled.fill(0);
        self.variance.fill(0.0);
    }

    pub(super) fn spread(&self) -> SampleSpread<'_> {
        SampleSpread {
            sampled: &self.sampled,
            variance: &self.variance,
        }
    }
}
