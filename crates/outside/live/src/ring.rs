//! Reads the log of a recording while the program writes it: from the saved ledger, or from the
//! program's memory.
//!
//! The program does not wait for the reader, so events that are not read in time are lost. They are
//! counted.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use heapprof_abi::log::{EventRing, FREE_EVENT_FLAG, RING_CAPACITY, RingEvent as Layout};
use heapprof_abi::{StackNumber, ThreadNumber};

use crate::bounded_reads::u64_at;
use crate::error::LiveError;

/// Size of an event in bytes.
const EVENT_LEN: usize = size_of::<Layout>();
/// Maximum number of events that are read at a time.
const MAX_EVENTS_PER_READ: u64 = 8192;
/// Longest time that a thread may take from reserving an event's number to writing the event.
const EVENT_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of events that a slow reader skips, in addition to the events that were overwritten
/// already, so that it does not fall behind again at once.
const SKIP_MARGIN: u64 = RING_CAPACITY as u64 / 16;

/// An event of a block: an allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// Whether the block was freed.
    pub is_free: bool,
    /// Address of the block.
    pub address: u64,
    /// Size of the block in bytes.
    pub size: u64,
    /// Number of the stack that allocated the block.
    pub stack: StackNumber,
    /// Number of the event's thread: see [`LogSource::threads`](crate::LogSource::threads).
    pub thread: ThreadNumber,
}

/// A reader of a log of block events.
#[derive(Debug)]
pub struct LiveLogReader {
    file: File,
    /// Offset of the ring in the file.
    at: u64,
    since: u64,
    /// Number of the next event to be read.
    next: u64,
    missed: u64,
    /// The time at which the reader first found that the next event is reserved but not written
    /// yet.
    awaited: Option<Instant>,
    /// The number after the last event's number, once the program has ended.
    end: Option<u64>,
}

impl LiveLogReader {
    /// Opens the log at an offset of a file.
    pub(crate) fn new(file: File, at: u64) -> Result<Self, LiveError> {
        let mut log = Self {
            file,
            at,
            since: 0,
            next: 0,
            missed: 0,
            awaited: None,
            end: None,
        };
        log.since = log.field(offset_of!(EventRing, since))?;
        log.next = log.field(offset_of!(EventRing, first))?;
        Ok(log)
    }

