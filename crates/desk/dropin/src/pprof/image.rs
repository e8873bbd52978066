//! Pictures of the call graph, drawn by Graphviz.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use regex::Regex;

/// The script that moves and scales a picture in a browser. It is svgpan, as pprof uses it; its
/// licence is at its head. A picture equals pprof's only with this script.
const PAN_SCRIPT: &str = include_str!("../../third_party/svgpan/svgpan.js");

/// Draws a graph with `dot`, for the format `format` of pprof.
pub(crate) fn draw(graph: &[u8], format: &str) -> Result<Vec<u8>> {
    let image = match format {
        "web" | "eog" => "svg",
        "evince" => "pdf",
        "gv" => "ps",
        format => format,
    };
    let child = Command::new("dot")
        .arg(format!("-T{image}"))
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
        "svg" | "web" => Ok(make_movable(output.stdout)),
        _ => Ok(output.stdout),
    }
}

/// Regular expression for the size of the picture, at the head of dot's SVG.
static SIZE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"<svg(?-u:\s*)width="[^"]+"(?-u:\s*)height="[^"]+"(?-u:\s*)viewBox="[^"]+""#).ok()
});
/// Regular expression for the beginning of the graph.
static GRAPH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"<g id="graph[0-9]""#).ok());

/// Makes dot's SVG fill a browser's window, where it can be moved and scaled.
fn make_movable(svg: Vec<u8>) -> Vec<u8> {
    let mut svg = match String::from_utf8(svg) {
        // dot leaves some ampersands unescaped.
        Ok(text) => text.replace("&;", "&amp;;"),
        Err(other) => return other.into_bytes(),
    };
    let find = |pattern: &LazyLock<Option<Regex>>, svg: &str| {
        let found = pattern.as_ref()?.find(svg)?;
        Some(found.range())
    };
    if let Some(size) = find(&SIZE, &svg) {
        svg.replace_range(size, r#"<svg width="100%" height="100%""#);
    }
    if let Some(graph) = find(&GRAPH, &svg) {
        let head = format!(
            "<script type=\"text/ecmascript\"><![CDATA[{PAN_SCRIPT}]]></script><g \
             id=\"viewport\" transform=\"scale(0.5,0.5) translate(0,0)\">"
        );
        svg.insert_str(graph.start, &head);
    }
    if let Some(end) = svg.find("</svg>") {
        svg.insert_str(end, "</g>");
    }
    svg.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_fills_the_window() {
        let drawn = "<svg width=\"8pt\" height=\"9pt\"\n viewBox=\"0 0 8 9\" xmlns=\"x\">\n<g \
                     id=\"graph0\">a &; b</g>\n</svg>";
        let movable = String::from_utf8(make_movable(drawn.into())).unwrap();
        let (head, tail) = movable.split_once(PAN_SCRIPT).unwrap();
        assert_eq!(
            head,
            "<svg width=\"100%\" height=\"100%\" xmlns=\"x\">\n<script \
             type=\"text/ecmascript\"><![CDATA["
        );
        assert_eq!(
            tail,
            "]]></script><g id=\"viewport\" transform=\"scale(0.5,0.5) translate(0,0)\"><g \
             id=\"graph0\">a &amp;; b</g>\n</g></svg>"
        );
        assert_eq!(make_movable(b"\xff".to_vec()), b"\xff");
    }
}
