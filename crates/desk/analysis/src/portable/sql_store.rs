//! Stored profiles in the tables of a SQL engine.

use std::collections::BTreeMap;

use foldhash::HashMap;
use heapprof_profile::Profile;

use super::engine::{SqlEngine, int_at, sample_types, text_at};
use super::profile_rows;
use crate::error::AnalysisError;
use crate::sample_plan::SamplePlan;
use crate::stored_moment::{SeriesStore, StoredMoment, StoredMomentBuilder, StoredProfileFacts};

/// A store of profiles in the tables of a SQL engine.
pub struct SqlStore<E>(pub E);

impl<E: SqlEngine> SeriesStore for SqlStore<E> {
    fn moments(&self) -> Result<Vec<StoredMoment>, AnalysisError> {
        // A row may be stored twice, so rows go into maps.
        let mut comments: HashMap<i64, BTreeMap<i64, String>> = HashMap::default();
        for row in self.0.rows("SELECT profile, position, text FROM comment")? {
            let of = comments.entry(int_at(&row, 0)?).or_default();
            of.insert(int_at(&row, 1)?, text_at(&row, 2)?.to_string());
        }
        let mut labels: HashMap<i64, BTreeMap<String, String>> = HashMap::default();
        for row in self
            .0
            .rows("SELECT profile, key, value FROM profile_label")?
        {
            let of = labels.entry(int_at(&row, 0)?).or_default();
            of.insert(text_at(&row, 1)?.to_string(), text_at(&row, 2)?.to_string());
        }
        let types = sample_types(&self.0)?;
        let mut totals: HashMap<i64, BTreeMap<i64, (i64, i64)>> = HashMap::default();
        for row in self
            .0
            .rows("SELECT profile, position, type, net FROM profile_total")?
        {
            let of = totals.entry(int_at(&row, 0)?).or_default();
            of.insert(int_at(&row, 1)?, (int_at(&row, 2)?, int_at(&row, 3)?));
        }
        let mut profiles: BTreeMap<(i64, String, i64), (i64, String, i64)> = BTreeMap::new();
        for row in self.0.rows(
            "SELECT id, name, time_nanos, duration_nanos, default_sample_type, samples \
                 FROM profile",
        )? {
            let key = (
                int_at(&row, 2)?,
                text_at(&row, 1)?.to_string(),
                int_at(&row, 0)?,
            );
            profiles.insert(
                key,
                (
                    int_at(&row, 3)?,
                    text_at(&row, 4)?.to_string(),
                    int_at(&row, 5)?,
                ),
            );
        }
        let mut moments = StoredMomentBuilder::default();
        for ((time_nanos, name, id), (duration_nanos, default_sample_type, samples)) in profiles {
            let comments = comments.remove(&id).unwrap_or_default();
            let comments: Vec<String> = comments.into_values().collect();
            let labels = labels.remove(&id).unwrap_or_default();
            let (mut own, mut sums) = (Vec::new(), Vec::new());
            for (of, net) in totals.remove(&id).unwrap_or_default().into_values() {
                let Some(of) = types.get(&of) else {
                    return Err(AnalysisError::Sql(format!(
                        "the sample type {of} is missing"
                    )));
                };
                own.push(of.clone());
                sums.push(net);
            }
            moments.add(StoredProfileFacts {
                id,
                name,
                time_nanos,
                duration_nanos,
                default_sample_type,
                samples,
                comments,
                labels,
                types: own,
                totals: sums,
            });
        }
        Ok(moments.finish())
    }

    fn sum(&self, plan: &SamplePlan) -> Result<Profile, AnalysisError> {
        profile_rows::sum(&self.0, plan)
    }
}
