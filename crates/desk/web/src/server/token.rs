//! The access token for a browser: 128 random bits.

use std::fs::File;
use std::io::{self, Read};

/// An access token in hex digits.
pub(super) struct AccessToken(String);

impl AccessToken {
    /// Makes a token from random bits.
    pub(super) fn new() -> io::Result<Self> {
        let mut bits = [0u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut bits)?;
        Ok(Self(
            bits.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// Returns the hex digits of the token.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether a text is the token. The time of the comparison does not reveal how much of the text
    /// is correct.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (ours, given) = (self.0.as_bytes(), text.as_bytes());
        let differs = ours.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
        ours.len() == given.len() && std::hint::black_box(differs) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_is_the_token() {
        let token = AccessToken::new().unwrap();
        let text = token.text().to_string();
        assert_eq!(text.len(), 32);
        assert!(token.matches(&text));
        for wrong in [
            "",
            &text[1..],
            &format!("{text}0"),
            &text.replace(&text[..1], "g"),
        ] {
            assert!(!token.matches(wrong), "{wrong}");
        }
        assert_ne!(AccessToken::new().unwrap().text(), text);
    }
}
