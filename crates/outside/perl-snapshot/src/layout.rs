//! Sizes and offsets in Perl's structures by version, in addition to the layouts in
//! `heapprof-perl`.
//!
//! `layouts.tsv` has a column for each build. `variables.tsv` has a column for each series with
//! threads: the offset of each variable in an interpreter. Both have the format of `layouts.tsv` in
//! `heapprof-perl`. Offsets that are the same from 5.22 to 5.42 are constants in the code that uses
//! them.

use heapprof_perl::{PerlVersion, column_of, parse_number};

const LAYOUTS_TABLE: &str = include_str!("layouts.tsv");
const VARIABLES_TABLE: &str = include_str!("variables.tsv");

/// Sizes and offsets in Perl's structures for one build, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueLayout {
    /// Offset, in a regular expression, of the copy of the text that it matched last.
    pub(crate) saved_copy: u64,
    /// Offset, in a regular expression, of the sub that encloses its code.
    pub(crate) code: u64,
    /// Offset of the length in the structure of a variable's name.
    pub(crate) name_length: u64,
    /// Size of the structure of a variable's name, without the text of the name.
    pub(crate) name: u64,
    /// Whether a variable's name may belong to a field of a `class`.
    pub(crate) has_fields: bool,
    /// Offset of the auxiliary data in a hash's body since 5.36. In older versions the data is
    /// after the buckets.
    pub(crate) aux: Option<u64>,
    /// Size of a hash's auxiliary data.
    pub(crate) aux_size: u64,
}

impl ValueLayout {
    /// Returns the layout of a version with or without threads; `None` if it is not known.
    pub(crate) fn for_version(version: PerlVersion, has_threads: bool) -> Option<Self> {
        let column = column_of(LAYOUTS_TABLE.lines().next()?, version, has_threads)?;
        let cell = |row: &str| {
            let mut lines = LAYOUTS_TABLE.lines().map(|line| line.split('\t'));
            let mut line = lines.find_map(|mut line| (line.next()? == row).then_some(line))?;
            parse_number(line.nth(column)?).map(u64::from)
        };
        Some(Self {
            saved_copy: cell("REGEXP.saved_copy")?,
            code: cell("REGEXP.qr_anoncv")?,
            name_length: cell("PADNAME.xpadn_len")?,
            name: cell("sizeof.PADNAME")?,
            has_fields: cell("PADNAME.xpadn_fieldinfo").is_some(),
            aux: cell("XPVHV_WITH_AUX.xhv_aux"),
            aux_size: cell("sizeof.XPVHV_AUX")?,
        })
    }
}

/// Returns the names of all variables of an interpreter.
pub(crate) fn variables() -> impl Iterator<Item = &'static str> {
    let rows = VARIABLES_TABLE.lines().skip(1);
    rows.filter_map(|row| row.split('\t').next())
}

/// Returns the variables of an interpreter with threads, each with its offset, in the order of
/// offsets.
pub(crate) fn places(version: PerlVersion) -> Vec<(u64, &'static str)> {
    let head = VARIABLES_TABLE.lines().next().unwrap_or_default();
    let Some(column) = column_of(head, version, true) else {
        return Vec::new();
    };
    let place = |row: &'static str| {
        let mut cells = row.split('\t');
        let name = cells.next()?;
        Some((u64::from(parse_number(cells.nth(column)?)?), name))
    };
    let mut places: Vec<_> = VARIABLES_TABLE.lines().skip(1).filter_map(place).collect();
    places.sort_unstable();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_versions_from_5_22_on_are_known() {
        for version in [22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42] {
            let version = PerlVersion {
                revision: 5,
                version,
                subversion: 0,
            };
            for has_threads in [false, true] {
                let layout = ValueLayout::for_version(version, has_threads).unwrap();
                let is_new = version.version >= 36;
                assert_eq!(layout.aux.is_some(), is_new, "{version}");
            }
            let places = places(version);
            assert!(places.len() > 150, "{version}");
            let at = |wanted| places.iter().find(|(_, name)| *name == wanted).unwrap().0;
            assert!(at("tmps_ix") == at("tmps_stack") + 8 && at("savestack_ix") > 0);
        }
        let older = PerlVersion {
            revision: 5,
            version: 20,
            subversion: 3,
        };
        assert!(ValueLayout::for_version(older, true).is_none() && places(older).is_empty());
    }
}
