//! Programs that are executed in another root folder than the one in which `record` began, as in a
//! container. The paths of this library and of the ledger keeper's socket lead nowhere there.
//!
//! Before a process changes its root folder, these files are opened. A program that is executed
//! afterwards inherits a sealed copy of the library in memory, and the socket, and its environment
//! names both below `/proc/self/fd`. It inherits no folder and no file of `record`'s root folder,
//! which it could misuse to leave its own. If this is not possible, the program gets an environment
//! without the library, so that its loader prints no error, and `record` is told.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use heapprof_abi::environment as variable;
use heapprof_engine::ENGINE;
use heapprof_platform::sys::{self, EngineFile};

use crate::known_file::KnownFile;
use crate::{environment, loader_release};

/// The variable with which the loader is told to load this library.
const PRELOAD: &str = "LD_PRELOAD";
/// The name of this library's file, and of its copies in memory.
const LIBRARY_NAME: &CStr = c"libheapprof.so";
/// The folder whose names lead to inherited files.
const INHERITED: &str = "/proc/self/fd/";
/// Maximum number of variables in the environment of a program that is executed.
const MAX_VARIABLES: usize = 4096;
/// Maximum length of a variable that is changed.
const MAX_VARIABLE_LEN: usize = 8192;
/// The reason why a program in another root folder is not recorded.
const NOT_REACHED: &str = "libheapprof.so can't be reached from its root folder; attach to it, or \
                           run heapprof record inside";

/// The reason why a program with an older libc than that of the library is not recorded.
const TOO_OLD: &str = "the glibc in its root folder is older than libheapprof.so needs";

/// The files of `record` that this process opened before it changed its root folder.
static WAY_BACK: OnceLock<WayBack> = OnceLock::new();

struct WayBack {
    library: KnownFile,
    keeper: KnownFile,
}

/// Opens what programs in another root folder need. Runs before this process changes its root
/// folder.
pub fn prepare_to_leave() {
    // A child of vfork has descriptors of its own, but this memory belongs to its parent, too.
    let is_shared = !ENGINE.lifecycle().is_own_process();
    let is_running = ENGINE.lifecycle().is_running();
    if WAY_BACK.get().is_some() || is_shared || !is_running || is_forbidden() {
        return;
    }
    ENGINE.lifecycle().with_reentrancy_guard(|| {
        let Some(library) = environment::preloaded().and_then(own_library) else {
            return;
        };
        let (Some(library), Some(keeper)) = (
            KnownFile::open(library, libc::O_RDONLY),
            environment::keeper().and_then(|path| KnownFile::open(path, libc::O_PATH)),
        ) else {
            return;
        };
        environment::keep_list_open();
        let _ = WAY_BACK.set(WayBack { library, keeper });
    });
}

/// Whether a filter of system calls may kill this process for what this module does.
fn is_forbidden() -> bool {
    ENGINE.lifecycle().is_filtered()
}

/// Returns the entry of this library in a value of [`PRELOAD`]. `record` puts it first. It is the
/// path of a file, or of an open file in memory.
fn own_library(preloaded: &[u8]) -> Option<&[u8]> {
    let first = preloaded.split(|&byte| is_separator(byte)).next()?;
    let name = first.rsplit(|&byte| byte == b'/').next();
    let is_ours = name == Some(LIBRARY_NAME.to_bytes()) || first.starts_with(b"/proc/");
    is_ours.then_some(first)
}

fn is_separator(byte: u8) -> bool {
    byte == b':' || byte == b' '
}

/// Executes a program whose environment must be changed because this library's path leads nowhere.
/// Returns if the environment is right as it is, or if the kernel refuses the program. `words` and
/// `variables` are the addresses of the program's words and environment. If `is_reported`, `record`
/// already knows that the program is not recorded.
pub fn execute(path: &CStr, words: usize, variables: usize, is_reported: bool) {
    if is_forbidden() || environment::keeper().is_none() {
        return;
    }
    let changed = ENGINE.lifecycle().with_reentrancy_guard(|| {
        free_left_variables();
        change_variables(path, variables, is_reported)
    });
    let Some((changed, inherited)) = changed else {
        return;
    };
    // The guard is left before the exec: a child of vfork uses its parent's slot. The parent frees
    // the variables, which no exec that succeeds does.
    let changed = Box::into_raw(Box::new(changed));
    LEFT_VARIABLES.set(changed);
    // SAFETY: only this thread frees the variables, at its next exec.
    sys::execute(path.as_ptr() as usize, words, unsafe {
        &(*changed).addresses
    });
    if let Some(inherited) = &inherited {
        inherited.keeper.set_inherited(false);
    }
}

thread_local! {
    /// The environment of the last program that this thread, or a child of vfork in its place, has
    /// executed.
    static LEFT_VARIABLES: Cell<*mut ChangedVariables> = const { Cell::new(std::ptr::null_mut()) };
}

