//! Negates and scales a profile's values and converts their units. A result beyond 64 bits is an
//! error.

use crate::error::Error;
use crate::model::Profile;
use crate::unit::Unit;

impl Profile {
    fn each_value(
        &mut self,
        what: &str,
        change: impl Fn(usize, i64) -> Option<i64>,
    ) -> Result<(), Error> {
        let width = self.sample_type.len().max(1);
        for (at, value) in self.samples.value.iter_mut().enumerate() {
            *value = change(at % width, *value).ok_or_else(|| Error::Overflow {
                what: format!("a value, {what},"),
            })?;
        }
        Ok(())
    }

    /// Multiplies the variances of a sample type by the square of `ratio`, to match values
    /// multiplied by `ratio`.
    fn scale_spread(&mut self, sample_type: usize, ratio: f64) {
        let width = self.sample_type.len().max(1);
        let Some(spread) = self.samples.spread.as_mut().filter(|_| ratio != 1.0) else {
            return;
        };
        let column = spread.variance.iter_mut().skip(sample_type).step_by(width);
        // A result that is not a number becomes the largest number, which means that nothing is
        // certain.
        column.for_each(|variance| *variance = (*variance * ratio * ratio).min(f64::MAX));
    }

    /// Negates every value. The spread stays as it is.
    ///
    /// To get the difference of two profiles, negate the earlier one and add them up:
    ///
    /// ```
    /// use heapprof_profile::{ProfileBuilder, merge};
    /// let moment = |bytes| {
    ///     let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    ///     builder.add_folded("main;parse", &[bytes]);
    ///     builder.add_folded("main;idle", &[8]);
    ///     builder.finish()
    /// };
    /// let (mut before, after) = (moment(96), moment(160));
    /// before.negate()?;
    /// let growth = merge(after, before)?;
    /// // What did not change is left out.
    /// assert_eq!(growth.samples.len(), 1);
    /// assert_eq!(growth.samples.values(0), [64]);
    /// # Ok::<(), heapprof_profile::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Overflow`] when a value is the least number of 64 bits. The values before
    /// it have been changed then.
    pub fn negate(&mut self) -> Result<(), Error> {
        self.each_value("negated", |_, value| value.checked_neg())
    }

    /// Multiplies the values of each sample type by its ratio, rounded to the nearest number.
    ///
    /// Samples whose values round to 0 stay.
    ///
    /// # Panics
    /// When there is not one ratio for each sample type.
    ///
    /// # Errors
    /// Returns [`Error::Overflow`] when a result does not fit in 64 bits. The values before it have
    /// been changed then.
    pub fn scale(&mut self, ratios: &[f64]) -> Result<(), Error> {
        assert_eq!(ratios.len(), self.sample_type.len(), "one ratio a type");
        self.each_value("scaled", |column, value| scaled(value, ratios[column]))?;
        for (column, &ratio) in ratios.iter().enumerate() {
            self.scale_spread(column, ratio);
        }
        Ok(())
    }

    /// Multiplies the values of one sample type by a whole number, exactly.
    pub(crate) fn multiply(&mut self, sample_type: usize, factor: i64) -> Result<(), Error> {
        self.each_value("converted to its finer unit", |column, value| {
            if column == sample_type {
                value.checked_mul(factor)
            } else {
                Some(value)
            }
        })?;
        self.scale_spread(sample_type, factor as f64);
        Ok(())
    }

    /// Converts sample type `index` to the unit `to` of the same family, rounding to the nearest
    /// number.
    ///
    /// # Panics
    /// When there is no sample type `index`.
    ///
    /// # Errors
    /// * Returns [`Error::Incompatible`] when one of the units is unknown, or when they are of
    ///   different families. The profile stays unchanged.
    /// * Returns [`Error::Overflow`] when a result does not fit in 64 bits. The values before it
    ///   are changed then.
    pub fn convert_unit(&mut self, index: usize, to: &str) -> Result<(), Error> {
        let from = self.text(self.sample_type[index].unit).to_string();
        let (Some(old), Some(new)) = (Unit::parse(&from), Unit::parse(to)) else {
            return Err(Error::Incompatible(format!(
                "unit {from} does not convert to {to}"
            )));
        };
        if old.family != new.family {
            return Err(Error::Incompatible(format!(
                "unit {from} does not convert to {to}"
            )));
        }
        match old.factor % new.factor {
            0 => self.multiply(index, old.factor / new.factor)?,
            _ => {
                let ratio = old.factor as f64 / new.factor as f64;
                self.each_value("converted", |column, value| {
                    if column == index {
                        scaled(value, ratio)
                    } else {
                        Some(value)
                    }
                })?;
                self.scale_spread(index, ratio);
            }
        }
        self.sample_type[index].unit = self.strings.intern(to);
        Ok(())
    }
}

/// Returns `value * ratio`, rounded to the nearest number; `None` if the result is beyond 64 bits.
fn scaled(value: i64, ratio: f64) -> Option<i64> {
    if ratio == 1.0 {
        return Some(value);
    }
    let result = (value as f64 * ratio).round();
    // 2^63 is the first number that is too large. `i64::MIN` is exact as a float.
    (result >= i64::MIN as f64 && result < -(i64::MIN as f64)).then_some(result as i64)
}
