//! Compiles C, C++ and Rust programs for tests, and makes profiles of their addresses.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_profile::{Mapping, Profile, ProfileBuilder};
use heapprof_symbolize::{SymbolSource, SymbolizeOptions, SymbolizeSummary, symbolize};

use crate::harness::root;
pub use crate::needs::{have, is_here, library};

/// A C program: lists, with functions inlined into each other.
pub const C: &str = r#"
#include <stdlib.h>
struct node { struct node *next; long value; };
static inline struct node *made(long value) {
    struct node *node = malloc(sizeof *node);
    node->value = value;
    return node;
}
static inline struct node *pushed(struct node *list, long value) {
    struct node *node = made(value);
    node->next = list;
    return node;
}
__attribute__((noinline)) long sum(struct node *list) {
    long sum = 0;
    for (; list; list = list->next) sum += list->value;
    return sum;
}
__attribute__((noinline)) static struct node *fill(int count) {
    struct node *list = 0;
    for (int i = 0; i < count; i++) list = pushed(list, i);
    return list;
}
int main(int argc, char **argv) { return (int)sum(fill(argc * 100)) & 1; }
"#;

/// A C++ program: templates, a lambda, the standard library.
pub const CXX: &str = r#"
#include <map>
#include <string>
#include <vector>
namespace shop {
template <class T> struct Shelf {
    std::vector<T> goods;
    __attribute__((noinline)) void put(const T &good) { goods.push_back(good); }
};
struct Order { std::string name; int count; bool operator<(const Order &o) const { return count < o.count; } };
static inline int twice(int x) { return 2 * x; }
__attribute__((noinline)) int fill(Shelf<Order> &shelf, int n) {
    auto made = [&](int i) { return Order{std::string(i, 'x'), twice(i)}; };
    for (int i = 0; i < n; i++) shelf.put(made(i));
    return shelf.goods.size();
}
}
int main(int argc, char **argv) {
    shop::Shelf<shop::Order> shelf;
    std::map<std::string, std::vector<int>> index;
    index["a"].push_back(shop::fill(shelf, argc * 10));
    return index.size() & 1;
}
"#;

/// A Rust program: generics, closures, inlined functions.
pub const RUST: &str = r#"
mod shop {
    pub struct Shelf<T> { pub goods: Vec<T> }
    impl<T: Clone> Shelf<T> {
        #[inline(never)]
        pub fn put(&mut self, good: &T) { self.goods.push(good.clone()); }
    }
    #[inline(always)]
    fn twice(x: usize) -> usize { 2 * x }
    #[inline(never)]
    pub fn fill(shelf: &mut Shelf<String>, n: usize) -> usize {
        (0..n).map(|i| { shelf.put(&"x".repeat(twice(i))); i }).sum()
    }
}
fn main() {
    let mut shelf = shop::Shelf { goods: Vec::new() };
    std::process::exit(shop::fill(&mut shelf, std::env::args().count()) as i32 & 0);
}
"#;

fn run(folder: &Path, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        // The legacy mangling scheme is still in use, but rustc hides the option.
        .env("RUSTC_BOOTSTRAP", "1")
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {reported}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles a program of docs/examples into `folder`. Returns false without a compiler.
pub fn example(folder: &Path, name: &str, options: &str) -> bool {
    if !have(&["gcc"]) {
        return false;
    }
    let source = root().join(format!("docs/examples/{name}.c"));
    let source = source.display();
    run(
        folder,
        &format!("gcc -Wall -Wextra -Werror -O1 -g -o {name} {source} {options}"),
    );
    true
}

/// A folder with a compiled program in it.
pub struct Built {
    pub folder: tempfile::TempDir,
    pub program: PathBuf,
}

/// Compiles a source with `command`. In the command, `$IN` is the source file, and `program` is the
/// compiled file.
pub fn build(source: &str, command: &str) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let end = match command.split_whitespace().next() {
        Some("gcc" | "musl-gcc") => "c",
        Some("g++") => "cc",
        _ => "rs",
    };
    let input = format!("source.{end}");
    std::fs::write(folder.path().join(&input), source).unwrap();
    run(folder.path(), &format!("{command} -o program {input}"));
    let program = folder.path().join("program");
    Built { folder, program }
}

