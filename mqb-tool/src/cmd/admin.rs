//! `mqb admin`: whatever the broker's operator interface understands.

use crate::context::Context;
use crate::output::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command, such as HELP
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> anyhow::Result<()> {
    let encoding = if context.is_json() {
        "ENCODING JSON "
    } else {
        ""
    };
    let answer = context
        .admin()?
        .command(&format!("{encoding}{}", args.command.join(" ")))?;
    say!("{}", answer.trim_end());
    Ok(())
}
