//! The log: one line per event on standard error, text or JSON.
//!
//! ```text
//! 2026-01-31T09:30:00.123456Z  WARN event=connection.refused msg="too many connections" peer=10.1.2.3:4711 limit=10000
//! ```
//!
//! `event` is the stable name that alerts and searches use. Every value that is not plain is quoted and escaped, so what a peer
//! sends can never begin a line or a field. A place in the code that logs too often is cut short: what was left out is counted
//! and told (`event=log.suppressed`). Lines are written by a thread of their own, because whoever reads standard error may be
//! slow and processors must not wait for it; when it is too slow, lines are dropped and counted (`event=log.dropped`).

mod line;
mod repeats;
mod writer;

use mqb_core::config::LogFormat;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use line::Line;
use repeats::{Repeats, Verdict};
use writer::Writer;

/// Whether a level or its directives can be understood.
///
/// **Errors**: a text for people.
pub fn check_level(level: &str) -> Result<(), String> {
    filter(level).map(drop)
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(level).map_err(|error| {
        format!(
            "`{}` is no log level: {error}; choose error, warn, info, debug or trace",
            level.escape_default()
        )
    })
}

/// Writes what is left when it is dropped: keep it until the end of the process.
#[must_use]
pub struct Log {
    writer: Writer,
}

/// Starts the log of this process.
///
/// **Errors**: a level that cannot be understood, no thread, or a log that is there already.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<Log> {
    let filter = filter(level).map_err(anyhow::Error::msg)?;
    let writer = Writer::start()?;
    let layer = LineLayer {
        format,
        repeats: Repeats::default(),
        lines: writer.lines(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init()?;
    Ok(Log { writer })
}

impl Drop for Log {
    fn drop(&mut self) {
        self.writer.finish();
    }
}

struct LineLayer {
    format: LogFormat,
    repeats: Repeats,
    lines: writer::Lines,
}

impl LineLayer {
    fn write(&self, line: Line) {
        self.lines.send(line.finish());
    }
}

impl<S: Subscriber> Layer<S> for LineLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata: &Metadata<'_> = event.metadata();
        let verdict = match *metadata.level() {
            // Whoever asks for these wants all of them.
            Level::DEBUG | Level::TRACE => Verdict::Write,
            _ => self
                .repeats
                .judge(metadata.callsite(), std::time::Instant::now()),
        };
        let resumed = match verdict {
            Verdict::Suppress => return,
            Verdict::Write => 0,
            Verdict::Resume { suppressed } => suppressed,
        };
        let mut line = Line::new(self.format, metadata);
        event.record(&mut line);
        if resumed > 0 {
            line.number("suppressed_before", resumed);
        }
        self.write(line);
    }
}
