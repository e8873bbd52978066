//! Units of a profile's values, and conversion of the numbers in JSON.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// The unit of a profile's values.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SpeedscopeUnit {
    #[default]
    None,
    Bytes,
    /// A unit of time, with its length in nanoseconds.
    Time(i64),
}

impl SpeedscopeUnit {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "none" => SpeedscopeUnit::None,
            "bytes" => SpeedscopeUnit::Bytes,
            "nanoseconds" => SpeedscopeUnit::Time(1),
            "microseconds" => SpeedscopeUnit::Time(1_000),
            "milliseconds" => SpeedscopeUnit::Time(1_000_000),
            "seconds" => SpeedscopeUnit::Time(1_000_000_000),
            _ => return None,
        })
    }

    /// Converts a number to the unit of the sample type and rounds it.
    pub(super) fn value(self, number: JsonNumber) -> Result<i64, String> {
        let factor = match self {
            SpeedscopeUnit::Time(nanoseconds) => nanoseconds,
            SpeedscopeUnit::None | SpeedscopeUnit::Bytes => 1,
        };
        let value = match number {
            JsonNumber::Whole(n) => n.checked_mul(factor),
            JsonNumber::Fraction(x) => {
                let product = (x * factor as f64).round();
                // Beyond this bound the conversion would change the number.
                (product.abs() < 9.2e18).then_some(product as i64)
            }
        };
        value.ok_or_else(|| "expected a number that fits in 64 bits".to_string())
    }
}

/// A number in JSON. Whole numbers keep all their digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum JsonNumber {
    Whole(i64),
    Fraction(f64),
}

impl<'de> Deserialize<'de> for JsonNumber {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct JsonNumberVisitor;
        impl Visitor<'_> for JsonNumberVisitor {
            type Value = JsonNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_i64<E>(self, n: i64) -> Result<JsonNumber, E> {
                Ok(JsonNumber::Whole(n))
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<JsonNumber, E> {
                let whole = i64::try_from(n);
                whole.map(JsonNumber::Whole).map_err(|_| {
                    E::custom(format!("expected a number that fits in 64 bits, found {n}"))
                })
            }

            fn visit_f64<E>(self, n: f64) -> Result<JsonNumber, E> {
                Ok(JsonNumber::Fraction(n))
            }
        }
        json.deserialize_any(JsonNumberVisitor)
    }
}
