//! The user's choice of the allocators inside files that are recorded.

use std::fmt;

use crate::family::AllocatorFamily;

/// Which allocators inside files are recorded: all, none, or some by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorChoice(u8);

/// The names of allocators, in the order of the bits.
const NAMES: [&str; 6] = [
    AllocatorFamily::Malloc.name(),
    AllocatorFamily::Jemalloc.name(),
    AllocatorFamily::Mimalloc.name(),
    AllocatorFamily::Tcmalloc.name(),
    AllocatorFamily::Rpmalloc.name(),
    AllocatorFamily::Snmalloc.name(),
];

/// The word for all allocators.
const ALL_WORD: &str = "auto";
/// The word for no allocator.
const NONE_WORD: &str = "none";

/// A word that is neither the name of a known allocator, nor a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAllocator(String);

impl fmt::Display for UnknownAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(word) = self;
        write!(
            f,
            "'{word}' is no known allocator; auto, none, or some of {} with commas between them",
            NAMES.join(", ")
        )
    }
}

impl std::error::Error for UnknownAllocator {}

impl AllocatorChoice {
    /// All allocators.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);
    /// No allocator.
    pub const NONE: Self = Self(0);

    /// Parses `auto`, `none`, or names with commas between them.
    ///
    /// ```
    /// use heapprof_allocators::AllocatorChoice;
    ///
    /// let choice = AllocatorChoice::parse("jemalloc,mimalloc").unwrap();
    /// assert!(choice.contains("jemalloc") && !choice.contains("tcmalloc"));
    /// assert!(AllocatorChoice::parse("jmalloc").is_err());
    /// ```
    ///
    /// # Errors
    /// A word is not known.
    pub fn parse(text: &str) -> Result<Self, UnknownAllocator> {
        match text {
            ALL_WORD => return Ok(Self::ALL),
            NONE_WORD => return Ok(Self::NONE),
            _ => {}
        }
        text.split(',').try_fold(Self::NONE, |Self(chosen), word| {
            let word = word.trim();
            match NAMES.iter().position(|name| *name == word) {
                Some(bit) => Ok(Self(chosen | 1 << bit)),
                None => Err(UnknownAllocator(word.to_string())),
            }
        })
    }

    /// Whether the allocator of a [name](AllocatorFamily::name) is recorded.
    #[must_use]
    pub fn contains(self, name: &str) -> bool {
        let bit = NAMES.iter().position(|known| *known == name);
        bit.is_some_and(|bit| self.0 & 1 << bit != 0)
    }

    /// Returns the choice as a number, for [`from_bits`](Self::from_bits).
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Returns the choice of a number.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl fmt::Display for AllocatorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str(ALL_WORD),
            Self::NONE => f.write_str(NONE_WORD),
            _ => {
                let chosen = NAMES.iter().filter(|name| self.contains(name));
                f.write_str(&chosen.copied().collect::<Vec<_>>().join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_as_it_is_written() {
        for (text, shown) in [
            ("auto", "auto"),
            ("none", "none"),
            ("mimalloc, jemalloc", "jemalloc,mimalloc"),
            (
                "malloc,jemalloc,mimalloc,tcmalloc,rpmalloc,snmalloc",
                "auto",
            ),
        ] {
            let choice = AllocatorChoice::parse(text).unwrap();
            assert_eq!(choice.to_string(), shown);
            assert_eq!(AllocatorChoice::from_bits(choice.to_bits()), choice);
        }
        for wrong in ["", "jemalloc,", "all", "AUTO"] {
            assert!(AllocatorChoice::parse(wrong).is_err(), "{wrong}");
        }
    }
}
