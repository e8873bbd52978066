//! Finds the scopes of a function: the namespaces, classes and functions around it.
//!
//! For a function without a linker name (a lambda, or a function that is private to its unit),
//! debug information gives only the last part of the name. With this part alone, all lambdas of a
//! program would be one `operator()`. The other parts are the names of the entries around the
//! function.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, EndianSlice, RunTimeEndian,
    UnitHeader, UnitOffset, UnitRef,
};

use crate::demangle::{demangle, is_mangled};

type SectionReader<'a> = EndianSlice<'a, RunTimeEndian>;
type DwarfSections<'a> = gimli::Dwarf<SectionReader<'a>>;
type DwarfUnit<'a> = gimli::Unit<SectionReader<'a>>;
type DwarfEntry<'a> = DebuggingInformationEntry<SectionReader<'a>>;

/// Maximum nesting depth of entries, and maximum length of a chain of references between them.
const MAX_DEPTH: usize = 64;

/// The position of an entry: whether it is in dwz's shared file, the offset of its unit, the id of
/// the split file, and the offset of the entry in the unit.
type EntryPosition = (bool, usize, u64, usize);

/// Finds the scopes of functions. Caches units and lists of child entries, which many functions
/// share.
#[derive(Default)]
pub(crate) struct ScopeCache<'a> {
    children: RefCell<HashMap<EntryPosition, Rc<[usize]>>>,
    headers: RefCell<HashMap<bool, Rc<[UnitHeader<SectionReader<'a>>]>>>,
    units: RefCell<HashMap<(bool, usize), Rc<DwarfUnit<'a>>>>,
}

/// A reference to an entry, with the data needed to read it.
#[derive(Clone)]
struct EntryReference<'u, 'a> {
    sections: &'u DwarfSections<'a>,
    unit: UnitHandle<'u, 'a>,
    /// Whether the entry is in the file to which dwz moved the parts that several debug files
    /// share.
    is_shared: bool,
    at: UnitOffset,
}

#[derive(Clone)]
enum UnitHandle<'u, 'a> {
    Borrowed(&'u DwarfUnit<'a>),
    Shared(Rc<DwarfUnit<'a>>),
}

impl<'a> EntryReference<'_, 'a> {
    fn unit(&self) -> UnitRef<'_, SectionReader<'a>> {
        match &self.unit {
            UnitHandle::Borrowed(unit) => UnitRef::new(self.sections, unit),
            UnitHandle::Shared(unit) => UnitRef::new(self.sections, unit),
        }
    }

    fn entry(&self) -> Option<DwarfEntry<'a>> {
        self.unit().entry(self.at).ok()
    }

    fn beside(&self, at: UnitOffset) -> Self {
        Self { at, ..self.clone() }
    }

    fn text(&self, entry: &DwarfEntry<'a>, name: gimli::DwAt) -> Option<String> {
        let value = entry.attr_value(name)?;
        let text = self.unit().attr_string(value).ok()?;
        Some(text.to_string_lossy().into_owned())
    }
}

impl<'a> ScopeCache<'a> {
    /// Returns the name of the function `name` with its scope. `entry` is the entry of the
    /// function. `None` if the function has no scope, or if its scope can't be found.
    pub(crate) fn qualified_name(
        &self,
        unit: UnitRef<'_, SectionReader<'a>>,
        entry: UnitOffset,
        name: &str,
    ) -> Option<String> {
        let spot = EntryReference {
            sections: unit.dwarf,
            unit: UnitHandle::Borrowed(unit.unit),
            is_shared: false,
            at: entry,
        };
        let mut is_external = false;
        let mut declared = spot.clone();
        for spot in self.origins(spot) {
            let external = spot.entry()?.attr_value(gimli::DW_AT_external);
            is_external |= matches!(external, Some(AttributeValue::Flag(true)));
            declared = spot;
        }
        let (scope, in_namespace) = self.around(declared, name)?;
        // A function in a namespace that is exported without a linker name is a C function.
        let is_c = in_namespace && is_external;
        (!scope.is_empty() && !is_c).then(|| format!("{scope}::{name}"))
    }

