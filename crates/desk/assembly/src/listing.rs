//! Lists the instructions of a profile's functions: which instructions belong to a function, and
//! which of them each address of the profile is in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use heapprof_profile::{Line, MappingIndex, Profile, StringId};
use heapprof_symbolize::SymbolizeOptions;
use heapprof_symbolize::code::{CodeFile, read_code};

use crate::file::{FileCode, PieceOfAddress, disassemble};
use crate::wanted::{FrameFinder, WantedFunction, WantedFunctions};
use crate::{
    CodePiece, FunctionAssembly, ListedInstruction, MAX_INSTRUCTIONS, MAX_REASONS, MissingCode,
    SourceFrame,
};

/// The instructions of some functions of a profile.
#[derive(Clone, Debug, Default)]
pub struct ProfileAssembly {
    /// The code of all functions.
    pub pieces: Vec<CodePiece>,
    /// The instructions of each wanted function, in the order in which the functions were given.
    pub functions: Vec<FunctionAssembly>,
    /// The instruction of a location, by the location's index.
    key_of: HashMap<u32, InstructionKey>,
}

/// Which instruction of a profile's code one is. It has a number, which takes the place of an
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstructionKey {
    piece: u32,
    instruction: u32,
}

impl InstructionKey {
    /// Returns the key with a number; `None` for 0, which no instruction has.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        let number = number.checked_sub(1)?;
        let (piece, instruction) = ((number >> 32) as u32, number as u32);
        Some(Self { piece, instruction })
    }

    fn from_listed(listed: &ListedInstruction) -> Self {
        let (piece, instruction) = (listed.piece, listed.instruction);
        Self { piece, instruction }
    }

    fn number(self) -> u64 {
        (u64::from(self.piece) << 32 | u64::from(self.instruction)) + 1
    }
}

/// An address of a wanted function.
struct AddressOfFunction {
    location: u32,
    /// The index of the function among the wanted ones.
    wanted: usize,
    /// The line of the function that the profile has for the address.
    line: i64,
    /// Whether the function is the one that the linker knows there, and not an inlined one.
    is_outermost: bool,
    /// Number of functions with the same name that were inlined into it there.
    inner_namesakes: usize,
}

