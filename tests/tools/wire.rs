//! Writes protobuf by hand, to make files that heapprof's encoders do not write.

use std::io::Write;

/// Returns a number as a varint.
pub fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

/// Returns a field with a number.
pub fn num(field: u64, n: i64) -> Vec<u8> {
    [varint(field << 3), varint(n as u64)].concat()
}

/// Returns a field with bytes.
pub fn len(field: u64, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    [
        varint(field << 3 | 2),
        varint(body.len() as u64),
        body.to_vec(),
    ]
    .concat()
}

/// Returns a field with packed numbers.
pub fn packed(field: u64, numbers: &[i64]) -> Vec<u8> {
    let body: Vec<u8> = numbers.iter().flat_map(|&n| varint(n as u64)).collect();
    len(field, body)
}

/// The parts of a small valid profile: sample types, sample, mapping, location, function, texts.
pub struct Parts {
    pub types: Vec<u8>,
    pub sample: Vec<u8>,
    pub mapping: Vec<u8>,
    pub location: Vec<u8>,
    pub function: Vec<u8>,
    pub strings: Vec<u8>,
}

impl Default for Parts {
    fn default() -> Self {
        let texts = ["", "objects", "count", "space", "bytes", "main", "main.c"];
        Self {
            types: [
                len(1, [num(1, 1), num(2, 2)].concat()),
                len(1, [num(1, 3), num(2, 4)].concat()),
            ]
            .concat(),
            sample: len(2, [packed(1, &[1]), packed(2, &[3, 96])].concat()),
            mapping: len(3, [num(1, 1), num(2, 0x1000), num(3, 0x2000)].concat()),
            location: len(
                4,
                [
                    num(1, 1),
                    num(2, 1),
                    num(3, 0x1010),
                    len(4, [num(1, 1), num(2, 7)].concat()),
                ]
                .concat(),
            ),
            function: len(5, [num(1, 1), num(2, 5), num(3, 5), num(4, 6)].concat()),
            strings: texts.iter().flat_map(|t| len(6, t)).collect(),
        }
    }
}

impl Parts {
    /// Returns the file with its parts in the usual order.
    pub fn bytes(&self) -> Vec<u8> {
        [
            &self.types[..],
            &self.sample,
            &self.mapping,
            &self.location,
            &self.function,
            &self.strings,
        ]
        .concat()
    }
}

/// Returns bytes as one gzip member.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