/// Frees the environment of the last program. It is used no longer: a thread waits until its child
/// of vfork has executed the program.
fn free_left_variables() {
    let left = LEFT_VARIABLES.replace(std::ptr::null_mut());
    if !left.is_null() {
        // SAFETY: it was made by `execute`, and is freed once.
        drop(unsafe { Box::from_raw(left) });
    }
}

/// Makes the environment of a program whose environment must be changed, and the files that it
/// inherits.
fn change_variables(
    path: &CStr,
    variables: usize,
    is_reported: bool,
) -> Option<(ChangedVariables, Option<InheritedFiles>)> {
    let is_there = |path: &[u8]| CString::new(path).is_ok_and(|path| sys::is_there(&path));
    let given = ProgramVariables::read(variables)?;
    let library = given.preloaded().and_then(own_library)?;
    if is_there(library) {
        return None;
    }
    let inherited = inherit(path);
    if let Err(why) = inherited
        && !is_reported
    {
        environment::report_becoming_unrecorded(why, path.to_bytes(), true);
    }
    let inherited = inherited.ok();
    let changed = given.changed(library, inherited.as_ref());
    Some((changed, inherited))
}

/// The files that a program inherits.
struct InheritedFiles {
    library: EngineFile,
    keeper: &'static EngineFile,
}

/// Makes the files that the program at `path` inherits. The error says why it can't use them.
fn inherit(path: &CStr) -> Result<InheritedFiles, &'static str> {
    let way = WAY_BACK.get().ok_or(NOT_REACHED)?;
    let (Some(library), Some(keeper)) = (way.library.get(), way.keeper.get()) else {
        return Err(NOT_REACHED);
    };
    // A loader refuses to start the program if libc is too old for a library.
    if loader_release::is_too_old(path, library) {
        return Err(TOO_OLD);
    }
    let library = library.copy_into_memory(LIBRARY_NAME);
    let library = library.map_err(|_| NOT_REACHED)?;
    let path = CString::new(inherited_path(&library)).map_err(|_| NOT_REACHED)?;
    // Without /proc, the loader could not open it.
    if !sys::is_there(&path) {
        return Err(NOT_REACHED);
    }
    library.set_inherited(true);
    keeper.set_inherited(true);
    Ok(InheritedFiles { library, keeper })
}

fn inherited_path(file: &EngineFile) -> String {
    format!("{INHERITED}{}", file.number())
}

/// The environment that this process passes to a program.
struct ProgramVariables {
    /// The addresses of the variables, without the null at the end.
    addresses: Vec<usize>,
    /// The variables that may have to change: the place in `addresses`, and the text.
    ours: Vec<(usize, Vec<u8>)>,
}

/// A changed environment.
struct ChangedVariables {
    /// The addresses of the variables, with the null at the end.
    addresses: Vec<usize>,
    /// The new variables.
    _texts: Vec<CString>,
}

impl ProgramVariables {
    /// The variables that lead into `record`'s root folder.
    const NAMES: [&str; 7] = [
        PRELOAD,
        variable::KEEP.name,
        variable::OUTPUT.name,
        variable::CHILDREN.name,
        variable::LIST.name,
        variable::LINES.name,
        variable::LIVE.name,
    ];

    /// Reads the list of variables at an address; `None` if it can't be read, or is too long.
    fn read(at: usize) -> Option<Self> {
        let (mut addresses, mut ours) = (Vec::new(), Vec::new());
        loop {
            let mut word = [0; size_of::<usize>()];
            let from = at.checked_add(addresses.len() * word.len())?;
            (sys::read_memory(from, &mut word) == word.len()).then_some(())?;
            let address = usize::from_ne_bytes(word);
            if address == 0 {
                return Some(Self { addresses, ours });
            }
            if addresses.len() == MAX_VARIABLES {
                return None;
            }
            let mut beginning = [0; 32];
            let len = sys::read_memory(address, &mut beginning);
            let is_ours = |name: &&str| is_variable(&beginning[..len], name);
            if Self::NAMES.iter().any(is_ours) {
                let mut text = vec![0; MAX_VARIABLE_LEN];
                let len = sys::read_memory(address, &mut text);
                text.truncate(text[..len].iter().position(|&byte| byte == 0)?);
                text.shrink_to_fit();
                ours.push((addresses.len(), text));
            }
            addresses.push(address);
        }
    }

    /// Returns the value of [`PRELOAD`].
    fn preloaded(&self) -> Option<&[u8]> {
        let mut ours = self.ours.iter();
        ours.find_map(|(_, text)| value(text, PRELOAD))
    }

