//! `heapprof jeprof`: jeprof's options, numbers and text.
//!
//! `--text` and `--collapsed` are implemented here. The reading of sources, the other outputs and
//! the sums are shared with `heapprof pprof`. Source: jemalloc's bin/jeprof.

mod names;
mod option_table;
mod options;
mod parts;
mod reading;
pub mod report;
mod stacks;

use std::io::Write;

use anyhow::{Result, anyhow, bail};
use heapprof_profile::Profile;
use heapprof_text::{ControlReplacement, escaping};

use crate::host::{DropinHost, ToolReadOptions};
use crate::kind::FlagKind;
use crate::pprof;
use option_table::OptionHandling;
use options::JeprofArguments;
use parts::ThreadProfiles;
use reading::{name_unnamed_by_number, read_as_jeprof};
use report::JeprofMeasure;
use stacks::JeprofStacks;

pub use option_table::help;

/// Runs a jeprof command line.
///
/// # Errors
/// jeprof would not accept the command line, a source can't be read, or the report can't be
/// written.
pub fn run(host: &dyn DropinHost, args: &[String]) -> Result<()> {
    let typed = JeprofArguments::parse(args)
        .map_err(|why| anyhow!("jeprof: {why}; heapprof jeprof --help lists the options"))?;
    if typed.is_on("help") {
        let help = host.help();
        return host.write(
            None,
            Box::new(move |out| Ok(out.write_all(help.as_bytes())?)),
        );
    }
    if typed.is_on("version") {
        let version = concat!("heapprof ", env!("CARGO_PKG_VERSION"));
        return host.write(None, Box::new(move |out| Ok(writeln!(out, "{version}")?)));
    }
    let format = format(host, &typed)?;
    if typed.words.is_empty() {
        bail!("Did not specify profile file");
    }
    let flags = flags(host, &typed, format);
    // In jeprof, the numbers of a thread are its own, not its share of the numbers of all threads.
    let of_thread = typed.is_on("thread");
    match format {
        "text" | "collapsed" => print(host, &flags, &typed, format),
        _ if typed.text("thread") == "*" => bail!(
            "--thread=* prints a report for each thread, which --{format} cannot do; choose one \
             with --thread=N"
        ),
        _ => pprof::run_with(host, &flags, of_thread),
    }
}

/// Returns the output format that the options choose.
fn format(host: &dyn DropinHost, typed: &JeprofArguments) -> Result<&'static str> {
    let mut outputs = Vec::new();
    for option in typed.given_options() {
        let name = option.name;
        match option.fate {
            OptionHandling::Output => outputs.push(name),
            OptionHandling::Instead(instead) => bail!("--{name}: {instead}"),
            OptionHandling::NoEffect => host.note(&format!("--{name} has no effect here")),
            OptionHandling::Here | OptionHandling::Passed => {}
        }
    }
    let only = |names: &[&str]| names.iter().filter(|name| typed.is_on(name)).count() < 2;
    if !only(&["functions", "lines", "addresses", "files"]) {
        bail!("Only specify one output granularity option");
    }
    if !only(&[
        "inuse_space",
        "inuse_objects",
        "alloc_space",
        "alloc_objects",
    ]) {
        bail!("Specify at most one of --inuse/--alloc options");
    }
    match outputs[..] {
        [] => Ok("text"),
        [one] => Ok(one),
        _ => bail!("Only specify one output mode"),
    }
}

