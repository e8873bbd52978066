//! The key that signs datagrams, and the file that contains it.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::kernel;

/// Maximum size of a key in bytes.
const MAX_KEY_BYTES: u64 = 4096;

/// A key of HMAC-SHA256.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Makes a key of some bytes; `None` if there are no bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let key = Hmac::<Sha256>::new_from_slice(bytes).ok()?;
        (!bytes.is_empty()).then_some(Self(key))
    }

    /// Reads the key in a file. A line end at the end of the file does not belong to the key.
    ///
    /// # Errors
    /// The file can't be read, others may write to it, or it is empty or too long.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        // A pipe without a writer does not keep the program waiting.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map_err(KeyError::Unreadable)?;
        let found = file.metadata().map_err(KeyError::Unreadable)?;
        if !found.is_file() {
            return Err(KeyError::NoFile);
        }
        let is_ours = found.uid() == kernel::user() || found.uid() == 0;
        if !is_ours || found.mode() & 0o022 != 0 {
            return Err(KeyError::OthersWrite);
        }
        let mut bytes = Vec::new();
        file.take(MAX_KEY_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(KeyError::Unreadable)?;
        if bytes.len() as u64 > MAX_KEY_BYTES {
            return Err(KeyError::TooLong);
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        Self::new(bytes).ok_or(KeyError::Empty)
    }

    /// Returns the signature of some bytes.
    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; 32] {
        let mut mac = self.0.clone();
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }

    /// Whether `signature` is the signature of `bytes`. The time of the comparison does not reveal
    /// where the signature is wrong.
    pub(crate) fn verify(&self, bytes: &[u8], signature: &[u8]) -> bool {
        let mut mac = self.0.clone();
        mac.update(bytes);
        mac.verify_slice(signature).is_ok()
    }
}

/// The reason why a key can't be read from a file.
#[derive(Debug)]
pub enum KeyError {
    /// The file can't be read.
    Unreadable(std::io::Error),
    /// The file is not a regular file.
    NoFile,
    /// The file belongs to a user who is neither this process's user nor root, or other users may
    /// write to it.
    OthersWrite,
    /// The key has more than 4096 bytes.
    TooLong,
    /// The file is empty.
    Empty,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "the key cannot be read: {error}"),
            Self::NoFile => f.write_str("is not a regular file; put the key into one"),
            Self::OthersWrite => {
                f.write_str("other users may write to it or own it; use chmod 600 and chown")
            }
            Self::TooLong => f.write_str("is longer than 4096 bytes, the limit for a key"),
            Self::Empty => f.write_str("is empty; a key is 1 to 4096 bytes"),
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Tests the first test case of RFC 4231, and a wrong signature.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let key = SigningKey::new(&[0x0b; 20]).unwrap();
        let mac = key.sign(b"Hi There");
        assert_eq!(
            (mac[..4].to_vec(), mac[28..].to_vec()),
            (vec![0xb0, 0x34, 0x4c, 0x61], vec![0x2e, 0x32, 0xcf, 0xf7])
        );
        assert!(key.verify(b"Hi There", &mac));
        assert!(!key.verify(b"Hi there", &mac));
        assert!(!key.verify(b"Hi There", &mac[..31]));
        assert!(SigningKey::new(b"").is_none());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the folder is the test's own")]
    fn a_file_gives_a_key_if_only_its_user_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |content: &[u8], mode: u32| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            SigningKey::read(&path).map(|key| key.sign(b"x"))
        };
        let expected = SigningKey::new(b"secret").unwrap().sign(b"x");
        for content in [&b"secret"[..], b"secret\n", b"secret\r\n"] {
            assert_eq!(read(content, 0o600).unwrap(), expected);
        }
        assert_ne!(read(b"secret\n\n", 0o600).unwrap(), expected);
        assert!(matches!(read(b"secret", 0o620), Err(KeyError::OthersWrite)));
        assert!(matches!(read(b"secret", 0o602), Err(KeyError::OthersWrite)));
        assert!(matches!(read(b"\n", 0o600), Err(KeyError::Empty)));
        assert!(matches!(read(&[1; 4097], 0o600), Err(KeyError::TooLong)));
        assert!(read(&[1; 4096], 0o600).is_ok());
        assert!(matches!(
            SigningKey::read(folder.path()),
            Err(KeyError::NoFile)
        ));
        let missing = SigningKey::read(&folder.path().join("missing"));
        assert!(matches!(missing, Err(KeyError::Unreadable(_))));
    }
}
