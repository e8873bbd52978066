//! Reads JSON lists as streams: each element is passed to a function and then dropped.

use std::fmt;
use std::io::BufReader;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error as _, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::FormatError;
use crate::lines::LineReader;

/// Whether a text begins like a JSON object. Folded stacks such as `{main};f` do not.
pub(crate) fn begins(head: &[u8]) -> bool {
    let inside = head.trim_ascii_start().strip_prefix(b"{");
    inside
        .is_some_and(|inside| matches!(inside.trim_ascii_start().first(), Some(b'"' | b'}') | None))
}

/// Reads the whole file as one value.
pub(crate) fn whole<'de, S>(lines: &mut LineReader<'_>, value: S) -> Result<S::Value, FormatError>
where
    S: DeserializeSeed<'de>,
{
    // serde_json reads byte by byte. That is fast only if reading a byte is not a call through a
    // pointer, so the input has its own buffer.
    let input = BufReader::with_capacity(128 << 10, lines.rest());
    let mut json = serde_json::Deserializer::from_reader(input);
    let value = value.deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

/// A whole number. Anything else gives an error that a whole number was expected.
#[derive(Clone, Copy)]
pub(crate) struct WholeNumber<T>(pub(crate) T);

impl<'de, T: TryFrom<i64> + TryFrom<u64>> Deserialize<'de> for WholeNumber<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(WholeNumberVisitor(PhantomData))
    }
}

struct WholeNumberVisitor<T>(PhantomData<T>);

impl<T: TryFrom<i64> + TryFrom<u64>> Visitor<'_> for WholeNumberVisitor<T> {
    type Value = WholeNumber<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number")?;
        match size_of::<T>() {
            4 => write!(f, " below 2^32"),
            _ => write!(f, " that fits in 64 bits"),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Self::Value, E> {
        let out_of_range = |_| E::invalid_value(Unexpected::Signed(n), &self);
        T::try_from(n)
            .map(WholeNumber)
            .map_err(|_| ())
            .map_err(out_of_range)
    }

    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Self::Value, E> {
        let out_of_range = |_| E::invalid_value(Unexpected::Unsigned(n), &self);
        T::try_from(n)
            .map(WholeNumber)
            .map_err(|_| ())
            .map_err(out_of_range)
    }
}

/// Reader of a list that passes each element to a function. An error of the function ends the
/// reading.
pub(crate) struct EachElement<T, F> {
    what: &'static str,
    each: F,
    element: PhantomData<T>,
}

impl<T, F: FnMut(T) -> Result<(), String>> EachElement<T, F> {
    /// Makes a reader of a list. In errors, `what` names the list, as in `a list of frames`.
    pub(crate) fn new(what: &'static str, each: F) -> Self {
        Self {
            what,
            each,
            element: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de>
    for EachElement<T, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de>
    for EachElement<T, F>
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element()? {
            (self.each)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
