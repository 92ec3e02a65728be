//! `mqb storage`: verifies and dumps a data directory while its broker is stopped. Never writes.

mod data_dir;
mod dump;
mod scan;
mod verify;

use std::path::PathBuf;

use crate::context::Context;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Check every checksum and the order of everything; exit code 3 if something is damaged
    Verify {
        /// The broker's data directory
        dir: PathBuf,
    },
    /// Print what the logs hold, one record per line
    Dump {
        /// The broker's data directory
        dir: PathBuf,
        /// Only this partition
        #[arg(long, value_name = "N")]
        partition: Option<u16>,
        /// Only messages of this queue, and what became of them
        #[arg(long, value_name = "URI")]
        queue: Option<String>,
        /// Show the beginning of messages' data
        #[arg(long)]
        data: bool,
    },
}

pub(crate) fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Verify { dir } => verify::run(context, dir),
        Command::Dump {
            dir,
            partition,
            queue,
            data,
        } => dump::run(context, dir, *partition, queue.as_deref(), *data),
    }
}