/// Returns pprof flags with the same meaning as jeprof's options.
fn flags(host: &dyn DropinHost, typed: &JeprofArguments, format: &str) -> Vec<String> {
    let mut flags = match format {
        "text" | "collapsed" => vec!["-top".to_string()],
        "list" => vec![format!("-list={}", typed.text("list"))],
        other => vec![format!("-{other}")],
    };
    for option in typed.given_options() {
        let name = option.name;
        let value = typed.text(name);
        match (option.fate, option.kind) {
            (OptionHandling::Passed, FlagKind::Bool) => flags.push(format!("-{name}")),
            (OptionHandling::Passed, _) => flags.push(format!("-{name}={value}")),
            // For pictures, which are filtered and sorted as in pprof.
            (OptionHandling::Here, FlagKind::Bool) if matches!(name, "cum" | "drop_negative") => {
                flags.push(format!("-{name}"));
            }
            (OptionHandling::Here, FlagKind::Text) => match name {
                "focus" | "ignore" => flags.push(format!("-{name}={value}")),
                "retain" => flags.push(format!("-show={value}")),
                "exclude" => flags.push(format!("-hide={value}")),
                "thread" if value != "*" => {
                    // In a label, the thread's name may follow the number.
                    let number = regex::escape(stacks::thread_number(value));
                    flags.push(format!("-tagfocus=thread=^{number}( |$)"));
                }
                _ => {}
            },
            _ => {}
        }
    }
    let of_bytes = !typed.is_on("inuse_objects") && !typed.is_on("alloc_objects");
    if of_bytes && typed.is_on("show_bytes") {
        flags.push("-unit=bytes".to_string());
    }
    flags.push("--".to_string());
    flags.extend(typed.words.iter().map(|word| {
        // A server without a path is asked for the page that jeprof asks for.
        let server = word.strip_prefix("http://").unwrap_or(word);
        let port = server
            .trim_end_matches('/')
            .rsplit_once(':')
            .map(|(_, p)| p);
        let is_server =
            port.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        match is_server && !host.path(word).exists() {
            true => format!("{}/pprof/profile", word.trim_end_matches('/')),
            false => word.clone(),
        }
    }));
    flags
}

/// Prints `--text` or `--collapsed`.
fn print(
    host: &dyn DropinHost,
    flags: &[String],
    typed: &JeprofArguments,
    format: &str,
) -> Result<()> {
    let reader = pprof::ToolReader {
        how: ToolReadOptions {
            convert: read_as_jeprof,
            stacks_as_written: false,
            threads_as_counted: typed.is_on("thread"),
        },
        name_unsymbolized: name_unnamed_by_number,
    };
    let loaded = pprof::load_all_frames(host, flags, reader)?;
    let measure = measure(&loaded.profile, loaded.column, typed);
    let wanted = typed.text("thread");
    let mut stacks = JeprofStacks::new(loaded.profile)?;
    let threads = match wanted {
        "" => {
            stacks.remove_labels();
            vec![None]
        }
        wanted => stacks.threads(wanted).into_iter().map(Some).collect(),
    };
    match (wanted, &threads[..]) {
        ("*", []) => bail!("--thread: the profile does not tell threads apart"),
        (_, []) => bail!("--thread={wanted}: the profile has no such thread"),
        _ => {}
    }
    if typed.is_on("drop_negative") && typed.is_on("base") {
        stacks.merge_equal()?;
        stacks.drop_negative();
    }
    let totals = stacks.sums(loaded.column, threads.len());
    stacks.cut_allocator();
    stacks.filter(typed)?;
    let profile = match format {
        "collapsed" => stacks.profile,
        _ => stacks.into_row_profile(typed),
    };
    let report = |profile: &Profile, thread: &Option<String>, total, out: &mut dyn Write| {
        if format == "collapsed" {
            return report::collapsed(profile, loaded.column, out);
        }
        let thread = thread.as_ref().map(|t| format!(" (t{t})"));
        let head = match total {
            0 => String::new(),
            total => format!(
                "Total{}: {} {}\n",
                thread.unwrap_or_default(),
                measure.show(total),
                measure.unit()
            ),
        };
        report::text(
            profile,
            loaded.column,
            measure,
            typed.is_on("cum"),
            &head,
            out,
        )
    };
    let body = |out: &mut dyn Write| {
        escaping(out, ControlReplacement::Replacement, |out| {
            let parts = ThreadProfiles::new(&profile, threads.len());
            for ((thread, &total), part) in threads.iter().zip(&totals).zip(parts.iter()) {
                report(&part, thread, total, out)?;
            }
            Ok(())
        })
    };
    host.write(None, Box::new(body))
}

/// Returns how the values of a column are shown.
fn measure(profile: &Profile, column: usize, typed: &JeprofArguments) -> JeprofMeasure {
    let unit = profile.text(profile.sample_type[column].unit);
    let r#type = profile.text(profile.sample_type[column].r#type);
    match unit {
        "bytes" if typed.is_on("show_bytes") => JeprofMeasure::Bytes,
        "bytes" => JeprofMeasure::Megabytes,
        "nanoseconds" if r#type.contains("delay") => JeprofMeasure::Seconds,
        _ if r#type.ends_with("objects") => JeprofMeasure::Objects,
        _ => JeprofMeasure::Samples,
    }
}
