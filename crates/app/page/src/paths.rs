//! The form in which a page shows paths. A page may be sent to others, who should not see all
//! paths.

use std::path::PathBuf;

/// Which paths of source files and profiles a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathNames {
    /// Paths as they are in the profile.
    Full,
    /// Paths with `~` for the home folder.
    Short,
    /// The page shows no paths.
    None,
}

/// The rule for showing paths on a page.
pub struct PathRule {
    which: PathNames,
    home: Option<String>,
}

impl PathRule {
    /// Makes the rule for showing paths in this form.
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

    /// Returns the name of a profile as the page shows it; only its last part if the page shows no
    /// paths.
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
