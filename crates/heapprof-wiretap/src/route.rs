//! Where a sender sends, as whom, and with which key: all that is read once.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::kernel;
use crate::key::{Key, KeyError};

/// The longest name of a machine.
const MOST_HOST: usize = 64;

/// Where a sender sends.
pub struct Route {
    pub(crate) to: SocketAddr,
    pub(crate) key: Option<Key>,
    host: [u8; MOST_HOST],
    host_length: usize,
}

impl Route {
    /// Reads an address, which is `IP:PORT` or `[IP]:PORT`, and a key, if a file is named. No name
    /// is looked up.
    ///
    /// # Errors
    /// The address is no such address, the file gives no key, or the address is not of this machine
    /// and there is no key. Nothing is sent then.
    pub fn new(address: &[u8], key_file: Option<&Path>) -> Result<Self, NotSet> {
        let to = std::str::from_utf8(address).ok();
        let to = to.and_then(|text| text.parse::<SocketAddr>().ok());
        let to = to.filter(|to| to.port() != 0).ok_or(NotSet::Address)?;
        let key = key_file.map(Key::read).transpose();
        let key = key.map_err(NotSet::Key)?;
        if key.is_none() && !to.ip().is_loopback() {
            return Err(NotSet::NeedsKey);
        }
        let mut host = [0; MOST_HOST];
        let host_length = kernel::host_name(&mut host);
        Ok(Self {
            to,
            key,
            host,
            host_length,
        })
    }

    /// The name of this machine.
    pub(crate) fn host(&self) -> &[u8] {
        &self.host[..self.host_length]
    }
}

/// Why nothing is sent.
#[derive(Debug)]
pub enum NotSet {
    /// The address is not `IP:PORT`.
    Address,
    /// The address is not of this machine, and there is no key.
    NeedsKey,
    /// There is no key in the file that was named.
    Key(KeyError),
}

impl fmt::Display for NotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("expected IP:PORT, such as 127.0.0.1:4711 or [::1]:4711"),
            Self::NeedsKey => f.write_str(
                "the address is not a loopback address, so a file with a key must be named",
            ),
            Self::Key(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotSet {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numbers() {
        for good in ["127.0.0.1:4711", "127.1.2.3:1", "[::1]:65535"] {
            assert!(Route::new(good.as_bytes(), None).is_ok(), "{good}");
        }
        let wrong = [
            "",
            "4711",
            "localhost:4711",
            "127.0.0.1",
            "127.0.0.1:0",
            "127.0.0.1:65536",
            "127.0.0.1:x",
            "::1:4711",
            " 127.0.0.1:4711",
            "[::1]",
            "127.0.0.1:4711\n",
        ];
        for wrong in wrong {
            let found = Route::new(wrong.as_bytes(), None).err();
            assert!(matches!(found, Some(NotSet::Address)), "{wrong}");
        }
        assert!(matches!(
            Route::new(b"\xff", None).err(),
            Some(NotSet::Address)
        ));
    }

    #[test]
    fn other_machines_need_a_key() {
        for far in ["192.0.2.1:4711", "[2001:db8::1]:4711", "0.0.0.0:4711"] {
            let found = Route::new(far.as_bytes(), None).err();
            assert!(matches!(found, Some(NotSet::NeedsKey)), "{far}");
        }
        // A key that was named and is not there is not left out.
        let missing = Path::new("/nowhere/key");
        let found = Route::new(b"127.0.0.1:4711", Some(missing)).err();
        assert!(matches!(found, Some(NotSet::Key(_))));
    }
}
