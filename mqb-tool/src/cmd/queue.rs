//! `mqb queue`: what queues there are and what is in them, through the broker's operator interface.

use std::io::{BufRead, IsTerminal, Write};

use mqb_core::uri::Uri;
use serde::Deserialize;
use serde_json::Value;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{age, bytes, table, thousands};
use crate::value::parse_hex;

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
#[serde(rename_all = "camelCase")]
struct QueueRow {
    uri: String,
    messages: u64,
    bytes: u64,
    unconfirmed: u64,
    producers: u64,
    consumers: u64,
    #[serde(default)]
    oldest_age_ms: u64,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    durability: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageRow {
    guid: String,
    size_bytes: u64,
    properties: String,
    compression: String,
    data_hex: Option<String>,
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
    let text = context
        .admin()?
        .command(&format!("ENCODING JSON {command}"))?;
    let Ok(answer) = serde_json::from_str::<Value>(&text) else {
        // Another broker has other commands; its answer says more than "not JSON".
        anyhow::bail!(
            "the broker does not understand {command:?}: {}",
            text.trim()
        );
    };
    match answer.get("error") {
        Some(Value::String(error)) => anyhow::bail!("{error}"),
        Some(error) => anyhow::bail!("{error}"),
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
    let answer = match domain {
        Some(domain) => ask(context, &format!("DOMAINS DOMAIN {domain} INFOS"))?,
        None => ask(context, "DOMAINS INFOS")?,
    };
    if context.is_json() {
        println!("{answer}");
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
            thousands(queue.messages),
            bytes(queue.bytes),
            thousands(queue.unconfirmed),
            if queue.messages == 0 {
                "-".to_owned()
            } else {
                age(queue.oldest_age_ms)
            },
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
    if let Some(omitted) = answer.get("omitted").and_then(Value::as_u64) {
        eprintln!("... and {omitted} more; name a domain to see its queues");
    }
    Ok(())
}

/// `DOMAINS DOMAIN x QUEUE y`, the beginning of commands about one queue.
fn address(uri: &Uri<'_>) -> String {
    format!(
        "DOMAINS DOMAIN {} QUEUE {}",
        uri.qualified_domain(),
        uri.queue()
    )
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
        &format!("{} LIST {skip} {count}", address(&parse(uri)?)),
    )?;
    if context.is_json() {
        println!("{answer}");
        return Ok(());
    }
    let messages: Vec<MessageRow> = rows(&answer, "messages")?;
    if messages.is_empty() {
        eprintln!("no messages");
        return Ok(());
    }
    let cells = |message: &MessageRow| {
        vec![
            message.guid.clone(),
            bytes(message.size_bytes),
            message.properties.clone(),
            message.compression.clone(),
            preview(message),
        ]
    };
    table(
        &["GUID", "SIZE", "PROPERTIES", "COMPRESSION", "DATA"],
        &[1],
        &messages.iter().map(cells).collect::<Vec<_>>(),
    )?;
    Ok(())
}

/// The beginning of a message's data, printable.
fn preview(message: &MessageRow) -> String {
    const SHOWN: usize = 60;
    let Some(data) = message.data_hex.as_deref().and_then(parse_hex) else {
        return "(on disk)".to_owned();
    };
    let mut text: String = data
        .iter()
        .take(SHOWN)
        .flat_map(|byte| std::ascii::escape_default(*byte))
        .map(char::from)
        .collect();
    if message.size_bytes as usize > SHOWN {
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
    let answer = ask(context, &format!("{} PURGE{app}", address(&parsed)))?;
    if context.is_json() {
        println!("{answer}");
        return Ok(());
    }
    let figure = |name: &str| {
        answer
            .pointer(&format!("/purged/{name}"))
            .and_then(Value::as_u64)
            .unwrap_or(0)
    };
    println!(
        "{} messages removed, {}",
        thousands(figure("messages")),
        bytes(figure("bytes"))
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
