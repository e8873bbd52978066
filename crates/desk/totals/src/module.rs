//! Finds the module of a function, and whether the module is a library. Each language has its own
//! kind of module.
//!
//! | code | module | library |
//! | :--- | :--- | :--- |
//! | C, and code without names | the mapped file | files of the system, other than the program |
//! | C++ | the outermost namespace; without one the mapped file | `std` and the runtime's; headers and files of the system |
//! | Rust | the crate | `std`, `core`, `alloc`; crates that cargo fetched |
//! | Go | the package | the standard library's; packages that `go` fetched, vendored code |
//! | Perl | the package | files of perl and of packages |
//! | Python | the file | files of python and of packages |

use std::cell::RefCell;
use std::collections::HashSet;

use foldhash::HashMap;
use heapprof_profile::{
    Function, FunctionIndex, Location, Mapping, MappingIndex, Profile, StringId, is_rust_name,
};

use crate::entity::{EntityTable, ProfileEntities};
use crate::frames::FrameTable;

/// A function's module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionModule {
    /// The module's name: a file, a namespace, a crate or a package, depending on the language.
    pub name: String,
    /// Whether the module is a library or the runtime of a language.
    pub is_library: bool,
}

/// Folders in which the system and the package managers of languages install files.
const SYSTEM_FOLDERS: &[&str] = &[
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib32/",
    "/usr/lib64/",
    "/usr/libexec/",
    "/usr/share/",
    "/usr/include/",
    "/usr/local/lib/",
    "/usr/local/share/",
    "/usr/local/include/",
    "/nix/store/",
    "/gnu/store/",
    "/snap/",
];
/// Path parts that occur only in paths of fetched packages and toolchains.
const PACKAGE_PATH_PARTS: &[&str] = &[
    "/.cargo/registry/",
    "/.cargo/git/",
    "/cargo/registry/",
    "/rustc/",
    // The packages that the standard library itself uses.
    "/rust/deps/",
    "/lib/rustlib/",
    "/pkg/mod/",
    "/vendor/",
    "/site-packages/",
    "/dist-packages/",
    "/site_perl/",
    "/vendor_perl/",
    "/perl5/",
    "/go/src/runtime/",
    "/node_modules/",
];
/// Namespaces of C++'s runtime and standard library.
const CXX_RUNTIME_NAMESPACES: &[&str] = &[
    "std",
    "__gnu_cxx",
    "__cxxabiv1",
    "__cxx11",
    "__gnu_internal",
];
/// The first parts of the import paths of Go's own packages.
const GO_STANDARD_PACKAGES: &[&str] = &[
    "archive",
    "arena",
    "bufio",
    "bytes",
    "cmp",
    "compress",
    "container",
    "context",
    "crypto",
    "database",
    "debug",
    "embed",
    "encoding",
    "errors",
    "expvar",
    "flag",
    "fmt",
    "go",
    "hash",
    "html",
    "image",
    "index",
    "internal",
    "io",
    "iter",
    "log",
    "maps",
    "math",
    "mime",
    "net",
    "os",
    "path",
    "plugin",
    "reflect",
    "regexp",
    "runtime",
    "slices",
    "sort",
    "strconv",
    "strings",
    "structs",
    "sync",
    "syscall",
    "testing",
    "text",
    "time",
    "unicode",
    "unique",
    "unsafe",
    "vendor",
    "weak",
];
/// Crates that come with Rust.
const RUST_STANDARD_CRATES: &[&str] = &[
    "std",
    "core",
    "alloc",
    "proc_macro",
    "test",
    "compiler_builtins",
    "panic_unwind",
    "std_detect",
    "backtrace_rs",
];

/// Finds the modules of a profile's functions.
pub struct ModuleResolver<'p> {
    profile: &'p Profile,
    /// The file of the program itself, which is no library even in a folder of installed files.
    program: Option<StringId>,
    /// Whether each file that was asked for is installed. Most functions are in a few files.
    installed: RefCell<HashMap<StringId, bool>>,
}

impl<'p> ModuleResolver<'p> {
    /// Makes a resolver for a profile, whose mappings show which file is the program.
    pub fn new(profile: &'p Profile) -> Self {
        Self {
            profile,
            program: program(profile),
            installed: RefCell::default(),
        }
    }

