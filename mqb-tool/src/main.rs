//! `mqb`: one command line for people who use or run a broker.
//!
//! Each command is a file under `cmd`; `bench` is the load generator. Results go to standard output, everything else to
//! standard error, so that output can be piped.
//!
//! Exit codes: 0 done, 1 it failed, 2 the command line makes no sense, 3 damaged storage was found, 4 there was no message to get.
#![forbid(unsafe_code)]

mod bench;
mod cmd;
mod context;
mod failure;
mod output;
mod value;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::context::{Context, Global};

/// Talk to an mqb broker, or to any other that speaks the BlazingMQ protocol.
#[derive(Parser)]
#[command(name = "mqb", version, max_term_width = 100)]
#[command(
    after_help = "EXIT CODES:\n  0  done\n  1  it failed\n  2  the command line makes no sense\n  3  damaged storage was found\n  \
    4  there was no message to get\n\nTry: mqb put bmq://my.domain/queue hello && mqb get bmq://my.domain/queue --confirm"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Post messages to a queue
    Put(cmd::put::Args),
    /// Receive messages from a queue
    Get(cmd::get::Args),
    /// Look at queues, and empty them
    #[command(subcommand)]
    Queue(cmd::queue::Command),
    /// Look at a data directory while its broker is stopped
    #[command(subcommand)]
    Storage(cmd::storage::Command),
    /// Send a command to the broker's operator interface as it is
    Admin(cmd::admin::Args),
    /// Measure throughput and latency
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = Context::new(cli.global);
    context.start_log();
    let result = match cli.command {
        Command::Put(args) => cmd::put::run(&context, args),
        Command::Get(args) => cmd::get::run(&context, args),
        Command::Queue(command) => cmd::queue::run(&context, command),
        Command::Storage(command) => cmd::storage::run(&context, &command),
        Command::Admin(args) => cmd::admin::run(&context, &args),
        Command::Bench(args) => bench::run(&context, &args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error, &context),
    }
}