    /// Returns the environment in which this library is loaded from an inherited file, or not at
    /// all. `library` is this library's entry in [`PRELOAD`].
    fn changed(&self, library: &[u8], inherited: Option<&InheritedFiles>) -> ChangedVariables {
        let (mut addresses, mut texts) = (self.addresses.clone(), Vec::new());
        for (at, text) in &self.ours {
            let new = match (value(text, PRELOAD), inherited) {
                (Some(preloaded), inherited) => {
                    let rest = preloaded.strip_prefix(library).unwrap_or(preloaded);
                    let path = inherited.map(|files| inherited_path(&files.library));
                    assignment(PRELOAD, path.unwrap_or_default().as_bytes(), rest)
                }
                (None, Some(files)) => files.renamed(text),
                (None, None) => continue,
            };
            let new = new.and_then(|text| CString::new(text).ok());
            addresses[*at] = new.as_ref().map_or(0, |text| text.as_ptr() as usize);
            texts.extend(new);
        }
        addresses.retain(|&address| address != 0);
        addresses.push(0);
        ChangedVariables {
            addresses,
            _texts: texts,
        }
    }
}

impl InheritedFiles {
    /// Returns what becomes of a variable that leads into `record`'s root folder; `None` if it is
    /// left out. In another root folder, `record` writes the profile from the ledger. So the
    /// program itself gets an output where no file can be made.
    fn renamed(&self, text: &[u8]) -> Option<Vec<u8>> {
        if value(text, variable::KEEP.name).is_some() {
            let path = inherited_path(self.keeper);
            assignment(variable::KEEP.name, path.as_bytes(), b"")
        } else if value(text, variable::OUTPUT.name).is_some() {
            let path = inherited_path(&self.library);
            assignment(variable::OUTPUT.name, path.as_bytes(), b"/%p")
        } else {
            None
        }
    }
}

/// Makes the text of a variable from the two parts of its value; `None` if the value is empty.
fn assignment(name: &str, beginning: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let rest = match beginning {
        [] => rest.strip_prefix(b":").or(rest.strip_prefix(b" ")),
        _ => None,
    }
    .unwrap_or(rest);
    let is_empty = beginning.is_empty() && rest.is_empty();
    (!is_empty).then(|| [name.as_bytes(), b"=", beginning, rest].concat())
}

fn is_variable(text: &[u8], name: &str) -> bool {
    let rest = text.strip_prefix(name.as_bytes());
    rest.is_some_and(|rest| rest.first() == Some(&b'='))
}

/// Returns the value in the text of a variable, if the variable has this name.
fn value<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    text.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "LD_PRELOAD=/c/libheapprof.so";

    /// Returns the texts of the variables that a program without the library gets.
    fn without_library(given: &[&str]) -> Vec<String> {
        let texts: Vec<CString> = given
            .iter()
            .map(|text| CString::new(*text).unwrap())
            .collect();
        let addresses = texts.iter().map(|text| text.as_ptr() as usize);
        let addresses: Vec<usize> = addresses.chain([0]).collect();
        let variables = ProgramVariables::read(addresses.as_ptr() as usize).unwrap();
        let library = variables.preloaded().and_then(own_library).unwrap();
        let changed = variables.changed(library, None);
        assert_eq!(changed.addresses.last(), Some(&0));
        let read = |&address: &usize| {
            let mut text = [0; 64];
            sys::read_memory(address, &mut text);
            let text = CStr::from_bytes_until_nul(&text).unwrap();
            text.to_str().unwrap().to_string()
        };
        let addresses = changed.addresses.split_last().unwrap().1;
        addresses.iter().map(read).collect()
    }

    #[test]
    fn only_this_library_is_taken_out_of_an_environment() {
        for (given, expected) in [
            (&[LIBRARY][..], &[][..]),
            (&["A=1", LIBRARY, "B="], &["A=1", "B="]),
            (
                &["LD_PRELOAD=/c/libheapprof.so:/d/x.so", "LD_PRELOADED=1"],
                &["LD_PRELOAD=/d/x.so", "LD_PRELOADED=1"],
            ),
            (
                &[
                    "LD_PRELOAD=/proc/7/fd/3 x.so",
                    "HEAPPROF_KEEP=/k",
                    "HEAPPROF_LIST=/l",
                ],
                &["LD_PRELOAD=x.so", "HEAPPROF_KEEP=/k", "HEAPPROF_LIST=/l"],
            ),
        ] {
            assert_eq!(without_library(given), expected, "{given:?}");
        }
    }

    #[test]
    fn the_first_entry_must_be_this_library() {
        for (preloaded, expected) in [
            ("/a b/libheapprof.so", None),
            ("/a/libheapprof.so", Some("/a/libheapprof.so")),
            ("/a/libheapprof.so:x", Some("/a/libheapprof.so")),
            ("/proc/self/fd/200 x", Some("/proc/self/fd/200")),
            ("x.so:/a/libheapprof.so", None),
            ("", None),
        ] {
            let found = own_library(preloaded.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{preloaded}");
        }
    }

    #[test]
    fn a_list_that_can_not_be_read_is_left_alone() {
        for at in [0, 8, usize::MAX - 3] {
            assert!(ProgramVariables::read(at).is_none(), "{at:#x}");
        }
        let endless = vec![c"A=1".as_ptr() as usize; MAX_VARIABLES + 1];
        assert!(ProgramVariables::read(endless.as_ptr() as usize).is_none());
    }
}