    fn field(&self, offset: usize) -> Result<u64, LiveError> {
        let mut bytes = [0; 8];
        let at = self.at.saturating_add(offset as u64);
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Returns the number of events that were lost so far, because they were not read in time.
    #[must_use]
    pub fn missed_count(&self) -> u64 {
        self.missed
    }

    fn count_missed(&mut self, count: u64) {
        self.missed = self.missed.saturating_add(count);
        self.next = self.next.saturating_add(count);
        self.awaited = None;
    }

    /// Appends the next events to `to`. Returns whether more events may be available at once. If
    /// the program `has_ended`, the reader does not wait for unfinished events, and ignores events
    /// that are added later.
    ///
    /// # Errors
    /// The file may be too short.
    pub fn read(&mut self, has_ended: bool, to: &mut Vec<BlockEvent>) -> Result<bool, LiveError> {
        let mut next = self.field(offset_of!(EventRing, next))?;
        let mut margin = SKIP_MARGIN;
        if has_ended {
            margin = 0;
            next = *self.end.get_or_insert(next);
        }
        // The number never falls, unless it is forged.
        let mut waiting = next.saturating_sub(self.next);
        if waiting > RING_CAPACITY as u64 {
            self.count_missed(waiting - RING_CAPACITY as u64 + margin);
            waiting = RING_CAPACITY as u64 - margin;
        }
        let place = self.next % RING_CAPACITY as u64;
        let count = waiting
            .min(MAX_EVENTS_PER_READ)
            .min(RING_CAPACITY as u64 - place) as usize;
        if count == 0 {
            return Ok(false);
        }
        let first = offset_of!(EventRing, events) as u64 + place * EVENT_LEN as u64;
        let first = self.at.saturating_add(first);
        let mut bytes = vec![0; count * EVENT_LEN];
        self.file.read_exact_at(&mut bytes, first)?;
        let number = |bytes: &[u8], i: usize| u64_at(bytes, i * EVENT_LEN);
        let wanted = |i: usize| self.next + i as u64 + 1;
        let is_there = |i: &usize| number(&bytes, *i) == wanted(*i);
        let ready = (0..count).take_while(is_there).count();
        if ready == 0 {
            let seen = *self.awaited.get_or_insert_with(Instant::now);
            let is_over = has_ended || seen.elapsed() > EVENT_TIMEOUT;
            if is_over {
                let gone = (0..count).take_while(|i| !is_there(i)).count();
                self.count_missed(if has_ended { gone as u64 } else { 1 });
            }
            return Ok(is_over);
        }
        // An event that was complete at the first read is complete at the second one, unless it has
        // been replaced since.
        bytes.truncate(ready * EVENT_LEN);
        self.file.read_exact_at(&mut bytes, first)?;
        let after = self.field(offset_of!(EventRing, next))?;
        let oldest = after.saturating_sub(RING_CAPACITY as u64);
        let mut missed = 0;
        for i in 0..ready {
            if self.next + (i as u64) < oldest || number(&bytes, i) != wanted(i) {
                missed += 1;
                continue;
            }
            let field = |offset: usize| u64_at(&bytes, i * EVENT_LEN + offset);
            let (time, who) = (
                field(offset_of!(Layout, time)),
                field(offset_of!(Layout, who)),
            );
            to.push(BlockEvent {
                time: (time & !FREE_EVENT_FLAG).saturating_sub(self.since),
                is_free: time & FREE_EVENT_FLAG != 0,
                address: field(offset_of!(Layout, address)),
                size: field(offset_of!(Layout, size)),
                stack: StackNumber::from_u32(who as u32),
                thread: ThreadNumber::from_u32((who >> 32) as u32),
            });
        }
        self.missed = self.missed.saturating_add(missed);
        self.next += ready as u64;
        self.awaited = None;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Makes a log in a file with the finished events `events`, as a program would have written
    /// them. `next` is the number of the next event.
    fn ring(next: u64, events: &[(u64, u64)]) -> LiveLogReader {
        let mut bytes = vec![0; size_of::<EventRing>()];
        let mut put = |at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(offset_of!(EventRing, next), next);
        put(offset_of!(EventRing, since), 100);
        for &(number, time) in events {
            let place = (number as usize % RING_CAPACITY) * EVENT_LEN;
            let at = offset_of!(EventRing, events) + place;
            put(at, number + 1);
            put(at + offset_of!(Layout, time), time);
            put(at + offset_of!(Layout, who), 7 << 32 | 3);
        }
        let file = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC);
        let mut file = File::from(file.unwrap());
        file.write_all(&bytes).unwrap();
        LiveLogReader::new(file, 0).unwrap()
    }

    /// Reads a whole log. Returns the times of all events, and the number of lost events.
    fn all(mut log: LiveLogReader) -> (Vec<u64>, u64) {
        let mut events = Vec::new();
        while log.read(true, &mut events).unwrap() {}
        assert!(
            events
                .iter()
                .all(|event| event.thread.to_u32() == 7 && event.stack.to_u32() == 3)
        );
        (
            events.iter().map(|event| event.time).collect(),
            log.missed_count(),
        )
    }

    #[test]
    fn what_is_there_is_read_and_the_rest_is_counted() {
        assert_eq!(all(ring(0, &[])), (vec![], 0));
        let three = [(0, 101), (1, 102), (2, 103 | FREE_EVENT_FLAG)];
        assert_eq!(all(ring(3, &three)), (vec![1, 2, 3], 0));
        // A thread was killed before it wrote the event in the middle.
        assert_eq!(all(ring(3, &[(0, 101), (2, 103)])), (vec![1, 3], 1));
    }

    #[test]
    fn a_reader_that_is_too_slow_knows_what_it_missed() {
        let last = RING_CAPACITY as u64 + 1000;
        let (times, missed) = all(ring(last + 1, &[(last, 105)]));
        assert_eq!((times, missed), (vec![5], last));
    }

    #[test]
    fn forged_numbers_do_no_harm() {
        assert_eq!(all(ring(u64::MAX, &[])).0, Vec::<u64>::new());
        let mut log = ring(1, &[(0, 1)]);
        log.next = 5;
        assert!(!log.read(true, &mut Vec::new()).unwrap());
    }
}