/// Disassembles the code of functions. With `no_inlines`, only the outermost function of an address
/// counts.
///
/// At most [`MAX_INSTRUCTIONS`] instructions are decoded, and each symbol's code only once.
#[must_use]
pub fn assemble(
    profile: &Profile,
    wanted: &[WantedFunction<'_>],
    no_inlines: bool,
    options: &SymbolizeOptions,
) -> ProfileAssembly {
    let mut assembly = ProfileAssembly {
        functions: vec![FunctionAssembly::default(); wanted.len()],
        ..ProfileAssembly::default()
    };
    let mut files: BTreeMap<(StringId, StringId), Vec<AddressOfFunction>> = BTreeMap::new();
    for address in addresses(profile, wanted, no_inlines) {
        match profile.location[address.location as usize].mapping {
            Some(mapping) => {
                let mapping = &profile.mapping[mapping.index()];
                let file = files.entry((mapping.filename, mapping.build_id));
                file.or_default().push(address);
            }
            None => assembly.miss(address.wanted, MissingCode::NoMapping),
        }
    }
    let functions = WantedFunctions::new(profile, wanted);
    let mut left = MAX_INSTRUCTIONS;
    for addresses in files.values() {
        let first = addresses.first();
        let Some(mapping) = first.and_then(|at| mapping_of(profile, at)) else {
            continue;
        };
        let read = read_code(profile, mapping, options, |file| {
            assembly.add(profile, &functions, addresses, file, &mut left);
        });
        if let Err(error) = read {
            for address in addresses {
                assembly.miss(address.wanted, error.clone().into());
            }
        }
    }
    for function in &mut assembly.functions {
        function
            .instructions
            .sort_unstable_by_key(InstructionKey::from_listed);
    }
    assembly
}

/// Returns the addresses of the wanted functions. A function that was inlined into itself has an
/// address once, with the innermost of its lines.
fn addresses(
    profile: &Profile,
    wanted: &[WantedFunction<'_>],
    no_inlines: bool,
) -> Vec<AddressOfFunction> {
    let numbers: HashMap<WantedFunction<'_>, usize> = wanted.iter().copied().zip(0..).collect();
    let functions = profile.function.iter().map(|function| {
        let name = profile.text(function.name);
        let file = profile.text(function.filename);
        numbers.get(&WantedFunction { name, file }).copied()
    });
    let wanted_of: Vec<Option<usize>> = functions.collect();
    let mut found: Vec<AddressOfFunction> = Vec::new();
    for (location, index) in profile.location.iter().zip(0..) {
        let lines = profile.lines(location);
        let skipped = match no_inlines {
            true => lines.len().saturating_sub(1),
            false => 0,
        };
        let before = found.len();
        for (at, line) in lines.iter().enumerate().skip(skipped) {
            let Some(wanted) = wanted_of[line.function.index()] else {
                continue;
            };
            let is_outermost = at + 1 == lines.len();
            match found[before..].iter_mut().find(|f| f.wanted == wanted) {
                Some(inner) => inner.is_outermost |= is_outermost,
                None => found.push(AddressOfFunction {
                    location: index,
                    wanted,
                    line: line.line,
                    is_outermost,
                    inner_namesakes: {
                        let name = profile.function[line.function.index()].name;
                        let has_name =
                            |l: &&Line| profile.function[l.function.index()].name == name;
                        lines[..at].iter().filter(has_name).count()
                    },
                }),
            }
        }
    }
    found
}

fn mapping_of(profile: &Profile, address: &AddressOfFunction) -> Option<MappingIndex> {
    profile.location[address.location as usize].mapping
}

/// What the profile says about a function in one piece of code.
#[derive(Default)]
struct FunctionInPiece {
    /// Whether the piece is the function's own code.
    is_owner: bool,
    /// The line of each instruction that has an address of the profile.
    lines: HashMap<usize, i64>,
    /// The addresses behind the last instruction that is listed.
    behind_cut: BTreeSet<u64>,
}

impl ProfileAssembly {
    /// Replaces the address of each location with an instruction by the instruction's number, so
    /// that rows by address are rows by instruction. Locations without one get the address 0. All
    /// lines become 0, so that an instruction has one row for each function.
    pub fn mark(&self, profile: &mut Profile) {
        for (location, index) in profile.location.iter_mut().zip(0..) {
            if !location.line.is_empty() {
                let key = self.key_of.get(&index);
                location.address = key.map_or(0, |key| key.number());
            }
        }
        for line in &mut profile.line {
            line.line = 0;
        }
    }

    /// Sets flat and cum of an instruction in a function's listing. The number of `key` is an
    /// address of a profile that [`mark`](Self::mark) changed.
    pub fn set_values(&mut self, function: usize, key: InstructionKey, flat: i64, cum: i64) {
        if let Some(function) = self.functions.get_mut(function)
            && let Ok(at) = function
                .instructions
                .binary_search_by_key(&key, InstructionKey::from_listed)
        {
            function.instructions[at].values = Some((flat, cum));
        }
    }

    fn miss(&mut self, function: usize, why: MissingCode) {
        let missing = &mut self.functions[function].missing;
        let is_known = missing.iter().any(|known| known.is_like(&why));
        if missing.len() < MAX_REASONS && !is_known {
            missing.push(why);
        }
    }

    /// Adds the code of one file. `addresses` are the addresses of wanted functions in it.
    fn add(
        &mut self,
        profile: &Profile,
        wanted: &WantedFunctions<'_>,
        addresses: &[AddressOfFunction],
        file: &CodeFile<'_>,
        left: &mut usize,
    ) {
        let path = file.path().display().to_string();
        let mut places: Vec<(u64, &AddressOfFunction)> = Vec::new();
        for address in addresses {
            let location = &profile.location[address.location as usize];
            let mapping = mapping_of(profile, address).map(|m| &profile.mapping[m.index()]);
            match mapping.and_then(|m| file.virtual_address(m, location.address)) {
                Some(place) => places.push((place, address)),
                None => self.miss(
                    address.wanted,
                    MissingCode::NoFunction {
                        file: path.clone(),
                        address: location.address,
                    },
                ),
            }
        }
        let mut asked: Vec<u64> = places.iter().map(|(place, _)| *place).collect();
        asked.sort_unstable();
        asked.dedup();
        let FileCode { pieces, piece_of } = disassemble(file, &asked, left);
        let first = self.pieces.len();
        let mut finder = FrameFinder::new(wanted);
        let mut inside: BTreeMap<(usize, usize), FunctionInPiece> = BTreeMap::new();
        for (place, address) in places {
            let found = asked.binary_search(&place).map(|at| piece_of[at]);
            let piece = match found {
                Ok(PieceOfAddress::Piece(piece)) => piece,
                Ok(PieceOfAddress::BeyondLimit) => {
                    self.miss(address.wanted, MissingCode::Limit);
                    continue;
                }
                Ok(PieceOfAddress::NoFunction) | Err(_) => {
                    let why = MissingCode::NoFunction {
                        file: path.clone(),
                        address: place,
                    };
                    self.miss(address.wanted, why);
                    continue;
                }
            };
            let at = instruction_at(&pieces[piece], place);
            let name = wanted.get(address.wanted).name;
            if let Some(found) = other_function(&pieces[piece], at, name, address.is_outermost) {
                let why = MissingCode::OtherFunction {
                    file: path.clone(),
                    address: place,
                    found,
                };
                self.miss(address.wanted, why);
                continue;
            }
            let function = inside.entry((piece, address.wanted)).or_default();
            function.is_owner |= address.is_outermost;
            match at {
                Some(at) => {
                    let frames = &pieces[piece].instructions[at].frames;
                    finder.learn(address.wanted, address.inner_namesakes, frames);
                    function.lines.entry(at).or_insert(address.line);
                    let key = InstructionKey {
                        piece: (first + piece) as u32,
                        instruction: at as u32,
                    };
                    self.key_of.insert(address.location, key);
                }
                None if pieces[piece].is_cut => {
                    function.behind_cut.insert(place);
                }
                None => {
                    let why = MissingCode::NoInstruction {
                        file: path.clone(),
                        address: place,
                    };
                    self.miss(address.wanted, why);
                }
            }
        }
        for (&(piece, function), known) in &inside {
            if !known.behind_cut.is_empty() {
                let why = MissingCode::BehindCut {
                    file: path.clone(),
                    symbol: pieces[piece].symbol.clone().unwrap_or_default(),
                    addresses: known.behind_cut.len(),
                };
                self.miss(function, why);
            }
        }
        self.list(&finder, &pieces, inside);
        self.pieces.extend(pieces);
    }

    /// Adds the instructions of functions in the pieces of one file, which come behind the pieces
    /// that are there. `inside` tells what is known of a piece and a function by their indexes.
    fn list(
        &mut self,
        finder: &FrameFinder<'_>,
        pieces: &[CodePiece],
        inside: BTreeMap<(usize, usize), FunctionInPiece>,
    ) {
        // Code inside of other code comes behind it, and takes over the instructions of both.
        let first = self.pieces.len();
        let mut inside: Vec<((usize, usize), FunctionInPiece)> = inside.into_iter().collect();
        inside.sort_by_key(|((piece, function), _)| {
            let piece = &pieces[*piece];
            (*function, piece.start, Reverse(piece.end))
        });
        for of_function in inside.chunk_by(|((_, a), _), ((_, b), _)| a == b) {
            let mut by_address = BTreeMap::new();
            for ((piece, function), known) in of_function {
                for (at, line) in listed(&pieces[*piece], *function, finder, known) {
                    let instruction = ListedInstruction {
                        piece: (first + piece) as u32,
                        instruction: at as u32,
                        line,
                        values: None,
                    };
                    by_address.insert(pieces[*piece].instructions[at].address, instruction);
                }
            }
            if let Some(((_, function), _)) = of_function.first() {
                let instructions = &mut self.functions[*function].instructions;
                instructions.extend(by_address.into_values());
            }
        }
    }
}

/// Returns the index of the instruction whose bytes contain a virtual address.
fn instruction_at(piece: &CodePiece, address: u64) -> Option<usize> {
    let all = &piece.instructions;
    let after = all.partition_point(|instruction| instruction.address <= address);
    let at = after.checked_sub(1)?;
    (address - all[at].address < u64::from(all[at].length)).then_some(at)
}

/// Returns the name of the function that the file has at an instruction, if it is not the wanted
/// one. If the file has the profile's build id, it is the right one, whatever names it has.
fn other_function(
    piece: &CodePiece,
    at: Option<usize>,
    wanted: &str,
    is_outermost: bool,
) -> Option<String> {
    let instruction = at.and_then(|at| piece.instructions.get(at));
    let frames = instruction.map_or(&[][..], |instruction| &instruction.frames);
    // Without lines, the file does not say what was inlined.
    let symbol = piece.symbol.as_deref();
    let symbol = symbol.filter(|_| is_outermost || !frames.is_empty());
    let frames = frames.iter().map(|frame| &*frame.function);
    let mut names = frames.chain(symbol).filter(|name| !name.is_empty());
    let first = names.next().filter(|_| !piece.has_build_id)?;
    let is_wanted = |name: &str| bare_name(name) == bare_name(wanted);
    (!is_wanted(first) && !names.any(is_wanted)).then(|| symbol.unwrap_or(first).to_string())
}

/// Returns a function's name without parameters, and without what a compiler adds to the name of a
/// clone. Tools write these differently.
fn bare_name(name: &str) -> &str {
    const ADDITIONS: [&str; 10] = [
        "(",
        "<",
        " [",
        "@",
        ".constprop",
        ".isra",
        ".part",
        ".cold",
        ".llvm",
        ".lto_priv",
    ];
    let ends = ADDITIONS.iter().filter_map(|part| name.find(part));
    name.get(..ends.min().unwrap_or(name.len())).unwrap_or(name)
}

/// Returns the instructions of a piece that belong to a function, with their lines. The profile's
/// lines come before those of debug information, which may name files and functions differently.
fn listed<'a>(
    piece: &'a CodePiece,
    function: usize,
    finder: &'a FrameFinder<'_>,
    known: &'a FunctionInPiece,
) -> impl Iterator<Item = (usize, i64)> + 'a {
    let line = |frame: &SourceFrame| i64::from(frame.line);
    let all = piece.instructions.iter().enumerate();
    all.filter_map(move |(at, instruction)| {
        let frames = &instruction.frames;
        let found = match (known.lines.get(&at), known.is_owner) {
            (Some(&line), _) => Some(line),
            (None, true) => Some(frames.last().map_or(0, line)),
            (None, false) => finder.find(function, frames).map(line),
        };
        found.map(|line| (at, line))
    })
}
