//! The route of a sender's datagrams: the address, the host name and the key. The sender reads them
//! only once.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::kernel;
use crate::key::{KeyError, SigningKey};

/// Maximum length of a machine's name in bytes.
const MAX_HOST_NAME_BYTES: usize = 64;

/// The route of a sender's datagrams.
pub struct WiretapRoute {
    pub(crate) to: SocketAddr,
    pub(crate) key: Option<SigningKey>,
    host: [u8; MAX_HOST_NAME_BYTES],
    host_length: usize,
}

impl WiretapRoute {
    /// Parses an address, `IP:PORT` or `[IP]:PORT`, and reads the key if there is a `key_file`.
    /// Host names are not looked up.
    ///
    /// # Errors
    /// The address is malformed, the file has no key, or the address belongs to another machine and
    /// there is no key. Then nothing is sent.
    pub fn new(address: &[u8], key_file: Option<&Path>) -> Result<Self, RouteError> {
        let to = std::str::from_utf8(address).ok();
        let to = to.and_then(|text| text.parse::<SocketAddr>().ok());
        let to = to.filter(|to| to.port() != 0).ok_or(RouteError::Address)?;
        let key = key_file.map(SigningKey::read).transpose();
        let key = key.map_err(RouteError::Key)?;
        if key.is_none() && !to.ip().is_loopback() {
            return Err(RouteError::NeedsKey);
        }
        let mut host = [0; MAX_HOST_NAME_BYTES];
        let host_length = kernel::host_name(&mut host);
        Ok(Self {
            to,
            key,
            host,
            host_length,
        })
    }

    /// Returns the name of this machine.
    pub(crate) fn host(&self) -> &[u8] {
        &self.host[..self.host_length]
    }
}

/// The reason why there is no route. Nothing is sent then.
#[derive(Debug)]
pub enum RouteError {
    /// The address is not `IP:PORT`.
    Address,
    /// The address belongs to another machine, and there is no key.
    NeedsKey,
    /// The key file has no key that can be used.
    Key(KeyError),
}

impl fmt::Display for RouteError {
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

impl std::error::Error for RouteError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numbers() {
        for good in ["127.0.0.1:4711", "127.1.2.3:1", "[::1]:65535"] {
            assert!(WiretapRoute::new(good.as_bytes(), None).is_ok(), "{good}");
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
            let found = WiretapRoute::new(wrong.as_bytes(), None).err();
            assert!(matches!(found, Some(RouteError::Address)), "{wrong}");
        }
        assert!(matches!(
            WiretapRoute::new(b"\xff", None).err(),
            Some(RouteError::Address)
        ));
    }

    #[test]
    fn other_machines_need_a_key() {
        for far in ["192.0.2.1:4711", "[2001:db8::1]:4711", "0.0.0.0:4711"] {
            let found = WiretapRoute::new(far.as_bytes(), None).err();
            assert!(matches!(found, Some(RouteError::NeedsKey)), "{far}");
        }
        // A key file that was named must not be ignored because it is missing.
        let missing = Path::new("/nowhere/key");
        let found = WiretapRoute::new(b"127.0.0.1:4711", Some(missing)).err();
        assert!(matches!(found, Some(RouteError::Key(_))));
    }
}
