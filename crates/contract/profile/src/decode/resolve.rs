//! Finishes decoding: ids become positions, string numbers become texts, and every reference is
//! checked.

use std::sync::Arc;

use super::samples::RawSamples;
use super::tables::RawTables;
use super::{ProfileDecoder, resolve_value_type};
use crate::error::{Error, ProfileElement, Warning};
use crate::model::stacks::SampleStacks;
use crate::model::{
    Function, FunctionIndex, Label, LabelSets, LocationIndex, Mapping, MappingIndex, Profile,
};
use crate::strings::StringId;

fn invalid(object: ProfileElement, offset: Option<u64>, defect: String) -> Error {
    Error::Invalid {
        offset,
        object,
        defect,
        hint: "",
    }
}

pub(super) fn resolve(decoder: ProfileDecoder) -> Result<Profile, Error> {
    let ProfileDecoder {
        sample_type,
        mut samples,
        mut tables,
        ..
    } = decoder;
    let location = std::mem::take(&mut tables.location);
    let line = std::mem::take(&mut tables.line);
    let text = |number: u64, what: &str, object: ProfileElement, offset: Option<u64>| {
        let id = usize::try_from(number)
            .ok()
            .and_then(|n| tables.string_id.get(n));
        match id {
            Some(&id) => Ok(id),
            // In a file without any text, 0 means the empty text.
            None if number == 0 => Ok(StringId::EMPTY),
            None => Err(invalid(
                object,
                offset,
                format!(
                    "{what} is string {} of a string table of {}",
                    number as i64,
                    tables.string_id.len()
                ),
            )),
        }
    };
    let top = |number, what| text(number, what, ProfileElement::Profile, None);

    if sample_type.is_empty() {
        let defect = "has no sample types, so its values have no meaning".to_string();
        return Err(invalid(ProfileElement::Profile, None, defect));
    }
    let mut profile = Profile {
        sample_type: sample_type
            .iter()
            .enumerate()
            .map(|(i, &raw)| {
                let object = ProfileElement::SampleType(i + 1);
                resolve_value_type(raw, |n| text(n, "its type or unit", object, None))
            })
            .collect::<Result<_, _>>()?,
        drop_frames: top(decoder.drop_frames, "drop_frames")?,
        keep_frames: top(decoder.keep_frames, "keep_frames")?,
        time_nanos: decoder.time_nanos,
        duration_nanos: decoder.duration_nanos,
        period_type: decoder
            .period_type
            .map(|raw| {
                resolve_value_type(raw, |n| {
                    text(n, "its type or unit", ProfileElement::PeriodType, None)
                })
            })
            .transpose()?,
        period: decoder.period,
        comment: decoder
            .comment
            .iter()
            .map(|&n| top(n, "a comment"))
            .collect::<Result<_, _>>()?,
        default_sample_type: top(decoder.default_sample_type, "default_sample_type")?,
        doc_url: top(decoder.doc_url, "doc_url")?,
        location,
        line,
        ..Profile::default()
    };
    if !samples.is_empty() && samples.samples.width != profile.sample_type.len() {
        let defect = format!(
            "has {} values, the profile has {} sample types",
            samples.samples.width,
            profile.sample_type.len()
        );
        return Err(invalid(ProfileElement::Sample(1), None, defect));
    }
    samples.samples.width = profile.sample_type.len();

    profile.mapping = mappings(&tables, &text)?;
    profile.function = functions(&tables, &text)?;
    locations(&mut profile, &tables)?;
    profile.label_sets = label_sets(&mut samples, &tables, &text)?;
    samples.samples.stacks = Arc::new(stacks(&mut samples, &tables)?);
    if tables.not_utf8 > 0 {
        profile.warnings.push(Warning::NotUtf8(tables.not_utf8));
    }
    profile.samples = samples.samples;
    profile.strings = tables.strings;
    Ok(profile)
}

/// A function that looks up a string number. Its arguments are the number, the purpose of the text,
/// the object that refers to the text, and the offset of that object.
type TextLookup<'a> = &'a dyn Fn(u64, &str, ProfileElement, Option<u64>) -> Result<StringId, Error>;

fn mappings(tables: &RawTables, text: TextLookup<'_>) -> Result<Vec<Mapping>, Error> {
    let resolve = |(i, raw): (usize, &super::tables::RawMapping)| {
        let name = |n, what| text(n, what, ProfileElement::Mapping(i + 1), Some(raw.offset));
        Ok(Mapping {
            id: raw.id,
            memory_start: raw.memory_start,
            memory_limit: raw.memory_limit,
            file_offset: raw.file_offset,
            filename: name(raw.filename, "its filename")?,
            build_id: name(raw.build_id, "its build_id")?,
            has_functions: raw.has[0],
            has_filenames: raw.has[1],
            has_line_numbers: raw.has[2],
            has_inline_frames: raw.has[3],
        })
    };
    tables.mapping.iter().enumerate().map(resolve).collect()
}

