//! Reads the tables of a file: mappings, locations, functions and texts. References between them
//! are not resolved yet.

use super::stand_in::StandIns;
use crate::error::{Error, ProfileElement};
use crate::id_map::IdMap;
use crate::model::{Function, FunctionIndex, Line, Location, Mapping, MappingIndex};
use crate::strings::{StringId, StringTable};
use crate::wire::MessageFields;

#[derive(Default)]
pub(super) struct RawMapping {
    pub(super) id: u64,
    pub(super) memory_start: u64,
    pub(super) memory_limit: u64,
    pub(super) file_offset: u64,
    pub(super) filename: u64,
    pub(super) build_id: u64,
    pub(super) has: [bool; 4],
    pub(super) offset: u64,
}

#[derive(Default)]
pub(super) struct RawFunction {
    pub(super) id: u64,
    pub(super) name: u64,
    pub(super) system_name: u64,
    pub(super) filename: u64,
    pub(super) start_line: i64,
    pub(super) offset: u64,
}

pub(super) struct RawTables {
    pub(super) mapping: Vec<RawMapping>,
    /// The locations. Their mappings are stand-ins for ids; 0 means no mapping.
    pub(super) location: Vec<Location>,
    /// Offset of each location in the profile.
    pub(super) location_offset: Vec<u64>,
    /// The lines. Their functions are stand-ins for ids; 0 means no function.
    pub(super) line: Vec<Line>,
    pub(super) mappings: StandIns,
    pub(super) functions: StandIns,
    pub(super) function: Vec<RawFunction>,
    pub(super) strings: StringTable,
    /// The profile's id for each text of the file's string table.
    pub(super) string_id: Vec<StringId>,
    pub(super) mapping_index: IdMap,
    pub(super) location_index: IdMap,
    pub(super) function_index: IdMap,
    pub(super) not_utf8: usize,
}

impl Default for RawTables {
    fn default() -> Self {
        Self {
            mapping: Vec::new(),
            location: Vec::new(),
            location_offset: Vec::new(),
            line: Vec::new(),
            mappings: StandIns::default(),
            functions: StandIns::default(),
            function: Vec::new(),
            strings: StringTable::new(),
            string_id: Vec::new(),
            mapping_index: IdMap::new(),
            location_index: IdMap::new(),
            function_index: IdMap::new(),
            not_utf8: 0,
        }
    }
}

/// Checks that an id is not 0, and that no earlier object has it.
fn check_id(index: &mut IdMap, id: u64, offset: u64, object: ProfileElement) -> Result<(), Error> {
    let defect = match id {
        0 => "has id 0, which is reserved for unknown".to_string(),
        _ if !index.push(id) => format!("has id {id}, which an earlier one has"),
        _ => return Ok(()),
    };
    Err(Error::Invalid {
        offset: Some(offset),
        object,
        defect,
        hint: "",
    })
}

impl RawTables {
    /// Estimates how many bytes the tables take, including the additional memory for resolved
    /// references.
    pub(super) fn memory(&self) -> u64 {
        let tables = self.mapping.len() * (size_of::<RawMapping>() + size_of::<Mapping>())
            + self.function.len() * (size_of::<RawFunction>() + size_of::<Function>())
            + size_of_val(&self.location[..])
            + size_of_val(&self.location_offset[..])
            + size_of_val(&self.line[..])
            + size_of_val(&self.string_id[..]);
        let ids = [
            &self.mapping_index,
            &self.location_index,
            &self.function_index,
        ];
        tables as u64
            + ids.iter().map(|ids| ids.memory()).sum::<u64>()
            + self.mappings.memory()
            + self.functions.memory()
            + self.strings.memory()
    }

    pub(super) fn strings_seen(&self) -> usize {
        self.string_id.len()
    }

    pub(super) fn string(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        if self.string_id.is_empty() && !bytes.is_empty() {
            return Err(Error::Invalid {
                offset: Some(offset),
                object: ProfileElement::String(0),
                defect: "must be empty".to_string(),
                hint: "",
            });
        }
        let id = match std::str::from_utf8(bytes) {
            Ok(text) => self.strings.intern(text),
            Err(_) => {
                self.not_utf8 += 1;
                self.strings.intern(&String::from_utf8_lossy(bytes))
            }
        };
        self.string_id.push(id);
        Ok(())
    }

