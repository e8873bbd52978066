//! Lists of JSON as streams: each element goes to a function, none is kept.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Gives each element of a list to a function, whose error ends the reading.
pub(crate) struct Each<T, F> {
    what: &'static str,
    each: F,
    element: PhantomData<T>,
}

impl<T, F: FnMut(T) -> Result<(), String>> Each<T, F> {
    /// `what` says in errors what the list holds, as in `a list of frames`.
    pub(crate) fn new(what: &'static str, each: F) -> Self {
        Self {
            what,
            each,
            element: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de>
    for Each<T, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Each<T, F> {
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
