//! Tests of tables that outlive the process.

use std::os::unix::fs::FileExt;

use super::*;

/// Reads a word of a file, which no process can map for writing.
fn word(file: &EngineFile, at: usize) -> u64 {
    let path = format!("/proc/self/fd/{}", file.number());
    let mut word = [0; 8];
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut word, at as u64).unwrap();
    u64::from_ne_bytes(word)
}

/// Tests that the child's file has the lasting tables but not the passing ones, and that the
/// parent's file is not changed.
#[test]
fn a_copy_of_the_process_has_what_lasts() {
    let file = || sys::memory_file(TABLE_FILE_LEN).unwrap();
    let (first, second) = (file(), file());
    let kept = TableFile::new();
    assert_eq!(kept.take(8, TableLifetime::Lasting), None);
    assert!(kept.begin(Some(&first)) && kept.is_shared());
    let take = |lot, len| kept.take(len, lot).unwrap().cast::<u64>();
    let lasting = take(TableLifetime::Lasting, 3 * PAGE_SIZE);
    let passing = take(TableLifetime::Passing, MIN_PIECE_LEN + 1);
    let far = take(TableLifetime::Lasting, 4 * MIN_PIECE_LEN);
    assert!(kept.holds(lasting.cast()) && kept.holds(passing.cast()));
    assert!(!kept.holds(std::ptr::from_ref(&kept).cast()));
    assert_eq!(kept.take(8, TableLifetime::Own), None);
    // SAFETY: these are pages of the file, and no other thread uses them.
    unsafe {
        lasting.add(600).write(7);
        passing.write(8);
        far.write(5);
        assert!(kept.renew(TableMemory::File(&second)) && kept.is_shared());
        assert_eq!(
            (lasting.add(600).read(), lasting.read(), far.read()),
            (7, 0, 5)
        );
        assert!(!kept.holds(passing.cast()));
        lasting.write(9);
        let before = lasting.addr() - kept.header().addr();
        assert_eq!(word(&first, before), 0);
        assert_eq!(word(&first, before + 600 * 8), 7);
        // A child has room behind the pieces that it has.
        let more = take(TableLifetime::Passing, 9 * MIN_PIECE_LEN);
        assert_eq!(more.read(), 0);
        more.write(3);
        let (extents, all) = (
            (*kept.header()).extents.load(Ordering::Relaxed),
            (*kept.header()).extent,
        );
        let mut of_more = all[..extents as usize].iter();
        let of_more = of_more
            .rfind(|extent| extent.address == more.addr() as u64)
            .unwrap();
        assert_eq!(word(&second, of_more.offset as usize), 3);
        assert_eq!(kept.take(2 * TABLE_FILE_LEN, TableLifetime::Passing), None);
        assert_eq!((*kept.header()).is_full.load(Ordering::Relaxed), 1);
        assert!(kept.renew(TableMemory::Private) && !kept.is_shared() && !kept.is_there());
        assert_eq!((lasting.read(), lasting.add(600).read()), (9, 7));
    }
    assert_eq!(kept.take(8, TableLifetime::Lasting), None);
}
