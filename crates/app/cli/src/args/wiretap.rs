//! The command lines of the wiretap: `listen`, `alive`, `wiretap`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use heapprof_analysis::store::WiretapRowKind;
use heapprof_report::ReportFormat;

use super::record::time;
use super::{FileModeArgs, OutputArgs, format};

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Where to listen: IP:PORT, e.g. 127.0.0.1:4711; port 0 takes any free port
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) udp: SocketAddr,
    /// Accept only datagrams that are signed with the key in this file. An address that other
    /// machines can reach needs a key
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// End after this time, e.g. 30s or 2h. Without it, listen ends at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AliveCommand {
    /// Collect the reports of programs about the code that they run (heapprof_alive)
    #[command(after_help = "Example: heapprof alive listen --udp 127.0.0.1:4711")]
    Listen(ListenArgs),
    /// Which code ran, where and when it last ran, and which code never ran
    #[command(after_help = "Example: heapprof alive wiretap --expect codes.txt --since 30d")]
    Wiretap(WiretapArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AliveArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AliveCommand>,
    #[command(flatten)]
    pub(crate) report: Option<AliveReportArgs>,
}

#[derive(Debug, Args)]
pub(crate) struct AliveReportArgs {
    /// The name of the code that runs
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The place of the call, e.g. backup.sh:12
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) site: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WiretapGroupByArg {
    Code,
    Host,
    Pid,
}

impl From<WiretapGroupByArg> for WiretapRowKind {
    fn from(by: WiretapGroupByArg) -> Self {
        match by {
            WiretapGroupByArg::Code => Self::Code,
            WiretapGroupByArg::Host => Self::Host,
            WiretapGroupByArg::Pid => Self::Pid,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct WiretapArgs {
    /// Show which names in this file were never seen. The file has one name in each line; # begins
    /// a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
    /// Exit with 1 if an expected name was never seen
    #[arg(long, requires = "expect")]
    pub(crate) fail_if_unseen: bool,
    /// What a row is
    #[arg(long, value_enum, default_value_t = WiretapGroupByArg::Code, value_name = "WHAT")]
    pub(crate) by: WiretapGroupByArg,
    /// Show only code that was seen in the last TIME, e.g. 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Duration>,
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: ReportFormat,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "not an IP:PORT such as 127.0.0.1:4711 or [::1]:4711; host names are not looked up";
    text.parse().map_err(|_| wrong.to_string())
}

/// A time as [`time`] reads it, or in days.
pub(super) fn since(text: &str) -> Result<Duration, String> {
    const MAX_DAYS: f64 = 100_000.0;
    let Some(days) = text.strip_suffix('d') else {
        return time(text).map_err(|why| why.replace("s, m or h", "s, m, h or d"));
    };
    let number = days.trim().parse::<f64>().ok();
    let number = number.filter(|days| (0.0..=MAX_DAYS).contains(days));
    let number = number.ok_or_else(|| format!("{days:?} is not a number of days"))?;
    Ok(Duration::from_secs_f64(number * 86_400.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_days() {
        assert_eq!(since("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(since("1.5h"), Ok(Duration::from_secs(5400)));
        for wrong in ["d", "-1d", "NaNd", "infd", "1w"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
