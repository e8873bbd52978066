//! Encodes datagrams into memory on the stack. No function here allocates, waits or fails.

use std::fmt::Write;

use crate::datagram::{FIRST_LINE, MAC_PREFIX, MAX_DATAGRAM_BYTES, ModuleOutcome};
use crate::key::SigningKey;

/// Maximum size of the host's name in a datagram, in bytes with escapes. This limit and the next
/// two constants together ensure that a datagram has at most [`MAX_DATAGRAM_BYTES`] bytes.
const MAX_HOST_BYTES: usize = 100;
const MAX_CODE_BYTES: usize = 400;
const MAX_SITE_BYTES: usize = 300;

/// The mark at the end of a value that was shortened.
const CUT_MARK: &str = "…";

/// The event that a datagram will report. Names are bytes, as in programs.
#[derive(Clone, Copy)]
pub(crate) enum OutgoingEvent<'a> {
    Alive {
        code: &'a [u8],
        site: &'a [u8],
    },
    Load {
        code: &'a [u8],
        site: &'a [u8],
        outcome: ModuleOutcome,
        us: u64,
    },
    End {
        count: u64,
    },
}

/// The sender of a datagram.
#[derive(Clone, Copy)]
pub(crate) struct SenderIdentity<'a> {
    pub(crate) host: &'a [u8],
    pub(crate) sender: u64,
    pub(crate) pid: u32,
    pub(crate) parent: u32,
}

/// A datagram that is being encoded.
pub(crate) struct EncodedDatagram {
    bytes: [u8; MAX_DATAGRAM_BYTES],
    length: usize,
}

impl EncodedDatagram {
    /// Encodes a datagram. Signs it if there is a key.
    pub(crate) fn new(
        origin: &SenderIdentity<'_>,
        seq: u64,
        ms: u64,
        said: &OutgoingEvent<'_>,
        key: Option<&SigningKey>,
    ) -> Self {
        let mut made = Self {
            bytes: [0; MAX_DATAGRAM_BYTES],
            length: 0,
        };
        made.raw(FIRST_LINE.as_bytes());
        let kind = match said {
            OutgoingEvent::Alive { .. } => "alive",
            OutgoingEvent::Load { .. } => "load",
            OutgoingEvent::End { .. } => "end",
        };
        made.line(format_args!("\nkind={kind}\nhost="));
        made.value(origin.host, MAX_HOST_BYTES);
        made.line(format_args!("\nsender={:016x}", origin.sender));
        made.line(format_args!("\npid={}", origin.pid));
        made.line(format_args!("\nparent={}", origin.parent));
        made.line(format_args!("\nseq={seq}\nms={ms}\n"));
        match *said {
            OutgoingEvent::Alive { code, site } => made.names(code, site),
            OutgoingEvent::Load {
                code,
                site,
                outcome,
                us,
            } => {
                made.names(code, site);
                made.line(format_args!("outcome={}\nus={us}\n", outcome.word()));
            }
            OutgoingEvent::End { count } => made.line(format_args!("count={count}\n")),
        }
        if let Some(key) = key {
            let mac = key.sign(made.bytes());
            made.raw(MAC_PREFIX.as_bytes());
            for byte in mac {
                made.line(format_args!("{byte:02x}"));
            }
            made.raw(b"\n");
        }
        made
    }

    /// Returns the bytes of the datagram.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn names(&mut self, code: &[u8], site: &[u8]) {
        self.raw(b"code=");
        self.value(code, MAX_CODE_BYTES);
        self.raw(b"\nsite=");
        self.value(site, MAX_SITE_BYTES);
        self.raw(b"\n");
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into memory does not fail.
        let _ = self.write_fmt(text);
    }

    /// Appends a value. If the value needs more than `most` bytes, it is cut between two
    /// characters, and ends with [`CUT_MARK`].
    fn value(&mut self, value: &[u8], most: usize) {
        let end = self.length + most;
        let mut cut = self.length;
        for part in value.utf8_chunks() {
            for c in part.valid().chars() {
                let mut bytes = [0; 4];
                let fits = match c {
                    '\0'..='\x1f' | '\x7f' | '%' => self.push_escaped(c as u8, end, &mut cut),
                    c => self.piece(c.encode_utf8(&mut bytes).as_bytes(), end, &mut cut),
                };
                if !fits {
                    return;
                }
            }
            // Bytes that are no UTF-8 are escaped, too: a datagram is text.
            for &byte in part.invalid() {
                if !self.push_escaped(byte, end, &mut cut) {
                    return;
                }
            }
        }
    }

    fn push_escaped(&mut self, byte: u8, end: usize, cut: &mut usize) -> bool {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        self.piece(&[b'%', digits[0], digits[1]], end, cut)
    }

    /// Appends a piece of a value. The piece must not go beyond the position `end`. If the piece
    /// does not fit, cuts the value back to `cut`, appends the mark, and returns false. `cut` is
    /// the last position at which the mark fits.
    fn piece(&mut self, piece: &[u8], end: usize, cut: &mut usize) -> bool {
        if self.length + piece.len() > end {
            self.length = *cut;
            self.raw(CUT_MARK.as_bytes());
            return false;
        }
        self.raw(piece);
        if self.length + CUT_MARK.len() <= end {
            *cut = self.length;
        }
        true
    }

    /// Appends bytes if they fit.
    fn raw(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
    }
}

