//! Fast compression with gzip: data that compresses well is compressed quickly, and other data is
//! stored uncompressed.
//!
//! Stacks of a large program are almost random numbers. Compressing them takes longer than all
//! other work on a profile, and saves little. So the beginning of each block is compressed first,
//! as a trial. After many failed trials, some blocks are stored without a trial. Source of the
//! format: RFC 1951, RFC 1952.

use std::io::{self, Write};

use flate2::{Compress, Compression, Crc, FlushCompress};

/// Size of a block in bytes. The last block may be smaller; a block from a large write has up to
/// twice this size. Each block is compressed or stored as a whole.
pub(crate) const BLOCK_SIZE: usize = 4 * MAX_STORED_PART;
/// Number of bytes at the beginning of a block that are compressed as a trial.
const TRIAL_SIZE: usize = 2 << 10;
/// Maximum number of bytes in one stored part of a block.
const MAX_STORED_PART: usize = u16::MAX as usize;

/// Writer that compresses the bytes written to it.
pub(crate) struct GzipPacker<W> {
    writer: W,
    block: Vec<u8>,
    packed: Vec<u8>,
    compress: Compress,
    crc: Crc,
    /// Number of consecutive failed trials. A trial fails if it does not halve its data.
    in_vain: usize,
    /// Number of following blocks that are stored without a trial.
    untried: usize,
}

/// Number of consecutive failed trials after which the next blocks are stored without a trial,
/// because they are likely to be similar. This is also the number of blocks that are stored in this
/// way.
const MAX_FAILED_TRIALS: usize = 16;

impl<W: Write> GzipPacker<W> {
    pub(crate) fn new(mut writer: W) -> io::Result<Self> {
        // The header says: no name, no time, packed quickly, unknown system.
        writer.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff])?;
        Ok(Self {
            writer,
            block: Vec::with_capacity(BLOCK_SIZE),
            packed: Vec::with_capacity(BLOCK_SIZE + BLOCK_SIZE / 8),
            compress: Compress::new(Compression::fast(), false),
            crc: Crc::new(),
            in_vain: 0,
            untried: 0,
        })
    }

    /// Writes the collected bytes and the end of the gzip data, and returns the writer.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.rest()?;
        // The last block is empty.
        self.writer.write_all(&[1, 0, 0, 0xff, 0xff])?;
        self.writer.write_all(&self.crc.sum().to_le_bytes())?;
        self.writer.write_all(&self.crc.amount().to_le_bytes())?;
        Ok(self.writer)
    }

    /// Writes the collected bytes as a block.
    fn rest(&mut self) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        self.block(&block)?;
        self.block = block;
        self.block.clear();
        Ok(())
    }

    fn block(&mut self, block: &[u8]) -> io::Result<()> {
        self.crc.update(block);
        if self.untried > 0 {
            self.untried -= 1;
            return self.store(block);
        }
        let tried = &block[..block.len().min(TRIAL_SIZE)];
        self.pack(tried)?;
        // Saving less than half of the bytes is not worth the time.
        if self.packed.len() * 2 > tried.len() {
            self.in_vain += 1;
            if self.in_vain >= MAX_FAILED_TRIALS {
                self.untried = MAX_FAILED_TRIALS;
            }
            return self.store(block);
        }
        self.in_vain = 0;
        if tried.len() < block.len() {
            self.pack(block)?;
        }
        self.writer.write_all(&self.packed)
    }

    fn store(&mut self, block: &[u8]) -> io::Result<()> {
        for part in block.chunks(MAX_STORED_PART) {
            let [low, high] = (part.len() as u16).to_le_bytes();
            self.writer.write_all(&[0, low, high, !low, !high])?;
            self.writer.write_all(part)?;
        }
        Ok(())
    }

    /// Compresses `bytes` into `packed`. The result has no references to earlier bytes, and is
    /// padded to whole bytes.
    fn pack(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.packed.clear();
        let begin = self.compress.total_in();
        loop {
            let done = usize::try_from(self.compress.total_in() - begin).unwrap_or(usize::MAX);
            let rest = bytes.get(done..).unwrap_or_default();
            self.packed.reserve(rest.len() / 4 + 1024);
            self.compress
                .compress_vec(rest, &mut self.packed, FlushCompress::Full)
                .map_err(io::Error::other)?;
            let done = self.compress.total_in() - begin == bytes.len() as u64;
            // Room is left in the buffer, so all output was written.
            if done && self.packed.len() < self.packed.capacity() {
                return Ok(());
            }
        }
    }
}

