//! `mqb storage dump`: the records of the logs, one per line, in their order.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use mqb_core::log::{
    Checkpoint, EntryHeader, FrameKind, PutRecord, Record, Records, carried_items, sequence,
};
use mqb_core::{QueueId, Sequence};
use serde_json::{Value, json};

use super::data_dir::{DataDir, Partition};
use super::scan::scan;
use crate::context::Context;
use crate::failure::Failure;
use crate::value::to_hex;

/// Data shown of a message. **Units**: bytes.
const SHOWN: usize = 64;

struct Dump<'a> {
    json: bool,
    data: bool,
    queue: Option<&'a str>,
    partition: u16,
    uris: HashMap<QueueId, String>,
    out: io::BufWriter<io::StdoutLock<'static>>,
}

pub(crate) fn run(
    context: &Context,
    dir: &Path,
    partition: Option<u16>,
    queue: Option<&str>,
    data: bool,
) -> anyhow::Result<()> {
    let held = DataDir::open(dir)?;
    let wanted = |candidate: &&Partition| partition.is_none_or(|id| candidate.id == id);
    if held.partitions.iter().filter(wanted).count() == 0 {
        return Err(Failure::Usage(format!(
            "there are partitions 0 to {}",
            held.partitions.len().saturating_sub(1)
        ))
        .into());
    }
    let mut dump = Dump {
        json: context.is_json(),
        data,
        queue,
        partition: 0,
        uris: HashMap::new(),
        out: io::BufWriter::new(io::stdout().lock()),
    };
    let mut incomplete = 0;
    for files in held.partitions.iter().filter(wanted) {
        incomplete += dump.partition(files)?;
    }
    dump.out.flush()?;
    if incomplete > 0 {
        eprintln!(
            "{incomplete} file(s) end with something that does not read; `mqb storage verify` tells whether that is damage"
        );
    }
    Ok(())
}

impl Dump<'_> {
    fn partition(&mut self, files: &Partition) -> anyhow::Result<usize> {
        self.partition = files.id;
        self.uris.clear();
        self.read_names(files)?;
        let mut incomplete = 0;
        for (id, path) in &files.cold {
            let ending = scan(path, *id, |frame| {
                if frame.header.kind != FrameKind::Carried {
                    return Ok(());
                }
                carried_items(frame.content)
                    .map_while(Result::ok)
                    .try_for_each(|(_, place, put)| self.put(place, &put, true))
            })?;
            incomplete += usize::from(!ending.is_unwritten);
        }
        for (id, path) in &files.hot {
            let ending = scan(path, *id, |frame| {
                if frame.header.kind == FrameKind::Entry {
                    self.entry(frame.content)
                } else {
                    Ok(())
                }
            })?;
            incomplete += usize::from(!ending.is_unwritten);
        }
        Ok(incomplete)
    }

    /// Queues that were created in segments which are gone.
    fn read_names(&mut self, files: &Partition) -> anyhow::Result<()> {
        let Some(path) = &files.checkpoint else {
            return Ok(());
        };
        let bytes = std::fs::read(path)?;
        let epoch = mqb_core::log::FrameHeader::parse(&bytes).map_or(0, |header| header.epoch);
        scan(path, epoch, |frame| {
            let checkpoint = Checkpoint::parse(frame.content).unwrap_or_default();
            self.uris.extend(
                checkpoint
                    .queues
                    .iter()
                    .map(|queue| (queue.id, queue.uri.to_string())),
            );
            Ok(())
        })?;
        Ok(())
    }

    fn entry(&mut self, content: &[u8]) -> anyhow::Result<()> {
        let header = EntryHeader::parse(content)?;
        for (offset, record) in Records::new(content).map_while(Result::ok) {
            let place = sequence(header.index, offset);
            match record {
                Record::Put(put) => self.put(place, &put, false)?,
                Record::Settle {
                    queue,
                    why,
                    message,
                } => {
                    let why = match why {
                        1 => "confirmed",
                        2 => "expired",
                        3 => "purged",
                        _ => "removed",
                    };
                    self.line(
                        place,
                        "settle",
                        queue,
                        json!({ "why": why, "message": message.0 }),
                    )?;
                }
                Record::QueueCreated { queue, uri } => {
                    self.uris.insert(queue, uri.to_owned());
                    self.line(place, "queue-created", queue, json!({}))?;
                }
                Record::QueueRemoved { queue } => {
                    self.line(place, "queue-removed", queue, json!({}))?
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, place: Sequence, put: &PutRecord<'_>, carried: bool) -> anyhow::Result<()> {
        let mut fields = json!({ "guid": put.guid.to_string(), "acceptedAtMs": put.accepted_at_ms, "bytes": put.data.len(), "format": put.format });
        if self.data {
            fields["dataHex"] = json!(to_hex(&put.data[..put.data.len().min(SHOWN)]));
        }
        self.line(
            place,
            if carried { "put-carried" } else { "put" },
            put.queue,
            fields,
        )
    }

    fn line(
        &mut self,
        place: Sequence,
        kind: &str,
        queue: QueueId,
        fields: Value,
    ) -> anyhow::Result<()> {
        let uri = self.uris.get(&queue).map_or("?", String::as_str);
        if self.queue.is_some_and(|wanted| wanted != uri) {
            return Ok(());
        }
        if self.json {
            let mut line = json!({ "partition": self.partition, "sequence": place.0, "record": kind, "queue": uri });
            if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
                line.extend(fields);
            }
            writeln!(self.out, "{line}")?;
            return Ok(());
        }
        write!(self.out, "{} {} {kind} {uri}", self.partition, place.0)?;
        for (name, value) in fields.as_object().into_iter().flatten() {
            match value {
                Value::String(text) => write!(self.out, " {name}={text}")?,
                other => write!(self.out, " {name}={other}")?,
            }
        }
        writeln!(self.out)?;
        Ok(())
    }
}
