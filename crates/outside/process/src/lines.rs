//! Parses the kernel's lines of the form `Name: 12 kB`.

/// Returns the name and the number of bytes in a line such as `Name: 12 kB`; `None` for any other
/// line.
pub(crate) fn bytes_of(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.split_once(':')?;
    let (number, unit) = rest.trim().split_once(' ')?;
    let kib: u64 = number.parse().ok()?;
    (unit == "kB").then(|| (name, kib.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_bytes_are_read() {
        let big = format!("Swap: {} kB", u64::MAX);
        let table = [
            ("Rss:               12 kB", Some(("Rss", 12 << 10))),
            ("VmHWM:\t    3 kB", Some(("VmHWM", 3 << 10))),
            (&big, Some(("Swap", u64::MAX))),
            ("Swap: x kB", None),
            ("Threads:\t4", None),
            ("VmFlags: rd wr", None),
            ("7f00-7f10 rw-p 00000000 00:00 0", None),
            ("", None),
        ];
        for (line, expected) in table {
            assert_eq!(bytes_of(line), expected, "{line}");
        }
    }
}
