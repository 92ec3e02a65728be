//! `mqb storage verify`: every checksum, the order of entries, and what the queues hold by the records.
//!
//! A broker that was killed leaves an incomplete last write; that is normal and not damage, as long as nobody was told that
//! those bytes are safe: neither the checkpoint nor a later frame vouches for them. Anything else that does not read is damage.

use std::collections::BTreeMap;
use std::path::Path;

use mqb_core::QueueId;
use mqb_core::log::{
    Checkpoint, EntryHeader, FrameKind, Index, LogError, QueueCounters, Record, Records,
    SegmentInfo, WindowRun, carried_items,
};
use serde::Serialize;

use super::data_dir::{DataDir, Partition};
use super::scan::{Ending, scan};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{bytes, say, table, thousands};

/// What one partition holds.
#[derive(Serialize, Default)]
struct PartitionReport {
    partition: u16,
    segments: usize,
    cold_segments: usize,
    bytes: u64,
    entries: u64,
    /// Of the last entry.
    index: u64,
    checkpoint_index: u64,
    messages: u64,
    queues: Vec<QueueReport>,
    /// Normal after a crash.
    remarks: Vec<String>,
    damage: Vec<String>,
}

#[derive(Serialize)]
struct QueueReport {
    uri: String,
    messages: u64,
    stored: u64,
    confirmed: u64,
    expired: u64,
    purged: u64,
    removed: u64,
}

pub(crate) fn run(context: &Context, dir: &Path) -> anyhow::Result<()> {
    let data = DataDir::open(dir)?;
    let mut reports = Vec::new();
    for partition in &data.partitions {
        reports.push(Verifier::new(partition).run()?);
    }
    if context.is_json() {
        say!(
            "{}",
            serde_json::json!({ "node": data.node, "partitions": reports })
        );
    } else {
        print(&reports)?;
    }
    let damage: usize = reports.iter().map(|report| report.damage.len()).sum();
    match damage {
        0 => Ok(()),
        count => Err(Failure::Damaged(format!(
            "{count} damaged place(s); the broker serves those partitions read-only. Keep a copy of the directory before anything else"
        ))
        .into()),
    }
}

fn print(reports: &[PartitionReport]) -> anyhow::Result<()> {
    let cells = |report: &PartitionReport| {
        vec![
            report.partition.to_string(),
            format!("{} + {}", report.segments, report.cold_segments),
            bytes(report.bytes),
            thousands(report.entries),
            thousands(report.index),
            thousands(report.messages),
            if report.damage.is_empty() {
                "good".to_owned()
            } else {
                "DAMAGED".to_owned()
            },
        ]
    };
    let headings = [
        "PARTITION",
        "SEGMENTS",
        "BYTES",
        "ENTRIES",
        "LAST INDEX",
        "MESSAGES",
        "STATE",
    ];
    table(
        &headings,
        &[0, 1, 2, 3, 4, 5],
        &reports.iter().map(cells).collect::<Vec<_>>(),
    )?;
    let queues: Vec<Vec<String>> = reports
        .iter()
        .flat_map(|report| &report.queues)
        .map(|queue| {
            vec![
                queue.uri.clone(),
                thousands(queue.messages),
                thousands(queue.stored),
                thousands(queue.confirmed),
            ]
        })
        .collect();
    if !queues.is_empty() {
        say!("");
        table(
            &["QUEUE", "MESSAGES", "STORED", "CONFIRMED"],
            &[1, 2, 3],
            &queues,
        )?;
    }
    for report in reports {
        for remark in &report.remarks {
            say!("partition {}: {remark}", report.partition);
        }
        for damage in &report.damage {
            say!("partition {}: DAMAGE: {damage}", report.partition);
        }
    }
    Ok(())
}

/// A place where a file of entries stops reading, to be judged when all is known.
struct Stop {
    file: String,
    segment: u64,
    ending: Ending,
    /// Index that should have come next.
    next: Index,
    last: bool,
}

struct Verifier<'a> {
    partition: &'a Partition,
    report: PartitionReport,
    checkpoint: Checkpoint,
    queues: BTreeMap<QueueId, (String, QueueCounters)>,
    next: Option<Index>,
    /// Entries up to here were durable, say frames.
    committed: u64,
    stops: Vec<Stop>,
}

