//! Errors on their way out: what went wrong, what to do about it, and the exit code.

use std::fmt;
use std::process::ExitCode;

use mqb_client::Error;

use crate::context::Context;

/// An error that ends with a code of its own.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense in a way that its parser cannot see.
    Usage(String),
    /// Storage does not read as it was written.
    Damaged(String),
    /// Nothing there.
    NoMessage,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Damaged(text) => f.write_str(text),
            Failure::NoMessage => f.write_str("no message came in time"),
        }
    }
}

impl std::error::Error for Failure {}

/// A client's error with advice.
pub(crate) fn with_hint(error: Error, broker: &str) -> anyhow::Error {
    let hint = match &error {
        Error::Connect { .. } => format!(
            "is a broker running at {broker}? Start one with `mqb-broker`, or name another with --broker or MQB_BROKER"
        ),
        Error::Address { .. } => "write it like tcp://127.0.0.1:30114".to_owned(),
        Error::Timeout { .. } => {
            "the broker may be busy or recovering; give it more time with --answer-timeout"
                .to_owned()
        }
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(Hint(hint))
}

/// Advice, carried as context and printed last.
#[derive(Debug)]
struct Hint(String);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints the error and chooses the exit code.
pub(crate) fn report(error: &anyhow::Error, context: &Context) -> ExitCode {
    if is_broken_pipe(error) {
        // The reader has seen enough, as in `mqb get ... | head`.
        return ExitCode::SUCCESS;
    }
    let hint = error.downcast_ref::<Hint>().map(|hint| hint.0.clone());
    let causes = error.chain().skip(usize::from(hint.is_some()));
    let mut text = String::new();
    for cause in causes {
        let cause = cause.to_string();
        // Some errors tell their source's text as part of their own.
        if !text.ends_with(&cause) {
            text = if text.is_empty() {
                cause
            } else {
                format!("{text}: {cause}")
            };
        }
    }
    if context.is_json() {
        let line = serde_json::json!({ "error": { "message": text, "hint": hint } });
        // Who cannot be told cannot be told that either.
        let _ = crate::output::print_line(&line);
    }
    eprintln!("mqb: {text}");
    if let Some(hint) = hint {
        eprintln!("     {hint}");
    }
    ExitCode::from(match error.downcast_ref::<Failure>() {
        Some(Failure::Usage(_)) => 2,
        Some(Failure::Damaged(_)) => 3,
        Some(Failure::NoMessage) => 4,
        None => match error.downcast_ref::<Error>() {
            Some(Error::Address { .. } | Error::Uri { .. } | Error::Options(_)) => 2,
            _ => 1,
        },
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
