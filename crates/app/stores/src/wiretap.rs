//! Counts the wiretap's datagrams, and writes the counts to a database from time to time.

use std::collections::HashMap;

use heapprof_analysis::{
    AnalysisError,
    store::{ProfileStore, WiretapBatch, WiretapCode, WiretapSender},
};
use heapprof_wiretap::{
    DatagramError, DatagramReceipt, LossTracker, MAX_SENDERS, SenderLosses, SenderState,
    SigningKey, WiretapDatagram, WiretapEvent, decode,
};

/// Maximum number of keys (codes with their sites and processes) or of senders that are counted
/// between two writes to the database.
const MAX_CODES: usize = 20_000;

/// The key of a count: kind, code, site, host, process and outcome.
type CodeKey = (&'static str, String, String, String, u32, &'static str);

#[derive(Default)]
struct CodeCount {
    count: i64,
    us: i64,
    first_ms: i64,
    last_ms: i64,
}

/// Numbers of refused datagrams, by reason.
#[derive(Clone, Copy, Default)]
struct RefusedDatagrams {
    not_understood: i64,
    signature: i64,
    again: i64,
}

/// The counts of datagrams since the last write, and since the listener started.
pub struct DatagramCounts {
    key: Option<SigningKey>,
    losses: LossTracker,
    codes: HashMap<CodeKey, CodeCount>,
    refused: RefusedDatagrams,
    /// Number of counted datagrams since this listener started.
    received: u64,
    no_room: i64,
    all_refused: RefusedDatagrams,
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn to_sender_row(sender: SenderLosses) -> WiretapSender {
    WiretapSender {
        sender: format!("{:016x}", sender.sender),
        host: sender.host,
        pid: i64::from(sender.pid),
        parent: i64::from(sender.parent),
        received: to_i64(sender.received),
        lost: to_i64(sender.lost),
        state: sender.state.words().to_string(),
        first_ms: to_i64(sender.first_ms),
        last_ms: to_i64(sender.last_ms),
    }
}

/// Converts a row of the database to a sender. Returns `None` for a row that heapprof did not
/// write.
fn to_sender_losses(row: &WiretapSender) -> Option<SenderLosses> {
    let is_state = |state: &SenderState| state.words() == row.state;
    Some(SenderLosses {
        sender: u64::from_str_radix(&row.sender, 16).ok()?,
        host: row.host.clone(),
        pid: u32::try_from(row.pid).ok()?,
        parent: u32::try_from(row.parent).ok()?,
        received: u64::try_from(row.received).ok()?,
        lost: u64::try_from(row.lost).ok()?,
        state: SenderState::ALL.into_iter().find(is_state)?,
        first_ms: u64::try_from(row.first_ms).ok()?,
        last_ms: u64::try_from(row.last_ms).ok()?,
    })
}

impl DatagramCounts {
    /// Makes empty counts. With a key, only datagrams that are signed with it are counted.
    pub fn new(key: Option<SigningKey>) -> Self {
        Self {
            key,
            losses: LossTracker::new(MAX_SENDERS),
            codes: HashMap::new(),
            refused: RefusedDatagrams::default(),
            received: 0,
            no_room: 0,
            all_refused: RefusedDatagrams::default(),
        }
    }

    /// Loads the senders of earlier listeners from the database.
    pub fn load_senders(&mut self, store: &mut ProfileStore) -> Result<(), AnalysisError> {
        // New senders need room as well.
        for sender in store.wiretap_senders(MAX_SENDERS / 2)? {
            if let Some(sender) = to_sender_losses(&sender) {
                self.losses.remember(&sender);
            }
        }
        Ok(())
    }

    /// Counts a datagram that was received at `now_ms`, in milliseconds since 1970 UTC.
    pub fn take(&mut self, bytes: &[u8], now_ms: u64) {
        match decode(bytes, self.key.as_ref()) {
            Ok(datagram) => match self.losses.receive(&datagram, now_ms) {
                DatagramReceipt::New => self.count(datagram),
                DatagramReceipt::Repeated => self.refused.again += 1,
            },
            Err(DatagramError::Signature) => self.refused.signature += 1,
            Err(_) => self.refused.not_understood += 1,
        }
    }

    fn count(&mut self, datagram: WiretapDatagram) {
        let (kind, code, site, outcome, us) = match datagram.event {
            WiretapEvent::Alive { code, site } => ("alive", code, site, "", 0),
            WiretapEvent::Load {
                code,
                site,
                outcome,
                us,
            } => ("load", code, site, outcome.word(), us),
            WiretapEvent::End { .. } => return,
        };
        self.received += 1;
        let ms = to_i64(datagram.ms);
        let key = (kind, code, site, datagram.host, datagram.pid, outcome);
        let count = self.codes.entry(key).or_insert_with(|| CodeCount {
            first_ms: ms,
            last_ms: ms,
            ..CodeCount::default()
        });
        count.count += 1;
        count.us = count.us.saturating_add(to_i64(us));
        count.first_ms = count.first_ms.min(ms);
        count.last_ms = count.last_ms.max(ms);
    }

    /// Whether the database must be written before more datagrams can be counted.
    pub fn is_full(&self) -> bool {
        self.codes.len() >= MAX_CODES || self.losses.waiting() >= MAX_CODES
    }

    /// Writes the counts since the last write, at the time `now_ms`.
    pub fn store(&mut self, store: &mut ProfileStore, now_ms: u64) -> Result<(), AnalysisError> {
        let senders = self.losses.take_changed(now_ms);
        self.write(store, senders)
    }

    /// Writes the last counts, and notes in the database that no listener runs any more.
    pub fn store_last(&mut self, store: &mut ProfileStore) -> Result<(), AnalysisError> {
        let senders = self.losses.take_final();
        self.write(store, senders)
    }

    fn write(
        &mut self,
        store: &mut ProfileStore,
        senders: Vec<SenderLosses>,
    ) -> Result<(), AnalysisError> {
        let refused = std::mem::take(&mut self.refused);
        self.all_refused.not_understood += refused.not_understood;
        self.all_refused.signature += refused.signature;
        self.all_refused.again += refused.again;
        let codes = self.codes.drain().map(|(key, count)| {
            let (kind, code, site, host, pid, outcome) = key;
            WiretapCode {
                kind: kind.to_string(),
                code,
                site,
                host,
                pid: i64::from(pid),
                outcome: outcome.to_string(),
                count: count.count,
                us: count.us,
                first_ms: count.first_ms,
                last_ms: count.last_ms,
            }
        });
        let refused = [
            ("not understood", refused.not_understood),
            ("wrong signature", refused.signature),
            ("received twice", refused.again),
        ];
        let refused = refused.into_iter().filter(|(_, count)| *count > 0);
        let batch = WiretapBatch {
            codes: codes.collect(),
            senders: senders.into_iter().map(to_sender_row).collect(),
            refused: refused
                .map(|(why, count)| (why.to_string(), count))
                .collect(),
        };
        if !(batch.codes.is_empty() && batch.senders.is_empty() && batch.refused.is_empty()) {
            self.no_room += store.add_wiretap(&batch)?;
        }
        Ok(())
    }

    /// Summarises the received datagrams in one line.
    pub fn summary(&self) -> String {
        let sums = self.losses.sums();
        format!(
            "received {}, lost {}, senders {}, {} of them with unknown end; refused: {} not \
             understood, {} with a wrong signature, {} duplicates, {} for lack of room",
            self.received,
            sums.lost,
            sums.senders,
            sums.end_unknown,
            self.all_refused.not_understood,
            self.all_refused.signature,
            self.all_refused.again,
            self.no_room
        )
    }
}