impl Write for EncodedDatagram {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.raw(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::{WiretapDatagram, WiretapEvent};

    const ORIGIN: SenderIdentity<'static> = SenderIdentity {
        host: b"web1",
        sender: 0xab,
        pid: 12,
        parent: 1,
    };

    fn encoded(said: OutgoingEvent<'_>, key: Option<&SigningKey>) -> Vec<u8> {
        let made = EncodedDatagram::new(&ORIGIN, 7, 1_795_183_786_479, &said, key);
        made.bytes().to_vec()
    }

    fn datagram(event: WiretapEvent) -> WiretapDatagram {
        WiretapDatagram {
            host: "web1".to_string(),
            sender: 0xab,
            pid: 12,
            parent: 1,
            seq: 7,
            ms: 1_795_183_786_479,
            event,
        }
    }

    #[test]
    fn a_datagram_is_lines_of_text() {
        let said = OutgoingEvent::Alive {
            code: b"orders.cancel",
            site: b"orders.c:12",
        };
        let text = String::from_utf8(encoded(said, None)).unwrap();
        assert_eq!(
            text,
            "heapprof wiretap 1\nkind=alive\nhost=web1\nsender=00000000000000ab\npid=12\nparent=1\n\
             seq=7\nms=1795183786479\ncode=orders.cancel\nsite=orders.c:12\n"
        );
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let key = SigningKey::new(b"secret").unwrap();
        let odd = "50% of\na \u{7f}line, ünï…";
        for key in [None, Some(&key)] {
            let alive = OutgoingEvent::Alive {
                code: odd.as_bytes(),
                site: b"",
            };
            let event = WiretapEvent::Alive {
                code: odd.to_string(),
                site: String::new(),
            };
            assert_eq!(decode(&encoded(alive, key), key), Ok(datagram(event)));
            for outcome in ModuleOutcome::ALL {
                let load = OutgoingEvent::Load {
                    code: b"/lib/x.so",
                    site: b"main.c:3",
                    outcome,
                    us: 250,
                };
                let event = WiretapEvent::Load {
                    code: "/lib/x.so".to_string(),
                    site: "main.c:3".to_string(),
                    outcome,
                    us: 250,
                };
                assert_eq!(decode(&encoded(load, key), key), Ok(datagram(event)));
            }
            let end = encoded(OutgoingEvent::End { count: 7 }, key);
            assert_eq!(
                decode(&end, key),
                Ok(datagram(WiretapEvent::End { count: 7 }))
            );
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let key = SigningKey::new(b"secret").unwrap();
        let longest = SenderIdentity {
            host: &[b'%'; 500],
            sender: u64::MAX,
            pid: u32::MAX,
            parent: u32::MAX,
        };
        let names: [&[u8]; 4] = [
            &[b'x'; 5000],
            "ü".repeat(3000).leak().as_bytes(),
            &[0xff; 3000],
            &[b'\n'; 3000],
        ];
        for name in names {
            let said = OutgoingEvent::Load {
                code: name,
                site: name,
                outcome: ModuleOutcome::Missing,
                us: 3_600_000_000,
            };
            let made = EncodedDatagram::new(
                &longest,
                crate::datagram::MAX_SEQ,
                crate::datagram::MAX_TIME_MS,
                &said,
                Some(&key),
            );
            assert!(made.bytes().len() <= MAX_DATAGRAM_BYTES);
            let WiretapEvent::Load { code, site, .. } =
                decode(made.bytes(), Some(&key)).unwrap().event
            else {
                panic!("it is no load");
            };
            assert!(
                code.ends_with(CUT_MARK) && site.ends_with(CUT_MARK),
                "{code} {site}"
            );
            assert!(code.len() > site.len());
        }
        // A name that just fits is not cut.
        for (length, is_cut) in [(400, false), (401, true)] {
            let name = "x".repeat(length);
            let said = OutgoingEvent::Alive {
                code: name.as_bytes(),
                site: b"",
            };
            let text = String::from_utf8(encoded(said, None)).unwrap();
            assert_eq!(text.contains(CUT_MARK), is_cut, "{length}");
        }
    }
}