    fn is_installed(&self, file: StringId) -> bool {
        let mut known = self.installed.borrow_mut();
        let found = known.entry(file);
        *found.or_insert_with(|| is_installed(self.profile.text(file)))
    }

    /// Returns the module of a function in a mapping, or the mapped file if there is no function.
    pub fn module_of(
        &self,
        function: Option<&Function>,
        mapping: Option<&Mapping>,
    ) -> FunctionModule {
        let profile = self.profile;
        let named = function.filter(|f| !f.name.is_empty() && !profile.is_nameless(f));
        let of_mapping = self.module_of_mapping(mapping);
        let Some(function) = named else {
            return of_mapping;
        };
        let [name, linker, file] =
            [function.name, function.system_name, function.filename].map(|id| profile.text(id));
        let is_installed = self.is_installed(function.filename);
        let with = |name: &str, is_library: bool| FunctionModule {
            name: name.to_string(),
            is_library: is_library || is_installed,
        };
        if file.ends_with(".rs") || is_rust_name(linker) {
            let name = crate_of(name);
            return with(
                name,
                RUST_STANDARD_CRATES.contains(&name) || of_mapping.is_library,
            );
        }
        // Functions in the assembly files of Go's runtime have names like those of Go's functions.
        if file.ends_with(".go") || file.ends_with(".s") && name.contains('.') {
            let name = go_package(name);
            let first = name.split('/').next().unwrap_or(name);
            return with(
                name,
                GO_STANDARD_PACKAGES.contains(&first) || file.contains("@v"),
            );
        }
        let is_made = mapping.is_none() && is_made_by_python_library(file);
        if file.ends_with(".py") || file.starts_with("<frozen") || is_made {
            let stem = file.rsplit('/').next().unwrap_or(file);
            let is_standard = file.starts_with('<') || is_of_python(file);
            return with(stem.strip_suffix(".py").unwrap_or(stem), is_standard);
        }
        if [".pm", ".pl", ".t"].iter().any(|end| file.ends_with(end)) {
            let package = name
                .rsplit_once("::")
                .map_or("main", |(package, _)| package);
            return with(package, false);
        }
        match namespace(name) {
            Some(name) => with(
                name,
                CXX_RUNTIME_NAMESPACES.contains(&name) || of_mapping.is_library,
            ),
            None => with(&of_mapping.name, of_mapping.is_library),
        }
    }

    fn module_of_mapping(&self, mapping: Option<&Mapping>) -> FunctionModule {
        let Some(mapping) = mapping else {
            return FunctionModule::default();
        };
        let path = self.profile.text(mapping.filename);
        FunctionModule {
            name: path.rsplit('/').next().unwrap_or(path).to_string(),
            is_library: self.program != Some(mapping.filename)
                && self.is_installed(mapping.filename),
        }
    }
}

/// Returns the module of each row of a query's function table. A function may be in several
/// modules, for example an inline function of a header. The first module that is not a library is
/// used, or the first module if all are libraries.
pub fn modules_of_functions<'p>(
    parts: impl Iterator<Item = (&'p Profile, &'p FrameTable, &'p ProfileEntities)>,
    table: &EntityTable,
) -> Vec<FunctionModule> {
    let mut found: Vec<Option<FunctionModule>> = vec![None; table.function.len()];
    for (profile, frames, mapped) in parts {
        let (modules, mut known) = (ModuleResolver::new(profile), HashSet::new());
        let mut add = |row: u32, function: Option<FunctionIndex>, location: &Location| {
            if !known.insert((row, location.mapping)) {
                return;
            }
            let function = function.map(|function| &profile.function[function.index()]);
            let mapping = location
                .mapping
                .map(|mapping| &profile.mapping[mapping.index()]);
            let module = modules.module_of(function, mapping);
            let before = &mut found[row as usize];
            if before
                .as_ref()
                .is_none_or(|before| before.is_library && !module.is_library)
            {
                *before = Some(module);
            }
        };
        for location in &profile.location {
            for line in profile.lines(location) {
                let row = mapped.function[line.function.index()];
                add(row, Some(line.function), location);
            }
        }
        // Code without names has an entity that is named by its address.
        for (frame, &entity) in frames.iter().zip(&mapped.entity) {
            let named =
                |function: FunctionIndex| !profile.function[function.index()].name.is_empty();
            if let Some(location) = frame
                .location()
                .filter(|_| !frame.function(profile).is_some_and(named))
            {
                let row = table.entity[entity as usize].function;
                add(
                    row,
                    frame.function(profile),
                    &profile.location[location.index()],
                );
            }
        }
    }
    found.into_iter().map(Option::unwrap_or_default).collect()
}

