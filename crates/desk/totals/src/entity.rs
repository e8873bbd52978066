//! Entities: the rows of a report at its granularity. All profiles of a query share them.
//!
//! Functions are matched by content, so that profiles share them. In reports, a function is
//! identified by its name and file.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Profile, StringId, StringTable};

use crate::frames::{FrameTable, ProfileFrame};
use crate::query::Granularity;
use crate::same_name::{FileEnds, NameAndFile, match_files};

/// The name of the row for samples without any frame.
pub const EMPTY_STACK: &str = "(empty stack)";

/// A function, identified by its content. Addresses without symbols, labels shown as frames and the
/// empty stack have such a row, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionRow {
    /// The function's source name, for people.
    pub name: StringId,
    /// The function's linker name.
    pub system_name: StringId,
    /// The source file of the function.
    pub filename: StringId,
    /// The line where the function begins; 0 if it is not known.
    pub start_line: i64,
}

/// A row of reports: a function, with line and address if the granularity distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entity {
    /// The function, as a position in [`EntityTable::function`].
    pub function: u32,
    /// The line; 0 if the granularity does not distinguish lines.
    pub line: i64,
    /// The address; 0 if the granularity does not distinguish addresses.
    pub address: u64,
}

/// All functions and entities of a query.
pub struct EntityTable {
    /// The texts of all names and files.
    pub strings: StringTable,
    /// The number of texts at the beginning of `strings` that come from the first profile; 0 after
    /// that profile was added.
    first_texts: usize,
    /// The functions by number.
    pub function: Vec<FunctionRow>,
    function_index: HashMap<FunctionRow, u32>,
    /// The entities by number.
    pub entity: Vec<Entity>,
    entity_index: HashMap<(StringId, StringId, i64, u64), u32>,
    granularity: Granularity,
    /// For each function, the file that replaces its file; empty if all functions keep their files.
    matched: Vec<StringId>,
    /// The entity of samples without any frame.
    pub empty_stack: u32,
}

/// The entities of one profile's frames, and the function rows of its functions.
pub struct ProfileEntities {
    /// The entity of each frame of the profile.
    pub entity: Vec<u32>,
    /// The function row of each function of the profile.
    pub function: Vec<u32>,
}

impl EntityTable {
    /// Makes a table that has only the entity for the empty stack. `strings` has the texts of the
    /// profile that will be added first.
    pub fn new(granularity: Granularity, strings: StringTable) -> Self {
        let mut table = Self {
            first_texts: strings.len(),
            strings,
            function: Vec::new(),
            function_index: HashMap::new(),
            entity: Vec::new(),
            entity_index: HashMap::new(),
            granularity,
            matched: Vec::new(),
            empty_stack: 0,
        };
        table.empty_stack = table.add_named(EMPTY_STACK, "");
        table
    }

    fn function_row(&mut self, row: FunctionRow) -> u32 {
        let functions = &mut self.function;
        *self.function_index.entry(row).or_insert_with(|| {
            functions.push(row);
            functions.len() as u32 - 1
        })
    }

    fn entity(&mut self, function: u32, line: i64, address: u64) -> u32 {
        let row = self.function[function as usize];
        let none = StringId::EMPTY;
        let key = match self.granularity {
            Granularity::Functions | Granularity::FileFunctions => (row.name, row.filename, 0, 0),
            Granularity::Files => (none, row.filename, 0, 0),
            Granularity::Lines => (row.name, row.filename, line, 0),
            Granularity::Addresses => (row.name, row.filename, line, address),
        };
        let entities = &mut self.entity;
        *self.entity_index.entry(key).or_insert_with(|| {
            entities.push(Entity {
                function,
                line: key.2,
                address: key.3,
            });
            entities.len() as u32 - 1
        })
    }

    /// Adds an entity that has only a name, because it is not a function of the program.
    fn add_named(&mut self, name: &str, key: &str) -> u32 {
        let name = self.strings.intern(name);
        // With granularity `files`, the name stands in the place of the file.
        let filename = match self.granularity {
            Granularity::Files => name,
            _ => self.strings.intern(key),
        };
        let function = self.function_row(FunctionRow {
            name,
            system_name: StringId::EMPTY,
            filename,
            start_line: 0,
        });
        self.entity(function, 0, 0)
    }

    /// Adds the functions and frames of a profile, and returns their rows.
    pub fn add(&mut self, profile: &Profile, frames: &FrameTable) -> ProfileEntities {
        let taken_over = std::mem::take(&mut self.first_texts) == profile.strings.len();
        let strings: Vec<StringId> = match taken_over {
            true => Vec::new(),
            false => profile
                .strings
                .iter()
                .map(|s| self.strings.intern(s))
                .collect(),
        };
        let text = |id: StringId| strings.get(id.index()).copied().unwrap_or(id);
        let function: Vec<u32> = profile
            .function
            .iter()
            .map(|f| {
                self.function_row(FunctionRow {
                    name: text(f.name),
                    system_name: text(f.system_name),
                    filename: text(f.filename),
                    start_line: f.start_line,
                })
            })
            .collect();
        let entity = frames
            .iter()
            .map(|frame| self.frame(profile, &function, frame))
            .collect();
        ProfileEntities { entity, function }
    }

