//! The commands that set up something outside heapprof: `setup preload-path` and so on. Each also
//! has its old name, without `setup`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum SetupCommand {
    /// Print the path of libheapprof.so, or of its C header, on this machine
    #[command(
        after_help = "To record a program without heapprof record: HEAPPROF_OUTPUT=server.%p.pb.gz \
                      LD_PRELOAD=$(heapprof setup preload-path) ./server\n\nExample: heapprof \
                      setup preload-path --header"
    )]
    PreloadPath {
        /// Print the header's path instead of the library's
        #[arg(long)]
        header: bool,
    },
    /// Build the Perl module Devel::HeapProf for a perl
    #[command(
        after_help = "heapprof shows subs and lines without the module. With the module, a program \
                      can start and dump recordings itself, and heapprof can read perls whose \
                      structures it does not know. The build needs make, a C compiler and the \
                      headers of that perl. Run perl-install once for each version of \
                      heapprof.\n\nExample: heapprof setup perl-install --perl /opt/perl/bin/perl"
    )]
    PerlInstall {
        /// The perl to build for; the default is the one in PATH
        #[arg(long, value_name = "PATH")]
        perl: Option<PathBuf>,
    },
    /// Print completions for a shell
    #[command(after_help = "Example: heapprof setup completions bash > \
                            ~/.local/share/bash-completion/completions/heapprof")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of heapprof or of one command, or write all of them
    #[command(after_help = "Example: heapprof setup man top | man -l -")]
    Man {
        /// The command whose page is printed
        command: Vec<String>,
        /// Write all pages into this folder
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
}
