//! Parses numbers in text strictly: a number has only digits and fits in 64 bits. A function
//! accepts `-` or `0x` before the digits only if its comment mentions them.

/// Reads a decimal number without a sign.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        let digit = (digit < 10).then_some(u64::from(digit))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Reads a decimal number that may begin with `-` and fits in a sample's value.
pub(crate) fn value(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(decimal(digits)?),
        None => i64::try_from(decimal(text)?).ok(),
    }
}

/// Reads a hexadecimal number without a prefix.
pub(crate) fn hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, &byte| {
        let digit = (byte as char).to_digit(16)?;
        (sum >> 60 == 0).then_some(sum << 4 | u64::from(digit))
    })
}

/// Reads a hexadecimal number that begins with `0x`.
pub(crate) fn address(text: &[u8]) -> Option<u64> {
    hex(text.strip_prefix(b"0x")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_and_fit() {
        let table: [(&str, Option<u64>); 7] = [
            ("0", Some(0)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("+1", None),
            ("1 ", None),
        ];
        for (text, expected) in table {
            assert_eq!(decimal(text.as_bytes()), expected, "{text:?}");
        }
        let table: [(&str, Option<i64>); 5] = [
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-", None),
            ("--1", None),
        ];
        for (text, expected) in table {
            assert_eq!(value(text.as_bytes()), expected, "{text:?}");
        }
        let table: [(&str, Option<u64>); 5] = [
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0x10000000000000000", None),
            ("0xAb", Some(0xab)),
            ("0x", None),
            ("ab", None),
        ];
        for (text, expected) in table {
            assert_eq!(address(text.as_bytes()), expected, "{text:?}");
        }
    }
}
