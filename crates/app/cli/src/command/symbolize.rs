//! `heapprof convert symbolize`: gives names to the addresses in a profile, from the binaries and
//! debug files of this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_files::{FileAccess, FilePlace, PathTrust, TypedPath, replace_file, resolve_typed};
use heapprof_formats::ProfileFormat;
use heapprof_profile::{Profile, encode};
use heapprof_sources::DebuginfodClient;
use heapprof_symbolize::{
    FileSummary, SymbolSource, SymbolizeOptions, SymbolizeWarning, symbolize,
};

use crate::args::SymbolizeArgs;
use crate::context::CommandContext;
use crate::{messages, name, output};

pub(super) fn run(context: &CommandContext, args: &SymbolizeArgs) -> Result<()> {
    let target = SymbolizeTarget::from_args(args)?;
    if !matches!(target, SymbolizeTarget::InPlace(..)) && output::is_terminal(target.path()) {
        bail!("a profile is binary and can't be shown on a terminal; write it to a file with -o");
    }
    for folder in args.debug_dir.iter().chain(&args.sysroot) {
        if !folder.is_dir() {
            let what = match folder.exists() {
                true => "is not a folder",
                false => "there is no such folder",
            };
            bail!("{}: {what}", folder.display());
        }
    }
    let (source, format) = context.sources.read_with_format(&args.file)?;
    if let (SymbolizeTarget::InPlace(..), Some(format)) =
        (&target, format.filter(|&f| f != ProfileFormat::Pprof))
    {
        bail!(
            "{}: has the format {} and would become a pprof profile; give a file for the result \
             with -o",
            args.file,
            format.name()
        );
    }
    let name = source.name.clone();
    let mut profile = heapprof_sources::to_owned_profile(source);
    let mut options = SymbolizeOptions {
        debug_dirs: args.debug_dir.clone(),
        adjust: args.adjust,
        unnamed_mappings: false,
        nearest: false,
        number_functions: true,
        force: args.force,
        root: args.sysroot.clone(),
        public_files_only: false,
        opened: Vec::new(),
    };
    if args.debuginfod {
        let client = DebuginfodClient::from_environment().context("--debuginfod")?;
        fetch_debug_files(&client, &profile, &options)?;
        options.debug_dirs.push(client.cache().to_path_buf());
    }
    let summary = symbolize(&mut profile, &options);
    for warning in summary.files.iter().flat_map(|file| &file.warnings) {
        let advice = match warning {
            SymbolizeWarning::Missing { .. } => "; give a folder with --debug-dir",
            SymbolizeWarning::NoSymbols {
                debug_file: None, ..
            } => ", or give a folder with --debug-dir",
            _ => "",
        };
        messages::note(&format!("{warning}{advice}"));
    }
    let again = match (summary.seen(), summary.kept) {
        (0, 1..) => "; --force looks them up again",
        _ => "",
    };
    messages::note(&format!("{name}: {}{again}", summary.describe()));
    // If no names were found, the file stays as it is, byte for byte.
    match &target {
        SymbolizeTarget::InPlace(..) if summary.resolved() + summary.numbered() == 0 => Ok(()),
        // The file keeps its mode.
        SymbolizeTarget::InPlace(place, mode) => {
            replace_file(place, &args.file, FileAccess::Exactly(*mode), |writer| {
                Ok(encode(&profile, writer)?)
            })
        }
        _ => output::profile(args.file_mode.mode()?, target.path(), |writer| {
            Ok(encode(&profile, writer)?)
        }),
    }
}

/// Fetches the debug files that would give a profile more names.
fn fetch_debug_files(
    client: &DebuginfodClient,
    profile: &Profile,
    options: &SymbolizeOptions,
) -> Result<()> {
    // What this machine has needs not be fetched.
    let summary = symbolize(&mut profile.clone(), options);
    let lacking = |file: &&FileSummary| file.seen > 0 && file.source != Some(SymbolSource::Dwarf);
    for file in summary.files.iter().filter(lacking) {
        let mapping = file.mappings.first().map(|at| &profile.mapping[at.index()]);
        let build_id = mapping.map_or("", |mapping| profile.text(mapping.build_id));
        if let Some(said) = client
            .fetch(build_id)
            .with_context(|| file.name.clone())?
            .describe()
        {
            messages::note(&format!("{}: {said}", file.name));
        }
    }
    Ok(())
}

/// The destination of the symbolized profile.
enum SymbolizeTarget {
    Stdout,
    File(PathBuf),
    /// The file that the profile is read from, and its mode.
    InPlace(FilePlace, u32),
}

impl SymbolizeTarget {
    fn from_args(args: &SymbolizeArgs) -> Result<Self> {
        let file = &args.file;
        match &args.output {
            Some(path) if path == Path::new("-") => return Ok(Self::Stdout),
            Some(path) => return Ok(Self::File(path.clone())),
            None => {}
        }
        let (whole, part) = heapprof_sources::split_part(file);
        match std::fs::metadata(name::path(whole)) {
            _ if whole == "-" => Ok(Self::Stdout),
            // A profile that comes through a pipe can't be replaced.
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Ok(Self::Stdout),
            Ok(_) if part.is_some() => {
                bail!("{file}: is a part of {whole}; give a file for the result with -o")
            }
            // The path is resolved before the file is read, because the path may lead to another
            // file afterwards.
            Ok(_) => match resolve_typed(&name::path(file), PathTrust::OwnLinks)? {
                TypedPath::Place(place, Some(found)) => {
                    Ok(Self::InPlace(place, found.st_mode & 0o777))
                }
                _ => bail!("{file}: was changed in the meantime"),
            },
            Err(_) => bail!(
                "{file}: there is no such file; to symbolize a URL or a stored profile, give a \
                 file for the result with -o"
            ),
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdout | Self::InPlace(..) => None,
            Self::File(path) => Some(path),
        }
    }
}
