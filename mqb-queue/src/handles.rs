//! Who has the queue open: handles of peers, their streams, and how many readers and writers each stream has.
//!
//! A handle is one queue number of one connection. Its streams are told apart by `subId`; a work queue has only the
//! default stream, 0. Everything is keyed by what a peer sends, so every lookup can miss and memory follows what is open.

use hashbrown::HashMap;
use mqb_core::SubId;
use slab::Slab;
use smallvec::SmallVec;

use crate::consumer::Peer;

/// Place of a stream; reused after the stream is gone.
pub(crate) type StreamId = u32;

/// Adds readers and writers to a stream of a queue.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest {
    /// Whose.
    pub peer: Peer,
    /// The owner's own number for the connection, given back in each [`Target`](crate::Target).
    pub token: u32,
    /// The stream.
    pub sub_id: SubId,
    /// Readers that this adds.
    pub read_count: u32,
    /// Writers that this adds.
    pub write_count: u32,
}

/// Why a queue was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The domain allows fewer writers.
    #[error("the queue has its maximum of {limit} producers")]
    Producers {
        /// The maximum.
        limit: u32,
    },
    /// The domain allows fewer readers.
    #[error("the queue has its maximum of {limit} consumers")]
    Consumers {
        /// The maximum.
        limit: u32,
    },
}

/// What to close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseScope {
    /// These readers and writers of one stream; the stream itself if none remain.
    Stream {
        /// The stream.
        sub_id: SubId,
        /// Readers that go.
        read_count: u32,
        /// Writers that go.
        write_count: u32,
    },
    /// The peer's queue number with all its streams.
    Queue,
}

/// A request names a handle, stream or number of readers that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The peer has not opened the queue under this number.
    #[error("the queue is not open under this number")]
    UnknownQueue,
    /// No such stream.
    #[error("the queue has no such stream")]
    UnknownStream,
    /// More readers or writers than the stream has.
    #[error("the stream has fewer readers or writers than that")]
    TooMany,
}

pub(crate) struct Stream {
    pub(crate) token: u32,
    pub(crate) sub_id: SubId,
    pub(crate) read_count: u32,
    pub(crate) write_count: u32,
}

#[derive(Default)]
struct HandleState {
    paused: bool,
    streams: SmallVec<[StreamId; 2]>,
}

/// All handles of a queue.
#[derive(Default)]
pub(crate) struct Handles {
    by_peer: HashMap<Peer, HandleState>,
    streams: Slab<Stream>,
    producers: u32,
    consumers: u32,
}

impl Handles {
    /// Readers of all streams.
    pub(crate) fn consumers(&self) -> u32 {
        self.consumers
    }

    /// Writers of all streams.
    pub(crate) fn producers(&self) -> u32 {
        self.producers
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }

    pub(crate) fn contains(&self, peer: Peer) -> bool {
        self.by_peer.contains_key(&peer)
    }

    pub(crate) fn is_paused(&self, peer: Peer) -> bool {
        self.by_peer.get(&peer).is_some_and(|handle| handle.paused)
    }

    pub(crate) fn set_paused(&mut self, peer: Peer, paused: bool) {
        if let Some(handle) = self.by_peer.get_mut(&peer) {
            handle.paused = paused;
        }
    }

    pub(crate) fn stream(&self, id: StreamId) -> &Stream {
        &self.streams[id as usize]
    }

    /// The stream that a peer means by `sub_id`.
    pub(crate) fn find(&self, peer: Peer, sub_id: SubId) -> Result<StreamId, HandleError> {
        let handle = self.by_peer.get(&peer).ok_or(HandleError::UnknownQueue)?;
        let of_id = |&&id: &&StreamId| self.streams[id as usize].sub_id == sub_id;
        handle
            .streams
            .iter()
            .find(of_id)
            .copied()
            .ok_or(HandleError::UnknownStream)
    }

    /// Whether any stream of the handle may write.
    pub(crate) fn may_write(&self, peer: Peer) -> bool {
        let writes = |&id: &StreamId| self.streams[id as usize].write_count > 0;
        self.by_peer
            .get(&peer)
            .is_some_and(|handle| handle.streams.iter().any(writes))
    }

    /// Adds readers and writers; `max` are the domain's limits, 0 for none.
    pub(crate) fn open(
        &mut self,
        request: &OpenRequest,
        max_producers: u32,
        max_consumers: u32,
    ) -> Result<StreamId, OpenError> {
        let producers = self.producers.saturating_add(request.write_count);
        if max_producers > 0 && request.write_count > 0 && producers > max_producers {
            return Err(OpenError::Producers {
                limit: max_producers,
            });
        }
        let consumers = self.consumers.saturating_add(request.read_count);
        if max_consumers > 0 && request.read_count > 0 && consumers > max_consumers {
            return Err(OpenError::Consumers {
                limit: max_consumers,
            });
        }
        let id = match self.find(request.peer, request.sub_id) {
            Ok(id) => id,
            Err(_) => self.add_stream(request),
        };
        let stream = &mut self.streams[id as usize];
        // Saturated counts could not be taken back, so what was not added is not counted either.
        let (read, write) = (
            request.read_count.min(u32::MAX - self.consumers),
            request.write_count.min(u32::MAX - self.producers),
        );
        stream.read_count += read;
        stream.write_count += write;
        self.consumers += read;
        self.producers += write;
        Ok(id)
    }

    fn add_stream(&mut self, request: &OpenRequest) -> StreamId {
        let OpenRequest {
            peer,
            token,
            sub_id,
            ..
        } = *request;
        let id = self.streams.insert(Stream {
            token,
            sub_id,
            read_count: 0,
            write_count: 0,
        }) as StreamId;
        self.by_peer.entry(peer).or_default().streams.push(id);
        id
    }

    /// Takes away readers and writers. Returns the stream if it reads no more, which is then to be released.
    pub(crate) fn close_some(
        &mut self,
        peer: Peer,
        sub_id: SubId,
        read: u32,
        write: u32,
    ) -> Result<Option<StreamId>, HandleError> {
        let id = self.find(peer, sub_id)?;
        let stream = &mut self.streams[id as usize];
        if read > stream.read_count || write > stream.write_count {
            return Err(HandleError::TooMany);
        }
        stream.read_count -= read;
        stream.write_count -= write;
        self.consumers -= read;
        self.producers -= write;
        Ok((read > 0 && stream.read_count == 0).then_some(id))
    }

    /// The streams of a handle.
    pub(crate) fn streams(&self, peer: Peer) -> Result<SmallVec<[StreamId; 2]>, HandleError> {
        self.by_peer
            .get(&peer)
            .map(|handle| handle.streams.clone())
            .ok_or(HandleError::UnknownQueue)
    }

    /// Forgets the streams of a handle that neither read nor write (or all, with `all`), and the handle if none remain.
    pub(crate) fn sweep(&mut self, peer: Peer, all: bool) {
        let Some(handle) = self.by_peer.get_mut(&peer) else {
            return;
        };
        handle.streams.retain(|&mut id| {
            let stream = &self.streams[id as usize];
            let keep = !all && (stream.read_count > 0 || stream.write_count > 0);
            if !keep {
                self.consumers -= stream.read_count;
                self.producers -= stream.write_count;
                self.streams.remove(id as usize);
            }
            keep
        });
        if handle.streams.is_empty() {
            self.by_peer.remove(&peer);
        }
    }
}
