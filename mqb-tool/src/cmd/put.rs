//! `mqb put`: posts messages and tells what became of them.

use std::io::{BufRead, IsTerminal, Read};
use std::sync::{Arc, Mutex};

use indicatif::ProgressBar;
use mqb_client::{Ack, AckStatus, OpenOptions, PropertiesBuilder, Put, Queue};
use serde_json::json;

use crate::context::Context;
use crate::failure::{Failure, with_hint};
use crate::output::{say, thousands};
use crate::value::PropertyArg;

/// GUIDs printed one by one up to this number of messages.
const GUIDS_SHOWN: usize = 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The queue, such as bmq://my.domain/queue
    uri: String,
    /// The payload; - or nothing reads standard input
    payload: Option<String>,
    /// Post it this many times
    #[arg(long, default_value_t = 1, value_name = "N")]
    count: u64,
    /// Standard input holds one message per line
    #[arg(long, conflicts_with = "count")]
    lines: bool,
    /// A property, name=value or name:type=value with type bool, short, int, long, string or binary (hexadecimal); may be repeated
    #[arg(short, long = "property", value_name = "PROPERTY", value_parser = PropertyArg::parse)]
    properties: Vec<PropertyArg>,
    /// Compress payloads of 1 KiB and more
    #[arg(long)]
    compress: bool,
}

/// Answers so far; written by the session's thread.
#[derive(Default)]
struct Tally {
    stored: u64,
    refused: u64,
    first_refusal: Option<AckStatus>,
    guids: Vec<String>,
}

pub(crate) fn run(context: &Context, args: Args) -> anyhow::Result<()> {
    let mut properties = PropertiesBuilder::new();
    for property in &args.properties {
        property.add_to(&mut properties)?;
    }
    let from_stdin = args.payload.as_deref().is_none_or(|payload| payload == "-");
    if from_stdin && args.payload.is_none() && std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "give a payload, or - to type one and end it with Ctrl-D".to_owned(),
        )
        .into());
    }
    if args.lines && !from_stdin {
        return Err(Failure::Usage(
            "--lines reads standard input: leave out the payload".to_owned(),
        )
        .into());
    }
    let session = context.connect()?;
    let tally = Arc::new(Mutex::new(Tally::default()));
    let counted = tally.clone();
    let options = OpenOptions::new()
        .write()
        .on_acks(move |acks| count(&mut counted.lock().expect("no panic under the lock"), acks));
    let queue = session
        .open(&args.uri, options)
        .map_err(|error| with_hint(error, &context.broker))?;
    let post = |payload: &[u8]| post(&queue, payload, &properties, args.compress);
    if args.lines {
        for line in std::io::stdin().lock().split(b'\n') {
            post(&line?)?;
        }
    } else {
        let payload = match args.payload {
            Some(payload) if payload != "-" => payload.into_bytes(),
            _ => {
                let mut payload = Vec::new();
                std::io::stdin().read_to_end(&mut payload)?;
                payload
            }
        };
        let progress = if context.is_chatty() && args.count > 10_000 {
            ProgressBar::new(args.count)
        } else {
            ProgressBar::hidden()
        };
        for n in 0..args.count {
            post(&payload)?;
            if n % 4096 == 0 {
                progress.set_position(n);
            }
        }
        progress.finish_and_clear();
    }
    if !session.flush(context.timeout)? {
        anyhow::bail!(
            "the broker did not acknowledge all messages within {:?}; they may be stored all the same",
            context.timeout
        );
    }
    queue.close()?;
    session.disconnect()?;
    let tally = std::mem::take(&mut *tally.lock().expect("no panic under the lock"));
    tell(context, &args.uri, &tally)
}

fn post(
    queue: &Queue,
    payload: &[u8],
    properties: &PropertiesBuilder,
    compress: bool,
) -> Result<(), mqb_client::Error> {
    let mut put = Put::new(payload).properties(properties);
    if compress {
        put = put.compressed();
    }
    queue.post_tagged(put, 0).map(|_| ())
}

fn count(tally: &mut Tally, acks: &[Ack]) {
    for ack in acks {
        if ack.status.is_success() {
            tally.stored += 1;
            if tally.guids.len() < GUIDS_SHOWN {
                tally.guids.push(ack.guid.to_string());
            }
        } else {
            tally.refused += 1;
            tally.first_refusal.get_or_insert(ack.status);
        }
    }
}

fn tell(context: &Context, uri: &str, tally: &Tally) -> anyhow::Result<()> {
    if context.is_json() {
        let refusal = tally.first_refusal.map(|status| status.to_string());
        say!(
            "{}",
            json!({ "uri": uri, "stored": tally.stored, "refused": tally.refused, "firstRefusal": refusal, "guids": tally.guids })
        );
    } else if tally.stored as usize <= GUIDS_SHOWN {
        for guid in &tally.guids {
            say!("{guid}");
        }
    } else {
        say!("{} messages stored", thousands(tally.stored));
    }
    match tally.first_refusal {
        None => Ok(()),
        Some(status) => Err(anyhow::anyhow!(
            "{} of {} messages were not stored: {status}",
            tally.refused,
            tally.refused + tally.stored
        )),
    }
}
