//! `heapprof man`: writes manual pages, made from the same definitions as `--help`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::Cli;
use crate::output;

pub(super) fn run(command: Option<&str>, out: Option<&Path>) -> Result<()> {
    let mut cli = Cli::command();
    cli.build();
    if let Some(folder) = out {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        page(&cli, "heapprof", Some(&folder.join("heapprof.1")))?;
        for sub in cli.get_subcommands().filter(|s| !s.is_hide_set()) {
            let name = format!("heapprof-{}", sub.get_name());
            page(sub, &name, Some(&folder.join(format!("{name}.1"))))?;
        }
        return Ok(());
    }
    let Some(name) = command else {
        return page(&cli, "heapprof", None);
    };
    match cli.find_subcommand(name) {
        Some(sub) => page(sub, &format!("heapprof-{name}"), None),
        None => bail!("{name}: there is no such command; heapprof --help lists them"),
    }
}

fn page(command: &clap::Command, name: &str, file: Option<&Path>) -> Result<()> {
    // The command has the name of the page, so that `man heapprof-top` finds it.
    let page = Man::new(
        command
            .clone()
            .name(name.to_string())
            .display_name(name.to_string()),
    )
    .title(name.to_uppercase())
    .source(concat!("heapprof ", env!("CARGO_PKG_VERSION")))
    .manual("heapprof");
    let mut text = Vec::new();
    page.render(&mut text)?;
    output::write(file, |writer| Ok(writer.write_all(&text)?))
}
