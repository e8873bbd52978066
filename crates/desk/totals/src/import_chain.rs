//! Folds Python's import machinery: the frames of importlib that lead to a module become one frame
//! `import NAME`.
//!
//! An import of a package runs some ten frames of importlib for each module, and each module
//! imports others. The outermost import of a stack is the one that the program asked for. It counts
//! as the program's own code, whatever file it runs, so that its memory is shown as `import
//! pandas`.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Function, FunctionIndex, Line, Location, LocationIndex, Profile, StringId};

/// The beginnings of the names of files that have the import machinery: those that are frozen into
/// the interpreter, and those of an interpreter that reads them from a folder.
const MACHINERY_FILES: [&str; 3] = [
    "<frozen importlib.",
    "<frozen zipimport",
    "importlib._bootstrap",
];
/// The end of the name of a folder that has the import machinery.
const MACHINERY_PATH_PART: &str = "/importlib/_bootstrap";
/// The name of the code of a module.
const MODULE_CODE: &str = "<module>";
/// The folders in which Python looks for modules, as parts of paths.
const MODULE_FOLDERS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib-dynload/"];

/// What a location is in a stack of imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocationRole {
    /// A part of the import machinery.
    Machinery,
    /// The code of a module.
    Module,
    Other,
}

/// Whether a source file is a part of the import machinery.
pub fn is_import_machinery(file: &str) -> bool {
    MACHINERY_FILES.iter().any(|start| file.starts_with(start))
        || file.contains(MACHINERY_PATH_PART)
}

/// Whether a function's name is that of the code of a module.
pub fn is_module_code(name: &str) -> bool {
    name == MODULE_CODE
}

/// Returns the name of the frame that stands for the import of the module in a file.
pub fn import_name(file: &str) -> String {
    format!("import {}", module_name(file))
}

/// Returns the profile with its imports folded; `None` if it has no import machinery.
pub fn fold_imports(profile: &Profile) -> Option<Profile> {
    let is_machinery = |function: &Function| is_import_machinery(profile.text(function.filename));
    let of_machinery: Vec<bool> = profile.function.iter().map(is_machinery).collect();
    if !of_machinery.contains(&true) {
        return None;
    }
    let role = |location: &Location| match profile.lines(location) {
        [line] if of_machinery[line.function.index()] => LocationRole::Machinery,
        [line] if is_module_code(profile.text(profile.function[line.function.index()].name)) => {
            LocationRole::Module
        }
        _ => LocationRole::Other,
    };
    let roles: Vec<LocationRole> = profile.location.iter().map(role).collect();
    let mut folded = profile.clone();
    let mut samples = std::mem::take(&mut folded.samples);
    let mut imports = ImportFrames {
        next_id: 1 + highest_id(&folded),
        profile: &mut folded,
        made: HashMap::new(),
        functions: HashMap::new(),
    };
    samples.rewrite(|stack, _, _, to| {
        fold_stack(stack, &roles, &mut imports, to);
        true
    });
    folded.samples = samples;
    Some(folded)
}

/// Returns the highest id of all locations and functions.
fn highest_id(profile: &Profile) -> u64 {
    let locations = profile.location.iter().map(|location| location.id);
    let functions = profile.function.iter().map(|function| function.id);
    locations.chain(functions).max().unwrap_or(0)
}

/// Appends a stack with folded imports to a list, leaf first.
fn fold_stack(
    stack: &[LocationIndex],
    roles: &[LocationRole],
    imports: &mut ImportFrames<'_>,
    to: &mut Vec<LocationIndex>,
) {
    let first = to.len();
    let role = |at: usize| roles[stack[at].index()];
    let (mut at, mut is_outermost) = (stack.len(), true);
    // From the root on. The list is turned around at the end.
    while at > 0 {
        at -= 1;
        if role(at) != LocationRole::Machinery {
            to.push(stack[at]);
            continue;
        }
        let begin = at;
        while at > 0 && role(at - 1) == LocationRole::Machinery {
            at -= 1;
        }
        if at > 0 && role(at - 1) == LocationRole::Module {
            at -= 1;
            to.push(imports.frame(stack[at], is_outermost));
            is_outermost = false;
        } else {
            // The module is not known, because it has no code in Python or is still looked for.
            to.push(stack[begin]);
        }
    }
    to[first..].reverse();
}

/// The frames that stand for imports.
struct ImportFrames<'a> {
    profile: &'a mut Profile,
    /// The next id of a location or a function. It is one that no other has.
    next_id: u64,
    /// The frame for the code of a module, and for whether the import is the outermost one.
    made: HashMap<(LocationIndex, bool), LocationIndex>,
    /// The functions of the frames, by name and file.
    functions: HashMap<(StringId, StringId), FunctionIndex>,
}

