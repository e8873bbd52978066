//! Tests that the parent module finds the same functions in libc as the loader.

use super::*;

#[test]
fn texts_are_compared_to_their_ends() {
    let at = |text: &'static std::ffi::CStr| text.as_ptr() as usize;
    for (text, wanted, expected) in [
        (c"malloc", &b"malloc"[..], true),
        (c"malloc", b"mallocs", false),
        (c"malloc", b"mallo", false),
        (c"malloc", b"", false),
        (c"", b"", true),
    ] {
        // SAFETY: a text that ends with a zero.
        assert_eq!(unsafe { is_text(at(text), wanted) }, expected, "{wanted:?}");
    }
    for (one, other, expected) in [
        (c"free", c"free", true),
        (c"free", c"fre", false),
        (c"fre", c"free", false),
        (c"", c"", true),
    ] {
        // SAFETY: texts that end with a zero.
        assert_eq!(unsafe { are_same(at(one), at(other)) }, expected, "{one:?}");
    }
    for (path, expected) in [
        (c"/lib/x86_64-linux-gnu/libc.so.6", true),
        (c"libc.so.6", true),
        (c"/lib/libc.so.6.1", false),
        (c"/libc.so.6/other", false),
        (c"/lib/mylibc.so.6", false),
        (c"", false),
    ] {
        // SAFETY: a text that ends with a zero.
        let found = unsafe { is_file(at(path), b"libc.so.6") };
        assert_eq!(found, expected, "{path:?}");
    }
}

/// Returns libc's image in this process.
fn libc_image() -> &'static LoadedImage {
    assert!(read_libc());
    &LIBC_IMAGES[0]
}

/// Checks that functions are found at the addresses that the loader returns.
#[test]
fn a_function_is_the_one_that_the_loader_finds() {
    let libc = libc_image();
    for name in [
        c"read",
        c"write",
        c"getpid",
        c"memcpy",
        c"strlen",
        c"clock_gettime",
        c"abort",
        c"mmap",
    ] {
        // SAFETY: libc's image stays, and the name ends with a zero.
        let found = unsafe { libc.function(name.as_ptr() as usize, None) };
        // SAFETY: a lookup by a name in libc, which is loaded.
        let expected = unsafe {
            let handle = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            libc::dlsym(handle, name.as_ptr()) as usize
        };
        let found = found.unwrap();
        assert!(libc.holds(found), "{name:?}");
        // Some have several versions, of which the loader takes the default one.
        if !matches!(name.to_bytes(), b"memcpy") {
            assert_eq!(found, expected, "{name:?}");
        }
    }
    for name in [c"heapprof_no_such_function", c"", c"environ", c"reads"] {
        // SAFETY: as above.
        let found = unsafe { libc.function(name.as_ptr() as usize, None) };
        assert_eq!(found, None, "{name:?}");
    }
}

/// Checks that a function is found only in its version. The hash of a version is that of the ELF
/// specification.
#[test]
fn a_function_is_found_in_its_version_only() {
    let hash = |name: &str| {
        name.bytes().fold(0u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add(byte.into());
            let top = hash & 0xf000_0000;
            (hash ^ top >> 24) & !top
        })
    };
    let libc = libc_image();
    let find = |version: &str| {
        // SAFETY: libc's image stays, and the name ends with a zero.
        unsafe { libc.function(c"getpid".as_ptr() as usize, Some(hash(version))) }
    };
    assert!(find("GLIBC_2.2.5").is_some());
    assert_eq!(find("GLIBC_2.3"), None);
    assert_eq!(find("GLIBC_9.9"), None);
}

#[test]
fn what_is_no_object_is_not_read() {
    let bytes = [0u64; 64];
    let image = LoadedImage::new();
    // SAFETY: the beginning is mapped, and is not that of an object.
    unsafe { image.read(bytes.as_ptr() as usize, 0) };
    assert_eq!(image.base.get(), 0);
    assert!(!image.holds(bytes.as_ptr() as usize));
}
