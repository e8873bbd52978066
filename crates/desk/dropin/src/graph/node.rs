//! Nodes of the graph. Frames with the same name, file, line and address are one node, as far as
//! the profile still distinguishes these.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use hashbrown::HashTable;
use heapprof_profile::{Profile, StringId, StringTable};

use super::path::{PathTrimmer, base, clean};
use heapprof_totals::frames::{FrameTable, ProfileFrame};

/// The facts that a report shows about a node, such as its name, place and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeInfo<'a> {
    /// The name of the function. Empty without symbols, or if only files are distinguished.
    pub name: &'a str,
    /// The address; 0 unless addresses are distinguished.
    pub address: u64,
    /// The file name, trimmed and cleaned; it may be empty.
    pub file: &'a str,
    /// The first line of the function; 0 unless mapped files are distinguished.
    pub start_line: i64,
    /// The line; 0 if unknown.
    pub line: i64,
    /// The column; 0 if unknown.
    pub column: i64,
    /// The mapped file; empty if mapped files are not distinguished.
    pub object: &'a str,
}

impl NodeInfo<'_> {
    /// Returns the parts of the node's name in reports: the address, the function and the place.
    /// Without function and place, the last part is the binary.
    pub fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if self.address != 0 {
            parts.push(format!("{:016x}", self.address));
        }
        if !self.name.is_empty() {
            parts.push(self.name.to_string());
        }
        if self.line != 0 {
            let column = match self.column {
                0 => String::new(),
                column => format!(":{column}"),
            };
            parts.push(format!("{}:{}{column}", self.file, self.line));
        } else if !self.file.is_empty() {
            parts.push(self.file.to_string());
        } else if !self.name.is_empty() {
        } else if !self.object.is_empty() {
            parts.push(format!("[{}]", base(self.object)));
        } else {
            parts.push("<unknown>".to_string());
        }
        parts
    }
}

/// Key that identifies a node. `file` is a text in [`NodeTable`]; the other texts are in the
/// profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeKey {
    pub(super) name: StringId,
    pub(super) file: StringId,
    pub(super) object: StringId,
    pub(super) address: u64,
    pub(super) start_line: i64,
    pub(super) line: i64,
    pub(super) column: i64,
}

/// The distinct keys of a profile's frames. Each key is a node.
pub(super) struct NodeTable {
    pub(super) key: Vec<NodeKey>,
    /// The index of each frame's key.
    pub(super) frame_keys: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
    files: StringTable,
    /// For each function, the trimmed file name and the cleaned form of the trimmed name.
    trimmed: Vec<(StringId, StringId)>,
}

impl NodeTable {
    /// Builds the table. With `objects`, the keys of all nodes hold the mapped file. Otherwise only
    /// the keys of nodes without a name hold it.
    pub(super) fn new(
        profile: &Profile,
        frames: &FrameTable,
        trim: &PathTrimmer,
        objects: bool,
    ) -> Self {
        let names = profile.function.iter().map(|f| profile.text(f.filename));
        let mut files = StringTable::new();
        let trimmed = names
            .map(|name| add_file_name(&mut files, trim.apply(name)))
            .collect();
        Self::fill(profile, frames, objects, files, trimmed)
    }

    /// Returns the table with file names that are trimmed once more, as pprof does each time it
    /// builds its graph. Returns `None` if all names stay equal. A second trim changes only names
    /// in which the trimmed part occurs twice.
    pub(super) fn trim_again(
        &self,
        profile: &Profile,
        frames: &FrameTable,
        trim: &PathTrimmer,
        objects: bool,
    ) -> Option<Self> {
        let changes = |&(text, _): &(StringId, StringId)| {
            let text = self.files.get(text);
            trim.apply(text).len() != text.len()
        };
        if !self.trimmed.iter().any(changes) {
            return None;
        }
        let mut files = self.files.clone();
        let again = |&(text, _): &(StringId, StringId)| {
            let text = self.files.get(text);
            add_file_name(&mut files, trim.apply(text))
        };
        let trimmed = self.trimmed.iter().map(again).collect();
        Some(Self::fill(profile, frames, objects, files, trimmed))
    }

