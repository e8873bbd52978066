//! Converts whole numbers to text, several times faster than `format!`.

/// Appends a whole number in decimal to `text`.
pub fn push_whole(value: impl Into<i128>, text: &mut String) {
    text.push_str(decimal(&mut [0; 40], value.into()));
}

/// Returns a number in decimal, with a sign if it is negative. The text is at the end of the buffer
/// `digits`.
pub fn decimal(digits: &mut [u8; 40], value: i128) -> &str {
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    // 64-bit division is several times faster, and most numbers fit.
    while rest > u128::from(u64::MAX) {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut rest = rest as u64;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    std::str::from_utf8(&digits[at..]).unwrap_or_default()
}
