//! Start and stop of the whole broker, in this order:
//!
//! ```text
//! start  configuration -> log -> signals -> HTTP (recovering) -> client port bound -> data directory locked ->
//!        dispatcher -> partitions recovered in parallel, registry -> listener -> ready
//! stop   not ready -> no new connections, sessions finish what they accepted -> partitions sync and mark their logs ->
//!        processors end -> helpers end
//! ```
//!
//! The main thread only waits: for the start to be done, for a signal, for a client without which nothing works.

mod hooks;
mod start;
mod stop;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::Context as _;
use mqb_core::config::Config;

use crate::cli::Args;
use crate::failure::Failure;
use crate::health::{Health, Phase};
use crate::http::{self, Pages};
use crate::metrics::MetricsSource;
use crate::{logging, signal};
use start::Broker;

/// What the main thread waits for.
enum Notice {
    /// Start-up is over.
    Started(Result<Box<Broker>, Failure>),
    /// An orderly end is wanted.
    Stop { reason: &'static str },
    /// Something has gone that nothing works without.
    Lost { what: String },
}

/// The program: everything but the process itself.
///
/// **Errors**: why it ended other than in order, which decides the exit code.
pub fn main(args: &Args) -> Result<(), Failure> {
    let config = args.load()?;
    if args.print_config {
        print(&config.print());
        return Ok(());
    }
    if args.check_config {
        print("the configuration can be used\n");
        return Ok(());
    }
    run(config)
}

fn run(config: Config) -> Result<(), Failure> {
    let _log = logging::start(config.log_format, &config.log_level).context("starting the log")?;
    let (notices, received) = mpsc::channel();
    let asked = notices.clone();
    signal::watch(move |reason| {
        // Nobody receives only when the process is ending.
        let _ = asked.send(Notice::Stop { reason });
    })
    .context("watching for signals")?;
    let config = Arc::new(config);
    let pages = Pages {
        health: Arc::new(Health::default()),
        metrics: Arc::new(MetricsSource::default()),
    };
    let http = http::start(config.http, pages.clone())?;
    tracing::info!(
        event = "broker.starting",
        version = env!("CARGO_PKG_VERSION"),
        http = %http,
        data_dir = %config.storage.data_dir.display()
    );
    begin(&config, &pages, notices)?;
    serve(&config, &pages, http, &received)
}

/// Runs the start on a thread of its own, so that a signal in the middle of a long recovery is heard.
fn begin(config: &Arc<Config>, pages: &Pages, notices: Sender<Notice>) -> Result<(), Failure> {
    let (config, pages) = (Arc::clone(config), pages.clone());
    let run = move || {
        let lost = notices.clone();
        let result = start::start(&config, &pages, move |what| {
            let _ = lost.send(Notice::Lost { what });
        });
        let _ = notices.send(Notice::Started(result.map(Box::new)));
    };
    std::thread::Builder::new()
        .name("mqb-start".into())
        .spawn(run)
        .context("starting a thread")?;
    Ok(())
}

fn serve(
    config: &Config,
    pages: &Pages,
    http: std::net::SocketAddr,
    notices: &Receiver<Notice>,
) -> Result<(), Failure> {
    let mut broker = None;
    loop {
        // The channel has a sender in the signal thread for as long as the process lives.
        match notices.recv().context("nobody is left to end the broker")? {
            Notice::Started(result) => {
                let started = result?;
                pages.health.enter(Phase::Ready);
                print(&ready_line(config, &started, http));
                broker = Some(started);
            }
            Notice::Stop { reason } => {
                tracing::info!(event = "broker.stopping", reason);
                pages.health.enter(Phase::Draining);
                return match broker {
                    Some(broker) => stop::stop(*broker, config.shutdown_deadline),
                    // Recovery only reads and repairs: it can end anywhere.
                    None => Ok(()),
                };
            }
            Notice::Lost { what } => {
                return Err(Failure::Runtime(anyhow::anyhow!(
                    "{what} failed, see the log: the broker cannot go on"
                )));
            }
        }
    }
}

fn ready_line(config: &Config, broker: &Broker, http: std::net::SocketAddr) -> String {
    let listen = broker.listen;
    let to = if listen.port() == 30114 {
        String::new()
    } else {
        format!("--broker tcp://{listen} ")
    };
    format!(
        "mqb ready: listening on tcp://{listen}, http://{http}, data in {} (durability {}). Try: mqb {to}put bmq://my.domain/queue hello\n",
        config.storage.data_dir.display(),
        config.defaults.durability
    )
}

/// To standard output at once; a reader that has gone is no reason to end.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
