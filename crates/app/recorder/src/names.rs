//! The names of a recording's profiles: the patterns of the names, and the name for a profile whose
//! process could not write it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Suffix of the name of the folder for the children's profiles.
pub const CHILDREN_SUFFIX: &str = ".children";

/// The patterns of the names that the profiles of a recording get.
#[derive(Clone)]
pub struct ProfileNamePatterns {
    /// The pattern of the program's profiles.
    pub(crate) pattern: OsString,
    /// The pattern of the children's profiles; `None` if they have the program's pattern.
    pub(crate) children: Option<OsString>,
}

/// The ending of a profile's file name.
const PROFILE_SUFFIX: &[u8] = b".pb.gz";

impl ProfileNamePatterns {
    /// Makes the patterns for a recording of `program`. `output` is a file pattern, or a folder,
    /// which is made if it is missing. Without `output`, profiles go to the current folder.
    ///
    /// # Errors
    /// The folder can't be made, or the current folder can't be read.
    pub fn new(output: Option<&Path>, program: &OsStr) -> Result<Self> {
        let pattern = pattern(output)?;
        let own = Path::new(program).file_name().unwrap_or(program);
        let children = stem_of_children(pattern.as_bytes(), own).map(|mut stem| {
            stem.extend_from_slice(CHILDREN_SUFFIX.as_bytes());
            stem.extend_from_slice(b"/%e.%p.pb.gz");
            OsString::from_vec(stem)
        });
        Ok(Self { pattern, children })
    }

    /// Makes the names of a recording from complete patterns.
    pub fn from_patterns(pattern: OsString, children: Option<OsString>) -> Self {
        Self { pattern, children }
    }

    /// Returns the folder that the children of a program with this process id write to.
    pub fn folder_of_children(&self, process: u32) -> Option<PathBuf> {
        let path = Path::new(self.children.as_ref()?).parent()?;
        let text = path.as_os_str().as_bytes();
        let made = expand_pattern(text, |letter| match letter {
            b'r' => process.to_string().into_bytes(),
            other => vec![other],
        });
        Some(OsString::from_vec(made).into())
    }

    /// Returns the path of a process's last profile, and whether it replaces a file that exists.
    /// `main` is the process that `record` started. `own` and `program` are the process id and the
    /// program name that the process reports. These never change the folder of the path.
    pub fn last_profile_path(
        &self,
        main: u32,
        is_main: bool,
        own: u32,
        program: &str,
    ) -> (PathBuf, bool) {
        let program = match Path::new(program).file_name() {
            Some(name) if name == program => program,
            _ => "unknown",
        };
        let (pattern, is_ours) = match &self.children {
            Some(children) if !is_main => (children, true),
            _ => (&self.pattern, false),
        };
        let mut is_named = false;
        let mut made = expand_pattern(pattern.as_bytes(), |letter| {
            is_named |= matches!(letter, b'p' | b'e' | b'n');
            match letter {
                b'p' => own.to_string().into_bytes(),
                b'e' => program.as_bytes().to_vec(),
                b'n' => b"0001".to_vec(),
                b'r' if is_ours => main.to_string().into_bytes(),
                b'%' => vec![b'%'],
                other => vec![b'%', other],
            }
        });
        if !is_named && !is_main {
            let end = made
                .strip_suffix(PROFILE_SUFFIX)
                .map_or(made.len(), <[u8]>::len);
            made.splice(end..end, format!(".{own}").into_bytes());
        }
        (OsString::from_vec(made).into(), is_main && !is_named)
    }

    /// Returns the path of the last profile of a process whose profile must not be in the
    /// children's folder. The path is beside the program's profile.
    pub fn path_beside_program(&self, main: u32, own: u32, program: &str) -> PathBuf {
        let all = Self {
            pattern: self.pattern.clone(),
            children: None,
        };
        all.last_profile_path(main, false, own, program).0
    }
}

/// Expands a pattern. `of` returns the text for the letter after a percent sign.
fn expand_pattern(pattern: &[u8], mut of: impl FnMut(u8) -> Vec<u8>) -> Vec<u8> {
    let mut made = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        match bytes.as_slice().first() {
            Some(&letter) if byte == b'%' => {
                made.extend(of(letter));
                bytes.next();
            }
            _ => made.push(byte),
        }
    }
    made
}

/// Returns the stem of the name of the children's folder, made from the pattern of the program's
/// profiles. Returns `None` if the user chose a pattern with `%p`, `%e` or `%n`, because that
/// pattern names the children's profiles, too.
fn stem_of_children(pattern: &[u8], program: &OsStr) -> Option<Vec<u8>> {
    let stem = pattern.strip_suffix(PROFILE_SUFFIX).unwrap_or(pattern);
    if let Some(folder) = pattern.strip_suffix(DEFAULT_PATTERN.as_bytes()) {
        let program = escape_pattern(Path::new(program))
            .into_os_string()
            .into_vec();
        return Some([folder, b"heapprof.", &program, b".%r"].concat());
    }
    let mut bytes = stem.iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' && matches!(bytes.next(), Some(b'p' | b'e' | b'n')) {
            return None;
        }
    }
    Some(stem.to_vec())
}

const DEFAULT_PATTERN: &str = "heapprof.%e.%p.pb.gz";

/// Returns the absolute file pattern for the option `--output`. A folder is made if it is missing.
fn pattern(output: Option<&Path>) -> Result<OsString> {
    let here = || std::env::current_dir().context("the current folder cannot be read");
    let Some(output) = output else {
        return Ok(escape_pattern(&here()?).join(DEFAULT_PATTERN).into());
    };
    let bytes = output.as_os_str().as_bytes();
    let is_file = bytes.ends_with(b".pb.gz") || bytes.contains(&b'%');
    if !is_file || bytes.ends_with(b"/") || output.is_dir() {
        if output.exists() && !output.is_dir() {
            bail!(
                "{}: already exists and is not a folder; give another folder, or a file that ends \
                 in .pb.gz",
                output.display()
            );
        }
        std::fs::create_dir_all(output)
            .with_context(|| format!("{}: cannot be created", output.display()))?;
        let folder =
            std::fs::canonicalize(output).with_context(|| format!("{}", output.display()))?;
        return Ok(escape_pattern(&folder).join(DEFAULT_PATTERN).into());
    }
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty());
    let pattern = match (folder, output.file_name()) {
        // A folder that exists is taken as it is, whatever its name looks like.
        (Some(folder), Some(name)) if folder.is_dir() => escape_pattern(folder).join(name),
        (Some(folder), _) if !folder.as_os_str().as_bytes().contains(&b'%') => bail!(
            "{}: there is no such folder; create it first",
            folder.display()
        ),
        _ => output.to_path_buf(),
    };
    Ok(match pattern.is_absolute() {
        true => pattern.into(),
        false => escape_pattern(&here()?).join(pattern).into(),
    })
}

/// Returns a pattern that expands to `path`.
fn escape_pattern(path: &Path) -> PathBuf {
    let doubled = path.as_os_str().as_bytes().iter().flat_map(|&b| {
        let times = if b == b'%' { 2 } else { 1 };
        std::iter::repeat_n(b, times)
    });
    OsString::from_vec(doubled.collect()).into()
}
