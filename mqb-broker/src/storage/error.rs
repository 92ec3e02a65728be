//! What can go wrong with a data directory or a partition.

use std::io;
use std::path::PathBuf;

use mqb_core::PartitionId;
use mqb_core::log::{FORMAT_VERSION, Index, LogError};

/// Why storage cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another process works in the directory.
    #[error("data directory {dir:?} is in use by another process")]
    InUse {
        /// Which.
        dir: PathBuf,
    },
    /// Written by a newer program; nothing was touched.
    #[error("{path:?} has format version {found}, this program knows {FORMAT_VERSION}")]
    NewerFormat {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A file that says what the directory is cannot be understood.
    #[error("{path:?} is damaged: {what}")]
    BadFile {
        /// Which file.
        path: PathBuf,
        /// In short.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("{what} {path:?}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl StorageError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> StorageError {
        let path = path.into();
        move |source| StorageError::Io { what, path, source }
    }
}

/// A place where durable bytes are not what was written. The partition comes up read-only; everything else in it is readable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("partition {partition}: {file} at byte {offset}: {what}")]
pub struct Damage {
    /// Which partition.
    pub partition: PartitionId,
    /// Name of the file.
    pub file: String,
    /// **Units**: bytes from its start.
    pub offset: u64,
    /// Entry that should have been there, if it is known.
    pub index: Option<Index>,
    /// What is wrong.
    pub what: DamageKind,
}

/// Kind of damage.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamageKind {
    /// Bytes do not parse or do not have their checksum.
    #[error("{0}")]
    Bytes(#[from] LogError),
    /// A file that must be there is missing.
    #[error("the file is missing")]
    Missing,
    /// The entries before and after do not fit together.
    #[error("entries {from} to {to} are missing")]
    Gap {
        /// First missing index.
        from: Index,
        /// Last missing index.
        to: Index,
    },
}

/// The end of a running partition: it takes nothing more, until an operator has looked at the disk and restarted. Never retried.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {file}: {error}")]
pub struct Fault {
    /// What was tried.
    pub what: &'static str,
    /// Name of the file.
    pub file: String,
    /// The operating system's answer.
    pub error: String,
}