fn functions(tables: &RawTables, text: TextLookup<'_>) -> Result<Vec<Function>, Error> {
    let resolve = |(i, raw): (usize, &super::tables::RawFunction)| {
        let name = |n, what| text(n, what, ProfileElement::Function(i + 1), Some(raw.offset));
        Ok(Function {
            id: raw.id,
            name: name(raw.name, "its name")?,
            system_name: name(raw.system_name, "its system_name")?,
            filename: name(raw.filename, "its filename")?,
            start_line: raw.start_line,
        })
    };
    tables.function.iter().enumerate().map(resolve).collect()
}

/// Replaces the stand-ins for mapping ids and function ids by positions in the tables.
fn locations(profile: &mut Profile, tables: &RawTables) -> Result<(), Error> {
    let mut missing = 0;
    for (i, location) in profile.location.iter_mut().enumerate() {
        for line in &mut profile.line[location.line.start as usize..location.line.end as usize] {
            let id = tables.functions.id(line.function.0);
            // No function has id 0.
            let Some(function) = tables.function_index.get(id) else {
                let defect = match id {
                    0 => "has a line without a function".to_string(),
                    id => format!("has a line in function {id}, which is not in the file"),
                };
                let offset = Some(tables.location_offset[i]);
                return Err(invalid(ProfileElement::Location(i + 1), offset, defect));
            };
            line.function = FunctionIndex(function);
        }
        let id = location.mapping.map_or(0, |m| tables.mappings.id(m.0));
        let mapping = tables.mapping_index.get(id);
        missing += usize::from(id != 0 && mapping.is_none());
        location.mapping = mapping.map(MappingIndex);
    }
    if missing > 0 {
        profile.warnings.push(Warning::MissingMapping(missing));
    }
    Ok(())
}

fn label_sets(
    samples: &mut RawSamples,
    tables: &RawTables,
    text: TextLookup<'_>,
) -> Result<LabelSets, Error> {
    let mut sets = LabelSets::default();
    let mut index = Vec::with_capacity(samples.label_sets.len());
    for (raw, sample) in &samples.label_sets {
        let name = |n, what| text(n, what, ProfileElement::Label(*sample), None);
        let mut labels = raw
            .iter()
            .map(|raw| {
                let str = name(raw.str, "its str")?;
                let number = str.is_empty();
                Ok(Label {
                    key: name(raw.key, "its key")?,
                    str,
                    num: if number { raw.num } else { 0 },
                    num_unit: if number {
                        name(raw.num_unit, "its num_unit")?
                    } else {
                        StringId::EMPTY
                    },
                })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        index.push(sets.intern(&mut labels, &tables.strings));
    }
    if !index.is_empty() {
        for set in &mut samples.samples.label_set {
            *set = index[set.index()];
        }
    }
    debug_assert!(
        samples
            .samples
            .label_set
            .iter()
            .all(|s| s.index() < sets.len())
    );
    Ok(sets)
}

/// Makes the stacks of all samples, and replaces the ids of their locations by positions.
fn stacks(samples: &mut RawSamples, tables: &RawTables) -> Result<SampleStacks, Error> {
    let end = std::mem::take(&mut samples.end);
    // If the ids are 1, 2, 3, ..., each position is its id minus 1, and no lookup is needed.
    let counted = tables.location_index.sequential_count();
    let counted = counted.filter(|_| samples.locations.is_empty());
    if let Some(written) = samples.written.take() {
        if counted.is_some_and(|count| written.are_of(count)) {
            return Ok(SampleStacks::from_encoded(written, end));
        }
        samples.stacks = written.ids();
    }
    let mut stacks = std::mem::take(&mut samples.stacks);
    if let Some(count) = counted {
        // Because this loop never ends early, the compiler can handle several ids at once.
        let mut known = true;
        for id in &mut stacks {
            id.0 = id.0.wrapping_sub(1);
            known &= id.0 < count;
        }
        if known {
            return Ok(SampleStacks::new(stacks, end));
        }
        stacks.iter_mut().for_each(|id| id.0 = id.0.wrapping_add(1));
    }
    for (at, location) in stacks.iter_mut().enumerate() {
        let id = samples.locations.id(location.0);
        match tables.location_index.get(id) {
            Some(index) => *location = LocationIndex(index),
            None => {
                let sample = end.partition_point(|&end| end <= at);
                let defect = match id {
                    0 => "has location 0, which is reserved for unknown".to_string(),
                    _ => format!("has location {id}, which is not in the file"),
                };
                return Err(invalid(ProfileElement::Sample(sample + 1), None, defect));
            }
        }
    }
    Ok(SampleStacks::new(stacks, end))
}
