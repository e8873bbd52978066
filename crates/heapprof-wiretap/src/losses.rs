//! How many datagrams of each sender came, and how many were lost.

use std::collections::HashMap;

use crate::datagram::{Datagram, Event};

/// How many senders are remembered. If more come, those that were heard longest ago are forgotten.
pub const MOST_SENDERS: usize = 16_384;

/// How many of the newest numbers of a sender are remembered one by one. A datagram that comes
/// later than so many others is refused, because nobody knows whether it came before.
const WINDOW: u64 = 4096;

/// A sender that was not heard for so long has an unknown end.
const SILENT_MS: u64 = 10 * 60 * 1000;

/// What is known of the end of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It may send more.
    GoesOn,
    /// It has said how many datagrams it had sent.
    Ended,
    /// It has not said so, and was not heard for long. It may have been killed.
    EndUnknown,
}

impl State {
    /// All states.
    pub const ALL: [Self; 3] = [Self::GoesOn, Self::Ended, Self::EndUnknown];

    /// The words for it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::GoesOn => "goes on",
            Self::Ended => "ended",
            Self::EndUnknown => "end unknown",
        }
    }
}

/// What is known of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderLosses {
    /// The number that it has drawn.
    pub sender: u64,
    /// The name of its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The parent of that process.
    pub parent: u32,
    /// How many datagrams came, each counted once.
    pub received: u64,
    /// How many are known to have been lost.
    pub lost: u64,
    /// What is known of its end.
    pub state: State,
    /// The earliest time that it has said.
    pub first_ms: u64,
    /// The latest time that it has said.
    pub last_ms: u64,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is new.
    New,
    /// It came before, or so late that nobody knows.
    Again,
}

/// What is remembered of a sender.
struct Known {
    host: String,
    pid: u32,
    parent: u32,
    received: u64,
    highest: u64,
    /// What its `end` has said.
    count: Option<u64>,
    /// For each of the newest numbers, by its remainder, whether it came.
    came: Box<[u64; WINDOW as usize / 64]>,
    is_silent: bool,
    is_changed: bool,
    /// Whether it was heard since this began.
    is_heard: bool,
    first_ms: u64,
    last_ms: u64,
    heard_ms: u64,
}

impl Known {
    /// Notes a number. Returns whether it is new.
    fn number(&mut self, seq: u64) -> bool {
        if seq > self.highest {
            // The places of the numbers in between are those of older ones.
            let skipped = (seq - self.highest).min(WINDOW);
            for between in seq - skipped + 1..seq {
                self.mark(between, false);
            }
            self.highest = seq;
        } else if self.highest - seq >= WINDOW || self.is_marked(seq) {
            return false;
        }
        self.mark(seq, true);
        self.received += 1;
        true
    }

    fn mark(&mut self, seq: u64, came: bool) {
        let (word, bit) = place(seq);
        match came {
            true => self.came[word] |= bit,
            false => self.came[word] &= !bit,
        }
    }

    fn is_marked(&self, seq: u64) -> bool {
        let (word, bit) = place(seq);
        self.came[word] & bit != 0
    }

    /// How many datagrams were sent, as far as it is known.
    fn sent(&self) -> u64 {
        self.highest.max(self.count.unwrap_or(0))
    }

    fn lost(&self) -> u64 {
        self.sent().saturating_sub(self.received)
    }

    fn state(&self) -> State {
        match self.count {
            // Something may come behind the end that another thread has said.
            Some(count) if count >= self.highest => State::Ended,
            _ if self.is_silent => State::EndUnknown,
            _ => State::GoesOn,
        }
    }

    fn losses(&self, sender: u64) -> SenderLosses {
        SenderLosses {
            sender,
            host: self.host.clone(),
            pid: self.pid,
            parent: self.parent,
            received: self.received,
            lost: self.lost(),
            state: self.state(),
            first_ms: self.first_ms,
            last_ms: self.last_ms,
        }
    }
}

/// Where a number is among the newest ones.
fn place(seq: u64) -> (usize, u64) {
    let at = seq % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

/// The senders that were heard.
pub struct Losses {
    most: usize,
    senders: HashMap<u64, Known>,
    /// Those that were forgotten, until somebody takes them.
    gone: Vec<SenderLosses>,
    /// The sums of those that were forgotten.
    forgotten: Sums,
}

/// Sums over senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many senders there are.
    pub senders: u64,
    /// How many datagrams are known to have been lost.
    pub lost: u64,
    /// How many senders have an unknown end.
    pub end_unknown: u64,
}

impl Sums {
    fn add(&mut self, lost: u64, state: State) {
        self.senders += 1;
        self.lost = self.lost.saturating_add(lost);
        self.end_unknown += u64::from(state == State::EndUnknown);
    }
}

