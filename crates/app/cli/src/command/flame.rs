//! `heapprof flame`: draws a flame graph.

use anyhow::{Context, Result, bail};
use heapprof_analysis::{TreeOptions, TypeSelection, agree, tree::tree};
use heapprof_report::{
    FlameOptions, FlameRootPosition, ReportFormat, ReportStyle, flame_folded, flame_svg,
};

use crate::advice::ADVICE_WORDS;
use crate::args::{FlameArgs, FlameFormat, FlameRoot};
use crate::context::{CommandContext, statements};
use crate::output;

pub(super) fn run(context: &CommandContext, args: &FlameArgs) -> Result<()> {
    let file = args.output.file();
    let svg = args.format == FlameFormat::Svg;
    if svg && output::is_terminal(file) && !args.show_sql {
        bail!(
            "the flame graph is a picture (SVG); write it to a file: heapprof flame > out.svg, or \
             -o out.svg"
        );
    }
    let query = args.question.query();
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let mut sources = Vec::new();
    if !args.base.is_empty() {
        sources.push(context.sources.read(&args.base)?);
    }
    sources.push(context.sources.read(&names)?);
    if let [base, after] = &mut sources[..] {
        agree(base, after)?;
    }
    let options = TreeOptions {
        reverse: args.reverse,
        least: args.min_percent / 100.0,
        most: None,
    };
    let session = context.session(sources, &query, TypeSelection::Requested, |q| {
        q.with_tree(options)
    })?;
    let report = tree(&session, &query)?;
    if let Some(after) = report.others.first()
        && after.sample_type != report.header.sample_type
    {
        bail!(
            "{} has {}/{}, {} has {}/{}; choose one that both have with --sample-type",
            report.header.profile,
            report.header.sample_type.r#type,
            report.header.sample_type.unit,
            after.profile,
            after.sample_type.r#type,
            after.sample_type.unit
        );
    }
    if args.show_sql {
        return output::text(file, &statements(&session));
    }
    let style = ReportStyle {
        format: ReportFormat::Text,
        color: false,
        unit: args.unit.clone(),
        advice: ADVICE_WORDS,
        ..ReportStyle::default()
    };
    if !svg {
        return output::write(file, |writer| Ok(flame_folded(&report, &style, writer)?));
    }
    let picture = FlameOptions {
        title: args.title.clone(),
        root: match args.root {
            FlameRoot::Auto => FlameRootPosition::Auto,
            FlameRoot::Top => FlameRootPosition::Top,
            FlameRoot::Below => FlameRootPosition::Below,
        },
    };
    // The picture is drawn before anything is written, so that a graph that can't be drawn leaves
    // no empty file.
    let mut drawn = Vec::new();
    flame_svg(&report, &picture, &style, &mut drawn).with_context(|| names.join(" + "))?;
    output::write(file, |writer| Ok(writer.write_all(&drawn)?))
}
