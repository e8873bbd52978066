//! `heapprof setup man`: writes manual pages, made from the same definitions as `--help`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap_mangen::Man;

use crate::args::{cli_command, current_name};
use crate::output;

pub(super) fn run(command: &[String], out: Option<&Path>) -> Result<()> {
    let mut cli = cli_command();
    cli.build();
    if let Some(folder) = out {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        page(&cli, "heapprof", Some(&folder.join("heapprof.1")))?;
        return pages(&cli, "heapprof", folder);
    }
    // The page of an old name is that of the command which it stands for.
    let command: Vec<&str> = match command {
        [old] => current_name(old)
            .split(" --")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect(),
        words => words.iter().map(String::as_str).collect(),
    };
    let mut found = &cli;
    for name in &command {
        found = match found.find_subcommand(name) {
            Some(sub) => sub,
            None => bail!("{name}: there is no such command; heapprof --help lists them"),
        };
    }
    page(
        found,
        &[&["heapprof"], &command[..]].concat().join("-"),
        None,
    )
}

/// Writes the pages of the commands below `command`, whose page is called `name`.
fn pages(command: &clap::Command, name: &str, folder: &Path) -> Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        // clap's own command has no options.
        if sub.get_name() == "help" {
            continue;
        }
        let name = format!("{name}-{}", sub.get_name());
        page(sub, &name, Some(&folder.join(format!("{name}.1"))))?;
        pages(sub, &name, folder)?;
    }
    Ok(())
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
