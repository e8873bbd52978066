//! The Perl module Devel::HeapProf, whose source is in this binary. It is built for a perl and
//! stored beside the library, where `record` finds it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use heapprof_symbolize::program::object_file;

use crate::preload::{CarriedFile, existing, unpack_beside_library};

/// A source file of the module: its name and its content.
type SourceFile = (&'static str, &'static [u8]);

macro_rules! sources {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../perl/Devel-HeapProf/", $name))),)*]
    };
}

static MODULE_SOURCES: &[SourceFile] = sources! {
    "Makefile.PL"
    "MANIFEST"
    "HeapProf.xs"
    "layout.h"
    "loads.h"
    "values.h"
    "watch.h"
    "lib/Devel/HeapProf.pm"
    "lib/Devel/HeapProf/Loader.pm"
    "t/layout.t"
    "t/leaks.t"
    "t/unloaded.t"
};

/// The folder of the loader, relative to the folder of the library.
const LOADER_PATH: &str = "perl/loader";
/// The file of the loader, relative to its folder.
const LOADER_FILE: &str = "Devel/HeapProf/Loader.pm";

/// A module that was built for a perl.
pub struct InstalledModule {
    /// The perl's version, and the machine that it was built for.
    pub perl: String,
    /// The folder that must be in `@INC`.
    pub folder: PathBuf,
}

/// Whether a perl has the module.
pub enum ModuleState {
    /// The perl has a module that `record` loads.
    Built,
    /// The perl has no module.
    Missing {
        /// Whether the tools that compile a module are installed.
        can_be_built: bool,
    },
}

/// The configuration of a perl, as the perl reports it.
struct PerlInstallation {
    program: PathBuf,
    version: String,
    name: String,
    make: String,
    compiler: String,
    has_headers: bool,
    /// The path of the interpreter's executable.
    file: PathBuf,
    /// A text that distinguishes the perl from other perls, as the loader computes it.
    identity: String,
}

