//! File names as pprof compares and shows them: prefixes are cut off, `.` and `..` are resolved.

use std::borrow::Cow;

/// Returns the last part of a path as Go's `filepath.Base` does. Trailing slashes do not count.
pub fn base(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" if path.is_empty() => ".",
        "" => "/",
        trimmed => trimmed.rsplit('/').next().unwrap_or(trimmed),
    }
}

/// Returns the shortest path with the same meaning, as Go's `filepath.Clean` does, without reading
/// the file system.
pub fn clean(path: &str) -> Cow<'_, str> {
    let rooted = path.starts_with('/');
    let relative = if rooted { &path[1..] } else { path };
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    if !relative.is_empty() && relative.split('/').all(plain) {
        return path.into();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|&last| last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.as_str()) {
        (true, _) => format!("/{joined}").into(),
        (false, "") => ".".into(),
        (false, _) => joined.into(),
    }
}

/// The prefixes that are cut off file names, as in pprof.
#[derive(Clone, Debug)]
pub struct PathTrimmer {
    /// Folder names, with `/` before and after. A path is cut after the first folder name that
    /// occurs in it. The names are the last parts of the folders in which sources are searched.
    through: Vec<String>,
    /// Prefixes that are cut off a path. Only the first matching prefix is cut off.
    prefix: Vec<String>,
}

impl PathTrimmer {
    /// Makes a trimmer from the values of `trim_path` and `source_path`, which are lists separated
    /// by `:`.
    pub fn new(trim_path: &str, source_path: &str) -> Self {
        let list = |text: &str| -> Vec<String> {
            match text {
                "" => Vec::new(),
                text => text.split(':').map(str::to_string).collect(),
            }
        };
        let through = match trim_path {
            "" => list(source_path),
            _ => Vec::new(),
        };
        let ours = ["/proc/self/cwd/./", "/proc/self/cwd/"].map(str::to_string);
        let ended = |path: String| match path.ends_with('/') {
            true => path,
            false => path + "/",
        };
        Self {
            through: through.iter().map(|d| format!("/{}/", base(d))).collect(),
            prefix: list(trim_path).into_iter().chain(ours).map(ended).collect(),
        }
    }

    /// Returns the path without the prefix to cut off.
    pub fn apply<'a>(&self, path: &'a str) -> &'a str {
        let found = |want: &String| path.find(want.as_str()).map(|at| at + want.len());
        if let Some(from) = self.through.iter().find_map(found) {
            return &path[from..];
        }
        let rest = |prefix: &String| path.strip_prefix(prefix.as_str());
        self.prefix.iter().find_map(rest).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_parts() {
        for (path, expected) in [
            ("", "."),
            ("/", "/"),
            ("a/b//", "b"),
            ("/x", "x"),
            ("y", "y"),
        ] {
            assert_eq!(base(path), expected, "{path}");
        }
    }

    #[test]
    fn clean_paths() {
        let table = [
            ("a/b", "a/b"),
            ("/a/b.c", "/a/b.c"),
            ("a//b/./c/..", "a/b"),
            ("/..", "/"),
            ("/../a", "/a"),
            ("../../a", "../../a"),
            ("a/../..", ".."),
            ("a/..", "."),
            ("./", "."),
            ("//a/", "/a"),
            ("...", "..."),
        ];
        for (path, expected) in table {
            assert_eq!(clean(path), expected, "{path}");
        }
    }

    #[test]
    fn trimmed_paths() {
        let table = [
            ("", "", "/proc/self/cwd/a/b.c", "a/b.c"),
            ("", "", "/proc/self/cwd/./a", "a"),
            ("", "", "/a/b.c", "/a/b.c"),
            ("/a:/b/", "", "/b/c.c", "c.c"),
            ("/a", "", "/ab/c.c", "/ab/c.c"),
            // An empty entry stands for the root.
            ("/x::/y", "", "/a/c.c", "a/c.c"),
            ("", "/home/me/project", "/build/project/src/c.c", "src/c.c"),
            (
                "/a",
                "/home/me/project",
                "/build/project/src/c.c",
                "/build/project/src/c.c",
            ),
        ];
        for (trim, source, path, expected) in table {
            assert_eq!(
                PathTrimmer::new(trim, source).apply(path),
                expected,
                "{trim} {source} {path}"
            );
        }
    }
}