impl<W: Write> Write for GzipPacker<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Bytes that come as a whole block are not copied.
        if self.block.is_empty() && bytes.len() >= BLOCK_SIZE {
            let taken = &bytes[..bytes.len().min(2 * BLOCK_SIZE)];
            self.block(taken)?;
            return Ok(taken.len());
        }
        let room = BLOCK_SIZE - self.block.len();
        let taken = &bytes[..bytes.len().min(room)];
        self.block.extend_from_slice(taken);
        if self.block.len() == BLOCK_SIZE {
            self.rest()?;
        }
        Ok(taken.len())
    }

    /// Does nothing, because blocks are written when they are full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn random(length: usize) -> Vec<u8> {
        let mut seed = 1u64;
        let next = |_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 56) as u8
        };
        (0..length).map(next).collect()
    }

    fn unpacked(packed: &[u8]) -> Vec<u8> {
        let mut back = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(packed);
        gzip.read_to_end(&mut back).unwrap();
        back
    }

    #[test]
    fn what_is_packed_comes_back() {
        // Random bytes, text, and both in one file, of sizes around the size of a block.
        let random = random(3 * BLOCK_SIZE);
        let text = "one stack after the other; ".repeat(3 * BLOCK_SIZE / 27);
        let mixed = [&random[..BLOCK_SIZE + 5], text.as_bytes(), &random[..9]].concat();
        for (bytes, most) in [
            (&random[..], 101),
            (text.as_bytes(), 10),
            (&mixed[..], 60),
            (&random[..BLOCK_SIZE], 101),
            (&[][..], 100),
            (b"x", 10_000),
        ] {
            let mut packer = GzipPacker::new(Vec::new()).unwrap();
            packer.write_all(bytes).unwrap();
            let packed = packer.finish().unwrap();
            // The same bytes in pieces. Some pieces fill a block that has been begun, some are
            // larger than a block.
            for piece in [BLOCK_SIZE - 1, BLOCK_SIZE + 7, 3 * BLOCK_SIZE, 1000] {
                let mut packer = GzipPacker::new(Vec::new()).unwrap();
                packer.write_all(&bytes[..bytes.len().min(1)]).unwrap();
                for bytes in bytes.get(1..).unwrap_or_default().chunks(piece) {
                    packer.write_all(bytes).unwrap();
                }
                let back = unpacked(&packer.finish().unwrap());
                assert!(back == bytes, "{} in pieces of {piece}", bytes.len());
            }
            assert!(
                packed.len() <= 23 + bytes.len() * most / 100,
                "{}",
                bytes.len()
            );
            assert!(unpacked(&packed) == bytes, "{}", bytes.len());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "packs megabytes")]
    fn what_does_not_pack_is_tried_again_after_a_while() {
        let random = random(BLOCK_SIZE);
        let text = vec![b'x'; BLOCK_SIZE];
        let mut packer = GzipPacker::new(Vec::new()).unwrap();
        let mut stored = Vec::new();
        for block in 0..3 * MAX_FAILED_TRIALS {
            // The first blocks are tried in vain, the next are not tried, and the last are packed.
            let bytes = if block < MAX_FAILED_TRIALS {
                &random
            } else {
                &text
            };
            let before = packer.writer.len();
            packer.write_all(bytes).unwrap();
            stored.push(packer.writer.len() - before > BLOCK_SIZE);
        }
        assert_eq!(
            stored,
            [
                vec![true; 2 * MAX_FAILED_TRIALS],
                vec![false; MAX_FAILED_TRIALS]
            ]
            .concat()
        );
        let length = unpacked(&packer.finish().unwrap()).len();
        assert_eq!(length, 3 * MAX_FAILED_TRIALS * BLOCK_SIZE);
    }
}
