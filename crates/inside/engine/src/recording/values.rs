//! The values that a provider traces. In a profile, they have rows beside the rows of allocations.
//!
//! An interpreter takes values from pools, so allocations do not show which code made a value. A
//! provider that traces values stores the stack number of each value when it is made, and returns
//! the rows when a profile is written.

use std::ffi::CStr;

use heapprof_abi::{FrameWord, StackNumber};

use crate::engine::Engine;
use crate::options::FrameChoice;
use crate::stack::provider::{StackProvider, TracedValues};
use crate::tables::script_frames::ScriptFrame;

/// The origin of values.
#[derive(Clone, Copy)]
pub(super) enum ValueOrigin {
    /// The stack with this number.
    Stack(StackNumber),
    /// An unknown origin. The field is the word of a frame that stands for it.
    Frame(u64),
}

/// A row of values that have one origin and one label.
pub(super) struct ValueRow {
    pub(super) stack: ValueOrigin,
    /// The word of the values' label.
    pub(super) label: u64,
    /// Number of values that were made, number of values that are alive, and number of bytes of the
    /// live values.
    pub(super) counts: [u64; 3],
}

/// The rows of the first provider that traces values.
pub(super) struct ValueRows<'a> {
    engine: &'a Engine,
    from: Option<(usize, &'a StackProvider)>,
    /// The next row, which is read ahead. The field `given` counts the rows before it.
    ahead: Option<TracedValues>,
    given: usize,
}

impl<'a> ValueRows<'a> {
    /// Begins to read the rows of the values that exist at this moment.
    pub(super) fn begin(engine: &'a Engine) -> Self {
        let providers = &engine.scripts.providers;
        let mut from = None;
        if providers.frame_choice() != FrameChoice::Native {
            let traces = |&(i, of): &(usize, &StackProvider)| {
                !providers.is_broken(i) && of.value_name().is_some()
            };
            from = providers.all().find(traces);
        }
        let ahead = from.and_then(|(_, provider)| provider.value(0));
        Self {
            engine,
            from: from.filter(|_| ahead.is_some()),
            ahead,
            given: 0,
        }
    }

    /// Returns the sample types of values, with their units. There are none if no provider traces
    /// values.
    pub(super) fn types(&self) -> Vec<(String, &'static str)> {
        let Some(name) = self.from.and_then(|(_, provider)| provider.value_name()) else {
            return Vec::new();
        };
        [
            ("alloc_objects", "count"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ]
        .map(|(of, unit)| (format!("{name}_{of}"), unit))
        .into()
    }

    /// Returns the next row.
    pub(super) fn next(&mut self) -> Option<ValueRow> {
        let (i, provider) = self.from?;
        let value = self.ahead.take()?;
        self.given += 1;
        self.ahead = provider.value(self.given);
        let stacks = &self.engine.ledger.stacks;
        let stack = match stacks.contains(value.stack) {
            true => ValueOrigin::Stack(value.stack),
            false => ValueOrigin::Frame(self.unseen_frame(&value)),
        };
        Some(ValueRow {
            stack,
            label: FrameWord::Label(i, value.label).to_word(),
            counts: [value.made, value.objects, value.bytes],
        })
    }

    /// Returns the word of the frame that stands for the unknown origin of values.
    fn unseen_frame(&self, value: &TracedValues) -> u64 {
        let name = match value.frame.is_null() {
            true => c"(not known)",
            // SAFETY: the provider gives a text that stays.
            false => unsafe { CStr::from_ptr(value.frame) },
        };
        let frame = ScriptFrame {
            name: name.to_bytes(),
            file: b"",
            start_line: 0,
            line: 0,
        };
        self.engine.scripts.names.word(&self.engine.process, frame)
    }
}
