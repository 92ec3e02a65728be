//! The files of a data directory, held so that no broker starts on it meanwhile.
//!
//! ```text
//! LOCK      flock of the broker         FORMAT   text: "mqb data", "format N", "node ID", "partitions N"
//! p0000/    ID.log ID.cold ID.window checkpoint       ID: 16 hexadecimal digits
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use mqb_core::log::FORMAT_VERSION;
use rustix::fs::FlockOperation;

/// A directory that no broker uses now.
pub(crate) struct DataDir {
    pub(crate) node: String,
    pub(crate) partitions: Vec<Partition>,
    _lock: Option<File>,
}

/// The files of one partition, each kind in order of its ids.
pub(crate) struct Partition {
    pub(crate) id: u16,
    pub(crate) hot: Vec<(u64, PathBuf)>,
    pub(crate) cold: Vec<(u64, PathBuf)>,
    pub(crate) windows: Vec<(u64, PathBuf)>,
    pub(crate) checkpoint: Option<PathBuf>,
}

impl DataDir {
    /// **Errors**: not a data directory, of a newer format, or in use.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<DataDir> {
        let text = fs::read_to_string(dir.join("FORMAT")).with_context(|| {
            format!(
                "{} is not a data directory of mqb (it has no FORMAT file)",
                dir.display()
            )
        })?;
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let version: u16 = field("format ")
            .and_then(|version| version.parse().ok())
            .context("FORMAT does not tell a format")?;
        anyhow::ensure!(
            version <= FORMAT_VERSION,
            "format {version} is newer than this program, which knows {FORMAT_VERSION}"
        );
        let count: u16 = field("partitions ")
            .and_then(|count| count.parse().ok())
            .context("FORMAT does not tell the number of partitions")?;
        let lock = lock(&dir.join("LOCK"))?;
        let partitions = (0..count)
            .map(|id| Partition::list(dir, id))
            .collect::<anyhow::Result<_>>()?;
        Ok(DataDir {
            node: field("node ").unwrap_or("unknown").to_owned(),
            partitions,
            _lock: lock,
        })
    }
}

/// A shared lock keeps brokers out and lets other readers in.
fn lock(path: &Path) -> anyhow::Result<Option<File>> {
    let file = match File::open(path) {
        Ok(file) => file,
        // No broker has ever held it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("opening {}", path.display())),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            anyhow::bail!(
                "a broker is running on this directory; stop it first, or look at its queues with `mqb queue ls`"
            )
        }
        Err(error) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}

impl Partition {
    fn list(dir: &Path, id: u16) -> anyhow::Result<Partition> {
        let path = dir.join(format!("p{id:04x}"));
        let mut partition = Partition {
            id,
            hot: Vec::new(),
            cold: Vec::new(),
            windows: Vec::new(),
            checkpoint: None,
        };
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            // It is made when first used.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(partition),
            Err(error) => return Err(error).with_context(|| format!("listing {}", path.display())),
        };
        for entry in entries {
            let path = entry?.path();
            let number = path
                .file_stem()
                .and_then(|stem| u64::from_str_radix(stem.to_str()?, 16).ok());
            match (
                path.extension().and_then(|extension| extension.to_str()),
                number,
            ) {
                (Some("log"), Some(number)) => partition.hot.push((number, path)),
                (Some("cold"), Some(number)) => partition.cold.push((number, path)),
                (Some("window"), Some(number)) => partition.windows.push((number, path)),
                (None, _) if path.file_name().is_some_and(|name| name == "checkpoint") => {
                    partition.checkpoint = Some(path)
                }
                _ => {}
            }
        }
        for files in [
            &mut partition.hot,
            &mut partition.cold,
            &mut partition.windows,
        ] {
            files.sort();
        }
        Ok(partition)
    }
}
