//! Reads the stacks of Go's text profiles (`debug=1`), in which comments after each stack name its
//! frames.
//!
//! pprof ignores the names; this module assigns them to the addresses of the stack.

use heapprof_profile::{Label, LabelSetIndex, Line, LocationIndex, Profile, ProfileBuilder};

use crate::error::FormatError;
use crate::go_quoted::label_set;
use crate::heap_line::HexAddresses;
use crate::lines::LineReader;
use crate::mapped_files::MappedFile;
use crate::memory_budget::MemoryBudget;
use crate::reading::FormatReadOptions;
use crate::stacks;

/// Maximum number of addresses that are searched for a named frame. Between two named frames, Go
/// leaves out fewer.
const MAX_SEARCHED_ADDRESSES: usize = 256;

/// Estimated number of bytes that a frame takes in memory, with its location, function and line. A
/// sample without its frames takes as many.
const FRAME_BYTES: usize = 200;

/// A comment that names a frame.
struct GoNamedFrame {
    address: u64,
    line: Line,
}

/// Reader of the samples, with the state of the sample whose comments are being read.
pub(crate) struct GoStackReader {
    pub(crate) builder: ProfileBuilder,
    /// The values of the sample.
    pub(crate) values: Vec<i64>,
    /// The addresses of the sample's calls, leaf first.
    pub(crate) addresses: Vec<u64>,
    budget: MemoryBudget,
    /// The labels of the sample; `None` if the sample has been added.
    pending: Option<LabelSetIndex>,
    named: Vec<GoNamedFrame>,
    has_names: bool,
}

impl GoStackReader {
    /// Makes a reader that adds samples to a profile.
    pub(crate) fn new(profile: Profile, options: &FormatReadOptions) -> Self {
        let mut builder = ProfileBuilder::default();
        builder.profile = profile;
        Self {
            builder,
            values: Vec::new(),
            addresses: Vec::new(),
            budget: MemoryBudget::new(options),
            pending: None,
            named: Vec::new(),
            has_names: false,
        }
    }

    /// Begins a sample with these labels. The caller has put its values and addresses into the
    /// lists.
    pub(crate) fn begin(&mut self, labels: LabelSetIndex) {
        self.pending = Some(labels);
    }

