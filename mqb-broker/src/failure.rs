//! Why the broker ends, by what an operator or a supervisor should do about it.

use std::fmt;
use std::process::ExitCode;

use crate::storage::StorageError;

/// The end of the process. Its message is one line; its kind decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// Flags or file are wrong: exit code 2.
    Usage(String),
    /// The environment refused something: exit code 1. Worth another try.
    Runtime(anyhow::Error),
    /// The data directory needs a person: exit code 3. A restart would not help.
    Storage(StorageError),
}

impl Failure {
    /// Wrong flags or a wrong file.
    pub fn usage(problem: impl fmt::Display) -> Self {
        Self::Usage(problem.to_string())
    }

    /// What a supervisor sees.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Runtime(_) => 1,
            Self::Usage(_) => 2,
            Self::Storage(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(problem) => write!(f, "{problem}"),
            // With the chain of causes, on one line.
            Self::Runtime(error) => write!(f, "{error:#}"),
            Self::Storage(error) => write!(f, "{error}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Runtime(error)
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::NewerFormat { .. } | StorageError::BadFile { .. } => Self::Storage(error),
            error => Self::Runtime(error.into()),
        }
    }
}
