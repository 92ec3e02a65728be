//! `mqb get`: receives messages; they stay in the queue unless confirmed.

use std::time::Duration;

use mqb_client::{ConsumerOptions, Message, OpenOptions, Queue};

use crate::context::Context;
use crate::failure::{Failure, with_hint};
use crate::output::{message_json, message_text};
use crate::value::parse_duration;

/// Messages that the broker may send ahead.
const WINDOW: u32 = 1000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The queue, such as bmq://my.domain/queue; a fan-out queue with its app id: bmq://my.domain/queue?id=app
    uri: String,
    /// Confirm what was printed, so that it leaves the queue
    #[arg(long)]
    confirm: bool,
    /// Go on until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Stop after this many messages [default: 1, with --follow no limit]
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// How long to wait for the next message, such as 500ms or 10s [with --follow no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Only messages whose properties match this subscription expression
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Consumer priority
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Print payloads only
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> anyhow::Result<()> {
    let count = args.count.or((!args.follow).then_some(1));
    let timeout = args
        .timeout
        .or((!args.follow).then_some(Duration::from_secs(5)));
    let session = context.connect()?;
    // Without confirms the window never moves on, so it must hold all that is asked for. It should not hold more:
    // what this command takes is kept from other consumers meanwhile.
    let wanted = count.map_or(u32::MAX, |count| u32::try_from(count).unwrap_or(u32::MAX));
    let window = if args.confirm {
        wanted.min(WINDOW)
    } else {
        wanted
    };
    let mut consumer = ConsumerOptions::new()
        .priority(args.priority)
        .max_unconfirmed_messages(window.max(1));
    if !args.confirm {
        consumer = consumer.max_unconfirmed_bytes(u64::from(u32::MAX));
    }
    if let Some(expression) = args.filter {
        consumer = consumer.expression(expression);
    }
    let queue = session
        .open(&args.uri, OpenOptions::new().read(consumer))
        .map_err(|error| with_hint(error, &context.broker))?;
    let mut received = 0;
    while count.is_none_or(|count| received < count) {
        let Some(message) = next(&queue, timeout)? else {
            break;
        };
        print(context, &message, args.raw)?;
        received += 1;
        if args.confirm {
            confirm(&queue, &message)?;
        }
    }
    queue.close()?;
    session.disconnect()?;
    if received == 0 && count != Some(0) {
        Err(Failure::NoMessage.into())
    } else {
        Ok(())
    }
}

fn next(queue: &Queue, timeout: Option<Duration>) -> Result<Option<Message>, mqb_client::Error> {
    match timeout {
        Some(timeout) => queue.recv_timeout(timeout),
        None => queue.recv().map(Some),
    }
}

/// While the session reconnects a confirm is refused and the message will come again: say so and go on.
fn confirm(queue: &Queue, message: &Message) -> anyhow::Result<()> {
    match queue.confirm(message) {
        Err(mqb_client::Error::NotConnected) => {
            eprintln!(
                "mqb: connection lost; message {} will come again",
                message.guid()
            );
            Ok(())
        }
        other => Ok(other?),
    }
}

fn print(context: &Context, message: &Message, raw: bool) -> anyhow::Result<()> {
    use std::io::Write;
    if !context.is_json() {
        return message_text(message, context.is_chatty() && !raw);
    }
    let line = message_json(message)?.to_string();
    writeln!(std::io::stdout().lock(), "{line}")?;
    Ok(())
}
