//! `heapprof convert`: a profile in another form.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result, bail};
use heapprof_analysis::{Query, Types, folded};
use heapprof_profile::encode;

use super::Shared;
use crate::args::{ConvertArgs, ConvertTo};
use crate::output;

pub(super) fn run(shared: &Shared, args: &ConvertArgs) -> Result<()> {
    let file = args.output.output.as_deref();
    if args.to != ConvertTo::Folded && (args.sample_type.is_some() || args.granularity.is_some()) {
        bail!(
            "--sample-type and --granularity are for --to folded; the other forms hold everything"
        );
    }
    if args.to == ConvertTo::Pprof && file.is_none() && io::stdout().is_terminal() {
        bail!("a profile is not for eyes; write it to a file with -o");
    }
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let source = shared.sources.read(&names)?;
    match args.to {
        ConvertTo::Pprof => output::write(file, |writer| Ok(encode(&source.profile, writer)?)),
        ConvertTo::Json => output::write(file, |writer| {
            Ok(heapprof_report::profile_json(&source.profile, writer)?)
        }),
        ConvertTo::Csv => output::write(file, |writer| {
            Ok(heapprof_report::profile_csv(&source.profile, writer)?)
        }),
        ConvertTo::Callgrind => output::write(file, |writer| {
            heapprof_report::callgrind(&source.profile, writer).with_context(|| source.name.clone())
        }),
        ConvertTo::Folded => {
            let query = Query {
                sample_type: args.sample_type.clone(),
                granularity: args.granularity.unwrap_or_default(),
                ..Query::default()
            };
            let session = shared.ask(source, &query, Types::One)?;
            output::write(file, |writer| {
                folded(&session, &query, |stack, value| {
                    heapprof_report::folded(stack, value, &mut *writer)
                })??;
                Ok(())
            })
        }
    }
}
