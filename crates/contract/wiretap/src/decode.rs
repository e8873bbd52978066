//! Decodes datagrams, and checks them strictly, because any process may send one.

use std::fmt;

use crate::datagram::{
    FIRST_LINE, MAC_PREFIX, MAX_DATAGRAM_BYTES, MAX_LOAD_US, MAX_SEQ, MAX_TIME_MS, ModuleOutcome,
    WiretapDatagram, WiretapEvent,
};
use crate::key::SigningKey;

/// The reason why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramError {
    /// The datagram is longer than [`MAX_DATAGRAM_BYTES`].
    TooLong,
    /// The datagram is not UTF-8, or does not end with a line feed.
    NotText,
    /// The datagram does not begin with the first line of a wiretap datagram of this version.
    NotOurs,
    /// The datagram is of an unknown kind.
    Kind,
    /// A line is not `key=value`, is repeated, or has a key that this kind of datagram does not
    /// have.
    Line,
    /// A required line is missing.
    Missing,
    /// A value is not a number, or is too large.
    Number,
    /// A value has a `%` without two hex digits, or a control character.
    Escape,
    /// The datagram has no signature, or a wrong one.
    Signature,
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "it is longer than 1200 bytes",
            Self::NotText => "it is not text of whole lines",
            Self::NotOurs => "its first line is not that of a heapprof alive datagram",
            Self::Kind => "its kind is not known",
            Self::Line => "it has a line that does not belong there",
            Self::Missing => "a line is missing",
            Self::Number => "a value is not a number, or is too large",
            Self::Escape => "a value is not escaped correctly",
            Self::Signature => "it has no signature, or a wrong one",
        })
    }
}

impl std::error::Error for DatagramError {}

/// Decodes a datagram. With a `key`, the signature is required and is checked first. Without a
/// `key`, a signature is ignored, because it can't be checked.
///
/// # Errors
/// The datagram can't be understood, or its signature is wrong.
pub fn decode(bytes: &[u8], key: Option<&SigningKey>) -> Result<WiretapDatagram, DatagramError> {
    if bytes.len() > MAX_DATAGRAM_BYTES {
        return Err(DatagramError::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| DatagramError::NotText);
    let (said, mac) = match text.and_then(|text| split_signature(text, key.is_some())) {
        Ok(parts) => parts,
        // A sender without the key learns nothing of how a datagram is read.
        Err(_) if key.is_some() => return Err(DatagramError::Signature),
        Err(refused) => return Err(refused),
    };
    if let (Some(key), Some(mac)) = (key, &mac)
        && !key.verify(said.as_bytes(), mac)
    {
        return Err(DatagramError::Signature);
    }
    read(said)
}

/// Splits a datagram into the signed text and the signature, if there is one. If `must` is true, a
/// missing signature is an error.
fn split_signature(text: &str, must: bool) -> Result<(&str, Option<[u8; 32]>), DatagramError> {
    let lines = text.strip_suffix('\n').ok_or(DatagramError::NotText)?;
    let last = lines.rfind('\n').map_or(0, |at| at + 1);
    match lines[last..].strip_prefix(MAC_PREFIX) {
        Some(hex) => Ok((
            &text[..last],
            Some(mac(hex).ok_or(DatagramError::Signature)?),
        )),
        None if must => Err(DatagramError::Signature),
        None => Ok((text, None)),
    }
}

fn mac(hex: &str) -> Option<[u8; 32]> {
    let hex = hex.as_bytes();
    let mut mac = [0; 32];
    if hex.len() != 2 * mac.len() {
        return None;
    }
    for (byte, digits) in mac.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = (nibble(digits[0])? << 4) | nibble(digits[1])?;
    }
    Some(mac)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// The values of a datagram by their keys, with escapes as they were sent.
#[derive(Default)]
struct DatagramFields<'a> {
    kind: Option<&'a str>,
    host: Option<&'a str>,
    sender: Option<&'a str>,
    pid: Option<&'a str>,
    parent: Option<&'a str>,
    seq: Option<&'a str>,
    ms: Option<&'a str>,
    code: Option<&'a str>,
    site: Option<&'a str>,
    outcome: Option<&'a str>,
    us: Option<&'a str>,
    count: Option<&'a str>,
}

impl<'a> DatagramFields<'a> {
    fn place(&mut self, key: &str) -> Option<&mut Option<&'a str>> {
        Some(match key {
            "kind" => &mut self.kind,
            "host" => &mut self.host,
            "sender" => &mut self.sender,
            "pid" => &mut self.pid,
            "parent" => &mut self.parent,
            "seq" => &mut self.seq,
            "ms" => &mut self.ms,
            "code" => &mut self.code,
            "site" => &mut self.site,
            "outcome" => &mut self.outcome,
            "us" => &mut self.us,
            "count" => &mut self.count,
            _ => return None,
        })
    }
}

