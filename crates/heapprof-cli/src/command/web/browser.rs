//! Opens the page in the user's browser.
//!
//! The address has the token, and anybody can read the arguments of a process. So the browser gets
//! the name of a file that only this user can read and that leads to the address.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

use crate::messages;

/// Opens an address. The file that leads to it is there as long as what is returned.
pub(super) fn open(url: &str) -> Option<NamedTempFile> {
    let words = browser()?;
    let opened = || -> std::io::Result<NamedTempFile> {
        let file = leading_to(url)?;
        let (program, arguments) = words.split_first().unwrap_or((&words[0], &[]));
        let mut child = Command::new(program)
            .args(arguments)
            .arg(file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the server only.
            .process_group(0)
            .spawn()?;
        std::thread::spawn(move || child.wait());
        Ok(file)
    };
    match opened() {
        Ok(file) => Some(file),
        Err(error) => {
            let program = &words[0];
            messages::note(&format!(
                "{program}: {error}; open the address in a browser"
            ));
            None
        }
    }
}

/// The program that opens pages: that of `BROWSER`, or the desktop's. `None` without a desktop.
fn browser() -> Option<Vec<String>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(named) = set("BROWSER") {
        let first = named.split(':').next().unwrap_or_default();
        let words = first.split_whitespace().filter(|word| *word != "%s");
        let words: Vec<String> = words.map(str::to_string).collect();
        return Some(words).filter(|words| !words.is_empty());
    }
    let has_desktop = set("DISPLAY").is_some() || set("WAYLAND_DISPLAY").is_some();
    has_desktop.then(|| vec!["xdg-open".to_string()])
}

/// Makes a file with the rights 0600 whose page leads to the address.
fn leading_to(url: &str) -> std::io::Result<NamedTempFile> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(std::env::temp_dir);
    let mut builder = tempfile::Builder::new();
    let mut file = builder
        .prefix("heapprof-")
        .suffix(".html")
        .tempfile_in(folder)?;
    // The rest of the address needs no escape.
    let url = url.replace('&', "&amp;");
    writeln!(
        file,
        "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer>\
         <meta http-equiv=refresh content=\"0;url={url}\"><title>heapprof</title>"
    )?;
    file.flush()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_user_reads_the_address() {
        let file = leading_to("http://127.0.0.1:1/?token=00").unwrap();
        let mode = file.as_file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(
            text.contains("0;url=http://127.0.0.1:1/?token=00\""),
            "{text}"
        );
    }
}
