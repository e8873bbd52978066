//! An object file that a profile maps, as the tools see it.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};

use heapprof_symbolize::layout::{ObjectLayout, read_layout};

use super::address_names::AddressNames;
use super::load_base::{base_at, check_base, needs_kernel_symbol};
use super::places::ToolPlaces;
use super::source_lines::LineFinder;
use super::symbol_list::SymbolFinder;
use crate::pprof::sources::go_error_text;
use crate::report::{InlinedFrame, ObjectFile, ObjectMapping, ObjectSymbol, SymbolQuery};
use crate::tool_process::{MAX_SYMBOL_BYTES, ToolCommand};

/// The symbol at the start of a kernel's code.
const KERNEL_SYMBOL: &str = "_stext";

/// How functions of addresses are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineMethod {
    /// From the symbols alone.
    Names,
    /// From debug information, with files and lines.
    Lines,
}

/// What finds the functions, once it is needed.
enum FrameFinder {
    Names(AddressNames),
    Lines(LineFinder),
}

/// An open object file.
pub(super) struct MappedFile {
    path: PathBuf,
    name: String,
    mapping: ObjectMapping,
    method: LineMethod,
    places: ToolPlaces,
    layout: ObjectLayout,
    /// The base, computed for the first address that is asked for.
    base: OnceCell<Result<u64, String>>,
    finder: RefCell<Option<Result<FrameFinder, String>>>,
}

impl MappedFile {
    /// Opens an ELF file and checks that its base can be computed.
    pub(super) fn open(
        name: &str,
        mapping: ObjectMapping,
        method: LineMethod,
        places: &ToolPlaces,
    ) -> Result<Self, String> {
        let path = PathBuf::from(name);
        let symbol = needs_kernel_symbol(name, mapping).then_some(KERNEL_SYMBOL);
        // As in pprof, a report has this reason.
        if let Err(error) = std::fs::metadata(&path) {
            return Err(format!("open {name}: {}", go_error_text(&error)));
        }
        let layout = read_layout(&path, symbol).map_err(|warning| warning.to_string())?;
        check_base(&layout, mapping)
            .map_err(|why| format!("could not identify base for {name}: {why}"))?;
        Ok(Self {
            path,
            name: name.to_string(),
            mapping,
            method,
            places: places.clone(),
            layout,
            base: OnceCell::new(),
            finder: RefCell::new(None),
        })
    }

    fn base(&self, address: u64) -> Result<u64, String> {
        let compute = || base_at(&self.layout, self.mapping, address, &self.name);
        self.base.get_or_init(compute).clone()
    }

    fn start_finder(&self, base: u64) -> Result<FrameFinder, String> {
        let nm = self.places.nm.as_deref().unwrap_or(Path::new("nm"));
        Ok(match self.method {
            LineMethod::Names => {
                let deadline = self.places.deadline;
                FrameFinder::Names(AddressNames::read(nm, &self.path, base, deadline)?)
            }
            LineMethod::Lines => {
                FrameFinder::Lines(LineFinder::start(&self.places, &self.path, base)?)
            }
        })
    }
}

impl ObjectFile for MappedFile {
    fn object_address(&self, address: u64) -> Result<u64, String> {
        Ok(address.wrapping_sub(self.base(address)?))
    }

    fn symbols(&self, query: &SymbolQuery) -> Result<Vec<ObjectSymbol>, String> {
        let Some(nm) = &self.places.nm else {
            return Err(
                "no nm tool available; install binutils or LLVM, or name the folder of nm with \
                 -tools"
                    .to_string(),
            );
        };
        let mut command = ToolCommand::new(nm);
        command.deadline(self.places.deadline);
        command.arg("-n");
        command.file(&self.path);
        let mut finder = SymbolFinder::new(query);
        command.run(MAX_SYMBOL_BYTES, &mut |line| finder.add(line))?;
        Ok(finder.finish())
    }

    fn frames(&self, address: u64) -> Result<Vec<InlinedFrame>, String> {
        let base = self.base(address)?;
        let mut finder = self.finder.borrow_mut();
        match finder.get_or_insert_with(|| self.start_finder(base)) {
            Ok(FrameFinder::Lines(finder)) => finder.frames(address, base),
            Ok(FrameFinder::Names(names)) => {
                let name = names.find(address).map(str::to_string);
                let frame = name.map(|function| InlinedFrame {
                    function,
                    ..InlinedFrame::default()
                });
                Ok(frame.into_iter().collect())
            }
            Err(why) => Err(why.clone()),
        }
    }
}
