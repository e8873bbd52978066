//! Merges, subtracts and normalizes profiles exactly as pprof does, including its losses of data.
//! `heapprof pprof` uses this.
//!
//! The code is shared with [`merge_all`](super::merge_all). The differences are in this file or
//! named in [`MergeRules`]:
//!
//! * Sample types are matched by name and converted to one unit before anything is added. A sample
//!   whose converted values are all 0 is removed, even if a value that was not converted is not 0.
//! * If types were dropped or moved and the default type is no longer there, the first type becomes
//!   the default.
//! * Lines that differ only in the column of an inlined function are one location. Sums wrap.
//! * A profile's time replaces the time of the sum if the profile's time is earlier, or if the time
//!   of the sum is unknown.
//!
//! Source: google/pprof, profile/merge.go, profile/profile.go, internal/measurement.

use super::{MergeRules, ProfileMerger};
use crate::error::Error;
use crate::model::{Profile, ValueType};
use crate::strings::StringId;

/// Unit conversions for [`merge_as_pprof`]. The caller supplies them, because pprof knows more
/// names of units than this crate.
#[derive(Clone, Copy, Debug)]
pub struct UnitRules {
    /// Converts a value to another unit. The value stays unchanged if the units do not convert into
    /// each other.
    pub scale: fn(value: i64, from: &str, to: &str) -> f64,
    /// Whether two names belong to units that convert into each other.
    pub convertible: fn(&str, &str) -> bool,
}

/// Adds profiles up as pprof does. A single profile stays unchanged, except that a sample type that
/// occurs twice is removed.
///
/// # For whom
/// This is for a tool that stands in for pprof and needs pprof's results, including its losses:
/// sums wrap, and a conversion of units may drop samples. Other callers use
/// [`merge_all`](crate::merge_all).
///
/// # Errors
/// Returns [`Error::Incompatible`] when there is no profile, when the profiles share no sample
/// type, or when units or types of periods do not go together.
pub fn merge_as_pprof(mut profiles: Vec<Profile>, units: UnitRules) -> Result<Profile, Error> {
    keep_common_types(&mut profiles)?;
    agree_units(&mut profiles, units)?;
    if profiles.len() == 1
        && let Some(only) = profiles.pop()
    {
        return Ok(only);
    }
    merge_equal_types(&profiles)
}

fn merge_equal_types(profiles: &[Profile]) -> Result<Profile, Error> {
    let Some(first) = profiles.first() else {
        return Err(Error::Incompatible("there is no profile".to_string()));
    };
    for other in profiles {
        compatible(first, other)?;
    }
    let mut merger = ProfileMerger::new(first, MergeRules::Pprof);
    for profile in profiles {
        merger.add(profile)?;
    }
    let merged = merger.builder.finish();
    let zero = |i| merged.samples.values(i).iter().all(|&v| v == 0);
    match (0..merged.samples.len()).any(zero) {
        // A second merge drops the entries that only samples of zeros used.
        true => merge_equal_types(&[merged]),
        false => Ok(merged),
    }
}