impl ImportFrames<'_> {
    /// Returns the frame that stands for an import of the module whose code is at `module`.
    fn frame(&mut self, module: LocationIndex, is_outermost: bool) -> LocationIndex {
        if let Some(made) = self.made.get(&(module, is_outermost)) {
            return *made;
        }
        let location = self.profile.location[module.index()].clone();
        let line = self.profile.lines(&location)[0];
        let file = self.profile.function[line.function.index()].filename;
        let name = import_name(self.profile.text(file));
        let name = self.profile.strings.intern(&name);
        // A function without a file is the program's own.
        let file = match is_outermost {
            true => StringId::default(),
            false => file,
        };
        let function = self.function(name, file);
        let start = self.profile.line.len() as u32;
        self.profile.line.push(Line {
            function,
            // The line is one of the module's file.
            line: if is_outermost { 0 } else { line.line },
            column: 0,
        });
        let made = LocationIndex(self.profile.location.len() as u32);
        self.profile.location.push(Location {
            id: self.next_id,
            line: start..start + 1,
            mapping: None,
            address: 0,
            is_folded: false,
        });
        self.next_id = self.next_id.saturating_add(1);
        self.made.insert((module, is_outermost), made);
        made
    }

    fn function(&mut self, name: StringId, file: StringId) -> FunctionIndex {
        let (functions, next_id) = (&mut self.profile.function, &mut self.next_id);
        *self.functions.entry((name, file)).or_insert_with(|| {
            let id = *next_id;
            *next_id = id.saturating_add(1);
            functions.push(Function {
                id,
                name,
                system_name: name,
                filename: file,
                start_line: 0,
            });
            FunctionIndex(functions.len() as u32 - 1)
        })
    }
}

/// Returns the name of the module in a file: the path below the folder in which Python found it.
fn module_name(file: &str) -> String {
    let below = MODULE_FOLDERS
        .iter()
        .find_map(|folder| Some(file.rsplit_once(folder)?.1))
        .or_else(|| below_library(file));
    let path = match below {
        Some(path) => path,
        // A module of the program: a package is known by its folder.
        None => match file.strip_suffix("/__init__.py") {
            Some(folder) => folder.rsplit('/').next().unwrap_or(folder),
            None => file.rsplit('/').next().unwrap_or(file),
        },
    };
    let path = path.strip_suffix(".py").unwrap_or(path);
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    path.replace('/', ".")
}

/// Returns the path below Python's own library, such as `/usr/lib/python3.11`.
fn below_library(file: &str) -> Option<&str> {
    let (_, behind) = file.rsplit_once("/lib/python")?;
    behind.split_once('/').map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use heapprof_profile::{FrameText, ProfileBuilder};

    use super::*;

    /// Folds stacks, in which frames are written as `function@file`, root first.
    fn folded(stacks: &[&str]) -> Vec<String> {
        let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
        for stack in stacks {
            let frame = |text: &str| {
                let (function, file) = text.split_once('@').unwrap();
                (function.to_string(), file.to_string())
            };
            let frames: Vec<_> = stack.split(';').map(frame).collect();
            let mut locations: Vec<LocationIndex> = Vec::new();
            for (function, file) in &frames {
                let text = FrameText {
                    name: function,
                    filename: file,
                    ..FrameText::default()
                };
                locations.insert(0, builder.frame(&[text]));
            }
            builder.add_sample(locations, &[1], &mut []);
        }
        let profile = builder.finish();
        let folded = fold_imports(&profile).unwrap_or(profile);
        let name = |location: &LocationIndex| {
            let line = folded.lines(&folded.location[location.index()])[0];
            let function = &folded.function[line.function.index()];
            let name = folded.text(function.name);
            match folded.text(function.filename) {
                "" => name.to_string(),
                file => format!("{name}@{file}"),
            }
        };
        let stacks = (0..folded.samples.len()).map(|i| {
            let names: Vec<String> = folded.samples.stack(i).iter().rev().map(name).collect();
            names.join(";")
        });
        stacks.collect()
    }

    #[test]
    fn imports_are_one_frame() {
        const PANDAS: &str = "/usr/lib/python3/dist-packages/pandas/__init__.py";
        const CORE: &str = "/usr/lib/python3/dist-packages/pandas/core/api.py";
        let boot = "_find_and_load@<frozen importlib._bootstrap>;\
                    exec_module@<frozen importlib._bootstrap_external>";
        let one = format!("<module>@/home/me/job.py;{boot};<module>@{PANDAS}");
        let two = format!("{one};{boot};<module>@{CORE};make@{CORE}");
        let open = format!("<module>@/home/me/job.py;{boot};get_data@/x/zip.py");
        let searching = format!("{one};{boot}");
        assert_eq!(
            folded(&[&one, &two, &open, &searching]),
            [
                "<module>@/home/me/job.py;import pandas".to_string(),
                format!(
                    "<module>@/home/me/job.py;import pandas;import pandas.core.api@{CORE};make@{CORE}"
                ),
                "<module>@/home/me/job.py;_find_and_load@<frozen importlib._bootstrap>;\
                 get_data@/x/zip.py"
                    .to_string(),
                "<module>@/home/me/job.py;import pandas;\
                 _find_and_load@<frozen importlib._bootstrap>"
                    .to_string(),
            ]
        );
    }

    #[test]
    fn a_profile_without_imports_stays() {
        let stack = "main@a.c;<module>@b.py";
        assert_eq!(folded(&[stack]), [stack]);
    }

    #[test]
    fn modules_have_names() {
        for (file, name) in [
            ("/usr/lib/python3.11/json/decoder.py", "json.decoder"),
            ("/usr/lib/python3.11/json/__init__.py", "json"),
            ("/venv/lib/python3.12/site-packages/six.py", "six"),
            ("/home/me/shop/__init__.py", "shop"),
            ("/home/me/shop/orders.py", "orders"),
            ("<string>", "<string>"),
        ] {
            assert_eq!(module_name(file), name, "{file}");
        }
    }
}
