//! Forged ledgers: whatever a core file or a saved ledger contains, reading it ends with a profile
//! or an error, in bounded time.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heapprof_abi::{LEDGER_MAGIC, LedgerHeader, SharedLedgerHeader as Header};
use heapprof_live::{CoreLedger, LiveError, SharedLedger};
use heapprof_tests::built::{build, have};
use heapprof_tests::harness::preloaded;
use heapprof_tests::needs;
use heapprof_tests::waits::processor_time;

/// Makes stacks, threads and temporary allocations, and waits.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    #include <unistd.h>
    __attribute__((noinline)) void *nest(int n) { void *p = n ? nest(n - 1) : malloc(40); __asm__ volatile(""); return p; }
    static void *work(void *x) { for (int i = 0; i < 500; i++) { nest(i % 30); free(nest(3)); } return x; }
    int main(void) {
        pthread_t ids[3];
        for (int i = 0; i < 3; i++) pthread_create(&ids[i], 0, work, 0);
        for (int i = 0; i < 3; i++) pthread_join(ids[i], 0);
        write(1, "r", 1);
        pause();
    }
"#;

/// Numbers that are wrong at any place of a ledger.
const ODD: [u64; 12] = [
    0,
    1,
    7,
    0xff,
    0xffff,
    0xffff_ffff,
    1 << 32,
    1 << 47,
    1 << 63,
    u64::MAX,
    u64::MAX - 7,
    0x7fff_ffff_f000,
];

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Starts the program with additional variables, and waits until it has reached its waiting point.
fn waiting(folder: &Path, more: &[(&str, &str)]) -> Child {
    let built = build(PROGRAM, "gcc -O1 -g -pthread -fno-builtin");
    let mut program = preloaded(built.path("program"));
    program.current_dir(folder).env("HEAPPROF_MODE", "exact");
    program
        .env("HEAPPROF_OUTPUT", "p.pb.gz")
        .env("HEAPPROF_THREADS", "yes")
        .envs(more.iter().copied());
    let mut program = program.stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    program
}

fn core_of_a_recording(folder: &Path) -> Option<std::path::PathBuf> {
    if !have(&["gcc", "gdb"]) {
        return None;
    }
    let mut program = waiting(folder, &[]);
    let core = folder.join("core");
    let made = Command::new("gcore")
        .arg("-o")
        .arg(&core)
        .arg(program.id().to_string())
        .output();
    assert!(made.unwrap().status.success());
    let path = folder.join(format!("core.{}", program.id()));
    program.kill().unwrap();
    program.wait().unwrap();
    Some(path)
}

/// Returns the positions of the ledger in the file.
fn places(bytes: &[u8]) -> Vec<usize> {
    let all = bytes.windows(LEDGER_MAGIC.len()).enumerate();
    all.filter(|(_, window)| **window == LEDGER_MAGIC)
        .map(|(at, _)| at)
        .collect()
}

fn read(path: &Path) -> Result<usize, LiveError> {
    CoreLedger::open(File::open(path)?)?
        .snapshot()
        .map(|profile| profile.samples.len())
}

/// Changes words of a file, reads it, and restores the words, again and again. `heads` are the
/// places of the words that lead to everything else. Both errors and profiles must occur, in
/// bounded time, and the restored file must give the original profile.
fn read_mutants(
    file: &File,
    bytes: &[u8],
    heads: &[Range<usize>],
    read: impl Fn() -> Result<usize, LiveError>,
) {
    let samples = read().unwrap();
    assert!(samples >= 30, "{samples}");
    let mut random = Random(88_172_645_463_325_252);
    // The words of the file that are not zero: counts and addresses of the tables are among them.
    let words: Vec<usize> = (0..bytes.len() - 8)
        .step_by(8)
        .filter(|&at| bytes[at..at + 8] != [0; 8])
        .collect();
    let (mut errors, mut profiles) = (0, 0);
    for round in 0..rounds() {
        let mut changed = Vec::new();
        for _ in 0..1 + random.below(3) {
            let of_head = |random: &mut Random| {
                let head = &heads[random.below(heads.len() as u64) as usize];
                head.start + 8 * random.below(head.len() as u64 / 8) as usize
            };
            let at = match round % 4 {
                // Any word of the file, including the head of the core file.
                0 => words[random.below(words.len() as u64) as usize],
                1 => 8 * random.below(300) as usize,
                _ => of_head(&mut random),
            };
            let old: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
            let new = match random.below(3) {
                0 => ODD[random.below(ODD.len() as u64) as usize].to_ne_bytes(),
                // Another word of the ledger, so that one table is taken for another.
                1 => {
                    let from = of_head(&mut random);
                    bytes[from..from + 8].try_into().unwrap()
                }
                _ => (u64::from_ne_bytes(old) ^ 1 << random.below(64)).to_ne_bytes(),
            };
            file.write_all_at(&new, at as u64).unwrap();
            changed.push((at, old));
        }
        let began = processor_time();
        match read() {
            Ok(_) => profiles += 1,
            Err(_) => errors += 1,
        }
        let took = processor_time() - began;
        assert!(
            took < Duration::from_secs(30),
            "round {round}: {took:?} {changed:?}"
        );
        for (at, old) in changed.into_iter().rev() {
            file.write_all_at(&old, at as u64).unwrap();
        }
    }
    let least = rounds() / 10;
    assert!(
        errors > least && profiles > least,
        "{errors} errors, {profiles} profiles"
    );
    assert_eq!(read().unwrap(), samples);
}

