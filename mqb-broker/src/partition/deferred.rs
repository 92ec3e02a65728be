//! Answers that wait until what they promise has reached its level.

use std::collections::VecDeque;

use mqb_core::{Sequence, SubId};
use mqb_dispatcher::{Cx, Handle};
use mqb_queue::Peer;

use super::client::Partition;
use super::hosted::QueueIndex;
use super::log::{Level, Log};
use crate::event::{CloseScope, Closed, Event, Opened, Refusal};
use mqb_core::control::Category;

/// An answer.
pub(super) enum Answer {
    /// To an open that made the queue, or came while it was being made.
    Opened {
        reply: Handle<Event>,
        opened: Box<Opened>,
        undo: Undo,
    },
    /// To a close.
    Closed { token: u32, call: u64 },
    /// To the end of a connection.
    Gone { token: u32 },
}

/// What an open did, so that it can be taken back.
pub(super) struct Undo {
    pub(super) token: u32,
    pub(super) index: QueueIndex,
    pub(super) peer: Peer,
    pub(super) sub_id: SubId,
    pub(super) read_count: u32,
    pub(super) write_count: u32,
}

/// The answers that wait for one level, in the order of the log.
pub(super) type Deferred = VecDeque<(Sequence, Answer)>;

impl<L: Log> Partition<L> {
    /// Gives an answer once everything appended so far is at `level`; at once if it is, or if it never will be.
    pub(super) fn answer_at(&mut self, cx: &mut Cx<'_, Event>, level: Level, answer: Answer) {
        let needed = self.log.appended();
        if self.news.is_failed {
            // What was to be appended is not even in the log.
            self.give(cx, answer, false);
        } else if self.marks.at(level) >= needed {
            self.give(cx, answer, true);
        } else {
            self.wanted = self.wanted.max(Some(level));
            self.deferred[level as usize].push_back((needed, answer));
        }
    }

    /// Gives an answer, behind everything collected for the connection.
    pub(super) fn give(&mut self, cx: &mut Cx<'_, Event>, answer: Answer, is_durable: bool) {
        match answer {
            Answer::Opened {
                reply,
                mut opened,
                undo,
            } => {
                if is_durable {
                    self.sessions.slot(undo.token).is_known = true;
                } else {
                    opened.result = Err(failed());
                    self.undo_open(&undo);
                }
                cx.post(&reply, Event::Opened(opened));
            }
            Answer::Closed { token, call } => {
                self.sessions.send(cx, token);
                let result = if is_durable { Ok(()) } else { Err(failed()) };
                cx.post(
                    &self.sessions.slot(token).reply,
                    Event::Closed(Box::new(Closed { call, result })),
                );
            }
            Answer::Gone { token } => {
                self.sessions.send(cx, token);
                let slot = self.sessions.remove(token);
                cx.post(&slot.reply, Event::SessionGone { partition: self.id });
            }
        }
    }

    fn undo_open(&mut self, undo: &Undo) {
        let Undo {
            token,
            index,
            peer,
            sub_id,
            read_count,
            write_count,
        } = *undo;
        let hosted = self.queues.at(index);
        let scope = CloseScope::Stream {
            sub_id,
            read_count,
            write_count,
        };
        if let Err(error) = hosted.engine.close(&mut self.log, peer, scope) {
            // Nothing else can have closed it: the session has not had its answer.
            tracing::error!(event = "partition.undo", %error, uri = %hosted.uri);
        }
        if !hosted.engine.is_open(peer) {
            self.sessions.note_closed(token, index, peer.queue);
        }
        self.sessions.forget_if_unused(token);
    }

    /// Gives the answers that have become true.
    pub(super) fn give_due(&mut self, cx: &mut Cx<'_, Event>, level: Level) {
        let mark = self.marks.at(level);
        while let Some((needed, _)) = self.deferred[level as usize].front()
            && *needed <= mark
            && let Some((_, answer)) = self.deferred[level as usize].pop_front()
        {
            self.give(cx, answer, true);
        }
    }
}

/// The log has failed: nobody is told that something is safe.
fn failed() -> Refusal {
    Refusal::new(
        Category::Unknown,
        "the storage of the queue's partition has failed",
    )
}