fn read(text: &str) -> Result<WiretapDatagram, DatagramError> {
    let mut all = text.split_terminator('\n');
    if all.next() != Some(FIRST_LINE) {
        return Err(DatagramError::NotOurs);
    }
    let mut lines = DatagramFields::default();
    for line in all {
        let (key, value) = line.split_once('=').ok_or(DatagramError::Line)?;
        let place = lines.place(key).ok_or(DatagramError::Line)?;
        if place.replace(value).is_some() {
            return Err(DatagramError::Line);
        }
    }
    let is_there = |values: &[Option<&str>]| values.iter().any(Option::is_some);
    let kind = lines.kind.ok_or(DatagramError::Missing)?;
    let is_right = match kind {
        "alive" => !is_there(&[lines.outcome, lines.us, lines.count]),
        "load" => !is_there(&[lines.count]),
        "end" => !is_there(&[lines.code, lines.site, lines.outcome, lines.us]),
        _ => return Err(DatagramError::Kind),
    };
    if !is_right {
        return Err(DatagramError::Line);
    }
    let seq = number(lines.seq, MAX_SEQ)?;
    let event = match kind {
        "alive" => WiretapEvent::Alive {
            code: name(lines.code)?,
            site: value(lines.site)?,
        },
        "load" => WiretapEvent::Load {
            code: name(lines.code)?,
            site: value(lines.site)?,
            outcome: outcome(lines.outcome)?,
            us: number(lines.us, MAX_LOAD_US)?,
        },
        _ => WiretapEvent::End {
            count: number(lines.count, MAX_SEQ)?,
        },
    };
    // Numbers begin at 1.
    if seq == 0 {
        return Err(DatagramError::Number);
    }
    let id = |text| number(text, u64::from(u32::MAX)).map(|number| number as u32);
    Ok(WiretapDatagram {
        host: value(lines.host)?,
        sender: sender(lines.sender)?,
        pid: id(lines.pid)?,
        parent: id(lines.parent)?,
        seq,
        ms: number(lines.ms, MAX_TIME_MS)?,
        event,
    })
}

fn number(text: Option<&str>, most: u64) -> Result<u64, DatagramError> {
    let text = text.ok_or(DatagramError::Missing)?;
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|&number| number <= most);
    number.filter(|_| is_plain).ok_or(DatagramError::Number)
}

fn sender(text: Option<&str>) -> Result<u64, DatagramError> {
    let text = text.ok_or(DatagramError::Missing)?.as_bytes();
    if text.len() != 16 {
        return Err(DatagramError::Number);
    }
    let mut digits = text.iter().map(|&digit| nibble(digit));
    let number = digits.try_fold(0u64, |number, digit| {
        Some((number << 4) | u64::from(digit?))
    });
    number.ok_or(DatagramError::Number)
}

fn outcome(text: Option<&str>) -> Result<ModuleOutcome, DatagramError> {
    let text = text.ok_or(DatagramError::Missing)?;
    let found = ModuleOutcome::ALL.into_iter().find(|o| o.word() == text);
    found.ok_or(DatagramError::Line)
}

/// Decodes a value that must not be empty.
fn name(text: Option<&str>) -> Result<String, DatagramError> {
    let name = value(text)?;
    match name.is_empty() {
        true => Err(DatagramError::Missing),
        false => Ok(name),
    }
}

