//! Frames that open and close: what lies between two events belongs to the frames that are open.

use foldhash::HashMap;
use heapprof_profile::LocationIndex;
use serde::Deserialize;

use super::unit::{Number, Unit};
use crate::json::Whole;
use crate::tally::{Frames, Tally};

/// An event as JSON has it.
#[derive(Deserialize)]
pub(super) struct Event {
    r#type: Kind,
    frame: Whole<u32>,
    at: Number,
}

#[derive(Deserialize)]
enum Kind {
    O,
    C,
}

/// The shortest event in bytes: `{"type":"O","frame":0,"at":0},`.
const SHORTEST: u64 = 30;

/// The tree of all stacks so far.
#[derive(Default)]
pub(super) struct Timeline {
    node: Vec<Node>,
    child: HashMap<(usize, u32), usize>,
}

struct Node {
    frame: u32,
    /// Its caller's position in the list; [`NONE`] for a root.
    caller: usize,
    value: i64,
}

/// Stands for the caller of roots.
const NONE: usize = usize::MAX;

impl Timeline {
    /// Plays the events. Returns the values of all stacks, which are added to `stacks`.
    pub(super) fn play(
        mut self,
        events: &[Event],
        unit: Unit,
        stacks: &mut Tally,
    ) -> Result<Vec<(u32, i64)>, String> {
        let mut current = NONE;
        let mut last = None;
        for event in events {
            let at = unit.value(event.at)?;
            let passed = match last {
                Some(last) if at >= last => at
                    .checked_sub(last)
                    .ok_or("expected times that fit in 64 bits")?,
                Some(_) => return Err("expected events in the order of their at".to_string()),
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
                (Kind::O, _) => self.open(current, event.frame.0),
                (Kind::C, Some(open)) if open.frame == event.frame.0 => open.caller,
                (Kind::C, Some(open)) => {
                    return Err(format!(
                        "expected frame {} to close, the last one that opened, found {}",
                        open.frame, event.frame.0
                    ));
                }
                (Kind::C, None) => {
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
            None => self.entries(stacks, Frames::of(SHORTEST * events.len() as u64)),
        }
    }

    fn open(&mut self, caller: usize, frame: u32) -> usize {
        let node = &mut self.node;
        *self.child.entry((caller, frame)).or_insert_with(|| {
            node.push(Node {
                frame,
                caller,
                value: 0,
            });
            node.len() - 1
        })
    }

    fn entries(&self, stacks: &mut Tally, mut frames: Frames) -> Result<Vec<(u32, i64)>, String> {
        let none = stacks.labelled("", "");
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

    /// Plays events written as `+0@1` (frame 0 opens at 1) and `-0@2`. Returns the stacks, root
    /// first, with their values.
    fn play(events: &str) -> Result<Vec<(Vec<u32>, i64)>, String> {
        let events: Vec<Event> = events
            .split(' ')
            .map(|event| {
                let (frame, at) = event[1..].split_once('@').unwrap();
                Event {
                    r#type: if event.starts_with('+') {
                        Kind::O
                    } else {
                        Kind::C
                    },
                    frame: Whole(frame.parse().unwrap()),
                    at: match at.parse() {
                        Ok(whole) => Number::Whole(whole),
                        Err(_) => Number::Fraction(at.parse().unwrap()),
                    },
                }
            })
            .collect();
        let mut stacks = Tally::new(&[]);
        let entries = Timeline::default().play(&events, Unit::Time(1000), &mut stacks)?;
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
            ("+0@1 -0@0", "expected events in the order of their at"),
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
