//! Finds the class of a C++ object by its virtual table.
//!
//! In the Itanium C++ ABI (2.9), the first word of an object, or of a base in the object, leads to
//! a virtual table. The two words before the table are the distance from this first word to the
//! beginning of the whole object, and the address of the class's `type_info`. The second word of a
//! `type_info` is the address of the class's mangled name. A program has these tables even without
//! symbols, unless it was built without them (`-fno-rtti`).

use heapprof_memory::Memory;

/// Longest class name that is accepted, in bytes.
const MAX_CLASS_NAME_LENGTH: usize = 1024;
/// Longest distance from the beginning of an object to one of its bases.
const MAX_BASE_DISTANCE: u64 = 1 << 24;

/// Returns the mangled name of a class, such as `N3geo6CircleE`. `table` is the address of the
/// class's virtual table.
pub fn object_class(memory: impl Memory, table: u64) -> Option<String> {
    let before = table.checked_sub(16)?;
    if !table.is_multiple_of(8) {
        return None;
    }
    let [to_top, info] = memory.fields(before, [0, 8])?;
    if 0u64.wrapping_sub(to_top) > MAX_BASE_DISTANCE || info == 0 || !info.is_multiple_of(8) {
        return None;
    }
    let name = memory.u64(info.checked_add(8)?)?;
    let mut bytes = [0; MAX_CLASS_NAME_LENGTH];
    // Near the end of a mapping less can be read.
    let len = [MAX_CLASS_NAME_LENGTH, 256, 64, 16]
        .into_iter()
        .find_map(|len| {
            memory
                .text(name, &mut bytes[..len])
                .filter(|&end| end < len)
        })?;
    // A name with a star in front is compared by its address.
    let name = bytes[..len].strip_prefix(b"*").unwrap_or(&bytes[..len]);
    is_mangled(name).then(|| String::from_utf8_lossy(name).into_owned())
}

/// Whether a text has the form of a mangled type name.
fn is_mangled(name: &[u8]) -> bool {
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    let begins = match name.first() {
        Some(b'N' | b'S' | b'Z' | b'I') => name.len() > 2,
        Some(digit) if digit.is_ascii_digit() => {
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = std::str::from_utf8(&name[..digits.min(4)]).unwrap_or_default();
            let len: usize = number.parse().unwrap_or(0);
            len > 0 && name.len() >= digits + len
        }
        _ => false,
    };
    begins && name.iter().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Words<'a>(u64, &'a [u8]);

    impl Memory for Words<'_> {
        fn read(self, at: u64, to: &mut [u8]) -> bool {
            let Some(from) = at.checked_sub(self.0) else {
                return false;
            };
            let found = self
                .1
                .get(from as usize..)
                .and_then(|rest| rest.get(..to.len()));
            found.map(|found| to.copy_from_slice(found)).is_some()
        }
    }

    fn found(name: &[u8], to_top: i64) -> Option<String> {
        let at = 0x1000;
        let words = [to_top as u64, at + 24, at, 7, at + 48, 9];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(name);
        bytes.resize(bytes.len() + 20, 0);
        object_class(Words(at, &bytes), at + 16)
    }

    #[test]
    fn the_class_of_a_table_is_its_type_infos_name() {
        for (name, expected) in [
            (&b"6Circle"[..], Some("6Circle")),
            (b"*3Own", Some("3Own")),
            (b"N3geo6CircleE", Some("N3geo6CircleE")),
            // A name shorter than its length says, text that is no name, and an empty name.
            (b"99Circle", None),
            (b"hello world", None),
            (b"", None),
        ] {
            assert_eq!(found(name, 0).as_deref(), expected, "{name:?}");
        }
        // A second base lies behind the first one.
        assert_eq!(found(b"1C", -16).as_deref(), Some("1C"));
        assert_eq!(found(b"1C", 16), None);
        assert_eq!(object_class(Words(0x1000, &[0; 8]), 0), None);
    }
}
