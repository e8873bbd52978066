//! `heapprof convert`: writes a profile in another format.

use anyhow::{Context, Result, anyhow, bail};
use heapprof_analysis::{
    Granularity, Query, QuestionSource, TypeSelection, folded::each_folded_stack,
};
use heapprof_formats::{
    GperftoolsForm, WriteError, write_firefox, write_gperftools, write_speedscope,
};
use heapprof_profile::encode;
use heapprof_report::FoldedWriter;
use heapprof_text::{ControlReplacement, escaping};

use crate::args::{ConvertArgs, ConvertFormat};
use crate::context::CommandContext;
use crate::{messages, output};

pub(super) fn run(context: &CommandContext, args: &ConvertArgs) -> Result<()> {
    let file = args.output.file();
    let lines = splits_lines(args)?;
    if args.format() == ConvertFormat::Pprof && output::is_terminal(file) {
        bail!("a profile is binary and can't be shown on a terminal; write it to a file with -o");
    }
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let source = context.sources.read(&names)?;
    match args.format() {
        ConvertFormat::Pprof => output::profile(args.file_mode.mode()?, file, |writer| {
            Ok(encode(&source.profile, writer)?)
        }),
        ConvertFormat::Json => output::write(file, |writer| {
            Ok(heapprof_report::profile_json(&source.profile, writer)?)
        }),
        ConvertFormat::Csv => output::write(file, |writer| {
            Ok(heapprof_report::profile_csv(&source.profile, writer)?)
        }),
        ConvertFormat::Speedscope => output::write(file, |writer| {
            escaping(writer, ControlReplacement::Json, |writer| {
                let result = write_speedscope(&source.profile, &source.name, lines, writer);
                with_profile_name(&source, result)
            })
        }),
        ConvertFormat::Firefox => output::write(file, |writer| {
            escaping(writer, ControlReplacement::Json, |writer| {
                let result = write_firefox(&source.profile, &source.name, writer);
                with_profile_name(&source, result)
            })
        }),
        ConvertFormat::Gperftools => gperftools(args, &source, GperftoolsForm::Plain),
        ConvertFormat::Symbolized => gperftools(args, &source, GperftoolsForm::Symbolized),
        ConvertFormat::Callgrind => output::write(file, |writer| {
            heapprof_dropin::callgrind(&source.profile, writer).with_context(|| source.name.clone())
        }),
        ConvertFormat::Folded => {
            let query = Query {
                sample_type: args.sample_type.clone(),
                granularity: args.granularity.unwrap_or_default(),
                ..Query::default()
            };
            let session = context.ask(source, &query, TypeSelection::Requested)?;
            output::write(file, |writer| {
                let mut lines = FoldedWriter::new(writer);
                each_folded_stack(&session, &query, |places, stack, value| {
                    lines.write(places, stack, value)
                })??;
                Ok(())
            })
        }
    }
}

fn gperftools(args: &ConvertArgs, source: &QuestionSource, form: GperftoolsForm) -> Result<()> {
    let mut note = None;
    output::write(args.output.file(), |writer| {
        escaping(writer, ControlReplacement::Replacement, |writer| {
            note = with_profile_name(source, write_gperftools(&source.profile, form, writer))?;
            Ok(())
        })
    })?;
    if let Some(note) = note {
        messages::note(&format!("{}: {note}", source.name));
    }
    Ok(())
}

/// Adds the profile's name to the error of a profile whose content does not fit the format. Errors
/// of writing stay as they are.
fn with_profile_name<T>(source: &QuestionSource, result: Result<T, WriteError>) -> Result<T> {
    result.map_err(|error| match error {
        WriteError::Io(error) => error.into(),
        unfit => anyhow!(unfit).context(source.name.clone()),
    })
}

/// Whether each line of a function becomes a separate frame in the speedscope format. For folded
/// stacks this is false, because `run` itself reads their `--granularity`. Fails if an option does
/// not fit the format, so that no option is silently ignored.
fn splits_lines(args: &ConvertArgs) -> Result<bool> {
    if args.format() == ConvertFormat::Folded {
        return Ok(false);
    }
    if args.sample_type.is_some() {
        bail!("--sample-type is for --to folded; the other formats hold all types");
    }
    match (args.format(), args.granularity) {
        (_, None) => Ok(false),
        (ConvertFormat::Speedscope, Some(Granularity::Functions | Granularity::FileFunctions)) => {
            Ok(false)
        }
        (ConvertFormat::Speedscope, Some(Granularity::Lines)) => Ok(true),
        (ConvertFormat::Speedscope, Some(_)) => {
            bail!("--granularity for --to speedscope is functions or lines")
        }
        _ => bail!(
            "--granularity is for --to folded and speedscope; the other formats hold everything"
        ),
    }
}