    fn fill(
        profile: &Profile,
        frames: &FrameTable,
        objects: bool,
        files: StringTable,
        trimmed: Vec<(StringId, StringId)>,
    ) -> Self {
        let mut table = Self {
            key: Vec::new(),
            frame_keys: Vec::with_capacity(frames.len()),
            index: HashTable::new(),
            hasher: RandomState::default(),
            files,
            trimmed,
        };
        for frame in frames.iter() {
            let key = table.key_of(profile, frame, objects);
            let node = table.insert(key);
            table.frame_keys.push(node);
        }
        table
    }

    fn key_of(&self, profile: &Profile, frame: &ProfileFrame, objects: bool) -> NodeKey {
        let location = match frame {
            ProfileFrame::Line { location, .. } | ProfileFrame::Address { location } => *location,
            // Frames of labels come only from the filters of a question.
            ProfileFrame::Label { .. } => unreachable!("a profile's own frames are places"),
        };
        let location = &profile.location[location.index()];
        let mapping = location
            .mapping
            .map(|m| profile.mapping[m.index()].filename);
        let object = mapping.unwrap_or(StringId::EMPTY);
        let unnamed = NodeKey {
            name: StringId::EMPTY,
            file: StringId::EMPTY,
            object,
            address: location.address,
            start_line: 0,
            line: 0,
            column: 0,
        };
        let ProfileFrame::Line { line, .. } = frame else {
            return unnamed;
        };
        let line = &profile.line[*line as usize];
        let function = &profile.function[line.function.index()];
        let objects = objects || function.name.is_empty();
        NodeKey {
            name: function.name,
            file: self.trimmed[line.function.index()].1,
            object: if objects { object } else { StringId::EMPTY },
            start_line: if objects { function.start_line } else { 0 },
            line: line.line,
            column: line.column,
            ..unnamed
        }
    }

    fn insert(&mut self, key: NodeKey) -> u32 {
        let hash = self.hasher.hash_one(key);
        let (keys, hasher) = (&mut self.key, &self.hasher);
        let entry = self.index.entry(
            hash,
            |&node| keys[node as usize] == key,
            |&node| hasher.hash_one(keys[node as usize]),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(known) => *known.get(),
            hashbrown::hash_table::Entry::Vacant(new) => {
                let node = keys.len() as u32;
                new.insert(node);
                keys.push(key);
                node
            }
        }
    }

    /// Returns the number of each node's function. Nodes with the same name, file and mapped file
    /// have the same function. A node without a name is a function by itself.
    pub(super) fn functions(&self) -> Vec<u32> {
        let mut first: HashMap<(StringId, StringId, StringId), u32> = HashMap::new();
        let keys = self.key.iter().zip(0..);
        keys.map(|(key, node)| match key.name.is_empty() {
            true => node,
            false => *first
                .entry((key.name, key.file, key.object))
                .or_insert(node),
        })
        .collect()
    }

    /// Returns the node with this key.
    pub(super) fn find(&self, key: NodeKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.index
            .find(hash, |&node| self.key[node as usize] == key)
            .copied()
    }

    pub(super) fn info<'a>(&'a self, profile: &'a Profile, node: u32) -> NodeInfo<'a> {
        let key = &self.key[node as usize];
        NodeInfo {
            name: profile.text(key.name),
            address: key.address,
            file: self.files.get(key.file),
            start_line: key.start_line,
            line: key.line,
            column: key.column,
            object: profile.text(key.object),
        }
    }
}

/// Adds a trimmed file name, and its cleaned form, which nodes show. Returns the ids of both.
fn add_file_name(files: &mut StringTable, trimmed: &str) -> (StringId, StringId) {
    let text = files.intern(trimmed);
    match trimmed {
        "" => (text, text),
        trimmed => (text, files.intern(&clean(trimmed))),
    }
}

/// The printable names of all nodes of a table, in one string.
#[derive(Default)]
pub(super) struct NodeNames {
    text: String,
    end: Vec<usize>,
}

impl NodeNames {
    pub(super) fn new(profile: &Profile, table: &NodeTable) -> Self {
        let mut names = Self::default();
        for node in 0..table.key.len() as u32 {
            let parts = table.info(profile, node).parts();
            names.text.push_str(&parts.join(" "));
            names.end.push(names.text.len());
        }
        names
    }

    pub(super) fn get(&self, node: u32) -> &str {
        let node = node as usize;
        let start = if node == 0 { 0 } else { self.end[node - 1] };
        &self.text[start..self.end[node]]
    }
}
