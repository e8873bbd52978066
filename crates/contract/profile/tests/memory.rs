//! Reads files that need far more memory than their size. Each read ends at the memory limit,
//! before the process takes much more memory.
//!
//! There is one test only, so that no other test runs in the process: the test reads the process's
//! peak of memory.

use std::io::Read;

use heapprof_profile::{Error, ReadOptions, decode_with};

const LIMIT: u64 = 16 << 20;

/// Encodes a number as a varint.
fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

fn number(field: u64, n: u64) -> Vec<u8> {
    [varint(field << 3), varint(n)].concat()
}

fn bytes(field: u64, body: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2), &varint(body.len() as u64), body].concat()
}

/// Stream of pieces without end. `each` makes the next piece from its number, so nothing is stored.
struct Endless<F> {
    each: F,
    number: u64,
    rest: Vec<u8>,
    at: usize,
}

impl<F: FnMut(u64) -> Vec<u8>> Read for Endless<F> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let mut read = 0;
        while read < buf.len() {
            if self.at == self.rest.len() {
                self.rest = (self.each)(self.number);
                self.number += 1;
                self.at = 0;
            }
            let n = (self.rest.len() - self.at).min(buf.len() - read);
            buf[read..read + n].copy_from_slice(&self.rest[self.at..self.at + n]);
            read += n;
            self.at += n;
        }
        Ok(read)
    }
}

/// Makes a field that claims an enormous length. A reader must count only the bytes that arrive.
fn long(field: u64, byte: u8) -> impl FnMut(u64) -> Vec<u8> {
    move |number| match number {
        0 => [varint(field << 3 | 2), varint(1 << 40)].concat(),
        _ => vec![byte; 4096],
    }
}

/// Returns the peak of this process's memory, in bytes.
fn most_held() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

fn ends(what: &str, each: impl FnMut(u64) -> Vec<u8>, prefix: &[u8]) {
    let endless = Endless {
        each,
        number: 0,
        rest: Vec::new(),
        at: 0,
    };
    let options = ReadOptions::default().max_memory(LIMIT);
    let error = decode_with(prefix.chain(endless), options).unwrap_err();
    let is_memory = matches!(error, Error::TooMuchMemory { limit: LIMIT });
    assert!(is_memory && error.is_limit(), "{what}: {error}");
    assert_eq!(
        error.to_string(),
        "takes more than 16777216 bytes of memory"
    );
}

#[test]
fn memory_stays_below_the_limit() {
    samples_of_nothing_end_at_once();
    let before = most_held();
    let sample = |stack: &[u8], rest: &[u8]| {
        let body = [bytes(1, stack), number(2, 1), rest.to_vec()].concat();
        bytes(2, &body)
    };
    let label = |n: u64| bytes(3, &[number(1, 1), number(3, n)].concat());
    ends("samples", |_| bytes(2, &number(2, 1)), b"");
    ends("stacks", |_| sample(&[1; 100], b""), b"");
    ends("huge ids", |n| sample(&varint(u64::MAX - n), b""), b"");
    ends("labels", |n| sample(b"", &label(n)), b"");
    let empty = |n: u64| sample(b"", &bytes(3, b"").repeat(n as usize % 900));
    ends("empty labels", empty, b"");
    ends("mappings", |n| bytes(3, &number(1, (n + 1) << 20)), b"");
    let lines = |n: u64| bytes(4, &[number(1, n + 1), bytes(4, b"").repeat(100)].concat());
    ends("lines", lines, b"");
    ends("functions", |n| bytes(5, &number(1, n + 1)), b"");
    let none = bytes(6, b"");
    ends("texts", |n| bytes(6, n.to_string().as_bytes()), &none);
    ends("comments", |_| bytes(13, &[1; 50_000]), b"");
    for (field, byte) in [(2, 0x0a), (6, b'x'), (6, 0xff), (13, 1), (99, 0)] {
        ends(&format!("a long field {field}"), long(field, byte), &none);
    }
    let most = most_held() - before;
    // An allocator copies lists of this size when they grow, and does not copy longer ones. So such
    // a list is in memory twice for a moment.
    assert!(most <= 2 * LIMIT + (8 << 20), "{} MiB", most >> 20);
}

/// Tests that samples of two bytes each are refused at the first sample. A billion such samples fit
/// in 18 MB of gzip.
fn samples_of_nothing_end_at_once() {
    let mut count = 0;
    let endless = Endless {
        each: |_| {
            count += 1;
            bytes(2, b"")
        },
        number: 0,
        rest: Vec::new(),
        at: 0,
    };
    let error = decode_with(endless, ReadOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("malformed sample #1, at byte 2 of the profile: has no values"),
        "{error}"
    );
    // No more than a buffer is read, and nothing is read afterwards, because there is no checksum.
    assert!(count <= 1 << 20, "{count}");
}
