//! Reads the JSON of a file as a stream. Keys may come in any order, so units and frames are
//! applied at the end of each object.

use std::fmt;
use std::ops::Range;

use heapprof_profile::LocationIndex;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::timeline::{SpeedscopeEvent, SpeedscopeTimeline};
use super::unit::{JsonNumber, SpeedscopeUnit};
use crate::json::{EachElement, WholeNumber};
use crate::reading::FormatReadOptions;
use crate::tally::SampleTally;

/// The content of a file.
pub(super) struct SpeedscopeFile {
    pub(super) name: String,
    pub(super) exporter: String,
    pub(super) active: Option<usize>,
    /// Texts of all frames, one after the other.
    pub(super) text: String,
    pub(super) frames: Vec<SharedFrame>,
    pub(super) profiles: Vec<SpeedscopeProfile>,
    /// Stacks, leaf first. They consist of indexes in `frames` instead of locations.
    pub(super) stacks: SampleTally,
}

impl SpeedscopeFile {
    /// Makes an empty file, whose stacks may take the memory that the options allow.
    pub(super) fn new(options: &FormatReadOptions) -> Self {
        Self {
            name: String::new(),
            exporter: String::new(),
            active: None,
            text: String::new(),
            frames: Vec::new(),
            profiles: Vec::new(),
            stacks: SampleTally::new(&[], options),
        }
    }
}

/// A frame. Its name and its file are ranges of [`SpeedscopeFile::text`].
pub(super) struct SharedFrame {
    pub(super) name: Range<usize>,
    pub(super) file: Range<usize>,
    pub(super) line: i64,
    pub(super) column: i64,
}

/// A profile: stacks and their values.
#[derive(Default)]
pub(super) struct SpeedscopeProfile {
    pub(super) name: String,
    pub(super) unit: SpeedscopeUnit,
    pub(super) entries: Vec<(u32, i64)>,
    pub(super) total: i128,
}

/// Reader of a whole file into a [`SpeedscopeFile`].
pub(super) struct SpeedscopeFileSeed<'f>(pub(super) &'f mut SpeedscopeFile);

impl<'de> DeserializeSeed<'de> for SpeedscopeFileSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SpeedscopeFileSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object of a speedscope file")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let file = self.0;
        let (mut has_frames, mut has_profiles) = (false, false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => file.name = map.next_value::<Option<String>>()?.unwrap_or_default(),
                "exporter" => {
                    file.exporter = map.next_value::<Option<String>>()?.unwrap_or_default()
                }
                "activeProfileIndex" => file.active = map.next_value()?,
                "shared" => {
                    has_frames = true;
                    map.next_value_seed(SharedFramesSeed(file))?;
                }
                "profiles" => {
                    has_profiles = true;
                    map.next_value_seed(ProfilesSeed(file))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        for (has, key) in [(has_frames, "shared"), (has_profiles, "profiles")] {
            if !has {
                return Err(A::Error::custom(format!(
                    "expected {key}, found the end of the object"
                )));
            }
        }
        if file.profiles.is_empty() {
            return Err(A::Error::custom(
                "expected a profile in profiles, found none",
            ));
        }
        let frames = file.frames.len();
        let most = file.stacks.largest_location();
        if let Some(most) = most.filter(|&most| most as usize >= frames) {
            let found = format!(
                "expected frame numbers below {frames}, the length of shared.frames, found {most}"
            );
            return Err(A::Error::custom(found));
        }
        Ok(())
    }
}

struct SharedFramesSeed<'f>(&'f mut SpeedscopeFile);

impl<'de> DeserializeSeed<'de> for SharedFramesSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

/// A frame as the JSON represents it.
#[derive(Deserialize)]
struct JsonFrame {
    name: String,
    file: Option<String>,
    line: Option<i64>,
    col: Option<i64>,
}