    pub(super) fn mapping(&mut self, body: &[u8], offset: u64) -> Result<(), Error> {
        let object = ProfileElement::Mapping(self.mapping.len() + 1);
        let mut raw = RawMapping {
            offset,
            ..RawMapping::default()
        };
        let mut fields = MessageFields::new(body, offset, object);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => raw.id = fields.number(field, value)?,
                2 => raw.memory_start = fields.number(field, value)?,
                3 => raw.memory_limit = fields.number(field, value)?,
                4 => raw.file_offset = fields.number(field, value)?,
                5 => raw.filename = fields.number(field, value)?,
                6 => raw.build_id = fields.number(field, value)?,
                7..=10 => raw.has[field as usize - 7] = fields.number(field, value)? != 0,
                _ => {}
            }
        }
        check_id(&mut self.mapping_index, raw.id, offset, object)?;
        self.mapping.push(raw);
        Ok(())
    }

    pub(super) fn location(&mut self, body: &[u8], offset: u64) -> Result<(), Error> {
        let object = ProfileElement::Location(self.location.len() + 1);
        let begin = self.lines(offset, object)?;
        let mut mapping = 0;
        let mut location = Location {
            id: 0,
            mapping: None,
            address: 0,
            line: begin..begin,
            is_folded: false,
        };
        let mut fields = MessageFields::new(body, offset, object);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => location.id = fields.number(field, value)?,
                2 => mapping = fields.number(field, value)?,
                3 => location.address = fields.number(field, value)?,
                4 => {
                    let at = fields.offset();
                    let body = fields.bytes(field, value)?;
                    self.line(body, at - body.len() as u64, object)?;
                }
                5 => location.is_folded = fields.number(field, value)? != 0,
                _ => {}
            }
        }
        check_id(&mut self.location_index, location.id, offset, object)?;
        location.mapping = Some(MappingIndex(self.mappings.stand_in_for(mapping)));
        location.line.end = self.lines(offset, object)?;
        self.location.push(location);
        self.location_offset.push(offset);
        Ok(())
    }

    /// Returns the number of lines read, which is the position of the next line. Fails if there are
    /// too many.
    fn lines(&self, offset: u64, object: ProfileElement) -> Result<u32, Error> {
        u32::try_from(self.line.len()).map_err(|_| Error::Invalid {
            offset: Some(offset),
            object,
            defect: "is beyond the 2^32 lines a profile may have".to_string(),
            hint: "",
        })
    }

    fn line(&mut self, body: &[u8], offset: u64, object: ProfileElement) -> Result<(), Error> {
        let mut function = 0;
        let mut line = Line {
            function: FunctionIndex(0),
            line: 0,
            column: 0,
        };
        let mut fields = MessageFields::new(body, offset, object);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => function = fields.number(field, value)?,
                2 => line.line = fields.number(field, value)? as i64,
                3 => line.column = fields.number(field, value)? as i64,
                _ => {}
            }
        }
        line.function = FunctionIndex(self.functions.stand_in_for(function));
        self.line.push(line);
        Ok(())
    }

    pub(super) fn function(&mut self, body: &[u8], offset: u64) -> Result<(), Error> {
        let object = ProfileElement::Function(self.function.len() + 1);
        let mut raw = RawFunction {
            offset,
            ..RawFunction::default()
        };
        let mut fields = MessageFields::new(body, offset, object);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => raw.id = fields.number(field, value)?,
                2 => raw.name = fields.number(field, value)?,
                3 => raw.system_name = fields.number(field, value)?,
                4 => raw.filename = fields.number(field, value)?,
                5 => raw.start_line = fields.number(field, value)? as i64,
                _ => {}
            }
        }
        check_id(&mut self.function_index, raw.id, offset, object)?;
        self.function.push(raw);
        Ok(())
    }
}
