//! What the program mapped itself, counted like allocations; unmapped piece by piece, as mmap allows.

use std::collections::BTreeMap;

use crate::arena;
use crate::books;
use crate::capture::Frame;
use crate::engine::{self, DROPPED, Mode, count};
use crate::lock::Locked;

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
pub(crate) fn lock() -> &'static crate::lock::Lock {
    &REGIONS.lock
}

/// Forgets all mappings, for a new recording.
pub(crate) fn clear() {
    REGIONS.with(BTreeMap::clear);
}

/// Counts a new mapping. What lay there before is gone (MAP_FIXED).
pub fn map(address: usize, len: usize, frame: Frame) {
    let recording = engine::recording();
    // The kernel maps whole pages.
    let Some(len) = len.checked_next_multiple_of(4096) else {
        return;
    };
    if engine::mode() == Mode::Off || len == 0 {
        return;
    }
    unmap(address, len);
    books::with_books(|books| {
        if !arena::reserve(ROOM) {
            count(&DROPPED.no_memory);
        } else if let Some(stack) = books.allocated(recording, frame, len as u64) {
            let end = address.saturating_add(len);
            REGIONS.with(|regions| {
                // A new one raises its number before it clears the regions.
                if recording == engine::recording() {
                    regions.insert(address, Region { end, stack });
                }
            });
        }
    });
}

/// Counts the end of whatever part of mappings lies in a range. The last part of a mapping takes its object along.
pub fn unmap(address: usize, len: usize) {
    let Some(len) = len.checked_next_multiple_of(4096) else {
        return;
    };
    if engine::mode() == Mode::Off || len == 0 {
        return;
    }
    let end = address.saturating_add(len);
    books::with_books(|books| {
        if !arena::reserve(ROOM) {
            count(&DROPPED.no_memory);
            return;
        }
        REGIONS.with(|regions| {
            let mut before = end;
            while let Some((&start, &region)) = regions.range(..before).next_back()
                && region.end > address
            {
                before = start;
                regions.remove(&start);
                let mut left = 0;
                for (start, end) in [
                    (start, region.end.min(address)),
                    (start.max(end), region.end),
                ] {
                    if start < end {
                        left += 1;
                        regions.insert(start, Region { end, ..region });
                    }
                }
                let gone = region.end.min(end) - start.max(address);
                // Of a mapping cut in two each half counts as an object from then on.
                books.freed(region.stack, 1 - left, gone as u64);
            }
        });
    });
}
