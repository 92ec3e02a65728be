//! The data directory: who may use it, which format it has, which node it belongs to, how many partitions are in it.
//!
//! ```text
//! LOCK             flock, held while the process lives
//! FORMAT           text: "mqb data\nformat 1\nnode <32 hex digits>\npartitions <n>\n", written once
//! p0000/ p0001/    one directory per partition
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqb_core::PartitionId;
use mqb_core::log::FORMAT_VERSION;

use super::disk::{Disk, OpenMode, read_full, write_full};
use super::error::StorageError;

/// Random name of a node, made with its data directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(pub u128);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A data directory that this process holds.
pub struct DataDir {
    path: PathBuf,
    node: NodeId,
    partitions: u16,
    _lock: Box<dyn Send + Sync>,
}

impl DataDir {
    /// Opens the directory, or makes it with `partitions` partitions and the node id that `new_node` gives (random: it names the node for ever).
    ///
    /// The number of partitions is a persisted fact: that of an existing directory stands, whatever is asked for.
    ///
    /// **Errors**: in use by another process, newer format, damaged `FORMAT`, the operating system's.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        partitions: u16,
        new_node: impl FnOnce() -> NodeId,
    ) -> Result<DataDir, StorageError> {
        disk.create_dir(path)
            .map_err(StorageError::io("creating directory", path))?;
        let lock_path = path.join("LOCK");
        let lock = disk
            .lock(&lock_path)
            .map_err(StorageError::io("locking", &lock_path))?;
        let lock = lock.ok_or_else(|| StorageError::InUse {
            dir: path.to_owned(),
        })?;
        let names = disk.list(path).map_err(StorageError::io("listing", path))?;
        let (node, partitions) = if names.iter().any(|n| n == "FORMAT") {
            read_format(&**disk, &path.join("FORMAT"))?
        } else if names.iter().any(|n| n.starts_with('p') && n.len() == 5) {
            // Data without the file that says what it is: someone removed it. Making a new one would give the node a new name.
            return Err(StorageError::BadFile {
                path: path.join("FORMAT"),
                what: "missing beside partitions",
            });
        } else {
            let node = new_node();
            write_format(&**disk, path, node, partitions.max(1))
                .map_err(StorageError::io("writing", path.join("FORMAT")))?;
            (node, partitions.max(1))
        };
        Ok(DataDir {
            path: path.to_owned(),
            node,
            partitions,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// How many partitions are in it.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// A partition's directory.
    pub fn partition_path(&self, id: PartitionId) -> PathBuf {
        self.path.join(format!("p{:04x}", id.0))
    }

    /// A random node id from the operating system.
    ///
    /// **Errors**: the operating system has no randomness to give.
    pub fn random_node() -> std::io::Result<NodeId> {
        use std::io::Read;
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(NodeId(u128::from_le_bytes(bytes)))
    }
}

fn write_format(disk: &dyn Disk, dir: &Path, node: NodeId, partitions: u16) -> std::io::Result<()> {
    let text = format!("mqb data\nformat {FORMAT_VERSION}\nnode {node}\npartitions {partitions}\n");
    let (tmp, path) = (dir.join("FORMAT.tmp"), dir.join("FORMAT"));
    let file = disk.open(&tmp, OpenMode::Create)?;
    write_full(&*file, text.as_bytes(), 0)?;
    file.sync_data()?;
    disk.rename(&tmp, &path)?;
    disk.sync_dir(dir)
}

fn read_format(disk: &dyn Disk, path: &Path) -> Result<(NodeId, u16), StorageError> {
    let io = |e| StorageError::io("reading", path)(e);
    let file = disk.open(path, OpenMode::Read).map_err(io)?;
    let mut bytes = [0; 512];
    let have = read_full(&*file, &mut bytes, 0).map_err(io)?;
    let bad = |what| StorageError::BadFile {
        path: path.to_owned(),
        what,
    };
    let text = std::str::from_utf8(&bytes[..have]).map_err(|_| bad("not text"))?;
    let mut lines = text.lines();
    let mut value = |key: &str| {
        lines
            .next()
            .and_then(|l| l.strip_prefix(key))
            .map(str::trim)
    };
    value("mqb data").ok_or(bad("not the file of an mqb data directory"))?;
    let format: u32 = value("format")
        .and_then(|v| v.parse().ok())
        .ok_or(bad("no format version"))?;
    if format > u32::from(FORMAT_VERSION) {
        return Err(StorageError::NewerFormat {
            path: path.to_owned(),
            found: format,
        });
    }
    let node = value("node")
        .and_then(|v| u128::from_str_radix(v, 16).ok())
        .ok_or(bad("no node id"))?;
    let partitions = value("partitions")
        .and_then(|v| v.parse().ok())
        .filter(|n| *n > 0)
        .ok_or(bad("no number of partitions"))?;
    Ok((NodeId(node), partitions))
}
