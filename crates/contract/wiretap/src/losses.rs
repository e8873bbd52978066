//! Counts the received and the lost datagrams of each sender.

use std::collections::HashMap;

use crate::datagram::{WiretapDatagram, WiretapEvent};

/// Maximum number of senders that are remembered. If there are more, the senders that were silent
/// for the longest time are forgotten.
pub const MAX_SENDERS: usize = 16_384;

/// Number of a sender's newest datagrams for which the tracker remembers whether each was received.
/// Older datagrams are refused, because it is not known whether they were received before.
const SEQ_WINDOW: u64 = 4096;

/// Silence in milliseconds after which the end of a sender counts as unknown.
const SILENCE_TIMEOUT_MS: u64 = 10 * 60 * 1000;

/// The state of a sender, by what the listener knows about its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderState {
    /// The sender may send more datagrams.
    Active,
    /// The sender has reported how many datagrams it had sent.
    Ended,
    /// The sender has not reported its end, and was silent for a long time. It may have been
    /// killed.
    EndUnknown,
}

impl SenderState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Active, Self::Ended, Self::EndUnknown];

    /// Returns the state in words, for reports.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Active => "goes on",
            Self::Ended => "ended",
            Self::EndUnknown => "end unknown",
        }
    }
}

/// A sender, with the numbers of its received and lost datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderLosses {
    /// The random number that the sender has chosen.
    pub sender: u64,
    /// The name of the sender's machine.
    pub host: String,
    /// The id of the sender's process.
    pub pid: u32,
    /// The id of the parent of the sender's process.
    pub parent: u32,
    /// Number of received datagrams, without repetitions.
    pub received: u64,
    /// Number of datagrams that are known to be lost.
    pub lost: u64,
    /// The sender's state.
    pub state: SenderState,
    /// The earliest time in the sender's datagrams, in milliseconds since 1970.
    pub first_ms: u64,
    /// The latest time in the sender's datagrams, in milliseconds since 1970.
    pub last_ms: u64,
}

/// The result of receiving a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramReceipt {
    /// The datagram is new.
    New,
    /// The datagram was received before, or it is too old for the tracker to know this.
    Repeated,
}

/// The tracker's record of a sender.
struct SenderRecord {
    host: String,
    pid: u32,
    parent: u32,
    received: u64,
    highest: u64,
    /// The count in the sender's `end` datagram, if it was received.
    count: Option<u64>,
    /// One bit for each of the newest numbers: whether the datagram was received. The index of the
    /// bit is the number modulo [`SEQ_WINDOW`].
    came: Box<[u64; SEQ_WINDOW as usize / 64]>,
    is_silent: bool,
    is_changed: bool,
    /// Whether this tracker has received a datagram from the sender.
    is_heard: bool,
    first_ms: u64,
    last_ms: u64,
    heard_ms: u64,
}