    /// Returns the scopes around the entry `declared` with the name `name`, and whether the
    /// innermost scope is a namespace.
    fn around(&self, mut declared: EntryReference<'_, 'a>, name: &str) -> Option<(String, bool)> {
        let mut name = name.to_string();
        let (mut inside_out, mut in_namespace) = (Vec::new(), None);
        'declarations: for _ in 0..MAX_DEPTH {
            for at in self.path(&declared)?.into_iter().rev() {
                let around = declared.beside(at);
                let entry = around.entry()?;
                let part = around.text(&entry, gimli::DW_AT_name);
                in_namespace.get_or_insert(entry.tag() == gimli::DW_TAG_namespace);
                inside_out.push(match entry.tag() {
                    gimli::DW_TAG_namespace => part.unwrap_or("(anonymous namespace)".into()),
                    gimli::DW_TAG_class_type
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_union_type
                    | gimli::DW_TAG_enumeration_type => part.unwrap_or_else(|| match &*name {
                        "operator()" => "{lambda}".into(),
                        _ => "(anonymous)".into(),
                    }),
                    gimli::DW_TAG_subprogram => {
                        let (linker, plain) = self.names(around.clone());
                        if let Some(whole) = linker.and_then(|name| demangle(&name)) {
                            inside_out.push(whole);
                            break 'declarations;
                        }
                        let plain = plain?;
                        // A function may be defined outside its scope. Its declaration is then
                        // inside that scope.
                        let declaration = self.origins(around).last()?;
                        if declaration.at != at {
                            inside_out.push(plain.clone());
                            (declared, name) = (declaration, plain);
                            continue 'declarations;
                        }
                        plain
                    }
                    _ => continue,
                });
            }
            break;
        }
        inside_out.retain(|part| !part.is_empty());
        inside_out.reverse();
        Some((inside_out.join("::"), in_namespace.unwrap_or(false)))
    }

    /// Returns an entry, followed by the chain of entries to which it refers for missing
    /// attributes.
    fn origins<'s, 'u>(
        &'s self,
        spot: EntryReference<'u, 'a>,
    ) -> impl Iterator<Item = EntryReference<'u, 'a>> + use<'s, 'u, 'a> {
        std::iter::successors(Some(spot), |spot| self.origin(spot)).take(MAX_DEPTH)
    }

    fn origin<'u>(&self, spot: &EntryReference<'u, 'a>) -> Option<EntryReference<'u, 'a>> {
        let entry = spot.entry()?;
        let value = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
        match value {
            AttributeValue::UnitRef(at) => Some(spot.beside(at)),
            AttributeValue::DebugInfoRef(at) => self.elsewhere(spot.sections, spot.is_shared, at),
            AttributeValue::DebugInfoRefSup(at) => {
                self.elsewhere(spot.sections.sup.as_deref()?, true, at)
            }
            _ => None,
        }
    }

    /// Returns the entry at an offset in the debug information of a file.
    fn elsewhere<'u>(
        &self,
        sections: &'u DwarfSections<'a>,
        is_shared: bool,
        at: DebugInfoOffset,
    ) -> Option<EntryReference<'u, 'a>> {
        let headers = self.headers.borrow().get(&is_shared).cloned();
        let headers = match headers {
            Some(headers) => headers,
            None => {
                let (mut all, mut units) = (Vec::new(), sections.units());
                while let Some(header) = units.next().ok()? {
                    all.push(header);
                }
                let all: Rc<[_]> = all.into();
                self.headers.borrow_mut().insert(is_shared, all.clone());
                all
            }
        };
        let begins = |header: &UnitHeader<SectionReader<'a>>| header.debug_info_offset();
        let behind = headers.partition_point(|header| begins(header).is_some_and(|o| o.0 <= at.0));
        let header = headers.get(behind.checked_sub(1)?)?;
        let within = at.to_unit_offset(header)?;
        let key = (is_shared, begins(header)?.0);
        let known = self.units.borrow().get(&key).cloned();
        let unit = match known {
            Some(unit) => unit,
            None => {
                let unit = Rc::new(sections.unit(*header).ok()?);
                self.units.borrow_mut().insert(key, unit.clone());
                unit
            }
        };
        Some(EntryReference {
            sections,
            unit: UnitHandle::Shared(unit),
            is_shared,
            at: within,
        })
    }

    /// Returns a function's linker name and its plain name.
    fn names(&self, spot: EntryReference<'_, 'a>) -> (Option<String>, Option<String>) {
        let (mut linker, mut plain) = (None, None);
        for spot in self.origins(spot) {
            let Some(entry) = spot.entry() else { break };
            let found = spot.text(&entry, gimli::DW_AT_linkage_name);
            linker = linker.or(found.filter(|name| is_mangled(name)));
            plain = plain.or_else(|| spot.text(&entry, gimli::DW_AT_name));
        }
        (linker, plain)
    }

    /// Returns the entries around an entry, outermost first.
    fn path(&self, target: &EntryReference<'_, 'a>) -> Option<Vec<UnitOffset>> {
        let mut path = Vec::new();
        let mut at = target.unit().header.root_offset();
        for _ in 0..MAX_DEPTH {
            let children = self.children(&target.beside(at))?;
            // Among sibling entries, the target is in the last one that does not begin after it.
            let behind = children.partition_point(|&child| child <= target.at.0);
            let child = UnitOffset(*children.get(behind.checked_sub(1)?)?);
            if child == target.at {
                return Some(path);
            }
            path.push(child);
            at = child;
        }
        None
    }

    fn children(&self, of: &EntryReference<'_, 'a>) -> Option<Rc<[usize]>> {
        let unit = of.unit();
        let offset = unit.header.debug_info_offset().map_or(0, |at| at.0);
        let split = unit.dwo_id.map_or(0, |id| id.0);
        let place = (of.is_shared, offset, split, of.at.0);
        if let Some(known) = self.children.borrow().get(&place) {
            return Some(known.clone());
        }
        let mut tree = unit.entries_tree(Some(of.at)).ok()?;
        let mut each = tree.root().ok()?.children();
        let mut found = Vec::new();
        while let Some(child) = each.next().ok()? {
            found.push(child.entry().offset().0);
        }
        let found: Rc<[usize]> = found.into();
        self.children.borrow_mut().insert(place, found.clone());
        Some(found)
    }
}
