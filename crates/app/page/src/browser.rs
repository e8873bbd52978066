//! Opens the page in the user's browser.
//!
//! The address contains the token, and every user can read the arguments of a process. So the
//! browser gets the name of a file that leads to the address, and that only this user can read.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

/// Opens an address in the browser, through a file that leads to it. The file exists as long as the
/// returned value. `note` gets the reason if the browser fails, which may be later.
pub fn open_in_browser(url: &str, note: fn(&str)) -> Option<NamedTempFile> {
    let words = browser()?;
    let opened = || -> std::io::Result<NamedTempFile> {
        let file = leading_to(url)?;
        let mut child = Command::new(&words[0])
            .args(with_file(&words[1..], file.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the server only.
            .process_group(0)
            .spawn()?;
        let program = words[0].clone();
        std::thread::spawn(move || {
            if let Ok(status) = child.wait()
                && !status.success()
            {
                not_opened(note, &program, &status);
            }
        });
        Ok(file)
    };
    match opened() {
        Ok(file) => Some(file),
        Err(error) => {
            not_opened(note, &words[0], &error);
            None
        }
    }
}

fn not_opened(note: fn(&str), program: &str, why: &dyn std::fmt::Display) {
    note(&format!("{program}: {why}; open the address in a browser"));
}

/// Returns the arguments with the file in place of `%s`, or at the end.
fn with_file(arguments: &[String], file: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    match arguments.iter().position(|argument| argument == "%s") {
        Some(at) => all[at] = file.into(),
        None => all.push(file.into()),
    }
    all
}

/// Returns the command that opens pages: from `BROWSER`, or the command of the desktop; `None`
/// without a desktop.
fn browser() -> Option<Vec<String>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(named) = set("BROWSER") {
        let words = |one: &str| one.split_whitespace().map(str::to_string).collect();
        let mut all = named.split(':').map(words);
        return all.find(|words: &Vec<String>| !words.is_empty());
    }
    let has_desktop = set("DISPLAY").is_some() || set("WAYLAND_DISPLAY").is_some();
    has_desktop.then(|| vec!["xdg-open".to_string()])
}

/// Makes a file with the mode 0600 that redirects a browser to the address.
fn leading_to(url: &str) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("heapprof-").suffix(".html");
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let file = own.and_then(|folder| builder.tempfile_in(folder).ok());
    let mut file = match file {
        Some(file) => file,
        None => builder.tempfile_in(std::env::temp_dir())?,
    };
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
