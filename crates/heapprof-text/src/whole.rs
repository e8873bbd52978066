//! Whole numbers as text, in a fraction of the time that `format!` takes.

/// Appends a number.
pub fn push_whole(value: impl Into<i128>, text: &mut String) {
    let value = value.into();
    let mut digits = [0u8; 20];
    let Ok(mut rest) = u64::try_from(value.unsigned_abs()) else {
        return text.push_str(&value.to_string());
    };
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        text.push('-');
    }
    text.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}
