//! Checkpoint: the fold's state at one index, as the content of one frame.
//!
//! ```text
//! offset size
//!      0    2  format version, then 6 zeros
//!      8    8  index: everything up to and with it is in here
//!     16    8  term of that entry
//!     24    8  latest time in any record, ms since the Unix epoch
//!     32    8  vote
//!     40    8  next segment id
//!     48    4  next queue id
//!     52    4  number of queues
//!     56    4  number of segments
//!     60    4  number of window files
//!
//!   a queue: 4 id, 4 length of URI, 5 x 8 counters (put, confirmed, expired, purged, removed), URI, zeros to 8
//!   a segment: 8 id, 1 role, 1 all settled, 6 zeros, 8 length in use, 4 number of chunks, 4 zeros;
//!              a chunk: 4 number, 4 number of words (at most 512), words of 8 bytes; those missing are zero
//!   a window file: 8 id, 8 length in use
//! ```

use super::bitmap::{Bitmap, CHUNK_WORDS, Chunk};
use super::{FORMAT_VERSION, Index, LogError, SegmentRole, Term, field, pad8};
use crate::QueueId;
use std::sync::Arc;

/// State of the fold at `index`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checkpoint {
    /// Entries up to and with this one are folded in.
    pub index: Index,
    /// Its term.
    pub term: Term,
    /// **Units**: ms since the Unix epoch: latest time in a record.
    pub clock_ms: u64,
    /// Replica voted for in `term`, 0 none.
    pub vote: u64,
    /// Lowest segment id that was never used.
    pub next_segment: u64,
    /// Lowest queue id that was never used.
    pub next_queue: QueueId,
    /// Existing queues by id.
    pub queues: Vec<QueueState>,
    /// Segments by id.
    pub segments: Vec<SegmentState>,
    /// Files of the duplicate window by id; they hold all items up to `index`.
    pub windows: Vec<WindowFile>,
}

/// A queue in a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueState {
    /// Its number.
    pub id: QueueId,
    /// Its name.
    pub uri: Arc<str>,
    /// What went through it.
    pub counters: QueueCounters,
}

/// Messages of a queue since its creation: `put = confirmed + expired + purged + removed + live`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Stored.
    pub put: u64,
    /// Settled by a consumer.
    pub confirmed: u64,
    /// Settled by their time to live.
    pub expired: u64,
    /// Settled by an operator.
    pub purged: u64,
    /// Settled after too many attempts.
    pub removed: u64,
}

impl QueueCounters {
    /// Counts a settling; `why` as in the record.
    pub fn settled(&mut self, why: u8) {
        match why {
            1 => self.confirmed += 1,
            2 => self.expired += 1,
            3 => self.purged += 1,
            _ => self.removed += 1,
        }
    }

    /// Messages in the queue.
    pub fn live(&self) -> u64 {
        self.put
            .saturating_sub(self.confirmed + self.expired + self.purged + self.removed)
    }
}

/// A segment in a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentState {
    /// Its id.
    pub id: u64,
    /// Hot or cold.
    pub role: SegmentRole,
    /// Nothing in it is live; `settled` is empty.
    pub all_settled: bool,
    /// **Units**: bytes that were accounted for. What stands behind in a cold one was moved later than this checkpoint.
    pub length: u64,
    /// Which records are settled.
    pub settled: Bitmap,
}

/// A file of the duplicate window in a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowFile {
    /// Its id.
    pub id: u64,
    /// **Units**: bytes in use.
    pub length: u64,
}

const HEADER_LEN: usize = 64;
const WHAT: &str = "checkpoint";