fn compatible(a: &Profile, b: &Profile) -> Result<(), Error> {
    let texts = |p: &Profile, t: ValueType| format!("{} {}", p.text(t.r#type), p.text(t.unit));
    let period = |p: &Profile| texts(p, p.period_type.unwrap_or_default());
    let types =
        |p: &Profile| -> Vec<String> { p.sample_type.iter().map(|&t| texts(p, t)).collect() };
    if period(a) != period(b) {
        return Err(Error::Incompatible(format!(
            "incompatible period types {} and {}",
            period(a),
            period(b)
        )));
    }
    if types(a) != types(b) {
        return Err(Error::Incompatible(format!(
            "incompatible sample types [{}] and [{}]",
            types(a).join(", "),
            types(b).join(", ")
        )));
    }
    Ok(())
}

/// Keeps the sample types that all profiles share, in the order of the first profile. As in pprof,
/// a name counts as shared if N profiles together contain it N times.
fn keep_common_types(profiles: &mut [Profile]) -> Result<(), Error> {
    let count = |name: &str| {
        let names = profiles.iter().flat_map(|p| {
            let types = p.sample_type.iter();
            types.map(|t| p.text(t.r#type))
        });
        names.filter(|n| *n == name).count()
    };
    let first = profiles.first();
    let common: Vec<String> = first
        .into_iter()
        .flat_map(|p| p.sample_type.iter().map(|t| p.text(t.r#type)))
        .filter(|name| count(name) == profiles.len())
        .map(str::to_string)
        .collect();
    let Some(default) = common.first() else {
        return Err(Error::Incompatible(
            "profiles have empty common sample type list".to_string(),
        ));
    };
    for profile in profiles {
        let place = |name: &String| {
            let mut types = profile.sample_type.iter();
            let found = types.position(|t| profile.text(t.r#type) == name);
            found.ok_or_else(|| {
                Error::Incompatible(format!("{name:?} sample type is not found in profile"))
            })
        };
        let places: Vec<usize> = common.iter().map(place).collect::<Result<_, _>>()?;
        if places.iter().copied().eq(0..profile.sample_type.len()) {
            continue;
        }
        let old = profile.text(profile.default_sample_type).to_string();
        let default = common.iter().find(|name| **name == old).unwrap_or(default);
        profile.default_sample_type = profile.strings.intern(default);
        profile.keep_types(&places);
    }
    Ok(())
}

/// Converts periods and sample types to the finest unit that any profile has.
fn agree_units(profiles: &mut [Profile], units: UnitRules) -> Result<(), Error> {
    let Some(first) = profiles.first() else {
        return Ok(());
    };
    if profiles.len() == 1 {
        return Ok(());
    }
    let types = first.sample_type.len();
    let pair =
        |p: &Profile, t: ValueType| (p.text(t.r#type).to_string(), p.text(t.unit).to_string());
    let periods: Vec<_> = profiles
        .iter()
        .map(|p| pair(p, p.period_type.unwrap_or_default()))
        .collect();
    let period_unit =
        finest(&periods, units).map_err(|e| Error::Incompatible(format!("period type: {e}")))?;
    let mut unit = Vec::new();
    for i in 0..types {
        let of_all: Vec<_> = profiles.iter().map(|p| pair(p, p.sample_type[i])).collect();
        let finest = finest(&of_all, units);
        unit.push(finest.map_err(|e| Error::Incompatible(format!("sample types: {e}")))?);
    }
    for profile in profiles {
        let mut period_type = profile.period_type.unwrap_or_default();
        let from = profile.text(period_type.unit);
        profile.period = truncated((units.scale)(profile.period, from, &period_unit));
        period_type.unit = profile.strings.intern(&period_unit);
        if period_type != ValueType::default() {
            profile.period_type = Some(period_type);
        }
        let mut ratios = Vec::new();
        for (i, unit) in unit.iter().enumerate() {
            let from = profile.text(profile.sample_type[i].unit);
            ratios.push((units.scale)(1, from, unit));
            profile.sample_type[i].unit = profile.strings.intern(unit);
        }
        profile.scale_as_pprof(&ratios);
    }
    Ok(())
}

/// Returns the finest unit of `types`, which are pairs of a type and its unit. The types must be
/// equal except for a plural.
fn finest(types: &[(String, String)], units: UnitRules) -> Result<String, String> {
    let Some((mut least, rest)) = types.split_first() else {
        return Ok(String::new());
    };
    for one in rest {
        let name = |t: &(String, String)| t.0.strip_suffix('s').unwrap_or(&t.0).to_string();
        let same_unit = one.1 == least.1 || (units.convertible)(&one.1, &least.1);
        if name(one) != name(least) || !same_unit {
            return Err(format!(
                "incompatible types: {} {} and {} {}",
                least.0, least.1, one.0, one.1
            ));
        }
        if (units.scale)(1, &one.1, &least.1) < 1.0 {
            least = one;
        }
    }
    Ok(least.1.clone())
}

/// Adds the header of another profile to the header of the sum.
pub(super) fn header(sum: &mut Profile, other: &Profile, first: bool) {
    let mut text = |id: StringId| sum.strings.intern(other.text(id));
    let (default, doc_url) = (text(other.default_sample_type), text(other.doc_url));
    let comments: Vec<StringId> = other.comment.iter().map(|&c| text(c)).collect();
    if first {
        sum.drop_frames = text(other.drop_frames);
        sum.keep_frames = text(other.keep_frames);
        sum.period_type = other.period_type.map(|t| ValueType {
            r#type: text(t.r#type),
            unit: text(t.unit),
        });
    }
    if sum.time_nanos == 0 || other.time_nanos < sum.time_nanos {
        sum.time_nanos = other.time_nanos;
    }
    sum.duration_nanos = sum.duration_nanos.wrapping_add(other.duration_nanos);
    if sum.period == 0 || sum.period < other.period {
        sum.period = other.period;
    }
    for comment in comments {
        if !sum.comment.contains(&comment) {
            sum.comment.push(comment);
        }
    }
    if sum.default_sample_type.is_empty() {
        sum.default_sample_type = default;
    }
    if sum.doc_url.is_empty() {
        sum.doc_url = doc_url;
    }
}

impl Profile {
    /// Scales the profile so that each sample type has the total of `base`, as pprof's `-normalize`
    /// does.
    ///
    /// # For whom
    /// This is for a tool that stands in for pprof. Other callers compute the ratios and use
    /// [`scale`](Self::scale).
    ///
    /// # Errors
    /// Returns [`Error::Incompatible`] when the two profiles differ in their sample types or in the
    /// type of their period.
    pub fn normalize_as_pprof(&mut self, base: &Profile) -> Result<(), Error> {
        compatible(self, base)?;
        let totals = |profile: &Profile| {
            let mut sums = vec![0i64; profile.sample_type.len()];
            for i in 0..profile.samples.len() {
                for (sum, value) in sums.iter_mut().zip(profile.samples.values(i)) {
                    *sum = sum.wrapping_add(*value);
                }
            }
            sums
        };
        let ratio = |(own, base): (i64, i64)| match own {
            0 => 0.0,
            own => base as f64 / own as f64,
        };
        let pairs = totals(self).into_iter().zip(totals(base));
        let ratios: Vec<f64> = pairs.map(ratio).collect();
        self.scale_as_pprof(&ratios);
        Ok(())
    }

    /// Multiplies the values of each sample type by its ratio and rounds them. Then removes the
    /// samples whose multiplied values are all 0. A sample type whose ratio is 1 or missing is not
    /// multiplied. If no type is multiplied, no sample is removed. Numbers beyond 64 bits become
    /// the least 64-bit number.
    ///
    /// # For whom
    /// This is for a tool that stands in for pprof. Other callers use [`scale`](Self::scale), which
    /// keeps every sample and reports what does not fit.
    pub fn scale_as_pprof(&mut self, ratios: &[f64]) {
        if ratios.iter().all(|&ratio| ratio == 1.0) {
            return;
        }
        let ratio = |column: usize| ratios.get(column).copied().unwrap_or(1.0);
        self.samples
            .change_values(|column, value| match ratio(column) {
                1.0 => value,
                ratio => truncated((value as f64 * ratio).round()),
            });
        self.samples.rewrite(|stack, values, _, kept| {
            kept.extend_from_slice(stack);
            let mut values = values.iter().enumerate();
            values.any(|(column, &value)| ratio(column) != 1.0 && value != 0)
        });
    }
}

/// Rounds towards zero. A number that does not fit in 64 bits becomes the least 64-bit number, as
/// on x86-64.
fn truncated(x: f64) -> i64 {
    match x >= i64::MIN as f64 && x < -(i64::MIN as f64) {
        true => x as i64,
        false => i64::MIN,
    }
}
