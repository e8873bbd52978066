//! Reads an input, writes it again, and makes every report of it. The mutation test and the fuzz
//! target use this code.

use std::io::Write;

use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TreeOptions, TypeSelection,
    folded::each_folded_stack, leaks::leaks, suppression::SuppressionSet, tags::tags, top::top,
    traces::traces, tree::tree,
};
use heapprof_dropin::graph;
use heapprof_dropin::jeprof::report as jeprof;
use heapprof_dropin::report as pprof;
use heapprof_dropin::reshape::{self, FrameDetail, LabelFilter, NameFilters, NumberTest, go_regex};
use heapprof_formats::{
    FormatReadOptions, GperftoolsForm, ProfileFormat, WriteError, read, write_firefox,
    write_gperftools, write_speedscope,
};
use heapprof_profile::{EncodeOptions, Gzip, Profile, ReadOptions, decode_with, encode_with};

/// Largest inflated size of an input in bytes.
pub const LIMIT: usize = 1 << 20;

/// Returns the bytes of a profile without gzip.
pub fn plain(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = EncodeOptions::default().gzip(Gzip::None);
    encode_with(profile, &mut bytes, options).expect("a Vec takes everything");
    bytes
}

/// Reads `bytes` in any format, and encodes the result. If `asked` is true, also makes every report
/// and writes every format. Returns whether the bytes could be read.
pub fn exercise(bytes: &[u8], asked: bool) -> bool {
    let options = FormatReadOptions::default().max_inflated(LIMIT as u64);
    let kept = read(bytes, &options.clone().stacks_as_written(true));
    let profile = match read(bytes, &options) {
        Ok(reading) => reading.commented(),
        Err(error) => {
            let message = error.to_string();
            let of_kept = kept.expect_err("stacks are checked before they are read");
            assert_eq!(of_kept.to_string(), message);
            assert!(
                message.lines().count() == 1 && message.len() < 1000,
                "{message}"
            );
            return false;
        }
    };
    let written = plain(&profile);
    let again = decode_with(&written[..], ReadOptions::default()).expect("what we write we read");
    assert!(again == profile, "encoding keeps everything");
    let kept = kept.expect("stacks are the same, read or not").commented();
    assert!(
        plain(&kept) == written,
        "stacks are written as if they had been read"
    );
    assert!(kept == profile, "stacks are read when somebody asks");
    if !asked {
        return true;
    }
    write_all(&profile);
    print_all(profile.clone());
    let source = QuestionSource::new("input", profile);
    let in_use = source.clone();
    let Ok(question) =
        ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::Requested)
    else {
        return true;
    };
    let question = question.with_tree(TreeOptions {
        most: None,
        reverse: false,
        least: 0.001,
    });
    let session = AnalysisSession::new(question).expect("SQLite opens");
    let report = top(&session, 1, &Query::default(), false).expect("top answers");
    let flat: i64 = report.rows.iter().map(|r| r.flat).sum();
    assert_eq!(flat, report.header.net);
    let report = tree(&session, &Query::default()).expect("tree answers");
    report.rows().expect("tree has rows");
    let mut lines = heapprof_report::FoldedWriter::new(std::io::sink());
    each_folded_stack(&session, &Query::default(), |places, stack, value| {
        lines.write(places, stack, value)
    })
    .expect("folded answers")
    .expect("a sink takes everything");
    traces(&session, &Query::default()).expect("traces answers");
    tags(&session, &Query::default()).expect("tags answers");
    let Ok(question) = ProfileQuestion::new(vec![in_use], &Query::default(), TypeSelection::InUse)
    else {
        return true;
    };
    let mut rules = SuppressionSet::default();
    rules.read("rules", "leak:a*e").expect("a rule");
    let session = AnalysisSession::new(question.with_suppressions(&rules)).expect("SQLite opens");
    leaks(&session, &Query::default(), &rules).expect("leaks answers");
    true
}

/// Writes every format of `convert`. Formats that have a reader are read again.
fn write_all(profile: &Profile) {
    let reads = |bytes: &[u8], format: ProfileFormat| {
        let again = read(bytes, &FormatReadOptions::default()).unwrap_or_else(|error| {
            panic!("{format:?}: {error}:\n{}", String::from_utf8_lossy(bytes))
        });
        assert_eq!(again.format, format);
    };
    let mut out = Vec::new();
    for lines in [false, true] {
        out.clear();
        if fits(write_speedscope(profile, "input", lines, &mut out)) {
            reads(&out, ProfileFormat::Speedscope);
        }
    }
    for (form, format) in [
        (GperftoolsForm::Plain, ProfileFormat::Gperftools),
        (GperftoolsForm::Symbolized, ProfileFormat::Symbolized),
    ] {
        out.clear();
        if fits(write_gperftools(profile, form, &mut out)) {
            reads(&out, format);
        }
    }
    fits(write_firefox(profile, "input", std::io::sink()));
    heapprof_report::profile_json(profile, std::io::sink()).expect("JSON holds everything");
    heapprof_report::profile_csv(profile, std::io::sink()).expect("CSV holds everything");
    // The format can't represent sums beyond 64 bits or negative values.
    let _ = heapprof_dropin::callgrind(profile, std::io::sink());
}