    fn frame(&mut self, profile: &Profile, functions: &[u32], frame: &ProfileFrame) -> u32 {
        let (location, line) = match frame {
            ProfileFrame::Label { key, value } => return self.add_named(value, key),
            ProfileFrame::Address { location } => (*location, None),
            ProfileFrame::Line { location, line } => {
                (*location, Some(&profile.line[*line as usize]))
            }
        };
        let address = profile.location[location.index()].address;
        let named = line.filter(|l| !profile.function[l.function.index()].name.is_empty());
        let by_file = self.granularity == Granularity::Files;
        if let Some(line) = named {
            let file = profile.function[line.function.index()].filename;
            if by_file && file.is_empty() {
                return self.add_named("(no file)", "");
            }
            return self.entity(functions[line.function.index()], line.line, address);
        }
        match (
            by_file,
            profile.binary_name(&profile.location[location.index()]),
        ) {
            (true, Some(binary)) => self.add_named(&format!("[{binary}]"), ""),
            (true, None) => self.add_named("(no file)", ""),
            (false, _) => {
                let name = profile.address_name(&profile.location[location.index()]);
                let at = self.add_named(&name, "");
                match self.granularity {
                    Granularity::Addresses => {
                        let function = self.entity[at as usize].function;
                        self.entity(function, 0, address)
                    }
                    _ => at,
                }
            }
        }
    }

    /// Merges functions of several profiles that are the same according to [`match_files`]. All
    /// profiles must have been added before, and `profiles` holds the result of each
    /// [`add`](Self::add). Rows at a granularity that shows files are not merged.
    pub fn match_functions(&mut self, profiles: &mut [&mut ProfileEntities]) {
        let rows: Vec<&[u32]> = profiles.iter().map(|of| &of.function[..]).collect();
        let functions = self.function.iter().map(|f| (f.name, f.filename));
        let functions: Vec<NameAndFile> = functions.collect();
        let Some(matched) = match_files(&functions, &rows, self.strings.len()) else {
            return;
        };
        self.matched = matched;
        if self.granularity != Granularity::Functions {
            return;
        }
        let stand_in = |entity: u32| {
            let function = self.entity[entity as usize].function as usize;
            let key = (self.function[function].name, self.file_of(function), 0, 0);
            self.entity_index.get(&key).copied().unwrap_or(entity)
        };
        let stand_in: Vec<u32> = (0..self.entity.len() as u32).map(stand_in).collect();
        for of in profiles {
            of.entity
                .iter_mut()
                .for_each(|entity| *entity = stand_in[*entity as usize]);
        }
    }

    /// Returns the file that identifies a function together with its name.
    pub fn file_of(&self, function: usize) -> StringId {
        let own = self.function[function].filename;
        self.matched.get(function).copied().unwrap_or(own)
    }

    /// Returns, for each function, how much of its file's path distinguishes it from other
    /// functions with the same name.
    pub fn file_ends(&self) -> FileEnds {
        let functions = self.entity.iter().map(|entity| {
            let function = entity.function as usize;
            (self.function[function].name, self.file_of(function))
        });
        FileEnds::new(functions, &self.strings)
    }

    /// Returns the text of a name.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// Returns the name of a row: the function, or the file with granularity `files`.
    pub fn name(&self, entity: u32) -> &str {
        let function = self.function[self.entity[entity as usize].function as usize];
        match self.granularity {
            Granularity::Files => self.text(function.filename),
            _ => self.text(function.name),
        }
    }

    /// Returns the rank of each entity in the order of name, file, line and address. Loading a
    /// profile does not change this order.
    pub fn ranks(&self) -> Vec<u32> {
        // Texts are ranked once each, because many rows have the same texts.
        let by_file = self.granularity == Granularity::Files;
        let named = |f: &FunctionRow| if by_file { f.filename } else { f.name };
        let texts = self.text_ranks();
        let mut order: Vec<u32> = (0..self.entity.len() as u32).collect();
        let key = |e: u32| {
            let entity = &self.entity[e as usize];
            let function = &self.function[entity.function as usize];
            let text = |id: StringId| texts[id.index()];
            (
                text(named(function)),
                text(function.filename),
                entity.line,
                entity.address,
            )
        };
        order.sort_by_cached_key(|&e| key(e));
        let mut rank = vec![0; order.len()];
        for (r, &e) in order.iter().enumerate() {
            rank[e as usize] = r as u32;
        }
        rank
    }

    /// Returns the rank of each text that is the name or file of a function. The result is indexed
    /// by text number.
    fn text_ranks(&self) -> Vec<u32> {
        let mut used = vec![false; self.strings.len()];
        for function in &self.function {
            used[function.name.index()] = true;
            used[function.filename.index()] = true;
        }
        let texts = self.strings.iter().zip(0u32..).zip(used);
        let mut texts: Vec<(&str, u32)> = texts
            .filter_map(|(text, used)| used.then_some(text))
            .collect();
        texts.sort_unstable();
        let mut rank = vec![0; self.strings.len()];
        for (r, &(_, id)) in (0..).zip(&texts) {
            rank[id as usize] = r;
        }
        rank
    }
}
