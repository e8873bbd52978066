//! `heapprof heap values`: reports what holds the memory in a Perl program.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_inspect::{PerlFileError, PerlHeapOrigin, PerlHeapReading, PerlProgramError};
use heapprof_perl_values::PerlValueAnalysis;
use heapprof_report::{PerlHeap, ReportFormat, ReportStyle, UnitFormatter};

use super::target;
use crate::args::PerlHeapArgs;
use crate::context::{CommandContext, row_limit, screen_width};
use crate::{messages, name, output};

/// Number of variables that are shown if the user gives no limit.
const DEFAULT_ROWS: usize = 20;

pub(super) fn run(context: &CommandContext, args: &PerlHeapArgs) -> Result<()> {
    // Errors that can be found early are reported before a process is stopped.
    UnitFormatter::new("bytes", args.unit.as_deref())?;
    let is_of_one = args.size.is_some() || args.identify.is_some() || args.who.is_some();
    if args.contents.is_some() && !is_of_one {
        bail!(
            "--contents: name the value whose contents to show, with --size, --identify or --who"
        );
    }
    if args.contents.is_some() && matches!(args.format, ReportFormat::Csv | ReportFormat::Markdown)
    {
        bail!(
            "--contents: is for text and json; leave --format {} out",
            word(args.format)
        );
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        bail!("-o -: stdout has the report; give a file");
    }
    let origin = open(context, args)?;
    let name = name::shown(&args.target).into_owned();
    // A question without an answer fails here, before a file is written.
    let text = report(context, args, name, &origin)?;
    if let Some(path) = &args.output {
        if origin.is_file(path) {
            bail!(
                "{}: is the file being read; give another one",
                path.display()
            );
        }
        let profile = origin.profile();
        output::profile(args.file_mode.mode()?, Some(path), |out| {
            Ok(heapprof_profile::encode(&profile, out)?)
        })?;
        let shown = path.display();
        messages::note(&format!("{shown}: written; next: heapprof top {shown}"));
    }
    output::text(None, &text)?;
    let is_of_all = !is_of_one && !args.cycles && !args.leaked && !args.pads;
    if is_of_all && args.output.is_none() && args.exe.is_none() && args.format == ReportFormat::Text
    {
        let target = name::quoted(name::path(&args.target).as_os_str());
        messages::note(&format!(
            "next: heapprof heap values {target} -o values.pb.gz, then heapprof tree values.pb.gz: \
             what is in each variable"
        ));
    }
    Ok(())
}

/// Reads Perl's values from the target that the user names.
fn open(context: &CommandContext, args: &PerlHeapArgs) -> Result<PerlHeapOrigin> {
    let path = name::path(&args.target);
    let shown = name::shown(&args.target);
    let reading = PerlHeapReading {
        keys: args.keys,
        is_anonymous: args.anonymize,
        wanted: args.identify.or(args.who),
    };
    let is_named = args.target.starts_with("core:") || args.target.starts_with("pid:");
    if path.is_file() && !is_named {
        if args.exe.is_some() {
            bail!("--exe: is for core files");
        }
        let read = PerlHeapOrigin::from_file(&path, context.sources.options(), reading);
        return read.map_err(|error| match error {
            PerlFileError::Format(error) => anyhow!(
                "{shown}: {error}; heap values reads Devel::MAT files; use core:{shown} if it is a \
                 core file"
            ),
            error => anyhow::Error::from(error).context(shown.clone().into_owned()),
        });
    }
    let (target, image, notes) = target::open(&args.target, args.exe.as_deref())?;
    let read = PerlHeapOrigin::from_program((target, image), notes, reading);
    read.map_err(|error| match error {
        PerlProgramError::NoProgram => {
            anyhow!("{shown}: {error}; give the program's file with --exe FILE")
        }
        error => anyhow!("{shown}: {error}"),
    })
}

/// Returns the text of a value, if the user wants it.
fn contents(origin: &PerlHeapOrigin, number: u32, limit: Option<u32>) -> Result<Option<String>> {
    let text = limit.map(|limit| {
        let text = origin.contents(number, limit);
        text.context("--contents: needs the program's memory, a process or a core file")
    });
    text.transpose()
}