/// Decodes the escapes in a value. Bytes that are no UTF-8 are replaced.
fn value(text: Option<&str>) -> Result<String, DatagramError> {
    let text = text.ok_or(DatagramError::Missing)?.as_bytes();
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        match *first {
            b'%' => {
                let [high, low, after @ ..] = rest else {
                    return Err(DatagramError::Escape);
                };
                let (high, low) = (nibble(*high), nibble(*low));
                let (high, low) = high.zip(low).ok_or(DatagramError::Escape)?;
                made.push((high << 4) | low);
                rest = after;
            }
            0..=0x1f | 0x7f => return Err(DatagramError::Escape),
            byte => made.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&made).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "heapprof wiretap 1\nkind=alive\nhost=web1\nsender=00000000000000ab\n\
                        pid=12\nparent=1\nseq=7\nms=1795183786479\ncode=orders.cancel\n\
                        site=orders.c:12\n";

    fn with(from: &str, to: &str) -> Result<WiretapDatagram, DatagramError> {
        assert!(GOOD.contains(from), "{from:?}");
        decode(GOOD.replacen(from, to, 1).as_bytes(), None)
    }

    #[test]
    fn damage_is_told_by_its_kind() {
        assert!(with("web1", "web2").is_ok());
        let long = format!("code={}", "x".repeat(1200));
        let table: &[(&str, &str, DatagramError)] = &[
            ("code=orders.cancel", long.as_str(), DatagramError::TooLong),
            ("c:12\n", "c:12", DatagramError::NotText),
            ("wiretap 1", "wiretap 2", DatagramError::NotOurs),
            ("heapprof", "heapproof", DatagramError::NotOurs),
            ("kind=alive", "kind=dead", DatagramError::Kind),
            ("kind=alive\n", "", DatagramError::Missing),
            ("kind=alive", "kind", DatagramError::Line),
            ("kind=alive", "kind=alive\nkind=alive", DatagramError::Line),
            ("kind=alive", "kind=alive\nanswer=42", DatagramError::Line),
            ("kind=alive", "kind=alive\nus=1", DatagramError::Line),
            ("kind=alive", "kind=end", DatagramError::Line),
            ("kind=alive", "kind=load", DatagramError::Missing),
            (
                "kind=alive",
                "kind=load\noutcome=lost\nus=1",
                DatagramError::Line,
            ),
            (
                "kind=alive",
                "kind=load\noutcome=failed\nus=-1",
                DatagramError::Number,
            ),
            ("kind=alive", "\nkind=alive", DatagramError::Line),
            ("host=web1\n", "", DatagramError::Missing),
            ("code=orders.cancel", "code=", DatagramError::Missing),
            ("site=orders.c:12\n", "", DatagramError::Missing),
            ("00000000000000ab", "ab", DatagramError::Number),
            (
                "00000000000000ab",
                "00000000000000AB",
                DatagramError::Number,
            ),
            ("00000000000000ab", "0000000000000üb", DatagramError::Number),
            ("pid=12", "pid=", DatagramError::Number),
            ("pid=12", "pid=+12", DatagramError::Number),
            ("pid=12", "pid=4294967296", DatagramError::Number),
            ("parent=1", "parent= 1", DatagramError::Number),
            ("seq=7", "seq=0", DatagramError::Number),
            ("seq=7", "seq=1000000000001", DatagramError::Number),
            (
                "seq=7",
                "seq=99999999999999999999999999",
                DatagramError::Number,
            ),
            (
                "ms=1795183786479",
                "ms=253402300800000",
                DatagramError::Number,
            ),
            ("orders.cancel", "orders%", DatagramError::Escape),
            ("orders.cancel", "orders%4", DatagramError::Escape),
            ("orders.cancel", "orders%4G", DatagramError::Escape),
            ("orders.cancel", "orders\tcancel", DatagramError::Escape),
            ("orders.cancel", "orders\u{7f}cancel", DatagramError::Escape),
            (
                "site=orders.c:12\n",
                "site=\nmac=12\n",
                DatagramError::Signature,
            ),
        ];
        for (from, to, expected) in table {
            assert_eq!(with(from, to), Err(*expected), "{from:?} {to:?}");
        }
        assert_eq!(decode(b"\xff\n", None), Err(DatagramError::NotText));
        assert_eq!(decode(b"", None), Err(DatagramError::NotText));
    }

    #[test]
    fn a_signature_must_be_right_if_there_is_a_key() {
        let (key, other) = (
            SigningKey::new(b"one").unwrap(),
            SigningKey::new(b"two").unwrap(),
        );
        let signed = |key: &SigningKey| {
            let mac = key.sign(GOOD.as_bytes());
            let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{GOOD}mac={hex}\n")
        };
        let good = signed(&key);
        assert!(decode(good.as_bytes(), Some(&key)).is_ok());
        // A listener without the key can't check the signature.
        assert!(decode(good.as_bytes(), None).is_ok());
        let changed = good.replace("pid=12", "pid=13");
        let cut = good.replace("\nmac=", "\nmac=0");
        let behind = format!("{good}us=1\n");
        for wrong in [GOOD, &signed(&other), &changed, &cut, &behind, "", "mac="] {
            let found = decode(wrong.as_bytes(), Some(&key));
            assert_eq!(found, Err(DatagramError::Signature), "{wrong}");
        }
    }

    /// A generator of random numbers that gives equal numbers in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, most: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % most as u64) as usize
        }
    }

    /// Tests that any bytes give a datagram or an error, and that damage in the first line is
    /// always an error.
    #[test]
    fn a_hundred_thousand_damaged_datagrams() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let key = SigningKey::new(b"secret").unwrap();
        let mut understood = 0;
        for round in 0..100_000 {
            let mut bytes: Vec<u8> = match round % 4 {
                0 => (0..random.below(1300))
                    .map(|_| random.below(256) as u8)
                    .collect(),
                _ => GOOD.as_bytes().to_vec(),
            };
            for _ in 0..1 + random.below(6) {
                let at = random.below(bytes.len().max(1));
                match random.below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at.min(bytes.len()), random.below(256) as u8),
                    2 => bytes.extend_from_within(..at.min(bytes.len())),
                    _ => {
                        if let Some(byte) = bytes.get_mut(at) {
                            *byte = random.below(256) as u8;
                        }
                    }
                }
            }
            understood += usize::from(decode(&bytes, None).is_ok());
            assert!(decode(&bytes, Some(&key)).is_err());
            let first = random.below(FIRST_LINE.len());
            if let Some(byte) = bytes.get_mut(first) {
                *byte = b'#';
                assert!(decode(&bytes, None).is_err());
            }
        }
        // Some damage only makes another name.
        assert!(understood < 60_000, "{understood}");
    }
}
