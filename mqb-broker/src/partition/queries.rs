//! What operators ask a partition. Cheap questions are answered at once, a purge in bounded steps.

use bytes::Bytes;
use mqb_core::uri::Uri;
use mqb_queue::{Fetch, Fill};

use super::client::{Partition, Sweep};
use super::hosted::{Home, Hosted, QueueIndex};
use super::log::{Level, Log};
use crate::event::{MessageReport, PartitionReport, Query, QueryAnswer, QueryRequest, QueueReport};

/// Data shown of one message. **Units**: bytes.
const PREVIEW_BYTES: usize = 256 << 10;
/// Data of one answer. **Units**: bytes.
const ANSWER_BYTES: usize = 1 << 20;
/// Messages of one answer.
const ANSWER_MESSAGES: u32 = 4096;
/// Messages skipped by one question: each costs some nanoseconds of everybody's time.
const SKIP_MAX: u64 = 1_000_000;

impl<L: Log> Partition<L> {
    pub(super) fn query(&mut self, query: Query) {
        let answer = match &query.request {
            QueryRequest::Queues { domain } => {
                QueryAnswer::Queues(self.queue_reports(domain.as_deref()))
            }
            QueryRequest::Partitions => QueryAnswer::Partitions(vec![self.report()]),
            QueryRequest::Domains => QueryAnswer::Refused("partitions do not know domains".into()),
            QueryRequest::Queue { uri }
            | QueryRequest::Messages { uri, .. }
            | QueryRequest::Purge { uri, .. } => {
                match self.queues.find(uri) {
                    Some(index) => return self.query_queue(index, query),
                    // The registry places a queue before its partition has made it.
                    None => QueryAnswer::Refused("there is no such queue".into()),
                }
            }
        };
        (query.reply)(answer);
    }

    fn query_queue(&mut self, index: QueueIndex, query: Query) {
        let answer = match query.request {
            QueryRequest::Messages { skip, count, .. } => self.peek(index, skip, count),
            QueryRequest::Purge {
                app_id: Some(_), ..
            } => QueryAnswer::Refused("the queue has no app ids".into()),
            QueryRequest::Purge { .. } => {
                let hosted = self.queues.at(index);
                let cut = hosted.engine.purge_cut();
                tracing::info!(event = "queue.purge", uri = %hosted.uri, messages = hosted.engine.stats().messages);
                return self.sweeps.push_back(Sweep::Purge {
                    index,
                    cut,
                    messages: 0,
                    bytes: 0,
                    reply: query.reply,
                });
            }
            _ => {
                let (id, now_ms) = (self.id.0, self.now_ms);
                QueryAnswer::Queues(vec![queue_report(self.queues.at(index), id, now_ms)])
            }
        };
        (query.reply)(answer);
    }

    fn queue_reports(&self, domain: Option<&str>) -> Vec<QueueReport> {
        let of_domain = |hosted: &&Hosted| match domain {
            None => true,
            Some(domain) => {
                Uri::parse(&hosted.uri).is_ok_and(|uri| uri.qualified_domain() == domain)
            }
        };
        let hosted = self
            .queues
            .iter()
            .map(|(_, hosted)| hosted)
            .filter(of_domain);
        let mut reports: Vec<QueueReport> = hosted
            .map(|hosted| queue_report(hosted, self.id.0, self.now_ms))
            .collect();
        reports.sort_unstable_by(|a, b| a.uri.cmp(&b.uri));
        reports
    }

    fn peek(&mut self, index: QueueIndex, skip: u64, count: u32) -> QueryAnswer {
        if skip > SKIP_MAX {
            return QueryAnswer::Refused(format!(
                "no more than {SKIP_MAX} messages can be skipped"
            ));
        }
        let hosted = self.queues.at(index);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let views = hosted
            .engine
            .messages()
            .skip(skip)
            .take(count.min(ANSWER_MESSAGES) as usize);
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for view in views {
            let store = Hosted::store(hosted.home, &mut self.log, &mut self.memory);
            let data = match store.fetch(hosted.engine.id(), view.sequence) {
                // A copy: a slice would pin the block.
                Fetch::Ready(stored) => {
                    let data = stored.data();
                    Some(Bytes::copy_from_slice(
                        &data[..data.len().min(PREVIEW_BYTES)],
                    ))
                }
                Fetch::Later | Fetch::Lost => None,
            };
            bytes += data.as_ref().map_or(0, Bytes::len);
            messages.push(MessageReport {
                guid: view.guid,
                accepted_at_ms: view.accepted_at_ms,
                format: view.format,
                size_bytes: view.len.into(),
                data,
            });
            if bytes > ANSWER_BYTES {
                break;
            }
        }
        QueryAnswer::Messages(messages)
    }

    fn report(&self) -> PartitionReport {
        let mut report = PartitionReport {
            partition: self.id.0,
            queues: self.queues.len() as u64,
            sessions: self.sessions.len() as u64,
            pending_acks: Level::ALL
                .iter()
                .map(|&level| self.acks[level as usize].len() as u64)
                .sum(),
            is_full: self.news.is_full,
            is_failed: self.news.is_failed,
            poison_messages: self.poison_messages,
            storage: self.log.stats(),
            ..PartitionReport::default()
        };
        for (_, hosted) in self.queues.iter() {
            let stats = hosted.engine.stats();
            report.messages += stats.messages;
            report.bytes += stats.bytes;
            report.queues_full += u64::from(stats.fill == Fill::Full);
            report.queues_high += u64::from(stats.fill == Fill::High);
        }
        report
    }
}

fn queue_report(hosted: &Hosted, partition: u16, now_ms: u64) -> QueueReport {
    let stats = hosted.engine.stats();
    let durability = match hosted.home {
        Home::Log(Level::Synced) => "sync",
        Home::Log(Level::Written) => "flush",
        Home::Memory => "memory",
    };
    QueueReport {
        uri: hosted.uri.as_ref().into(),
        mode: "priority",
        durability,
        partition,
        messages: stats.messages,
        bytes: stats.bytes,
        unconfirmed: stats.outstanding,
        producers: stats.producers,
        consumers: stats.consumers,
        oldest_age_ms: stats
            .oldest_accepted_at_ms
            .map_or(0, |at| now_ms.saturating_sub(at)),
        stored: stats.counters.stored,
        confirmed: stats.counters.confirmed,
        expired: stats.counters.expired,
        purged: stats.counters.purged,
        removed: stats.counters.removed,
        puts: hosted.puts,
        nacks: hosted.nacks,
        pushes: hosted.pushes,
    }
}
