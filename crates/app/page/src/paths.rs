//! Decides how paths are shown in a page that may be sent to others.

use std::path::PathBuf;

/// Which paths of source files and profiles a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathNames {
    /// Paths as the profile has them.
    Full,
    /// Paths with `~` for the home folder.
    Short,
    /// No paths.
    None,
}

/// The rule by which paths are shown.
pub struct PathRule {
    which: PathNames,
    home: Option<String>,
}

impl PathRule {
    /// Makes the rule that the user asked for.
    pub fn new(which: PathNames) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.components().count() > 1);
        Self {
            which,
            home: home.map(|home| home.display().to_string()),
        }
    }

    /// Returns a path as the page shows it; empty if the page shows no paths.
    pub fn shown(&self, path: &str) -> String {
        match self.which {
            PathNames::Full => path.to_string(),
            PathNames::None => String::new(),
            PathNames::Short => match self.below_home(path) {
                Some(rest) => format!("~{rest}"),
                None => path.to_string(),
            },
        }
    }

    /// Returns the name of a profile: the whole path, or its last part.
    pub fn name(&self, path: &str) -> String {
        match self.which {
            PathNames::None => path.rsplit('/').next().unwrap_or(path).to_string(),
            _ => self.shown(path),
        }
    }

    fn below_home<'a>(&self, path: &'a str) -> Option<&'a str> {
        let home = self.home.as_deref()?.trim_end_matches('/');
        let rest = path.strip_prefix(home)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_folder_is_short() {
        let paths = |which| PathRule {
            which,
            home: Some("/home/user".to_string()),
        };
        for (which, path, wanted) in [
            (PathNames::Short, "/home/user/a.c", "~/a.c"),
            (PathNames::Short, "/home/user", "~"),
            (PathNames::Short, "/home/user2/a.c", "/home/user2/a.c"),
            (PathNames::Full, "/home/user/a.c", "/home/user/a.c"),
            (PathNames::None, "/home/user/a.c", ""),
        ] {
            assert_eq!(paths(which).shown(path), wanted, "{path}");
        }
        assert_eq!(paths(PathNames::None).name("/home/user/p.pb.gz"), "p.pb.gz");
    }
}