impl<'de> Visitor<'de> for SharedFramesSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with frames")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let SpeedscopeFile { text, frames, .. } = self.0;
        while let Some(key) = map.next_key::<String>()? {
            if key != "frames" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let mut range = |part: &str| {
                let start = text.len();
                text.push_str(part);
                start..text.len()
            };
            map.next_value_seed(EachElement::new("a list of frames", |frame: JsonFrame| {
                frames.push(SharedFrame {
                    name: range(&frame.name),
                    file: range(frame.file.as_deref().unwrap_or("")),
                    line: frame.line.unwrap_or(0),
                    column: frame.col.unwrap_or(0),
                });
                Ok(())
            }))?;
        }
        Ok(())
    }
}

struct ProfilesSeed<'f>(&'f mut SpeedscopeFile);

impl<'de> DeserializeSeed<'de> for ProfilesSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ProfilesSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of profiles")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let SpeedscopeFile {
            profiles, stacks, ..
        } = self.0;
        while let Some(profile) = seq.next_element_seed(ProfileSeed(&mut *stacks))? {
            profiles.push(profile);
        }
        Ok(())
    }
}

struct ProfileSeed<'f>(&'f mut SampleTally);

impl<'de> DeserializeSeed<'de> for ProfileSeed<'_> {
    type Value = SpeedscopeProfile;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<SpeedscopeProfile, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ProfileSeed<'_> {
    type Value = SpeedscopeProfile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a profile")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SpeedscopeProfile, A::Error> {
        let stacks = self.0;
        let mut profile = SpeedscopeProfile::default();
        let mut kind: Option<String> = None;
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        let mut events: Vec<SpeedscopeEvent> = Vec::new();
        let none = stacks.text_label_set("", "");
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "type" => kind = Some(map.next_value()?),
                "name" => profile.name = map.next_value()?,
                "unit" => {
                    let name: String = map.next_value()?;
                    profile.unit = SpeedscopeUnit::parse(&name).ok_or_else(|| {
                        A::Error::custom(format!(
                            "expected a unit (none, bytes, nanoseconds, microseconds, \
                             milliseconds, seconds), found {name:?}"
                        ))
                    })?;
                }
                "samples" => map.next_value_seed(EachElement::new(
                    "a list of stacks",
                    |stack: SpeedscopeStack| {
                        let number = stacks.add(&stack.0, none, &[]).map_err(|e| e.to_string())?;
                        samples.push(number);
                        Ok(())
                    },
                ))?,
                "weights" => map.next_value_seed(EachElement::new(
                    "a list of numbers",
                    |weight: JsonNumber| {
                        weights.push(weight);
                        Ok(())
                    },
                ))?,
                "events" => map.next_value_seed(EachElement::new(
                    "a list of events",
                    |event: SpeedscopeEvent| {
                        events.push(event);
                        Ok(())
                    },
                ))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let unit = profile.unit;
        profile.entries = match kind.as_deref() {
            Some("sampled") if samples.len() != weights.len() => Err(format!(
                "expected as many weights as samples, found {} and {}",
                weights.len(),
                samples.len()
            )),
            Some("sampled") => {
                let pairs = samples.into_iter().zip(weights);
                pairs
                    .map(|(stack, weight)| Ok((stack, unit.value(weight)?)))
                    .collect()
            }
            Some("evented") => SpeedscopeTimeline::default().play(&events, unit, stacks),
            Some(other) => Err(format!("expected type sampled or evented, found {other:?}")),
            None => Err("expected type, found the end of the profile".to_string()),
        }
        .map_err(A::Error::custom)?;
        profile.total = profile
            .entries
            .iter()
            .map(|&(_, value)| i128::from(value))
            .sum();
        Ok(profile)
    }
}

/// A stack, leaf first. The JSON lists its frames root first.
struct SpeedscopeStack(Vec<LocationIndex>);

impl<'de> Deserialize<'de> for SpeedscopeStack {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let mut stack = Vec::new();
        EachElement::new("a list of frames", |frame: WholeNumber<u32>| {
            stack.push(LocationIndex(frame.0));
            Ok(())
        })
        .deserialize(json)?;
        stack.reverse();
        Ok(SpeedscopeStack(stack))
    }
}