impl Built {
    pub fn run(&self, line: &str) -> String {
        run(self.folder.path(), line)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn options(&self, debug_dir: &str) -> SymbolizeOptions {
        let folder = self.path(debug_dir);
        std::fs::create_dir_all(&folder).unwrap();
        SymbolizeOptions {
            debug_dirs: vec![folder],
            ..SymbolizeOptions::default()
        }
    }

    /// Returns the position of the code segment: file offset, virtual address, size.
    pub fn code(&self) -> (u64, u64, u64) {
        let text = self.run("readelf -lW program");
        let code = text
            .lines()
            .find(|line| line.contains(" LOAD ") && line.contains(" R E "))
            .unwrap();
        let words: Vec<&str> = code.split_whitespace().collect();
        let hex = |word: &str| u64::from_str_radix(&word[2..], 16).unwrap();
        (hex(words[1]), hex(words[2]), hex(words[4]))
    }

    pub fn build_id(&self) -> String {
        let text = self.run("readelf -n program");
        let line = text.lines().find_map(|l| l.split_once("Build ID: "));
        line.map(|(_, id)| id.trim().to_string())
            .unwrap_or_default()
    }

    /// Returns addresses within the functions of these names, a few bytes apart.
    pub fn addresses(&self, names: &str) -> Vec<u64> {
        let wanted = regex::Regex::new(names).unwrap();
        let mut addresses = Vec::new();
        for line in self.run("nm -S program").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [start, size, kind, name] = words[..] else {
                continue;
            };
            if "tTwWu".contains(kind) && wanted.is_match(name) {
                let hex = |word| u64::from_str_radix(word, 16).unwrap();
                let (start, end) = (hex(start), hex(start) + hex(size));
                addresses.extend((start..end).step_by(3));
            }
        }
        // A function with two names counts once.
        addresses.sort_unstable();
        addresses.dedup();
        assert!(addresses.len() > 10, "{names}");
        addresses
    }

    /// Returns a profile like that of a collector. The code is mapped at some address, and there is
    /// one sample for each address.
    pub fn profile(&self, addresses: &[u64]) -> Profile {
        self.profile_at(0x7f12_3456_7000, addresses)
    }

    /// Returns a profile like [`Built::profile`], with the code mapped at `start`.
    pub fn profile_at(&self, start: u64, addresses: &[u64]) -> Profile {
        let (offset, virtual_start, size) = self.code();
        let mut b = ProfileBuilder::new(&[("inuse_space", "bytes")]);
        let page = offset % 4096;
        let mapping = Mapping {
            id: 0,
            memory_start: start,
            memory_limit: start + size + page,
            file_offset: offset - page,
            filename: b.text(self.program.to_str().unwrap()),
            build_id: b.text(&self.build_id()),
            has_functions: false,
            has_filenames: false,
            has_line_numbers: false,
            has_inline_frames: false,
        };
        let mapping = b.mapping(mapping);
        let none = b.label_set(&mut []);
        for address in addresses {
            let address = address - (virtual_start - page) + start;
            let location = b.location(Some(mapping), address, false, &[]);
            b.profile.samples.push([location], &[1], none);
        }
        b.finish()
    }

    /// Returns the output of binutils' addr2line for each address, with linker names.
    pub fn addr2line(&self, addresses: &[u64]) -> Vec<String> {
        let mut line = "addr2line -a -i -f -e program".to_string();
        for address in addresses {
            write!(line, " {address:#x}").unwrap();
        }
        let text = self.run(&line);
        let mut found: Vec<String> = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("0x") {
                found.push(String::new());
                continue;
            }
            let place = lines.next().unwrap();
            let place = place.split(" (discriminator").next().unwrap();
            let (file, number) = place.rsplit_once(':').unwrap();
            let number = if number == "?" { "0" } else { number };
            let file = if file == "??" { "" } else { file };
            let one = found.last_mut().unwrap();
            writeln!(one, "{line} {file}:{number}").unwrap();
        }
        found
    }
}

/// Returns the frames of each location with their linker names, in the form of
/// [`Built::addr2line`].
pub fn reported(profile: &Profile) -> Vec<String> {
    let locations = profile.location.iter().map(|location| {
        let lines = profile.lines(location).iter().map(|line| {
            let function = &profile.function[line.function.index()];
            let (name, file) = (function.system_name, function.filename);
            format!(
                "{} {}:{}\n",
                profile.text(name),
                profile.text(file),
                line.line
            )
        });
        lines.collect()
    });
    locations.collect()
}

pub fn symbolized(mut profile: Profile, options: &SymbolizeOptions) -> (Profile, SymbolizeSummary) {
    let summary = symbolize(&mut profile, options);
    (profile, summary)
}

/// Returns where the names of a symbolized profile come from. The profile has only one file.
pub fn source(summary: &SymbolizeSummary) -> Option<SymbolSource> {
    assert_eq!(summary.files.len(), 1);
    summary.files[0].source
}
