//! Sizes in bytes as people write them.

/// A number of bytes such as `512`, `16GiB` or `1.5gb`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let wrong = || "not a size; write for example 512MiB or 16GiB".to_string();
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let factor = match unit.trim() {
        "" => 1,
        unit => match heapprof_profile::Unit::parse(unit) {
            Some(unit) if unit.family == heapprof_profile::UnitFamily::Bytes => unit.factor,
            _ => return Err(wrong()),
        },
    };
    Ok((number * factor as f64) as u64)
}

/// A number of bytes that is a growth, so not 0.
pub(crate) fn growth(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("must be more than 0 bytes".to_string()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("1.5KiB"), Ok(1536));
        assert!(size("5 bananas").is_err());
        assert!(size("").is_err());
    }
}
