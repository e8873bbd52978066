//! Finds the mapping of each location's address with the same result as pprof.
//!
//! For each location in order, pprof searches all mappings from the first to the last. If no
//! mapping holds the address, pprof extends a mapping that seems to have lost its beginning, or
//! adds a fake mapping over all addresses. Each search sees the changes that earlier searches made.
//! The time of a search in this module grows with the logarithm of the number of mappings.

use crate::mapped_files::MappedFile;

/// The mappings of a profile, and indexes that find the mapping of an address.
pub(crate) struct AddressMap {
    files: Vec<MappedFile>,
    /// Sorted addresses at which a mapping begins, ends, or would begin after it is extended. All
    /// addresses between two neighbouring bounds are in the same mappings.
    bounds: Vec<u64>,
    /// For each position in `bounds`: the first mapping that contains the addresses from this bound
    /// to the next one.
    holding: RangeMinima,
    /// For each position in `bounds`: the first mapping that would contain the addresses from this
    /// bound to the next one if the mapping began at the first byte of its file.
    extending: RangeMinima,
    fake: Option<usize>,
}

impl AddressMap {
    pub(crate) fn new(mut files: Vec<MappedFile>) -> Self {
        // The heap on huge pages may come before the program's own mapping.
        if let [first, second, ..] = &files[..]
            && first.file.starts_with(b"/anon_hugepage")
            && first.limit == second.start
        {
            files.remove(0);
        }
        // The address where programs are mapped. The first mapping may begin at the program's
        // second page or later; it is extended to begin here.
        const PROGRAM_START: u64 = 0x40_0000;
        if let Some(first) = files.first_mut()
            && first.start.wrapping_sub(first.offset) == PROGRAM_START
        {
            first.start = PROGRAM_START;
            first.offset = 0;
        }
        let mut bounds: Vec<u64> = files
            .iter()
            .flat_map(|file| [file.start, file.limit, beginning(file)])
            .collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut map = Self {
            holding: RangeMinima::new(bounds.len()),
            extending: RangeMinima::new(bounds.len()),
            bounds,
            files,
            fake: None,
        };
        for i in 0..map.files.len() {
            let file = &map.files[i];
            let (start, limit, beginning) = (file.start, file.limit, beginning(file));
            // A mapping that ends before it begins holds nothing, however far it is extended.
            let extends = file.offset != 0 && start <= limit;
            map.holding.put(map.range(start, limit), i);
            if extends {
                map.extending.put(map.range(beginning, start), i);
            }
        }
        map
    }

    /// Returns the index of the mapping that contains this address. If there is none, extends a
    /// mapping or adds a fake mapping of all addresses. Returns `None` only for address 0.
    pub(crate) fn find(&mut self, address: u64) -> Option<usize> {
        if address == 0 {
            return None;
        }
        let place = self.bounds.partition_point(|&bound| bound <= address);
        if let Some(place) = place.checked_sub(1) {
            if let Some(held) = self.holding.get(place) {
                return Some(held);
            }
            if self.fake.is_none()
                && let Some(extended) = self.extending.get(place)
            {
                let file = &mut self.files[extended];
                let (start, limit) = (beginning(file), file.limit);
                file.start = start;
                file.offset = 0;
                self.holding.put(self.range(start, limit), extended);
                return Some(extended);
            }
        }
        Some(*self.fake.get_or_insert_with(|| {
            self.files.push(MappedFile {
                limit: u64::MAX,
                ..MappedFile::default()
            });
            self.files.len() - 1
        }))
    }

    /// Returns the mappings with all extensions. If a fake mapping was added, it is last.
    pub(crate) fn into_files(self) -> Vec<MappedFile> {
        self.files
    }

    /// Returns the positions in `bounds` of all bounds from `start` up to, but not including,
    /// `limit`. Both addresses must be bounds.
    fn range(&self, start: u64, limit: u64) -> std::ops::Range<usize> {
        let place = |address| self.bounds.partition_point(|&bound| bound < address);
        place(start)..place(limit).max(place(start))
    }
}