impl SenderRecord {
    /// Records the number of a received datagram. Returns whether it is new.
    fn number(&mut self, seq: u64) -> bool {
        if seq > self.highest {
            // The places of the numbers in between are those of older ones.
            let skipped = (seq - self.highest).min(SEQ_WINDOW);
            for between in seq - skipped + 1..seq {
                self.mark(between, false);
            }
            self.highest = seq;
        } else if self.highest - seq >= SEQ_WINDOW || self.is_marked(seq) {
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

    /// Returns how many datagrams the sender has sent, as far as it is known.
    fn sent(&self) -> u64 {
        self.highest.max(self.count.unwrap_or(0))
    }

    fn lost(&self) -> u64 {
        self.sent().saturating_sub(self.received)
    }

    fn state(&self) -> SenderState {
        match self.count {
            // A datagram may come behind the end that another thread has reported.
            Some(count) if count >= self.highest => SenderState::Ended,
            _ if self.is_silent => SenderState::EndUnknown,
            _ => SenderState::Active,
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

/// Returns the position of a number's bit in [`SenderRecord::came`]: the index of the word, and the
/// mask of the bit.
fn place(seq: u64) -> (usize, u64) {
    let at = seq % SEQ_WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

/// Tracks the received and lost datagrams of all senders.
pub struct LossTracker {
    max_senders: usize,
    senders: HashMap<u64, SenderRecord>,
    /// The forgotten senders that the caller has not taken yet.
    forgotten_senders: Vec<SenderLosses>,
    /// The sums over all forgotten senders.
    forgotten_sums: LossSums,
}

/// Sums over senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossSums {
    /// Number of senders.
    pub senders: u64,
    /// Number of datagrams that are known to be lost.
    pub lost: u64,
    /// Number of senders whose end is unknown.
    pub end_unknown: u64,
}

impl LossSums {
    fn add(&mut self, lost: u64, state: SenderState) {
        self.senders += 1;
        self.lost = self.lost.saturating_add(lost);
        self.end_unknown += u64::from(state == SenderState::EndUnknown);
    }
}

impl LossTracker {
    /// Creates a tracker that remembers at most `most` senders.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            max_senders: most.max(1),
            senders: HashMap::new(),
            forgotten_senders: Vec::new(),
            forgotten_sums: LossSums::default(),
        }
    }

    /// Adds a sender with the counts of an earlier listener. Datagrams that are in these counts are
    /// not counted again.
    pub fn remember(&mut self, sender: &SenderLosses) {
        if self.senders.len() >= self.max_senders {
            return;
        }
        let highest = sender.received.saturating_add(sender.lost);
        let known = SenderRecord {
            host: sender.host.clone(),
            pid: sender.pid,
            parent: sender.parent,
            received: sender.received,
            highest,
            count: (sender.state == SenderState::Ended).then_some(highest),
            came: Box::new([u64::MAX; SEQ_WINDOW as usize / 64]),
            is_silent: sender.state == SenderState::EndUnknown,
            is_changed: false,
            is_heard: false,
            first_ms: sender.first_ms,
            last_ms: sender.last_ms,
            heard_ms: sender.last_ms,
        };
        self.senders.insert(sender.sender, known);
    }

    /// Records a datagram that was received at `now_ms`.
    pub fn receive(&mut self, datagram: &WiretapDatagram, now_ms: u64) -> DatagramReceipt {
        if !self.senders.contains_key(&datagram.sender) && self.senders.len() >= self.max_senders {
            self.forget();
        }
        let known = self
            .senders
            .entry(datagram.sender)
            .or_insert_with(|| SenderRecord {
                host: datagram.host.clone(),
                pid: datagram.pid,
                parent: datagram.parent,
                received: 0,
                highest: 0,
                count: None,
                came: Box::new([0; SEQ_WINDOW as usize / 64]),
                is_silent: false,
                is_changed: true,
                is_heard: true,
                first_ms: datagram.ms,
                last_ms: datagram.ms,
                heard_ms: now_ms,
            });
        let is_new = match datagram.event {
            WiretapEvent::End { count } if known.count.is_none_or(|known| known < count) => {
                known.count = Some(count);
                true
            }
            WiretapEvent::End { .. } => false,
            _ => known.number(datagram.seq),
        };
        if !is_new {
            return DatagramReceipt::Repeated;
        }
        known.is_silent = false;
        known.is_changed = true;
        known.is_heard = true;
        known.first_ms = known.first_ms.min(datagram.ms);
        known.last_ms = known.last_ms.max(datagram.ms);
        known.heard_ms = known.heard_ms.max(now_ms);
        DatagramReceipt::New
    }

    /// Forgets the senders that have ended. If at most a quarter of all senders have ended, also
    /// forgets a quarter of the other senders: those that were silent for the longest time. Their
    /// ends are then unknown.
    fn forget(&mut self) {
        let before = self.senders.len();
        let (gone, forgotten) = (&mut self.forgotten_senders, &mut self.forgotten_sums);
        self.senders.retain(|&sender, known| {
            let has_ended = known.state() == SenderState::Ended;
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
        let (gone, forgotten) = (&mut self.forgotten_senders, &mut self.forgotten_sums);
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

    /// Returns the senders that have changed since the last call. The end of a sender that was
    /// silent for a long time becomes unknown.
    pub fn take_changed(&mut self, now_ms: u64) -> Vec<SenderLosses> {
        self.take_marked(|known| now_ms.saturating_sub(known.heard_ms) > SILENCE_TIMEOUT_MS)
    }

    /// Returns the senders that have changed since the last call. This is for the end of the
    /// listener, so ends that were not reported become unknown.
    pub fn take_final(&mut self) -> Vec<SenderLosses> {
        self.take_marked(|known| known.is_heard)
    }

    fn take_marked(&mut self, is_silent: impl Fn(&SenderRecord) -> bool) -> Vec<SenderLosses> {
        let mut changed = std::mem::take(&mut self.forgotten_senders);
        for (&sender, known) in &mut self.senders {
            if !known.is_silent && known.state() == SenderState::Active && is_silent(known) {
                known.is_silent = true;
                known.is_changed = true;
            }
            if std::mem::take(&mut known.is_changed) {
                changed.push(known.losses(sender));
            }
        }
        changed
    }

    /// Returns the number of forgotten senders that were not taken yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.forgotten_senders.len()
    }

    /// Returns the sums over all senders from which a datagram was received.
    #[must_use]
    pub fn sums(&self) -> LossSums {
        let mut sums = self.forgotten_sums;
        for known in self.senders.values().filter(|known| known.is_heard) {
            sums.add(known.lost(), known.state());
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(sender: u64, seq: u64, event: WiretapEvent) -> WiretapDatagram {
        WiretapDatagram {
            host: "web1".to_string(),
            sender,
            pid: 12,
            parent: 1,
            seq,
            ms: 1000 + seq,
            event,
        }
    }

    fn alive(sender: u64, seq: u64) -> WiretapDatagram {
        let (code, site) = ("a".to_string(), String::new());
        datagram(sender, seq, WiretapEvent::Alive { code, site })
    }

    fn end(sender: u64, count: u64) -> WiretapDatagram {
        datagram(sender, count.max(1), WiretapEvent::End { count })
    }

    /// Returns the received count, the lost count and the state of a sender after `datagrams`.
    fn after(datagrams: &[WiretapDatagram]) -> (u64, u64, SenderState) {
        let mut losses = LossTracker::new(10);
        for datagram in datagrams {
            losses.receive(datagram, 0);
        }
        let found = losses.take_changed(0);
        (found[0].received, found[0].lost, found[0].state)
    }

    #[test]
    fn received_and_lost_are_what_was_sent() {
        let all: Vec<WiretapDatagram> = (1..=5).map(|seq| alive(1, seq)).collect();
        assert_eq!(after(&all), (5, 0, SenderState::Active));
        let ended = |kept: &[u64], count| {
            let mut kept: Vec<WiretapDatagram> = kept.iter().map(|&seq| alive(1, seq)).collect();
            kept.push(end(1, count));
            after(&kept)
        };
        assert_eq!(ended(&[1, 2, 3], 3), (3, 0, SenderState::Ended));
        assert_eq!(ended(&[3, 1, 2], 3), (3, 0, SenderState::Ended));
        assert_eq!(ended(&[2, 2, 2], 3), (1, 2, SenderState::Ended));
        assert_eq!(ended(&[], 100), (0, 100, SenderState::Ended));
        assert_eq!(ended(&[1, 9000], 9000), (2, 8998, SenderState::Ended));
        // A thread sends behind the end that another thread has reported.
        assert_eq!(ended(&[1, 2, 3], 2), (3, 0, SenderState::Active));
        assert_eq!(after(&[end(1, 3), alive(1, 3)]), (1, 2, SenderState::Ended));
    }

    #[test]
    fn numbers_count_once() {
        let mut losses = LossTracker::new(10);
        let mut take = |seq| losses.receive(&alive(1, seq), 0);
        assert_eq!(take(5000), DatagramReceipt::New);
        assert_eq!(take(5000), DatagramReceipt::Repeated);
        assert_eq!(take(4999), DatagramReceipt::New);
        assert_eq!(take(4999), DatagramReceipt::Repeated);
        // This one is the last that is remembered, and the one before it is too late.
        assert_eq!(take(5000 - SEQ_WINDOW + 1), DatagramReceipt::New);
        assert_eq!(take(5000 - SEQ_WINDOW), DatagramReceipt::Repeated);
        // The places of forgotten numbers are free again.
        assert_eq!(take(5000 + SEQ_WINDOW - 1), DatagramReceipt::New);
        assert_eq!(take(5001), DatagramReceipt::New);
        assert_eq!(take(5000), DatagramReceipt::Repeated);
        assert_eq!(take(1_000_000_000_000), DatagramReceipt::New);
        assert_eq!(take(1_000_000_000_000 - 7), DatagramReceipt::New);
        assert_eq!(losses.receive(&end(1, 9), 0), DatagramReceipt::New);
        assert_eq!(losses.receive(&end(1, 9), 0), DatagramReceipt::Repeated);
    }

    #[test]
    fn who_is_silent_or_killed_has_an_unknown_end() {
        let mut losses = LossTracker::new(10);
        losses.receive(&alive(1, 1), 5000);
        losses.receive(&end(2, 1), 5000);
        assert_eq!(losses.take_changed(5000).len(), 2);
        assert!(losses.take_changed(5000 + SILENCE_TIMEOUT_MS).is_empty());
        let silent = losses.take_changed(5001 + SILENCE_TIMEOUT_MS);
        assert_eq!(
            (silent.len(), silent[0].state),
            (1, SenderState::EndUnknown)
        );
        // The silent sender was not dead.
        losses.receive(&alive(1, 2), 6000 + SILENCE_TIMEOUT_MS);
        assert_eq!(
            losses.take_changed(6000 + SILENCE_TIMEOUT_MS)[0].state,
            SenderState::Active
        );
        assert_eq!(losses.take_final()[0].state, SenderState::EndUnknown);
        let sums = losses.sums();
        assert_eq!((sums.senders, sums.lost, sums.end_unknown), (2, 1, 1));
    }

    #[test]
    fn senders_are_bounded() {
        let mut losses = LossTracker::new(100);
        for sender in 0..10_000 {
            losses.receive(&alive(sender, 2), sender);
            assert!(losses.senders.len() <= 100);
        }
        assert!(losses.waiting() >= 9900);
        assert_eq!(losses.take_changed(0).len(), 10_000);
        assert_eq!(losses.waiting(), 0);
        let sums = losses.sums();
        assert_eq!((sums.senders, sums.lost), (10_000, 10_000));
    }

    #[test]
    fn an_earlier_listener_is_remembered() {
        let mut first = LossTracker::new(10);
        first.receive(&alive(1, 1), 0);
        first.receive(&alive(1, 3), 0);
        let known = first.take_final().remove(0);
        let mut second = LossTracker::new(10);
        second.remember(&known);
        assert!(second.take_final().is_empty());
        assert_eq!(second.sums(), LossSums::default());
        assert_eq!(second.receive(&alive(1, 3), 0), DatagramReceipt::Repeated);
        assert_eq!(second.receive(&alive(1, 4), 0), DatagramReceipt::New);
        assert_eq!(second.receive(&end(1, 5), 0), DatagramReceipt::New);
        let found = second.take_changed(0).remove(0);
        assert_eq!((found.received, found.lost), (3, 2));
        assert_eq!(found.state, SenderState::Ended);
    }
}