/// Returns the command-line word for a report format.
fn word(format: ReportFormat) -> &'static str {
    match format {
        ReportFormat::Text => "text",
        ReportFormat::Json => "json",
        ReportFormat::Csv => "csv",
        ReportFormat::Markdown => "markdown",
    }
}

fn report(
    context: &CommandContext,
    args: &PerlHeapArgs,
    name: String,
    origin: &PerlHeapOrigin,
) -> Result<String> {
    let style = ReportStyle {
        format: args.format,
        color: context.is_coloured(None),
        width: screen_width(None),
        unit: args.unit.clone(),
        ..ReportStyle::default()
    };
    let limit = row_limit(&args.limit, None);
    let found = &origin.found;
    let about = match (&args.size, args.identify, args.who) {
        (Some(variable), ..) => {
            let number = origin.variable(variable, args.anonymize);
            let number = number.with_context(|| variable.clone())?;
            let contents = contents(origin, number, args.contents)?;
            let size = found.size(number);
            let contents = contents.as_deref();
            Some(heapprof_report::perl_size(
                variable, &size, contents, &style,
            )?)
        }
        (_, Some(at), _) => {
            let (number, contents) = at_address(origin, args, at)?;
            let identified = found.identify(number, limit.unwrap_or(usize::MAX));
            let contents = contents.as_deref();
            Some(heapprof_report::perl_identify(
                &identified,
                contents,
                &style,
            )?)
        }
        (.., Some(at)) => {
            let (number, contents) = at_address(origin, args, at)?;
            let identified = found.identify(number, 0);
            let contents = contents.as_deref();
            Some(heapprof_report::perl_who(
                &identified,
                contents,
                limit,
                &style,
            )?)
        }
        _ if args.cycles => {
            let cycles = found.cycles();
            Some(heapprof_report::perl_cycles(&name, &cycles, limit, &style)?)
        }
        _ if args.leaked => {
            let leaks = found.leaks();
            Some(heapprof_report::perl_leaked(&name, &leaks, limit, &style)?)
        }
        _ if args.pads => {
            let pads = found.pads();
            Some(heapprof_report::perl_pads(&name, &pads, limit, &style)?)
        }
        _ => None,
    };
    if let Some(about) = about {
        // These reports have no room for the parts that could not be read.
        origin.lacks.iter().for_each(|lack| messages::note(lack));
        return Ok(about);
    }
    let notes = origin.notes.iter().chain(&origin.lacks);
    let heap = PerlHeap {
        name,
        perl: origin.perl.clone(),
        notes: notes.cloned().collect(),
        interpreters: origin.interpreters.clone(),
        malloc: origin.malloc,
        summary: found.summary(),
    };
    if args.format == ReportFormat::Csv {
        // A CSV table has no room for notes.
        heap.notes.iter().for_each(|note| messages::note(note));
    }
    // A program has many variables, and most hold nothing.
    let limit = match (args.limit.limit, args.format) {
        (None, ReportFormat::Text | ReportFormat::Markdown) => Some(limit.unwrap_or(DEFAULT_ROWS)),
        _ => limit,
    };
    Ok(heapprof_report::perl_heap(&heap, limit, &style)?)
}

/// Returns the number of the value at an address, or of the value that owns the memory there. Also
/// returns the value's text, if the user wants it.
fn at_address(
    origin: &PerlHeapOrigin,
    args: &PerlHeapArgs,
    at: u64,
) -> Result<(u32, Option<String>)> {
    let found: &PerlValueAnalysis = &origin.found;
    let number = found.values().number(at);
    // The values that stand for free memory and for the interpreter's memory have an odd address.
    let owner = |at: u64| found.values().number(at).or(found.values().number(at | 1));
    let number = number.or_else(|| owner(origin.owner?));
    let number = number.with_context(|| format!("{at:#x}: there is no value at this address"))?;
    Ok((number, contents(origin, number, args.contents)?))
}
