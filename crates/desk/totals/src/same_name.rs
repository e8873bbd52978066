//! Functions with one name in several files: which of them are the same in two profiles, and how
//! much of a file's path distinguishes them.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{StringId, StringTable};

/// A function, identified by its name and its file.
pub type NameAndFile = (StringId, StringId);

/// Finds functions that are the same in several profiles, and returns the file that replaces the
/// file of each function. Returns `None` if every function keeps its file. `profiles` holds the
/// positions of each profile's functions, and `texts` is the number of texts.
///
/// A function is identified by its name and its file. But two builds of one program may be in two
/// folders. So if no profile has a name in more than one file, all functions with this name are the
/// same, and get the file in the first profile that has the name.
pub fn match_files(
    functions: &[NameAndFile],
    profiles: &[&[u32]],
    texts: usize,
) -> Option<Vec<StringId>> {
    /// The files of the functions with one name.
    #[derive(Clone, Copy, Default)]
    struct NameFiles {
        first: Option<StringId>,
        /// The last profile that has the name, as the number of the profile and the file that the
        /// name has in this profile.
        last: Option<(usize, StringId)>,
        has_many: bool,
    }
    let mut names = vec![NameFiles::default(); texts];
    for (at, rows) in profiles.iter().enumerate() {
        for &row in *rows {
            let (name, file) = functions[row as usize];
            let name = &mut names[name.index()];
            match name.last {
                Some((last, other)) if last == at => name.has_many |= file != other,
                _ => name.last = Some((at, file)),
            }
            name.first.get_or_insert(file);
        }
    }
    let mut files: Vec<StringId> = functions.iter().map(|&(_, file)| file).collect();
    let mut is_changed = false;
    for &row in profiles.iter().copied().flatten() {
        let (name, file) = functions[row as usize];
        let known = names[name.index()];
        let is_one = !name.is_empty() && !known.has_many;
        if let Some(first) = known.first.filter(|&first| is_one && first != file) {
            files[row as usize] = first;
            is_changed = true;
        }
    }
    is_changed.then_some(files)
}

/// The number of characters at the end of a file's path that distinguish a function from other
/// functions with the same name.
#[derive(Debug, Default)]
pub struct FileEnds(HashMap<NameAndFile, u32>);

impl FileEnds {
    /// Computes the path ends for these functions.
    pub fn new(functions: impl Iterator<Item = NameAndFile>, texts: &StringTable) -> Self {
        let mut functions: Vec<NameAndFile> = functions.collect();
        functions.sort_unstable();
        functions.dedup();
        let mut ends = HashMap::new();
        for of_name in functions.chunk_by(|a, b| a.0 == b.0) {
            if of_name.len() == 1 {
                continue;
            }
            let paths: Vec<&str> = of_name.iter().map(|&(_, file)| texts.get(file)).collect();
            ends.extend(of_name.iter().copied().zip(distinct_ends(&paths)));
        }
        Self(ends)
    }

    /// Returns the number of characters for a function; 0 if no other function has its name, or if
    /// it has no file.
    pub fn end_length(&self, name: StringId, file: StringId) -> u32 {
        self.0.get(&(name, file)).copied().unwrap_or(0)
    }
}

/// Returns, for each path, the number of characters of its shortest end that no other path has. An
/// end begins at the name of a folder or of a file.
fn distinct_ends(paths: &[&str]) -> Vec<u32> {
    // In this order, the path that shares the longest end with another one is beside it.
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by(|&a, &b| paths[a].rsplit('/').cmp(paths[b].rsplit('/')));
    let shared = |a: usize, b: usize| {
        let both = paths[a].rsplit('/').zip(paths[b].rsplit('/'));
        both.take_while(|(a, b)| a == b).count()
    };
    let mut ends = vec![0; paths.len()];
    for (at, &path) in order.iter().enumerate() {
        let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
        let beside = beside.filter_map(|at| order.get(at));
        let most = beside.map(|&other| shared(path, other)).max().unwrap_or(0);
        let parts = paths[path].rsplit('/').take(most + 1);
        let letters: usize = parts.map(|part| part.chars().count() + 1).sum();
        // A text is shorter than 4 GiB.
        ends[path] = letters.saturating_sub(1) as u32;
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_end_tells_paths_apart() {
        let ends = |paths: &[&str]| -> Vec<String> {
            let ends = distinct_ends(paths).into_iter().zip(paths);
            let end = |(end, path): (u32, &&str)| {
                let skipped = path.chars().count() - end as usize;
                path.chars().skip(skipped).collect()
            };
            ends.map(end).collect()
        };
        assert_eq!(ends(&["/a/x.py", "/b/y.py"]), ["x.py", "y.py"]);
        assert_eq!(
            ends(&["/p/app/models.py", "/p/shop/models.py", "/p/shop/views.py"]),
            ["app/models.py", "shop/models.py", "views.py"]
        );
        // One path is the end of another, and one path is not known.
        assert_eq!(ends(&["a.c", "/src/a.c", ""]), ["a.c", "src/a.c", ""]);
        assert_eq!(ends(&["/a.c", "a.c"]), ["/a.c", "a.c"]);
        assert_eq!(ends(&["ü/ä.c", "ö/ä.c"]), ["ü/ä.c", "ö/ä.c"]);
        assert_eq!(ends(&["xa.c", "a.c"]), ["xa.c", "a.c"]);
    }

    #[test]
    fn a_name_with_one_file_on_each_side_is_one_function() {
        let mut texts = StringTable::default();
        let mut row = |name: &str, file: &str| (texts.intern(name), texts.intern(file));
        let functions = [
            row("main", "/old/main.c"),
            row("init", "/old/a.c"),
            row("init", "/old/b.c"),
            row("main", "/new/main.c"),
            row("init", "/new/a.c"),
            row("init", "/old/b.c"),
        ];
        let matched = |profiles: &[&[u32]]| -> Option<Vec<&str>> {
            let files = match_files(&functions, profiles, texts.len())?;
            Some(files.into_iter().map(|file| texts.get(file)).collect())
        };
        assert_eq!(
            matched(&[&[0, 1, 2], &[3, 4, 5]]).unwrap()[3..],
            ["/old/main.c", "/new/a.c", "/old/b.c"]
        );
        // A profile with two files for the name has too many.
        assert_eq!(matched(&[&[1, 2], &[4]]), None);
        assert_eq!(matched(&[&[0], &[0]]), None);
        // A profile that does not have the name in any file decides nothing.
        assert_eq!(matched(&[&[0], &[1], &[3]]).unwrap()[3], "/old/main.c");
    }
}