impl Checkpoint {
    /// The frame's content.
    ///
    /// **Cost**: up to 4 KiB per MiB of partly settled segments.
    pub fn encode(&self) -> Vec<u8> {
        let count = |n: usize| {
            u32::try_from(n)
                .expect("tables of a partition have less than 4 Gi rows")
                .to_le_bytes()
        };
        let mut out =
            Vec::with_capacity(HEADER_LEN + self.queues.len() * 96 + self.segments.len() * 64);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        for v in [
            self.index.0,
            self.term.0,
            self.clock_ms,
            self.vote,
            self.next_segment,
        ] {
            out.extend_from_slice(&v.to_le_bytes());
        }
        out.extend_from_slice(&self.next_queue.0.to_le_bytes());
        for n in [self.queues.len(), self.segments.len(), self.windows.len()] {
            out.extend_from_slice(&count(n));
        }
        for queue in &self.queues {
            out.extend_from_slice(&queue.id.0.to_le_bytes());
            out.extend_from_slice(&count(queue.uri.len()));
            let c = queue.counters;
            for v in [c.put, c.confirmed, c.expired, c.purged, c.removed] {
                out.extend_from_slice(&v.to_le_bytes());
            }
            out.extend_from_slice(queue.uri.as_bytes());
            out.resize(pad8(out.len()), 0);
        }
        for segment in &self.segments {
            out.extend_from_slice(&segment.id.to_le_bytes());
            out.extend_from_slice(&[
                segment.role as u8,
                segment.all_settled.into(),
                0,
                0,
                0,
                0,
                0,
                0,
            ]);
            out.extend_from_slice(&segment.length.to_le_bytes());
            out.extend_from_slice(&count(segment.settled.chunks().count()));
            out.extend_from_slice(&[0; 4]);
            for (number, chunk) in segment.settled.chunks() {
                let words = chunk
                    .iter()
                    .rposition(|w| *w != 0)
                    .map_or(0, |last| last + 1);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&count(words));
                out.extend(chunk[..words].iter().flat_map(|w| w.to_le_bytes()));
            }
        }
        for window in &self.windows {
            out.extend_from_slice(&window.id.to_le_bytes());
            out.extend_from_slice(&window.length.to_le_bytes());
        }
        out
    }

    /// Reads the frame's content. Memory used is bounded by the input's length.
    pub fn parse(bytes: &[u8]) -> Result<Checkpoint, LogError> {
        field::need(bytes, HEADER_LEN, WHAT)?;
        let version = field::u16(bytes, 0);
        if version > FORMAT_VERSION {
            return Err(LogError::Version {
                what: WHAT,
                found: version,
            });
        }
        let mut checkpoint = Checkpoint {
            index: Index(field::u64(bytes, 8)),
            term: Term(field::u64(bytes, 16)),
            clock_ms: field::u64(bytes, 24),
            vote: field::u64(bytes, 32),
            next_segment: field::u64(bytes, 40),
            next_queue: QueueId(field::u32(bytes, 48)),
            ..Checkpoint::default()
        };
        let mut rest = Rest(&bytes[HEADER_LEN..]);
        for _ in 0..field::u32(bytes, 52) {
            checkpoint.queues.push(rest.queue()?);
        }
        for _ in 0..field::u32(bytes, 56) {
            checkpoint.segments.push(rest.segment()?);
        }
        for _ in 0..field::u32(bytes, 60) {
            let b = rest.take(16)?;
            checkpoint.windows.push(WindowFile {
                id: field::u64(b, 0),
                length: field::u64(b, 8),
            });
        }
        Ok(checkpoint)
    }
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], LogError> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(LogError::Short {
            what: WHAT,
            have: self.0.len(),
            need: n,
        })?;
        self.0 = tail;
        Ok(head)
    }

    fn queue(&mut self) -> Result<QueueState, LogError> {
        let head = self.take(48)?;
        let len = field::u32(head, 4) as usize;
        let uri = &self.take(pad8(len))?[..len];
        let bad = LogError::Field {
            what: WHAT,
            field: "URI",
            value: len as u64,
        };
        let uri = std::str::from_utf8(uri).map_err(|_| bad)?.into();
        let at = |i: usize| field::u64(head, 8 + i * 8);
        let counters = QueueCounters {
            put: at(0),
            confirmed: at(1),
            expired: at(2),
            purged: at(3),
            removed: at(4),
        };
        Ok(QueueState {
            id: QueueId(field::u32(head, 0)),
            uri,
            counters,
        })
    }

    fn segment(&mut self) -> Result<SegmentState, LogError> {
        let head = self.take(32)?;
        let role = match head[8] {
            0 => SegmentRole::Hot,
            1 => SegmentRole::Cold,
            other => {
                return Err(LogError::Field {
                    what: WHAT,
                    field: "role",
                    value: other.into(),
                });
            }
        };
        let mut settled = Bitmap::default();
        for _ in 0..field::u32(head, 24) {
            let head = self.take(8)?;
            let (number, words) = (field::u32(head, 0), field::u32(head, 4));
            if words as usize > CHUNK_WORDS {
                return Err(LogError::Field {
                    what: WHAT,
                    field: "words",
                    value: words.into(),
                });
            }
            let b = self.take(words as usize * 8)?;
            // 4 TiB of file; keeps a bad number from sizing the table of chunks.
            if number >= 1 << 22 {
                return Err(LogError::Field {
                    what: WHAT,
                    field: "chunk",
                    value: number.into(),
                });
            }
            let mut chunk: Chunk = [0; CHUNK_WORDS];
            for (word, bytes) in chunk.iter_mut().zip(b.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            settled.insert_chunk(number, chunk);
        }
        Ok(SegmentState {
            id: field::u64(head, 0),
            role,
            all_settled: head[9] != 0,
            length: field::u64(head, 16),
            settled,
        })
    }
}
