//! `heapprof jeprof` and `heapprof google-pprof`: options and output of the two Perl scripts.
//!
//! `--text`, `--collapsed`, `--disasm` and the shell are implemented here. The reading of sources
//! and the other outputs are shared with `heapprof pprof`. Sources: jemalloc's bin/jeprof, and
//! gperftools' src/pprof.

mod names;
mod option_table;
mod options;
mod parts;
mod prepared;
mod reading;
pub mod report;
mod rows;
mod shell;
mod stacks;
mod tool;

use std::io::Write;

use anyhow::{Result, anyhow, bail};
use heapprof_profile::Profile;
use heapprof_text::{ControlReplacement, escaping};

use crate::host::DropinHost;
use crate::kind::FlagKind;
use crate::pprof;
use option_table::OptionHandling;
use options::JeprofArguments;
use parts::ThreadProfiles;
use prepared::PreparedReport;
use rows::RowStyle;
use shell::PerlShell;
use tool::PerlTool;

pub use option_table::{google_pprof_help, help};

/// Runs a jeprof command line.
///
/// # Errors
/// jeprof would not accept the command line, a source can't be read, or the report can't be
/// written.
pub fn run(host: &dyn DropinHost, args: &[String]) -> Result<()> {
    run_tool(host, PerlTool::Jeprof, args)
}

/// Runs a command line of gperftools' Perl script, which Debian calls google-pprof.
///
/// # Errors
/// As [`run`].
pub fn run_google_pprof(host: &dyn DropinHost, args: &[String]) -> Result<()> {
    run_tool(host, PerlTool::GooglePprof, args)
}

fn run_tool(host: &dyn DropinHost, tool: PerlTool, args: &[String]) -> Result<()> {
    let command = tool.command();
    let typed = JeprofArguments::parse(args, tool)
        .map_err(|why| anyhow!("{command}: {why}; heapprof {command} --help lists the options"))?;
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
        "text" | "collapsed" => {
            let report = PreparedReport::new(host, &flags, &typed, tool)?;
            print(host, report, &typed, format)
        }
        "interactive" | "disasm" | "gv" | "evince" | "web" => {
            let report = PreparedReport::new(host, &flags, &typed, tool)?;
            for (place, &total) in report.totals.iter().enumerate() {
                let stacks = report.stacks_of_thread(place);
                let mut shell = PerlShell::new(host, &report, &stacks, &typed, total);
                match format {
                    "interactive" => shell.run()?,
                    format => shell.run_once(format)?,
                }
            }
            Ok(())
        }
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
        [] if host.is_terminal() => Ok("interactive"),
        [] => Ok("text"),
        [one] => Ok(one),
        _ => bail!("Only specify one output mode"),
    }
}

/// Returns pprof flags with the same meaning as jeprof's options.
fn flags(host: &dyn DropinHost, typed: &JeprofArguments, format: &str) -> Vec<String> {
    let mut flags = match format {
        "text" | "collapsed" | "interactive" | "disasm" | "gv" | "evince" | "web" => {
            vec!["-top".to_string()]
        }
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
    report: PreparedReport,
    typed: &JeprofArguments,
    format: &str,
) -> Result<()> {
    let (column, measure) = (report.column, report.measure);
    let profile = match format {
        "collapsed" => report.stacks.profile,
        _ => report.stacks.into_row_profile(RowStyle::new(typed)),
    };
    let threads = &report.threads;
    let print_one = |profile: &Profile, thread: &Option<String>, total, out: &mut dyn Write| {
        if format == "collapsed" {
            return report::collapsed(profile, column, out);
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
        let by_cum = typed.is_on("cum");
        report::text(profile, column, measure, by_cum, None, &head, out)
    };
    let body = |out: &mut dyn Write| {
        escaping(out, ControlReplacement::Replacement, |out| {
            let parts = ThreadProfiles::new(&profile, threads.len());
            for ((thread, &total), part) in threads.iter().zip(&report.totals).zip(parts.iter()) {
                print_one(&part, thread, total, out)?;
            }
            Ok(())
        })
    };
    host.write(None, Box::new(body))
}
