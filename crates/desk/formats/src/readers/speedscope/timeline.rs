//! Reads profiles in which frames open and close. The difference between the times (or other
//! values) of two events belongs to the stack of frames that are open between them.

use foldhash::HashMap;
use heapprof_profile::LocationIndex;
use serde::Deserialize;

use super::unit::{JsonNumber, SpeedscopeUnit};
use crate::json::WholeNumber;
use crate::tally::{FrameBudget, SampleTally};

/// An event as the JSON represents it.
#[derive(Deserialize)]
pub(super) struct SpeedscopeEvent {
    r#type: SpeedscopeEventKind,
    frame: WholeNumber<u32>,
    at: JsonNumber,
}

#[derive(Deserialize)]
enum SpeedscopeEventKind {
    O,
    C,
}

/// Length of the shortest event in bytes: `{"type":"O","frame":0,"at":0},`.
const MIN_EVENT_BYTES: u64 = 30;

/// The tree of all stacks so far.
#[derive(Default)]
pub(super) struct SpeedscopeTimeline {
    node: Vec<SpeedscopeNode>,
    child: HashMap<(usize, u32), usize>,
}

struct SpeedscopeNode {
    frame: u32,
    /// Index of the caller's node; [`NO_CALLER`] for a root.
    caller: usize,
    value: i64,
}

/// Index that roots have instead of a caller.
const NO_CALLER: usize = usize::MAX;

impl SpeedscopeTimeline {
    /// Processes the events in order. Adds the stacks to `stacks`, and returns their numbers and
    /// values.
    pub(super) fn play(
        mut self,
        events: &[SpeedscopeEvent],
        unit: SpeedscopeUnit,
        stacks: &mut SampleTally,
    ) -> Result<Vec<(u32, i64)>, String> {
        let mut current = NO_CALLER;
        let mut last = None;
        for event in events {
            let at = unit.value(event.at)?;
            let passed = match last {
                Some(last) if at >= last => at
                    .checked_sub(last)
                    .ok_or("expected times that fit in 64 bits")?,
                Some(_) => return Err("expected events sorted by \"at\"".to_string()),
                None => 0,
            };
            last = Some(at);
            if let Some(node) = self.node.get_mut(current) {
                node.value = node
                    .value
                    .checked_add(passed)
                    .ok_or("expected sums that fit in 64 bits")?;
            }
            let open = self.node.get(current);
            current = match (&event.r#type, open) {
                (SpeedscopeEventKind::O, _) => self.open(current, event.frame.0),
                (SpeedscopeEventKind::C, Some(open)) if open.frame == event.frame.0 => open.caller,
                (SpeedscopeEventKind::C, Some(open)) => {
                    return Err(format!(
                        "expected frame {} to close, the last one that opened, found {}",
                        open.frame, event.frame.0
                    ));
                }
                (SpeedscopeEventKind::C, None) => {
                    return Err(format!(
                        "expected a frame to open, found frame {} to close",
                        event.frame.0
                    ));
                }
            };
        }
        match self.node.get(current) {
            Some(open) => Err(format!(
                "expected frame {} to close, found the last event",
                open.frame
            )),
            None => self.entries(
                stacks,
                FrameBudget::for_file_bytes(MIN_EVENT_BYTES * events.len() as u64),
            ),
        }
    }

    fn open(&mut self, caller: usize, frame: u32) -> usize {
        let node = &mut self.node;
        *self.child.entry((caller, frame)).or_insert_with(|| {
            node.push(SpeedscopeNode {
                frame,
                caller,
                value: 0,
            });
            node.len() - 1
        })
    }

    fn entries(
        &self,
        stacks: &mut SampleTally,
        mut frames: FrameBudget,
    ) -> Result<Vec<(u32, i64)>, String> {
        let none = stacks.text_label_set("", "");
        let mut stack = Vec::new();
        let mut entries = Vec::new();
        for node in self.node.iter().filter(|node| node.value != 0) {
            stack.clear();
            let mut next = Some(node);
            while let Some(node) = next {
                frames.count().map_err(|error| error.to_string())?;
                stack.push(LocationIndex(node.frame));
                next = self.node.get(node.caller);
            }
            let number = stacks
                .add(&stack, none, &[])
                .map_err(|error| error.to_string())?;
            entries.push((number, node.value));
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::FormatReadOptions;

    /// Processes events that are written as `+0@1` (frame 0 opens at 1) and `-0@2`. Returns the
    /// stacks, root first, with their values.
    fn play(events: &str) -> Result<Vec<(Vec<u32>, i64)>, String> {
        let events: Vec<SpeedscopeEvent> = events
            .split(' ')
            .map(|event| {
                let (frame, at) = event[1..].split_once('@').unwrap();
                SpeedscopeEvent {
                    r#type: if event.starts_with('+') {
                        SpeedscopeEventKind::O
                    } else {
                        SpeedscopeEventKind::C
                    },
                    frame: WholeNumber(frame.parse().unwrap()),
                    at: match at.parse() {
                        Ok(whole) => JsonNumber::Whole(whole),
                        Err(_) => JsonNumber::Fraction(at.parse().unwrap()),
                    },
                }
            })
            .collect();
        let mut stacks = SampleTally::new(&[], &FormatReadOptions::default());
        let entries =
            SpeedscopeTimeline::default().play(&events, SpeedscopeUnit::Time(1000), &mut stacks)?;
        let stack = |number| stacks.stack(number).iter().rev().map(|f| f.0).collect();
        Ok(entries
            .iter()
            .map(|&(number, value)| (stack(number), value))
            .collect())
    }

    #[test]
    fn time_belongs_to_open_frames() {
        let found = play("+0@1 +1@2.5 -1@4 +1@4 -1@5 -0@7 +0@100 -0@101").unwrap();
        assert_eq!(found, [(vec![0], 4500), (vec![0, 1], 2500)]);
        // Recursion is a deeper stack.
        assert_eq!(
            play("+0@0 +0@1 -0@3 -0@3").unwrap(),
            [(vec![0], 1000), (vec![0, 0], 2000)]
        );
    }

    #[test]
    fn unbalanced_events_are_refused() {
        let table = [
            ("+0@1 -0@0", "expected events sorted by \"at\""),
            (
                "+0@1 +1@2 -0@3",
                "expected frame 1 to close, the last one that opened, found 0",
            ),
            ("-0@1", "expected a frame to open, found frame 0 to close"),
            ("+3@1", "expected frame 3 to close, found the last event"),
            (
                "+0@9223372036854775807",
                "expected a number that fits in 64 bits",
            ),
        ];
        for (events, error) in table {
            assert_eq!(play(events), Err(error.to_string()), "{events}");
        }
    }
}
