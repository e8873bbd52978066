//! What the program mapped itself, counted like allocations; unmapped piece by piece, as mmap
//! allows.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::books::counted::{self, Books};
use crate::mode::{self, Mode};
use crate::platform::arena;
use crate::platform::lock::Locked;
use crate::platform::sys::PAGE;
use crate::stack::call_site::CallSite;
use crate::tables::dropped::{DROPPED, count};

/// A mapping of the program's, or what is left of one.
#[derive(Clone, Copy)]
struct Region {
    end: usize,
    stack: u32,
}

/// Bytes that one change of the map takes at most.
const ROOM: usize = 64 << 10;

static REGIONS: Locked<BTreeMap<usize, Region>> = Locked::new(BTreeMap::new());

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static crate::platform::lock::Lock {
    &REGIONS.lock
}

/// Forgets all mappings, for a new recording.
pub(crate) fn clear() {
    REGIONS.with(BTreeMap::clear);
}

/// Counts a new mapping. What lay there before is gone (MAP_FIXED).
pub fn map(address: usize, len: usize, frame: CallSite) {
    let recording = mode::recording();
    // The kernel maps whole pages.
    let Some(len) = len.checked_next_multiple_of(PAGE) else {
        return;
    };
    if mode::now() == Mode::Off || len == 0 {
        return;
    }
    unmap(address, len, || 0);
    counted::with_books(|books| {
        if !arena::reserve(ROOM) {
            count(&DROPPED.no_memory);
        } else if let Some(stack) = books.allocated(recording, frame, len as u64) {
            let end = address.saturating_add(len);
            REGIONS.with(|regions| {
                // A new recording raises its number before it clears the regions.
                if recording == mode::recording() {
                    regions.insert(address, Region { end, stack });
                }
            });
        }
    });
}

/// Calls the kernel, which ends whatever part of mappings lies in a range, and counts that. Returns
/// what the kernel said. If it refused (below zero), nothing has ended.
///
/// The map is locked meanwhile, so what is mapped there next, perhaps by another thread, is counted
/// afterwards.
pub fn unmap(address: usize, len: usize, kernel: impl FnOnce() -> isize) -> isize {
    let len = len.checked_next_multiple_of(PAGE).unwrap_or(0);
    if mode::now() == Mode::Off || len == 0 {
        return kernel();
    }
    let (mut kernel, mut said) = (Some(kernel), 0);
    counted::with_books(|books| {
        if !arena::reserve(ROOM) {
            count(&DROPPED.no_memory);
            return;
        }
        REGIONS.with(|regions| {
            said = kernel.take().map_or(0, |kernel| kernel());
            if said >= 0 {
                cut(regions, books, address..address.saturating_add(len));
            }
        });
    });
    kernel.map_or(said, |kernel| kernel())
}

/// Takes a range out of the mappings. A mapping's object ends with its last part.
fn cut(regions: &mut BTreeMap<usize, Region>, books: &mut Books<'_>, gone: Range<usize>) {
    let mut before = gone.end;
    while let Some((&start, &region)) = regions.range(..before).next_back()
        && region.end > gone.start
    {
        before = start;
        regions.remove(&start);
        let mut left = 0;
        for (start, end) in [
            (start, region.end.min(gone.start)),
            (start.max(gone.end), region.end),
        ] {
            if start < end {
                left += 1;
                regions.insert(start, Region { end, ..region });
            }
        }
        let bytes = region.end.min(gone.end) - start.max(gone.start);
        // If a mapping is cut in two, each half counts as an object from then on.
        books.freed(region.stack, 1 - left, bytes as u64);
    }
}