impl Losses {
    /// Remembers at most so many senders.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            senders: HashMap::new(),
            gone: Vec::new(),
            forgotten: Sums::default(),
        }
    }

    /// Remembers what an earlier listener knew of a sender. What it has sent until then does not
    /// count again.
    pub fn know(&mut self, sender: &SenderLosses) {
        if self.senders.len() >= self.most {
            return;
        }
        let highest = sender.received.saturating_add(sender.lost);
        let known = Known {
            host: sender.host.clone(),
            pid: sender.pid,
            parent: sender.parent,
            received: sender.received,
            highest,
            count: (sender.state == State::Ended).then_some(highest),
            came: Box::new([u64::MAX; WINDOW as usize / 64]),
            is_silent: sender.state == State::EndUnknown,
            is_changed: false,
            is_heard: false,
            first_ms: sender.first_ms,
            last_ms: sender.last_ms,
            heard_ms: sender.last_ms,
        };
        self.senders.insert(sender.sender, known);
    }

    /// Notes a datagram that came at `now_ms`.
    pub fn take(&mut self, datagram: &Datagram, now_ms: u64) -> Taken {
        if !self.senders.contains_key(&datagram.sender) && self.senders.len() >= self.most {
            self.forget();
        }
        let known = self
            .senders
            .entry(datagram.sender)
            .or_insert_with(|| Known {
                host: datagram.host.clone(),
                pid: datagram.pid,
                parent: datagram.parent,
                received: 0,
                highest: 0,
                count: None,
                came: Box::new([0; WINDOW as usize / 64]),
                is_silent: false,
                is_changed: true,
                is_heard: true,
                first_ms: datagram.ms,
                last_ms: datagram.ms,
                heard_ms: now_ms,
            });
        let is_new = match datagram.event {
            Event::End { count } if known.count.is_none_or(|known| known < count) => {
                known.count = Some(count);
                true
            }
            Event::End { .. } => false,
            _ => known.number(datagram.seq),
        };
        if !is_new {
            return Taken::Again;
        }
        known.is_silent = false;
        known.is_changed = true;
        known.is_heard = true;
        known.first_ms = known.first_ms.min(datagram.ms);
        known.last_ms = known.last_ms.max(datagram.ms);
        known.heard_ms = known.heard_ms.max(now_ms);
        Taken::New
    }

    /// Forgets those that have ended, or, if they are few, the quarter of the senders that were
    /// heard longest ago, whose ends are then unknown.
    fn forget(&mut self) {
        let before = self.senders.len();
        let (gone, forgotten) = (&mut self.gone, &mut self.forgotten);
        self.senders.retain(|&sender, known| {
            let has_ended = known.state() == State::Ended;
            if has_ended && known.is_heard {
                forgotten.add(known.lost(), known.state());
                gone.push(known.losses(sender));
            }
            !has_ended
        });
        if before - self.senders.len() > before / 4 {
            return;
        }
        let mut heard: Vec<u64> = self.senders.values().map(|known| known.heard_ms).collect();
        let quarter = heard.len() / 4;
        let (_, limit, _) = heard.select_nth_unstable(quarter);
        let limit = *limit;
        let mut left = quarter + 1;
        let (gone, forgotten) = (&mut self.gone, &mut self.forgotten);
        self.senders.retain(|&sender, known| {
            if left == 0 || known.heard_ms > limit {
                return true;
            }
            left -= 1;
            known.is_silent = true;
            if known.is_heard {
                forgotten.add(known.lost(), known.state());
                gone.push(known.losses(sender));
            }
            false
        });
    }

    /// Returns the senders of which something has changed since the last call. Those that were not
    /// heard for long have an unknown end from now on.
    pub fn changed(&mut self, now_ms: u64) -> Vec<SenderLosses> {
        self.marked(|known| now_ms.saturating_sub(known.heard_ms) > SILENT_MS)
    }

    /// Does the same, and nobody listens any more: the ends that were not said stay unknown.
    pub fn ended(&mut self) -> Vec<SenderLosses> {
        self.marked(|known| known.is_heard)
    }

    fn marked(&mut self, is_silent: impl Fn(&Known) -> bool) -> Vec<SenderLosses> {
        let mut changed = std::mem::take(&mut self.gone);
        for (&sender, known) in &mut self.senders {
            if !known.is_silent && known.state() == State::GoesOn && is_silent(known) {
                known.is_silent = true;
                known.is_changed = true;
            }
            if std::mem::take(&mut known.is_changed) {
                changed.push(known.losses(sender));
            }
        }
        changed
    }

    /// How many senders wait to be taken because they were forgotten.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.gone.len()
    }

    /// The sums over all senders that were heard.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let mut sums = self.forgotten;
        for known in self.senders.values().filter(|known| known.is_heard) {
            sums.add(known.lost(), known.state());
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(sender: u64, seq: u64, event: Event) -> Datagram {
        Datagram {
            host: "web1".to_string(),
            sender,
            pid: 12,
            parent: 1,
            seq,
            ms: 1000 + seq,
            event,
        }
    }

    fn alive(sender: u64, seq: u64) -> Datagram {
        let (code, site) = ("a".to_string(), String::new());
        datagram(sender, seq, Event::Alive { code, site })
    }

    fn end(sender: u64, count: u64) -> Datagram {
        datagram(sender, count.max(1), Event::End { count })
    }

    /// What is received, lost and known of the end after these datagrams of one sender.
    fn after(datagrams: &[Datagram]) -> (u64, u64, State) {
        let mut losses = Losses::new(10);
        for datagram in datagrams {
            losses.take(datagram, 0);
        }
        let found = losses.changed(0);
        (found[0].received, found[0].lost, found[0].state)
    }

    #[test]
    fn received_and_lost_are_what_was_sent() {
        let all: Vec<Datagram> = (1..=5).map(|seq| alive(1, seq)).collect();
        assert_eq!(after(&all), (5, 0, State::GoesOn));
        let ended = |kept: &[u64], count| {
            let mut kept: Vec<Datagram> = kept.iter().map(|&seq| alive(1, seq)).collect();
            kept.push(end(1, count));
            after(&kept)
        };
        assert_eq!(ended(&[1, 2, 3], 3), (3, 0, State::Ended));
        assert_eq!(ended(&[3, 1, 2], 3), (3, 0, State::Ended));
        assert_eq!(ended(&[2, 2, 2], 3), (1, 2, State::Ended));
        assert_eq!(ended(&[], 100), (0, 100, State::Ended));
        assert_eq!(ended(&[1, 9000], 9000), (2, 8998, State::Ended));
        // Somebody sends behind the end that another thread has said.
        assert_eq!(ended(&[1, 2, 3], 2), (3, 0, State::GoesOn));
        assert_eq!(after(&[end(1, 3), alive(1, 3)]), (1, 2, State::Ended));
    }

    #[test]
    fn numbers_count_once() {
        let mut losses = Losses::new(10);
        let mut take = |seq| losses.take(&alive(1, seq), 0);
        assert_eq!(take(5000), Taken::New);
        assert_eq!(take(5000), Taken::Again);
        assert_eq!(take(4999), Taken::New);
        assert_eq!(take(4999), Taken::Again);
        // This one is the last that is remembered, and the one before it is too late.
        assert_eq!(take(5000 - WINDOW + 1), Taken::New);
        assert_eq!(take(5000 - WINDOW), Taken::Again);
        // The places of forgotten numbers are free again.
        assert_eq!(take(5000 + WINDOW - 1), Taken::New);
        assert_eq!(take(5001), Taken::New);
        assert_eq!(take(5000), Taken::Again);
        assert_eq!(take(1_000_000_000_000), Taken::New);
        assert_eq!(take(1_000_000_000_000 - 7), Taken::New);
        assert_eq!(losses.take(&end(1, 9), 0), Taken::New);
        assert_eq!(losses.take(&end(1, 9), 0), Taken::Again);
    }

    #[test]
    fn who_is_silent_or_killed_has_an_unknown_end() {
        let mut losses = Losses::new(10);
        losses.take(&alive(1, 1), 5000);
        losses.take(&end(2, 1), 5000);
        assert_eq!(losses.changed(5000).len(), 2);
        assert!(losses.changed(5000 + SILENT_MS).is_empty());
        let silent = losses.changed(5001 + SILENT_MS);
        assert_eq!((silent.len(), silent[0].state), (1, State::EndUnknown));
        // It was not dead.
        losses.take(&alive(1, 2), 6000 + SILENT_MS);
        assert_eq!(losses.changed(6000 + SILENT_MS)[0].state, State::GoesOn);
        assert_eq!(losses.ended()[0].state, State::EndUnknown);
        let sums = losses.sums();
        assert_eq!((sums.senders, sums.lost, sums.end_unknown), (2, 1, 1));
    }

    #[test]
    fn senders_are_bounded() {
        let mut losses = Losses::new(100);
        for sender in 0..10_000 {
            losses.take(&alive(sender, 2), sender);
            assert!(losses.senders.len() <= 100);
        }
        assert!(losses.waiting() >= 9900);
        assert_eq!(losses.changed(0).len(), 10_000);
        assert_eq!(losses.waiting(), 0);
        let sums = losses.sums();
        assert_eq!((sums.senders, sums.lost), (10_000, 10_000));
    }

    #[test]
    fn an_earlier_listener_is_remembered() {
        let mut first = Losses::new(10);
        first.take(&alive(1, 1), 0);
        first.take(&alive(1, 3), 0);
        let known = first.ended().remove(0);
        let mut second = Losses::new(10);
        second.know(&known);
        assert!(second.ended().is_empty());
        assert_eq!(second.sums(), Sums::default());
        assert_eq!(second.take(&alive(1, 3), 0), Taken::Again);
        assert_eq!(second.take(&alive(1, 4), 0), Taken::New);
        assert_eq!(second.take(&end(1, 5), 0), Taken::New);
        let found = second.changed(0).remove(0);
        assert_eq!((found.received, found.lost), (3, 2));
        assert_eq!(found.state, State::Ended);
    }
}
