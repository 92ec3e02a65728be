//! `mqb queue`: what queues there are and what is in them, through the broker's operator interface.

use std::io::{BufRead, IsTerminal, Write};

use mqb_core::compress::Inflater;
use mqb_core::uri::Uri;
use mqb_core::{Compression, DataFormat, PropertiesStyle, data, limits};
use serde::Deserialize;
use serde_json::Value;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{age, bytes, say, table, thousands};
use crate::value::from_base64;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List queues with what is waiting in them
    Ls {
        /// Only the queues of this domain
        domain: Option<String>,
    },
    /// Show waiting messages without taking them, oldest first
    Peek {
        /// The queue
        uri: String,
        /// Show at most this many
        #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
        count: u32,
        /// Pass over this many first
        #[arg(long, default_value_t = 0, value_name = "N")]
        skip: u64,
    },
    /// Remove all messages of a queue; this cannot be undone
    Purge {
        /// The queue; with ?id=app only that app's messages
        uri: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Deserialize)]
struct QueueRow {
    uri: String,
    depth_messages: u64,
    depth_bytes: u64,
    unconfirmed: u64,
    producers: u64,
    consumers: u64,
    /// Absent of an empty queue.
    oldest_age_ms: Option<u64>,
    mode: String,
    durability: String,
}

#[derive(Deserialize)]
struct MessageRow {
    guid: String,
    size_bytes: u64,
    properties: bool,
    properties_style: Option<String>,
    compression: String,
    /// Base64; absent if the message is not in the broker's memory.
    data: Option<String>,
}

impl MessageRow {
    fn format(&self) -> Option<DataFormat> {
        let compression = match self.compression.as_str() {
            "none" => Compression::None,
            "zlib" => Compression::Zlib,
            _ => return None,
        };
        let style = match self.properties_style.as_deref() {
            None => None,
            Some("old") => Some(PropertiesStyle::Old),
            Some("new") => Some(PropertiesStyle::New),
            Some(_) => return None,
        };
        Some(DataFormat::new(compression, style))
    }
}

pub(crate) fn run(context: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Ls { domain } => list(context, domain.as_deref()),
        Command::Peek { uri, count, skip } => peek(context, &uri, count, skip),
        Command::Purge { uri, yes } => purge(context, &uri, yes),
    }
}

/// Asks the broker; its refusal is an error here.
fn ask(context: &Context, command: &str) -> anyhow::Result<Value> {
    let text = context.admin()?.command(command)?;
    let Ok(answer) = serde_json::from_str::<Value>(&text) else {
        // Another broker has other commands; its answer says more than "not JSON".
        anyhow::bail!(
            "the broker does not understand {command:?}: {}",
            text.trim()
        );
    };
    match answer.get("error") {
        Some(error) => match error.get("message").and_then(Value::as_str) {
            Some(message) => anyhow::bail!("{message}"),
            None => anyhow::bail!("{error}"),
        },
        None => Ok(answer),
    }
}

fn rows<T: for<'a> Deserialize<'a>>(answer: &Value, name: &str) -> anyhow::Result<Vec<T>> {
    let rows = answer
        .get(name)
        .cloned()
        .unwrap_or(Value::Array(Vec::new()));
    serde_json::from_value(rows)
        .map_err(|error| anyhow::anyhow!("unexpected answer from the broker: {error}"))
}

fn list(context: &Context, domain: Option<&str>) -> anyhow::Result<()> {
    let answer = ask(
        context,
        format!("queues {}", domain.unwrap_or_default()).trim(),
    )?;
    if context.is_json() {
        say!("{answer}");
        return Ok(());
    }
    let queues: Vec<QueueRow> = rows(&answer, "queues")?;
    if queues.is_empty() {
        eprintln!("no queues");
        return Ok(());
    }
    let cells = |queue: &QueueRow| {
        vec![
            queue.uri.clone(),
            thousands(queue.depth_messages),
            bytes(queue.depth_bytes),
            thousands(queue.unconfirmed),
            queue.oldest_age_ms.map_or("-".to_owned(), age),
            queue.producers.to_string(),
            queue.consumers.to_string(),
            queue.mode.clone(),
            queue.durability.clone(),
        ]
    };
    let headings = [
        "QUEUE",
        "MESSAGES",
        "BYTES",
        "UNCONFIRMED",
        "OLDEST",
        "PRODUCERS",
        "CONSUMERS",
        "MODE",
        "DURABILITY",
    ];
    table(
        &headings,
        &[1, 2, 3, 4, 5, 6],
        &queues.iter().map(cells).collect::<Vec<_>>(),
    )?;
    if is_truncated(&answer) {
        eprintln!("... and more; name a domain to see its queues");
    }
    Ok(())
}

