//! Pictures of the call graph, drawn by Graphviz.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Draws a graph with `dot`, in a format that `dot -T` knows.
pub(super) fn draw(graph: &[u8], format: &str) -> Result<Vec<u8>> {
    let child = Command::new("dot")
        .arg(format!("-T{format}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "-{format}: failed to execute dot: Graphviz is not installed; install its package \
             graphviz, or use -dot"
        ),
        Err(error) => {
            return Err(error).with_context(|| format!("-{format}: failed to execute dot"));
        }
    };
    let input = child.stdin.take();
    // dot reads all input before it draws. Writing from a separate thread does not rely on that.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.map(|mut input| input.write_all(graph)));
        child.wait_with_output()
    })?;
    if !output.status.success() {
        bail!("-{format}: dot ended with {}", output.status);
    }
    match format {
        "svg" => Ok(repair(output.stdout)),
        _ => Ok(output.stdout),
    }
}

/// Escapes the ampersands that dot leaves unescaped.
fn repair(svg: Vec<u8>) -> Vec<u8> {
    match String::from_utf8(svg) {
        Ok(text) => text.replace("&;", "&amp;;").into_bytes(),
        Err(other) => other.into_bytes(),
    }
}
