//! Asks the kernel for runs of pages that are present: `PAGEMAP_SCAN` of `linux/fs.h`, since 6.7.
#![allow(unsafe_code)] // libc has no function for it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The number of the `PAGEMAP_SCAN` request, whose structure of 96 bytes is read and written.
const PAGEMAP_SCAN: u64 = 3 << 30 | 96 << 16 | (b'f' as u64) << 8 | 16;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
/// Flag of a guard page, which no thread may access. Kernels before 6.15 do not have this flag.
const IS_GUARD: u64 = 1 << 8;
/// Maximum number of runs that one request returns.
const MAX_RUNS: usize = 512;

/// The argument of the `PAGEMAP_SCAN` request: the kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct PageScanRequest {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    runs_len: u64,
    most_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    wanted: u64,
}

/// A run of pages: the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRun {
    start: u64,
    end: u64,
    categories: u64,
}

/// Calls `each` with runs of pages in `range` that are in memory or swapped out. Returns the
/// address up to which `range` was scanned.
pub(super) fn each_present_run(
    pages: &File,
    range: Range<u64>,
    each: &mut impl FnMut(Range<u64>),
) -> io::Result<u64> {
    match scan_pages(pages, range.clone(), IS_GUARD, each) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            scan_pages(pages, range, 0, each)
        }
        done => done,
    }
}

/// Scans for pages that are in memory or swapped out, without those in the category `except`.
/// Returns the address up to which `range` was scanned.
fn scan_pages(
    pages: &File,
    range: Range<u64>,
    except: u64,
    each: &mut impl FnMut(Range<u64>),
) -> io::Result<u64> {
    let mut runs = [PageRun::default(); MAX_RUNS];
    let mut request = PageScanRequest {
        size: size_of::<PageScanRequest>() as u64,
        start: range.start,
        end: range.end,
        runs: runs.as_mut_ptr() as u64,
        runs_len: MAX_RUNS as u64,
        inverted: except,
        all_of: except,
        any_of: IS_PRESENT | IS_SWAPPED,
        wanted: IS_PRESENT | IS_SWAPPED,
        ..PageScanRequest::default()
    };
    // SAFETY: the kernel reads and writes the request, and at most as many runs as the request has
    // room for. Both live through the call.
    let found = unsafe { libc::ioctl(pages.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut request) };
    let Ok(found) = usize::try_from(found) else {
        return Err(io::Error::last_os_error());
    };
    for run in runs.iter().take(found) {
        each(run.start..run.end);
    }
    Ok(request.walk_end)
}

/// Whether an error means that the kernel does not support the request.
pub(super) fn is_unknown(error: &io::Error) -> bool {
    let unknown = [libc::ENOTTY, libc::EINVAL, libc::ENOSYS];
    error
        .raw_os_error()
        .is_some_and(|error| unknown.contains(&error))
}