    /// Reads a comment: `# 0x57f970 go/ast.NewScope+0x50 go/ast/scope.go:28`, with tabs between the
    /// parts; or `# labels: {"key":"text"}`; or `# MaxRSS = 18370560` at the end of the file.
    pub(crate) fn comment(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let text = String::from_utf8_lossy(&lines.trimmed()[1..]);
        if let Some(labels) = text.trim().strip_prefix("labels: ") {
            return self.labels(labels);
        }
        let mut fields = text.split('\t').map(str::trim).filter(|f| !f.is_empty());
        let first = fields.next().unwrap_or_default();
        if let Some(bytes) = first.strip_prefix("MaxRSS = ") {
            if bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0) {
                let text = format!("peak rss: {bytes} bytes");
                let text = self.builder.text(&text);
                self.builder.profile.comment.push(text);
            }
            return Ok(());
        }
        if !first.starts_with("0x") || self.pending.is_none() {
            return Ok(());
        }
        let Some(Ok(address)) = HexAddresses(first.as_bytes()).next() else {
            return Err(lines.wrong("`#`, an address of 64 bits, a function and its line"));
        };
        // A comment without a function has an address that Go could not name either.
        let Some(function) = fields.next() else {
            return Ok(());
        };
        let name = match function.rsplit_once("+0x") {
            Some((name, offset)) if offset.bytes().all(|b| b.is_ascii_hexdigit()) => name,
            _ => function,
        };
        let place = fields.next().unwrap_or_default();
        let (file, line) = match place.rsplit_once(':') {
            Some((file, line)) => match line.parse() {
                Ok(line) => (file, line),
                Err(_) => (place, 0),
            },
            None => (place, 0),
        };
        let (name, file) = (self.builder.text(name), self.builder.text(file));
        let line = Line {
            function: self.builder.named_function(name, file),
            line,
            column: 0,
        };
        self.named.push(GoNamedFrame { address, line });
        let bytes = 2 * text.len() + FRAME_BYTES;
        let named = self.named.capacity() * size_of::<GoNamedFrame>();
        let profile = &self.builder.profile;
        self.budget
            .grow(bytes, || 2 * profile.memory() + named as u64)
    }

    /// Gives labels to the sample. A text that is no label set is an ordinary comment.
    fn labels(&mut self, text: &str) -> Result<(), FormatError> {
        let (Some(pending), Some(texts)) = (&mut self.pending, label_set(text)) else {
            return Ok(());
        };
        let labels = texts
            .iter()
            .map(|(key, text)| self.builder.text_label(key, text));
        let mut labels: Vec<Label> = labels.collect();
        *pending = self.builder.label_set(&mut labels);
        let profile = &self.builder.profile;
        self.budget.grow(2 * text.len(), || 2 * profile.memory())
    }

    /// Adds the sample that was read last, with the names from its comments. Too much memory is an
    /// error.
    pub(crate) fn flush(&mut self) -> Result<(), FormatError> {
        let Some(labels) = self.pending.take() else {
            return Ok(());
        };
        let frames = frames(&self.addresses, &self.named);
        self.has_names |= !self.named.is_empty();
        self.named.clear();
        let builder = &mut self.builder;
        let stack: Vec<LocationIndex> = (frames.iter())
            .map(|(address, lines)| builder.location(None, *address, false, lines))
            .collect();
        let bytes = FRAME_BYTES * (1 + stack.len());
        builder.profile.samples.push(stack, &self.values, labels);
        // The builder also stores each location and function as a key.
        self.budget.grow(bytes, || 2 * builder.profile.memory())
    }

    /// Adds the last sample and the mappings, and returns the profile. If the file has no names,
    /// `add_frames` adds the expressions for the frames that reports drop. Go itself leaves those
    /// frames out of its comments.
    pub(crate) fn finish(
        mut self,
        files: Vec<MappedFile>,
        add_frames: fn(&mut Profile),
    ) -> Result<Profile, FormatError> {
        self.flush()?;
        let mut profile = self.builder.finish();
        stacks::assign_mappings(&mut profile, files);
        match self.has_names {
            true => profile.mark_symbolized(|_| true),
            false => add_frames(&mut profile),
        }
        Ok(profile)
    }
}

/// Returns the addresses of a stack, each with its functions and lines, innermost first.
///
/// Go writes a comment for each frame, in order, with the address of the call. Frames that were
/// inlined into one call share its address. Go leaves out the runtime's allocating functions at the
/// leaf, and the outermost function, `runtime.goexit`. Go's protobuf profiles leave these functions
/// out too, and so does this function. A frame whose name Go does not know stays an address.
fn frames(addresses: &[u64], named: &[GoNamedFrame]) -> Vec<(u64, Vec<Line>)> {
    if named.is_empty() {
        return addresses.iter().map(|&a| (a, Vec::new())).collect();
    }
    let mut frames: Vec<(u64, Vec<Line>)> = Vec::with_capacity(named.len());
    let mut next = 0;
    for GoNamedFrame { address, line } in named {
        // Early versions of Go write the return address.
        let same = |a: u64| a == *address || a.checked_add(1) == Some(*address);
        let rest = &addresses[next..];
        let inlined = frames.last().is_some_and(|&(last, _)| same(last));
        let found = match rest.first() {
            Some(&first) if same(first) => Some(0),
            _ if inlined => None,
            _ => rest
                .iter()
                .take(MAX_SEARCHED_ADDRESSES)
                .position(|&a| same(a)),
        };
        match (found, frames.last_mut()) {
            (Some(skipped), last) => {
                if last.is_some() {
                    frames.extend(rest[..skipped].iter().map(|&a| (a, Vec::new())));
                }
                frames.push((rest[skipped], vec![*line]));
                next += skipped + 1;
            }
            (None, Some((_, lines))) if inlined => lines.push(*line),
            // The frame is not in the stack, so the address in its comment is used.
            (None, _) => frames.push((*address, vec![*line])),
        }
    }
    match &addresses[next..] {
        [_] => {}
        rest => frames.extend(rest.iter().map(|&a| (a, Vec::new()))),
    }
    frames
}
