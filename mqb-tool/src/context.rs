//! What all commands share: which broker, how to print.

use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mqb_client::{Admin, Session, SessionOptions};

use crate::failure::with_hint;
use crate::value::parse_duration;

const DEFAULT_BROKER: &str = "tcp://127.0.0.1:30114";

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs: one JSON document, or one per line where results keep coming
    Json,
}

#[derive(Args)]
pub(crate) struct Global {
    /// Address of the broker [default: $MQB_BROKER, else tcp://127.0.0.1:30114]
    #[arg(long, global = true, value_name = "ADDRESS")]
    broker: Option<String>,
    /// How results are printed
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    output: Format,
    /// Time to wait for the broker to answer, such as 500ms, 10s or 2m
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    answer_timeout: Duration,
    /// Print results only
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Show what the client library does
    #[arg(short, long, global = true)]
    verbose: bool,
}

pub(crate) struct Context {
    pub(crate) broker: String,
    pub(crate) format: Format,
    pub(crate) timeout: Duration,
    quiet: bool,
    verbose: bool,
}

impl Context {
    pub(crate) fn new(global: Global) -> Context {
        let from_environment = || {
            std::env::var("MQB_BROKER")
                .ok()
                .filter(|address| !address.is_empty())
        };
        Context {
            broker: global
                .broker
                .or_else(from_environment)
                .unwrap_or_else(|| DEFAULT_BROKER.to_owned()),
            format: global.output,
            timeout: global.answer_timeout,
            quiet: global.quiet,
            verbose: global.verbose,
        }
    }

    pub(crate) fn start_log(&self) {
        let level = if self.verbose {
            tracing::Level::DEBUG
        } else {
            tracing::Level::ERROR
        };
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::stderr)
            .with_target(false)
            .init();
    }

    /// Whether progress and remarks are welcome.
    pub(crate) fn is_chatty(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn session_options(&self) -> SessionOptions {
        SessionOptions::new()
            .process_name("mqb")
            .connect_timeout(self.timeout)
            .request_timeout(self.timeout)
            .disconnect_timeout(self.timeout)
    }

    pub(crate) fn connect(&self) -> anyhow::Result<Session> {
        Session::connect(&self.broker, self.session_options())
            .map_err(|error| with_hint(error, &self.broker))
    }

    pub(crate) fn admin(&self) -> anyhow::Result<Admin> {
        Admin::connect(&self.broker, self.timeout).map_err(|error| with_hint(error, &self.broker))
    }
}
