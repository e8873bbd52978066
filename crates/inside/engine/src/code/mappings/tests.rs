//! Tests of the known mappings, with the mappings of the test program.

use heapprof_platform::pages::PageSource;
use heapprof_platform::sys::PAGE_SIZE;

use super::*;
use crate::code::modules::LoadedModules;

#[test]
fn reads_the_kernels_text() {
    let maps = b"55d0-55e0 r--p 00000000 08:01 77    /bin/a b\n\
        55e0-55f0 r-xp 00000010 08:01 77    /bin/a b\n\
        55f0-5600 r-xp 00000020 08:01 77    /bin/a b\n\
        7f00-7f10 r-xp 00001000 08:01 78 /lib/x.so (deleted)\n\
        7f20-7f30 rw-p 00000000 00:00 0\n\
        7f40-7f50 r-xp 00001000 08:01 79 /a\\012b\\\n\
        7fff-8fff r-xp 00000000 00:00 0    [vdso]\n";
    let mut found = Vec::new();
    let lines = maps.split(|&b| b == b'\n');
    lines.for_each(|line| add_code(&mut found, line));
    let brief: Vec<_> = found
        .iter()
        .map(|m| (m.start, m.end, m.offset, &*m.path))
        .collect();
    let expected: [(usize, usize, u64, &[u8]); 4] = [
        (0x55e0, 0x5600, 0x10, b"/bin/a b"),
        (0x7f00, 0x7f10, 0x1000, b"/lib/x.so"),
        (0x7f40, 0x7f50, 0x1000, b"/a\nb\\"),
        (0x7fff, 0x8fff, 0, b"[vdso]"),
    ];
    assert_eq!(brief, expected);
}

#[test]
fn finds_this_program() {
    let code = finds_this_program as fn() as usize;
    let (mappings, process) = (
        CodeMappings::new(),
        EngineProcess::new(PageSource::from_kernel()),
    );
    assert_eq!(mappings.remember(&process, |_| true), CodeScanOutcome::All);
    let all = mappings.known_mappings(&process);
    let own = all
        .iter()
        .find(|m| m.start <= code && code < m.end)
        .unwrap();
    let exe = std::env::current_exe().unwrap();
    assert_eq!(&*own.path, exe.to_str().unwrap().as_bytes());
}

/// Tests that the mapped code is read again if reading it needs more memory than was reserved, and
/// that nothing is read if no memory can be reserved.
#[test]
fn what_is_read_fits_what_was_set_aside() {
    let (mappings, process) = (
        CodeMappings::new(),
        EngineProcess::new(PageSource::from_kernel()),
    );
    assert_eq!(mappings.read_code(1).map(|all| all.len()), None);
    let all = mappings.read_code(mappings.room()).unwrap();
    assert!(!all.is_empty());
    let reserved = std::cell::RefCell::new(Vec::new());
    let reserve = |bytes| {
        reserved.borrow_mut().push(bytes);
        reserved.borrow().len() < 3
    };
    assert_eq!(mappings.remember(&process, reserve), CodeScanOutcome::All);
    let known = mappings.known_mappings(&process).len();
    assert_eq!(known, all.len());
    assert_eq!(mappings.note_gone(&process, || true, reserve), Vec::new());
    assert_eq!(
        mappings.remember(&process, reserve),
        CodeScanOutcome::NoMemory
    );
    assert_eq!(mappings.known_mappings(&process).len(), known);
    let reserved = reserved.into_inner();
    let read = mappings.reading.load(Ordering::Relaxed);
    assert_eq!(reserved.len(), 3);
    assert!(reserved.iter().all(|&bytes| bytes > read + (256 << 10)));
}

/// Returns the module of this test's own code, and the mappings of this process.
fn own(process: &EngineProcess) -> (LoadedModule, CodeMappings) {
    let code = own as *const () as usize;
    let mappings = CodeMappings::new();
    assert_eq!(mappings.remember(process, |_| true), CodeScanOutcome::All);
    let all = mappings.known_mappings(process);
    let holds = |m: &&CodeMapping| (m.start..m.end).contains(&code);
    let mapping = all.iter().find(holds).unwrap();
    // The loader's module begins with the image's header.
    let mut start = mapping.start;
    while MappedImage::read_at(start, 0) != mapping.image {
        start -= PAGE_SIZE;
    }
    let module = LoadedModule {
        start,
        end: mapping.end,
        ..LoadedModule::default()
    };
    (module, mappings)
}

