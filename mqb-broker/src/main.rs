//! The `mqb-broker` program.

use std::process::ExitCode;

use clap::Parser;
use mqb_broker::cli::Args;

/// Blocks travel between threads: what one allocates another frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match mqb_broker::app::main(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("mqb-broker: {failure}");
            failure.exit_code()
        }
    }
}
