//! Gives two profiles the same addresses, units and names of sample types, so that the profiles can
//! be compared or added up.

use std::collections::VecDeque;

use crate::hashing::HashMap;

use super::{holds, mapping_key};
use crate::error::Error;
use crate::model::{MappingIndex, Profile};
use crate::sample_type::agree_names;
use crate::unit::Unit;

/// Changes addresses in `b`, so that each file has the same addresses in both profiles. Then a
/// frame without symbols also has the same name in both. Files that only `b` maps keep their
/// addresses.
pub fn agree_addresses(a: &Profile, b: &mut Profile) {
    // A file may be mapped more than once. Mappings that start at the same address in both profiles
    // are paired first, then the rest in their order.
    let mut places: HashMap<(u64, u64, &str), VecDeque<u64>> = HashMap::default();
    for m in &a.mapping {
        let (size, offset, file) = mapping_key(m);
        let key = (size, offset, a.text(file));
        places.entry(key).or_default().push_back(m.memory_start);
    }
    let mut shift = vec![None; b.mapping.len()];
    for in_place in [true, false] {
        for (m, shift) in b.mapping.iter().zip(&mut shift) {
            let (size, offset, file) = mapping_key(m);
            let file = b.text(file);
            let Some(starts) = places.get_mut(&(size, offset, file)) else {
                continue;
            };
            if shift.is_some() || !is_file(file) {
                continue;
            }
            let at = match in_place {
                true => starts.iter().position(|&start| start == m.memory_start),
                false => Some(0),
            };
            if let Some(start) = at.and_then(|at| starts.remove(at)) {
                *shift = Some(start.wrapping_sub(m.memory_start));
            }
        }
    }
    let shift: Vec<u64> = shift.into_iter().map(Option::unwrap_or_default).collect();
    for l in &mut b.location {
        let Some(at) = l.mapping.map(MappingIndex::index) else {
            continue;
        };
        if holds(&b.mapping[at], l.address) {
            l.address = l.address.wrapping_add(shift[at]);
        }
    }
    for (m, shift) in b.mapping.iter_mut().zip(&shift) {
        m.memory_start = m.memory_start.wrapping_add(*shift);
        m.memory_limit = m.memory_limit.wrapping_add(*shift);
    }
}

/// Whether a mapping's name or build id belongs to a file. Memory without a file cannot be matched
/// between two runs.
fn is_file(name: &str) -> bool {
    let other = [
        "//",
        "[heap",
        "[stack",
        "[anon",
        "/memfd:",
        "/dev/zero",
        "/SYSV",
    ];
    !name.is_empty() && !other.iter().any(|other| name.starts_with(other))
}

/// Makes the values of two profiles comparable: a sample type that both have gets the same name in
/// both, and the finer of the two units.
///
/// # Errors
/// Returns [`Error::Overflow`] when a value in the finer unit does not fit in 64 bits. Units that
/// do not convert into each other stay as they are, which is no error.
pub fn agree_units(a: &mut Profile, b: &mut Profile) -> Result<(), Error> {
    agree_names(a, b);
    for i in 0..a.sample_type.len() {
        let name = a.text(a.sample_type[i].r#type).to_string();
        let Some(j) = b.sample_type.iter().position(|t| b.text(t.r#type) == name) else {
            continue;
        };
        // The caller reports units that can't be converted when it compares the values.
        convert_coarser(a, i, b, j)?;
    }
    Ok(())
}

/// Converts one of two sample types to the other's unit, if that is finer. Returns whether both
/// types have the same unit afterwards.
fn convert_coarser(a: &mut Profile, i: usize, b: &mut Profile, j: usize) -> Result<bool, Error> {
    let ours = a.text(a.sample_type[i].unit).to_string();
    let theirs = b.text(b.sample_type[j].unit).to_string();
    if ours == theirs {
        return Ok(true);
    }
    match (Unit::parse(&ours), Unit::parse(&theirs)) {
        (Some(x), Some(y)) if x.family == y.family => {
            match x.factor > y.factor {
                true => a.convert_unit(i, &theirs)?,
                false => b.convert_unit(j, &ours)?,
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Converts the sample types at `i` of both profiles to the finer of their units.
pub(super) fn finer_unit(a: &mut Profile, b: &mut Profile, i: usize) -> Result<(), Error> {
    if convert_coarser(a, i, b, i)? {
        return Ok(());
    }
    Err(Error::Incompatible(format!(
        "{} is in {} in one and in {} in another",
        a.text(a.sample_type[i].r#type),
        a.text(a.sample_type[i].unit),
        b.text(b.sample_type[i].unit)
    )))
}