/// Returns the address at which a mapping would begin if it began with the first byte of its file.
fn beginning(file: &MappedFile) -> u64 {
    file.start.wrapping_sub(file.offset)
}

/// Segment tree that stores numbers for ranges of positions, and finds the smallest number for a
/// position.
struct RangeMinima {
    /// The nodes of the tree. The root is 1, the children of i are 2i and 2i + 1, and position p is
    /// leaf `places + p`.
    least: Vec<u32>,
    places: usize,
}

impl RangeMinima {
    fn new(places: usize) -> Self {
        Self {
            least: vec![u32::MAX; 2 * places],
            places,
        }
    }

    fn put(&mut self, range: std::ops::Range<usize>, number: usize) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let (mut from, mut to) = (range.start + self.places, range.end + self.places);
        while from < to {
            if from % 2 == 1 {
                self.least[from] = self.least[from].min(number);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                self.least[to] = self.least[to].min(number);
            }
            from /= 2;
            to /= 2;
        }
    }

    fn get(&self, place: usize) -> Option<usize> {
        let mut least = u32::MAX;
        let mut node = place + self.places;
        while node > 0 {
            least = least.min(self.least[node]);
            node /= 2;
        }
        (least != u32::MAX).then_some(least as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the mapping of each address as pprof does: by a search through all mappings.
    fn plainly(files: &mut Vec<MappedFile>, addresses: &[u64]) -> Vec<usize> {
        let mut fake = None;
        let mut found = Vec::new();
        for &a in addresses {
            let held = files.iter().position(|f| f.start <= a && a < f.limit);
            let extended = files
                .iter()
                .position(|f| f.offset != 0 && f.start.wrapping_sub(f.offset) <= a && a < f.start);
            found.push(match (held, extended) {
                (Some(i), _) => i,
                (None, Some(i)) => {
                    files[i].start -= files[i].offset;
                    files[i].offset = 0;
                    i
                }
                (None, None) => *fake.get_or_insert_with(|| {
                    files.push(MappedFile {
                        limit: u64::MAX,
                        ..MappedFile::default()
                    });
                    files.len() - 1
                }),
            });
        }
        found
    }

    #[test]
    fn as_the_plain_search() {
        // The numbers are small, so that mappings overlap, touch and repeat.
        let mut state = 1u64;
        let mut small = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..2000 {
            let mut files = Vec::new();
            for _ in 0..small(6) {
                let (start, size) = (small(30), small(20));
                files.push(MappedFile {
                    start,
                    limit: start + size,
                    offset: small(3) * small(20),
                    ..MappedFile::default()
                });
            }
            let addresses: Vec<u64> = (0..12).map(|_| 1 + small(33)).collect();
            let mut expected_files = files.clone();
            let expected = plainly(&mut expected_files, &addresses);
            let mut map = AddressMap::new(files.clone());
            let found: Vec<usize> = addresses.iter().map(|&a| map.find(a).unwrap()).collect();
            assert_eq!(found, expected, "{files:?} {addresses:?}");
            assert_eq!(map.into_files(), expected_files);
        }
    }

    #[test]
    fn beginnings_are_mended() {
        let file = |start, limit, offset, name: &str| MappedFile {
            start,
            limit,
            offset,
            file: name.into(),
            build_id: Vec::new(),
        };
        let starts = |files| {
            let mut map = AddressMap::new(files);
            assert_eq!(map.find(0), None);
            let files = map.into_files();
            files
                .iter()
                .map(|f| (f.start, f.offset))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            starts(vec![file(0x40_1000, 0x40_2000, 0x1000, "/bin/app")]),
            [(0x40_0000, 0)]
        );
        assert_eq!(
            starts(vec![
                file(0x1000, 0x2000, 0, "/anon_hugepage (deleted)"),
                file(0x2000, 0x3000, 0x10, "/bin/app")
            ]),
            [(0x2000, 0x10)]
        );
        assert_eq!(
            starts(vec![
                file(0x1000, 0x2000, 0, "/anon_hugepage (deleted)"),
                file(0x2001, 0x3000, 0x10, "/bin/app")
            ]),
            [(0x1000, 0), (0x2001, 0x10)]
        );
    }
}