fn is_truncated(answer: &Value) -> bool {
    answer
        .get("truncated")
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

fn parse(uri: &str) -> anyhow::Result<Uri<'_>> {
    Uri::parse(uri).map_err(|error| {
        Failure::Usage(format!(
            "{uri:?} is not a queue URI such as bmq://my.domain/queue: {error}"
        ))
        .into()
    })
}

fn peek(context: &Context, uri: &str, count: u32, skip: u64) -> anyhow::Result<()> {
    let answer = ask(
        context,
        &format!("peek {} {count} {skip}", parse(uri)?.canonical()),
    )?;
    if context.is_json() {
        say!("{answer}");
        return Ok(());
    }
    let messages: Vec<MessageRow> = rows(&answer, "messages")?;
    if messages.is_empty() {
        eprintln!("no messages");
        return Ok(());
    }
    let cells = |message: &MessageRow| {
        let properties = if message.properties { "yes" } else { "no" };
        vec![
            message.guid.clone(),
            bytes(message.size_bytes),
            properties.to_owned(),
            message.compression.clone(),
            preview(message),
        ]
    };
    table(
        &["GUID", "SIZE", "PROPERTIES", "COMPRESSION", "DATA"],
        &[1],
        &messages.iter().map(cells).collect::<Vec<_>>(),
    )?;
    if is_truncated(&answer) {
        eprintln!(
            "... and more; see them with --skip {}",
            skip + messages.len() as u64
        );
    }
    Ok(())
}

/// The beginning of a message's payload, printable.
fn preview(message: &MessageRow) -> String {
    const SHOWN: usize = 60;
    let Some(data) = message.data.as_deref().and_then(from_base64) else {
        return "(on disk)".to_owned();
    };
    let mut scratch = Vec::new();
    // Of a long message the broker shows the beginning, which cannot be taken apart.
    let payload = match message.format() {
        Some(format) if data.len() as u64 == message.size_bytes => {
            let cap = limits::INFLATED_BYTES_MAX;
            let contents = data::unpack(format, &data, cap, &mut Inflater::new(), &mut scratch);
            contents.map_or(data.as_slice(), |contents| contents.payload)
        }
        _ => &data,
    };
    let shown = payload.iter().take(SHOWN);
    let mut text: String = shown
        .flat_map(|byte| std::ascii::escape_default(*byte))
        .map(char::from)
        .collect();
    if payload.len() > SHOWN || (data.len() as u64) < message.size_bytes {
        text.push_str("...");
    }
    text
}

fn purge(context: &Context, uri: &str, yes: bool) -> anyhow::Result<()> {
    let parsed = parse(uri)?;
    if !yes && !confirmed(&format!("Remove all messages of {uri} for good?"))? {
        anyhow::bail!("nothing was removed");
    }
    let app = parsed
        .app_id()
        .map(|app| format!(" {app}"))
        .unwrap_or_default();
    let answer = ask(context, &format!("purge {}{app}", parsed.canonical()))?;
    if context.is_json() {
        say!("{answer}");
        return Ok(());
    }
    let figure = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    say!(
        "{} messages removed, {}",
        thousands(figure("purged_messages")),
        bytes(figure("purged_bytes"))
    );
    Ok(())
}

/// Asks on a terminal. Elsewhere nobody could answer, so it takes --yes.
fn confirmed(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(
            Failure::Usage("this cannot be undone: confirm it with --yes".to_owned()).into(),
        );
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