/// Finds the program's file. It is the file with the main function. Without a main function, it is
/// the first file that is not a shared library.
fn program(profile: &Profile) -> Option<StringId> {
    let is_main = |location: &&Location| {
        profile.lines(location).iter().any(|line| {
            let name = profile.text(profile.function[line.function.index()].name);
            matches!(name, "main" | "_start" | "main.main")
        })
    };
    let file = |mapping: MappingIndex| profile.mapping[mapping.index()].filename;
    let of_main = profile
        .location
        .iter()
        .filter(is_main)
        .find_map(|l| l.mapping);
    let is_program = |mapping: &&Mapping| {
        let path = profile.text(mapping.filename);
        let name = path.rsplit('/').next().unwrap_or(path);
        path.starts_with('/') && !name.contains(".so.") && !name.ends_with(".so")
    };
    let first = || profile.mapping.iter().find(is_program).map(|m| m.filename);
    of_main.map(file).or_else(first)
}

fn is_installed(path: &str) -> bool {
    SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder))
        || PACKAGE_PATH_PARTS.iter().any(|part| path.contains(part))
}

/// Whether a file name stands for code that a Python library generated at run time, such as
/// `<__array_function__ internals>`. Code from a program's own `exec` and templates does not count.
fn is_made_by_python_library(file: &str) -> bool {
    let own = ["<string>", "<stdin>", "<template>"];
    file.starts_with('<') && file.ends_with('>') && !own.contains(&file)
}

/// Whether a path is in an installation of Python, as `/usr/lib/python3.11/json/decoder.py` is.
fn is_of_python(path: &str) -> bool {
    path.split('/')
        .zip(path.split('/').skip(1))
        .any(|(parent, name)| {
            parent == "lib"
                && name
                    .strip_prefix("python")
                    .is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
        })
}

/// Returns the crate in a Rust name: the first part of its path, or of the path of a method's type.
fn crate_of(name: &str) -> &str {
    let brackets = ['<', '&', '*', '[', '('];
    let mut rest = name;
    loop {
        let mut path = rest.trim_start_matches(brackets);
        for word in ["mut ", "const ", "dyn ", "impl "] {
            path = path.strip_prefix(word).unwrap_or(path);
        }
        path = path.trim_start_matches(brackets);
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = path.find(|c| !is_word(c)).unwrap_or(path.len());
        if path[end..].starts_with("::") || path[end..].is_empty() {
            return &path[..end];
        }
        // Here is a type parameter, or a type that no crate owns, so the trait's crate is taken.
        match path[end..].find(" as ") {
            Some(at) => rest = &path[end + at + " as ".len()..],
            None => return "core",
        }
    }
}

/// Returns the package in a Go name, such as `encoding/json` for `encoding/json.(*Decoder).Decode`.
fn go_package(name: &str) -> &str {
    let after = name.rfind('/').map_or(0, |at| at + 1);
    // Type arguments may contain paths, so only slashes before the bracket count.
    let after = name.find('[').map_or(after, |bracket| {
        name[..bracket].rfind('/').map_or(0, |at| at + 1)
    });
    let end = name[after..].find('.').map_or(name.len(), |at| after + at);
    &name[..end]
}

/// Returns the outermost namespace or class in a C++ name.
fn namespace(name: &str) -> Option<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    // The name begins after the last blank outside brackets. The text before it is the return type.
    let (mut depth, mut start) = (0i32, 0);
    for (at, c) in name.char_indices() {
        if name[start..at].ends_with("operator") {
            break;
        }
        match c {
            '<' | '{' | '[' => depth += 1,
            '>' | '}' | ']' => depth -= 1,
            '(' if depth == 0 && !name[at..].starts_with("(anonymous namespace)") => break,
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    let path = &name[start..];
    let end = path.find(|c| !is_word(c))?;
    (end > 0 && path[end..].starts_with("::")).then(|| &path[..end])
}

#[cfg(test)]
mod tests;