/// Returns the kernel's data about a mapping, and its image.
fn brief(m: &CodeMapping) -> (usize, usize, u64, Vec<u8>, bool, MappedImage) {
    (
        m.start,
        m.end,
        m.offset,
        m.path.to_vec(),
        m.deleted,
        m.image,
    )
}

/// Tests that an object through which a stack leads is noted once, with the kernel's data.
#[test]
fn an_object_is_noted_as_the_kernel_tells_it() {
    if !std::path::Path::new("/proc/self/map_files").is_dir() {
        return;
    }
    let process = EngineProcess::new(PageSource::from_kernel());
    let (_, mappings) = own(&process);
    let code = own as *const () as usize;
    let module = LoadedModules::new().find(&process, code).unwrap();
    let is_of = |m: &CodeMapping| m.start < module.end && module.start < m.end;
    let expected = mappings.known_mappings(&process);
    // The object is known.
    assert!(mappings.note_met(&process, &module));
    assert_eq!(mappings.known_mappings(&process).len(), expected.len());
    // The object is not known any more.
    mappings.known.with(&process, |known| {
        known.all.retain(|m| !is_of(m));
        mappings.publish(known, &process.pages);
    });
    assert!(mappings.known_mappings(&process).len() < expected.len());
    for was_known in [false, true] {
        assert_eq!(mappings.note_met(&process, &module), was_known);
        let noted = mappings.known_mappings(&process);
        let count = mappings.published.load(Ordering::Relaxed) as usize;
        // Other tests may map and unmap code of their own meanwhile.
        assert_eq!(noted.len(), count);
        let of = |all: &[CodeMapping]| {
            all.iter()
                .filter(|m| is_of(m))
                .map(brief)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&noted), of(&expected));
        assert_eq!(mappings.remember(&process, |_| true), CodeScanOutcome::All);
    }
    // Other code may have come to its place without a report.
    mappings.known.with(&process, |known| {
        let of_module = known.all.iter_mut().filter(|m| is_of(m));
        of_module.for_each(|m| m.image = MappedImage::UNKNOWN);
    });
    assert!(!mappings.note_met(&process, &module));
    // The program's own code must be the first entry.
    assert!(!CodeMappings::new().note_met(&process, &module));
}

/// Tests that the kernel's path replaces the loader's path, which may lead over a link. A mapping
/// with the loader's path counts as the same mapping.
#[test]
fn the_kernels_path_takes_the_place_of_the_loaders() {
    let process = EngineProcess::new(PageSource::from_kernel());
    let (module, mappings) = own(&process);
    let expected: Vec<_> = mappings
        .known_mappings(&process)
        .iter()
        .map(brief)
        .collect();
    mappings.known.with(&process, |known| {
        let of_module = |m: &&mut CodeMapping| m.end == module.end;
        let mapping = known.all.iter_mut().find(of_module).unwrap();
        mapping.path = b"/a/link".to_vec().into();
        mapping.is_loaders = true;
    });
    assert_eq!(mappings.note_gone(&process, || true, |_| true), []);
    assert_eq!(mappings.remember(&process, |_| true), CodeScanOutcome::All);
    let known = mappings.known_mappings(&process);
    assert!(known.iter().map(brief).eq(expected));
    assert!(known.iter().all(|m| !m.is_loaders && m.shown_at != 0));
}

#[test]
fn what_is_still_there_belongs_to_the_same_generation() {
    let process = EngineProcess::new(PageSource::from_kernel());
    let (module, mappings) = own(&process);
    mappings.note_closing(&process, |_| false);
    // The generation stays, however often the module is met while it may go.
    for _ in 0..3 {
        assert!(!mappings.note_module(&process, &module, || true));
    }
    // The module is noted again when the next thread begins to close objects, and not when no
    // thread does.
    mappings.note_closing(&process, |_| false);
    assert!(!mappings.note_module(&process, &module, || false));
    assert_eq!(mappings.note_gone(&process, || true, |_| true), []);
    assert_eq!(mappings.generation(), MappingGeneration::FIRST);
}