fn rounds() -> u64 {
    let asked = std::env::var("HEAPPROF_ROUNDS");
    asked.ok().and_then(|n| n.parse().ok()).unwrap_or(700)
}

#[test]
fn a_forged_ledger_is_a_profile_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = core_of_a_recording(folder.path()) else {
        return;
    };
    let bytes = std::fs::read(&path).unwrap();
    let heads = places(&bytes).into_iter();
    let heads: Vec<_> = heads.map(|at| at..at + size_of::<LedgerHeader>()).collect();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    read_mutants(&file, &bytes, &heads, || read(&path));
}

/// Returns the file in which a program saves its ledger, after the program was killed. Only root
/// can open it without `record`.
fn kept_by_a_program(folder: &Path) -> Option<File> {
    if !have(&["gcc"]) {
        return None;
    }
    let mut program = waiting(folder, &[("HEAPPROF_KEEP", "/nobody/listens/here")]);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.id())).unwrap();
    let mut lines = maps.lines();
    let line = lines.find(|line| line.contains("/memfd:heapprof")).unwrap();
    let range = line.split_whitespace().next().unwrap();
    let path = format!("/proc/{}/map_files/{range}", program.id());
    let file = OpenOptions::new().read(true).write(true).open(path).ok();
    program.kill().unwrap();
    program.wait().unwrap();
    if file.is_none() {
        needs::cannot("root, who opens mapped files of other processes");
    }
    file
}

#[test]
fn a_forged_saved_ledger_is_a_profile_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = kept_by_a_program(folder.path()) else {
        return;
    };
    // The rest of the file was never touched.
    let mut bytes = vec![0; 4 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // No process can write to the file itself.
    assert!(file.write_all_at(b"x", 0).is_err() && file.set_len(0).is_err());
    assert!(
        SharedLedger::new(file.try_clone().unwrap())
            .unwrap()
            .is_sealed()
    );
    let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let kept = SharedLedger::new(file.try_clone().unwrap()).unwrap();
    let read = || {
        let _ = kept.state();
        let left = kept.read("forged", 7, "")?;
        Ok(left.profile.samples.len())
    };
    // The history follows the ledger in the header. No word of it leads anywhere.
    let ledger = std::mem::offset_of!(Header, ledger);
    let values = std::mem::offset_of!(Header, values);
    let heads = [
        16..48,
        ledger..ledger + size_of::<LedgerHeader>(),
        values..values + 300 * 8,
    ];
    read_mutants(&file, &bytes, &heads, read);
    let plain = File::open("/proc/self/exe").unwrap();
    assert!(matches!(
        SharedLedger::new(plain),
        Err(LiveError::NotSharedLedger(_))
    ));
    file.set_len(5000).unwrap();
    assert!(read().is_err());
}

#[test]
fn a_core_file_that_is_cut_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = core_of_a_recording(folder.path()) else {
        return;
    };
    let bytes = std::fs::read(&path).unwrap();
    for share in 0..40 {
        let cut = folder.path().join("cut");
        std::fs::write(&cut, &bytes[..bytes.len() * share / 40]).unwrap();
        // The remaining part of the file may contain everything that is needed.
        if let Err(error) = read(&cut) {
            assert!(!error.to_string().is_empty());
        } else {
            assert!(share > 10, "{share}");
        }
    }
}