/// Whether a format can represent a profile, by the `result` of writing it. Panics at any other
/// error.
fn fits<T>(result: Result<T, WriteError>) -> bool {
    match result {
        Ok(_) => true,
        Err(WriteError::Unfit(reason)) => {
            assert!(
                reason.lines().count() == 1 && reason.len() < 1000,
                "{reason}"
            );
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Prints the reports of `heapprof pprof` and `heapprof jeprof`, with every filter, at every
/// granularity and in every format.
fn print_all(mut profile: Profile) {
    // An invalid regular expression drops nothing.
    let _ = reshape::drop_uninteresting(&mut profile);
    let Some(last) = profile.sample_type.len().checked_sub(1) else {
        return;
    };
    let units = reshape::label_units(&profile);
    let r#type = profile.sample_type[last];
    let options = pprof::PprofReportOptions {
        column: last,
        sample_type: profile.text(r#type.r#type).to_string(),
        sample_unit: profile.text(r#type.unit).to_string(),
        num_label_units: units.units.clone(),
        ..pprof::PprofReportOptions::default()
    };
    let out = &mut std::io::sink();
    pprof::raw(&profile, &options.zone, out).expect("a sink takes everything");
    print(&profile, &options, out);
    // The sum may exceed 64 bits, so errors are allowed.
    let _ = jeprof::text(
        &profile,
        last,
        jeprof::JeprofMeasure::Bytes,
        true,
        None,
        "",
        out,
    );
    let _ = jeprof::collapsed(&profile, last, out);

    let mut filtered = profile.clone();
    filter(&mut filtered);
    let mean = pprof::PprofReportOptions {
        mean_divisor: Some(0),
        cum_sort: true,
        call_tree: true,
        drop_negative: true,
        ratio: 0.5,
        node_count: 3,
        ..options.clone()
    };
    print(&filtered, &mean, out);
    for (function, filename, line, address) in [
        (true, false, false, false),
        (false, true, false, false),
        (true, true, true, true),
    ] {
        let mut coarse = profile.clone();
        let detail = FrameDetail {
            inlines: address,
            function,
            filename,
            line,
            column: false,
            address,
        };
        reshape::aggregate(&mut coarse, detail);
        print(&coarse, &options, out);
    }
}

/// Applies all filters at once. Most names contain `a`.
fn filter(profile: &mut Profile) {
    let regex = |text: &str| go_regex(text).expect("a regular expression");
    let (common, rare) = (regex("a"), regex("zz"));
    let show = |number: i64, unit: &str| format!("{number}{unit}");
    reshape::add_label_frames(profile, &["bytes", "thread"], &["key"], &show);
    let names = NameFilters {
        focus: Some(&common),
        ignore: Some(&rare),
        hide: Some(&rare),
        show: Some(&common),
    };
    reshape::keep_by_name(profile, names);
    reshape::show_from(profile, &common);
    let no_range = |_: &str| -> Result<Option<NumberTest>, String> { Ok(None) };
    let rare_label = LabelFilter::as_pprof("zz", no_range).expect("a label filter");
    reshape::keep_by_label(profile, None, Some(&rare_label));
    reshape::keep_label_keys(profile, Some(&common), Some(&rare));
    reshape::prune_from(profile, &rare);
    reshape::drop_empty_labels(profile);
    reshape::set_label(profile, "pprof::base", "true");
}

/// Runs every printer that makes a graph.
fn print(profile: &Profile, options: &pprof::PprofReportOptions, out: &mut dyn Write) {
    let total = graph::total(profile, options.column, options.mean_divisor);
    let options = &pprof::PprofReportOptions {
        total,
        ..options.clone()
    };
    let io = "a sink takes everything";
    pprof::traces(profile, options, out).expect(io);
    pprof::tags(profile, options, out).expect(io);
    pprof::comments(profile, out).expect(io);
    pprof::proto(profile.clone(), options, out).expect(io);
    let printed = [
        pprof::top(profile, options, &mut *out),
        pprof::tree(profile, options, &mut *out),
        pprof::dot(profile, options, &mut *out),
        pprof::callgrind(profile, options, &mut *out),
        pprof::topproto(profile, options, &mut *out),
    ];
    for result in printed {
        result.expect("what has a total has a graph");
    }
}