/// Returns whether a perl has its module, and if it does not, whether a module can be built.
pub fn module_state(program: &Path) -> Result<ModuleState> {
    let perl = ask(program)?;
    if existing(LOADER_PATH, LOADER_FILE).is_some()
        && existing(&perl.folder(), "identity").is_some()
    {
        return Ok(ModuleState::Built);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| {
        // Perl's configuration may name a compiler with options.
        let name = name.split(' ').next().unwrap_or_default();
        let mut folders = std::env::split_paths(&path);
        !name.is_empty() && folders.any(|folder| folder.join(name).is_file())
    };
    let can_be_built = perl.has_headers && is_there(&perl.make) && is_there(&perl.compiler);
    Ok(ModuleState::Missing { can_be_built })
}

/// Builds the module for a perl, and stores it where `record` searches for it.
pub fn install(program: &Path) -> Result<InstalledModule> {
    let perl = ask(program)?;
    let shown = program.display();
    if !perl.has_headers {
        bail!(
            "{shown}: this perl has no header files, which are needed to compile a module; Debian \
             and Ubuntu have them in the package libperl-dev"
        );
    }
    let build = tempfile::Builder::new()
        .prefix("heapprof-perl.")
        .tempdir()
        .context("cannot create a temporary folder")?;
    for (name, content) in MODULE_SOURCES {
        let path = build.path().join(name);
        let folder = path.parent().unwrap_or(build.path());
        std::fs::create_dir_all(folder)?;
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        file.write_all(content)?;
    }
    let steps = [
        (perl.program.as_path(), &["Makefile.PL"][..]),
        (Path::new(&perl.make), &[]),
    ];
    for (program, arguments) in steps {
        run(Command::new(program).args(arguments), build.path())
            .with_context(|| format!("{shown}: Devel::HeapProf can't be built for this perl"))?;
    }
    let of_perl = perl.folder();
    let root = format!("{of_perl}/lib");
    let built = |name: &str| std::fs::read(build.path().join("blib").join(name));
    let library = "auto/Devel/HeapProf/HeapProf.so";
    let module = "Devel/HeapProf.pm";
    let (of_library, of_module) = (format!("arch/{library}"), format!("lib/{module}"));
    let mut folder = PathBuf::new();
    // The library's length shows whether the library is complete.
    let mut identity = perl.identity;
    for (name, from) in [(library, of_library), (module, of_module)] {
        let content = built(&from).with_context(|| format!("{shown}: {from} was not built"))?;
        if name == library {
            identity = format!("{identity}\n{}", content.len());
        }
        folder = unpack_beside_library(&CarriedFile {
            folder: &root,
            name,
            content: &content,
        })?;
    }
    unpack_beside_library(&CarriedFile {
        folder: &of_perl,
        name: "identity",
        content: identity.as_bytes(),
    })?;
    let loader = MODULE_SOURCES
        .iter()
        .find(|(name, _)| name.ends_with(LOADER_FILE));
    unpack_beside_library(&CarriedFile {
        folder: LOADER_PATH,
        name: LOADER_FILE,
        content: loader.map_or(&[][..], |(_, content)| content),
    })?;
    let mut check = Command::new(&perl.program);
    check.arg(format!("-I{}", folder.display()));
    check.args(["-MDevel::HeapProf", "-e", "1"]);
    run(&mut check, build.path())
        .with_context(|| format!("{shown}: the built module can't be loaded"))?;
    Ok(InstalledModule {
        perl: format!("perl {} ({})", perl.version, perl.name),
        folder,
    })
}

/// Returns the option for `PERL5OPT` that makes each perl load its module, if any module was
/// installed. The option does nothing in a perl that can't read the loader, such as one that runs
/// as another user.
pub fn options() -> Option<String> {
    let file = existing(LOADER_PATH, LOADER_FILE)?.join(LOADER_FILE);
    let file = file.to_str()?;
    let is_plain = |c: char| !c.is_whitespace() && !"{}\\".contains(c);
    let load = format!("require(q{{{file}}});Devel::HeapProf::Loader->import");
    file.chars()
        .all(is_plain)
        .then(|| format!("-M5;BEGIN{{local($@,$!);eval{{{load}}}}}"))
}

impl PerlInstallation {
    /// Returns the folder of the module for this perl.
    fn folder(&self) -> String {
        let id = object_file(&self.file).and_then(|file| file.build_id);
        let id = id.unwrap_or_else(|| "unknown".to_string());
        format!("perl/{}-{}-{}", self.name, self.version, id)
    }
}

fn ask(program: &Path) -> Result<PerlInstallation> {
    const PERL_QUERY: &str = r#"use Config;
        my $shared = "$Config{archlibexp}/CORE/$Config{libperl}";
        print join "\0", $Config{version}, $Config{archname}, $Config{make}, $Config{cc},
            (-e "$Config{archlibexp}/CORE/perl.h" ? 1 : 0),
            ($shared =~ /\.so/ && -e $shared ? $shared : $^X),
            join "\n", map { defined $_ ? $_ : '' } $], Internals::V()"#;
    let shown = program.display();
    // The build runs in another folder.
    let program = match program.components().count() {
        1 => program.to_path_buf(),
        _ => std::path::absolute(program)?,
    };
    let asked = clean(Command::new(&program).args(["-e", PERL_QUERY]))
        .stdin(Stdio::null())
        .output();
    let asked = asked.with_context(|| format!("{shown}: cannot be run"))?;
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    let [version, name, make, compiler, has_headers, file, identity] =
        text.split('\0').collect::<Vec<_>>()[..]
    else {
        bail!("{shown}: is not a perl");
    };
    let is_plain = |text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('.')
    };
    if !is_plain(version) || !is_plain(name) {
        bail!("{shown}: is not a perl whose version is understood");
    }
    Ok(PerlInstallation {
        program,
        version: version.to_string(),
        name: name.to_string(),
        make: make.to_string(),
        compiler: compiler.to_string(),
        has_headers: has_headers == "1",
        file: PathBuf::from(file),
        identity: identity.to_string(),
    })
}

/// Removes from a command's environment the variables that other recordings and tests have set.
fn clean(command: &mut Command) -> &mut Command {
    for variable in ["LD_PRELOAD", "PERL5OPT", "PERL_MM_OPT", "MAKEFLAGS"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a step of the build. Its error contains the last lines of the step's output.
fn run(command: &mut Command, folder: &Path) -> Result<()> {
    let name = command.get_program().display().to_string();
    let done = clean(command)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    let done = done.with_context(|| format!("{name}: cannot be run"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = lines[lines.len().saturating_sub(4)..].join("; ");
    bail!("{name} failed: {last}")
}