impl<'a> Verifier<'a> {
    fn new(partition: &'a Partition) -> Verifier<'a> {
        let report = PartitionReport {
            partition: partition.id,
            segments: partition.hot.len(),
            cold_segments: partition.cold.len(),
            ..PartitionReport::default()
        };
        Verifier {
            partition,
            report,
            checkpoint: Checkpoint::default(),
            queues: BTreeMap::new(),
            next: None,
            committed: 0,
            stops: Vec::new(),
        }
    }

    fn run(mut self) -> anyhow::Result<PartitionReport> {
        self.read_checkpoint()?;
        self.read_hot()?;
        self.read_cold()?;
        self.read_windows()?;
        self.judge();
        self.finish();
        Ok(self.report)
    }

    fn read_checkpoint(&mut self) -> anyhow::Result<()> {
        let Some(path) = &self.partition.checkpoint else {
            return Ok(());
        };
        let bytes = std::fs::read(path)?;
        let epoch = mqb_core::log::FrameHeader::parse(&bytes).map_or(0, |header| header.epoch);
        let mut found = None;
        let ending = scan(path, epoch, |frame| {
            if frame.header.kind == FrameKind::Checkpoint {
                found = Some(Checkpoint::parse(frame.content));
            }
            Ok(())
        })?;
        self.report.bytes += ending.offset as u64;
        match found {
            Some(Ok(checkpoint)) => {
                self.report.checkpoint_index = checkpoint.index.0;
                self.committed = checkpoint.index.0;
                for queue in &checkpoint.queues {
                    self.queues
                        .insert(queue.id, (queue.uri.to_string(), queue.counters));
                }
                self.checkpoint = checkpoint;
            }
            Some(Err(error)) => self.report.damage.push(format!("checkpoint: {error}")),
            None => self.report.damage.push(match ending.error {
                Some(error) => format!("checkpoint: {error}"),
                None => "checkpoint: empty".to_owned(),
            }),
        }
        Ok(())
    }

    fn read_hot(&mut self) -> anyhow::Result<()> {
        let files = self.partition.hot.clone();
        for (position, (id, path)) in files.iter().enumerate() {
            let name = name(path);
            let mut frames = 0;
            let ending = scan(path, *id, |frame| {
                frames += 1;
                self.committed = self.committed.max(frame.header.committed);
                match frame.header.kind {
                    FrameKind::Entry => self.entry(frame.content, &name),
                    FrameKind::Segment => self.segment_head(frame.content, &name),
                    _ => {}
                }
                Ok(())
            })?;
            self.report.bytes += ending.offset as u64;
            if let Some((_, header)) = &ending.resumes {
                self.committed = self.committed.max(header.committed);
            }
            if frames == 0 && ending.is_unwritten {
                // Prepared for later, or waiting to be used again.
                continue;
            }
            if ending.error.is_some() {
                let last = position + 1 == files.len();
                self.stops.push(Stop {
                    file: name,
                    segment: *id,
                    ending,
                    next: self.next.unwrap_or(Index(1)),
                    last,
                });
            }
        }
        Ok(())
    }

    fn segment_head(&mut self, content: &[u8], name: &str) {
        if let Err(error) = SegmentInfo::parse(content) {
            self.report.damage.push(format!("{name}: {error}"));
        }
    }

    fn entry(&mut self, content: &[u8], name: &str) {
        let header = match EntryHeader::parse(content) {
            Ok(header) => header,
            Err(error) => return self.report.damage.push(format!("{name}: {error}")),
        };
        // Segments before the first one here were cleaned away.
        let expected = self.next.unwrap_or(header.index);
        if header.index != expected {
            self.report.damage.push(format!(
                "{name}: entry {} where {expected} should be",
                header.index
            ));
        }
        self.next = Some(header.index.next());
        self.report.entries += 1;
        for record in Records::new(content) {
            match record {
                Ok((_, record)) if header.index > self.checkpoint.index => self.fold(&record),
                Ok(_) => {}
                Err(error) => self
                    .report
                    .damage
                    .push(format!("{name}: entry {}: {error}", header.index)),
            }
        }
    }

    fn fold(&mut self, record: &Record<'_>) {
        match record {
            Record::QueueCreated { queue, uri } => {
                self.queues
                    .insert(*queue, ((*uri).to_owned(), QueueCounters::default()));
            }
            Record::QueueRemoved { queue } => {
                self.queues.remove(queue);
            }
            Record::Put(put) => self.counters(put.queue, |counters| counters.put += 1),
            Record::Settle { queue, why, .. } => {
                self.counters(*queue, |counters| counters.settled(*why))
            }
        }
    }

    fn counters(&mut self, queue: QueueId, change: impl FnOnce(&mut QueueCounters)) {
        match self.queues.get_mut(&queue) {
            Some((_, counters)) => change(counters),
            None => self
                .report
                .damage
                .push(format!("a record of queue {queue}, which does not exist")),
        }
    }

    fn read_cold(&mut self) -> anyhow::Result<()> {
        for (id, path) in &self.partition.cold.clone() {
            let name = name(path);
            let ending = scan(path, *id, |frame| {
                if frame.header.kind == FrameKind::Carried {
                    let bad = carried_items(frame.content)
                        .filter_map(Result::err)
                        .map(|error| format!("{name}: {error}"));
                    self.report.damage.extend(bad);
                }
                Ok(())
            })?;
            self.report.bytes += ending.offset as u64;
            self.judge_vouched(&name, *id, &ending);
        }
        Ok(())
    }

    /// A file whose end only the checkpoint knows.
    fn judge_vouched(&mut self, name: &str, id: u64, ending: &Ending) {
        let Some(error) = ending.error else { return };
        let vouched = self
            .checkpoint
            .segments
            .iter()
            .find(|segment| segment.id == id)
            .map_or(0, |segment| segment.length);
        self.note(name, ending, error, (ending.offset as u64) < vouched);
    }

    fn note(&mut self, name: &str, ending: &Ending, error: LogError, is_damage: bool) {
        let place = format!("{name} at byte {}: {error}", ending.offset);
        if is_damage {
            self.report.damage.push(place);
        } else if !ending.is_unwritten {
            let remark = format!("incomplete last write, normal after a crash: {place}");
            self.report.remarks.push(remark);
        }
    }

    fn read_windows(&mut self) -> anyhow::Result<()> {
        for (id, path) in &self.partition.windows {
            let name = name(path);
            let ending = scan(path, *id, |frame| {
                if frame.header.kind == FrameKind::Window
                    && let Err(error) = WindowRun::parse(frame.content)
                {
                    self.report.damage.push(format!("{name}: {error}"));
                }
                Ok(())
            })?;
            self.report.bytes += ending.offset as u64;
            let vouched = self
                .checkpoint
                .windows
                .iter()
                .find(|window| window.id == *id)
                .map_or(0, |window| window.length);
            if let Some(error) = ending.error {
                self.note(&name, &ending, error, (ending.offset as u64) < vouched);
            }
        }
        Ok(())
    }

    /// Tells torn writes from damage.
    fn judge(&mut self) {
        for stop in std::mem::take(&mut self.stops) {
            let Some(error) = stop.ending.error else {
                continue;
            };
            let vouched = self
                .checkpoint
                .segments
                .iter()
                .find(|segment| segment.id == stop.segment)
                .map_or(0, |segment| segment.length);
            // An entry that was lost in the middle shows as a gap in the indexes as well.
            let committed = stop.next.0 <= self.committed && stop.last;
            let goes_on =
                self.next.is_some_and(|next| next > stop.next) && stop.ending.resumes.is_some();
            self.note(
                &stop.file,
                &stop.ending,
                error,
                (stop.ending.offset as u64) < vouched || committed || goes_on,
            );
        }
    }

    fn finish(&mut self) {
        self.report.index = self.next.map_or(self.checkpoint.index.0, |next| next.0 - 1);
        for (uri, counters) in self.queues.values() {
            self.report.messages += counters.live();
            self.report.queues.push(QueueReport {
                uri: uri.clone(),
                messages: counters.live(),
                stored: counters.put,
                confirmed: counters.confirmed,
                expired: counters.expired,
                purged: counters.purged,
                removed: counters.removed,
            });
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
