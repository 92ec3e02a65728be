//! A real file system of a few MiB, where the test may make one (root, or a container that lets it mount).

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs, unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one of `mebibytes`; `None`, and a line that says why, when that is not allowed here. In CI, which may, that is a failure:
    /// a test is never skipped there.
    pub fn mount(mebibytes: u64) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"])
            .arg(dir.path())
            .output();
        match output {
            Ok(output) if output.status.success() => Some(SmallDisk { dir }),
            other => {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "CI must be able to mount a small file system: {other:?}"
                );
                println!("not run: this process may not mount a small file system ({other:?})");
                None
            }
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Takes up all but `leave` bytes of what is free with a file, and tells its path.
    pub fn fill(&self, leave: u64) -> PathBuf {
        let path = self.dir.path().join("ballast");
        let free = rustix::fs::statvfs(self.dir.path())
            .map(|stat| stat.f_bavail * stat.f_frsize)
            .expect("it is mounted");
        let file = std::fs::File::create(&path).expect("there is space for a name");
        let size = free.saturating_sub(leave);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size.max(1))
            .expect("that much is free");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a broker that a failing test left behind may still hold files.
        _ = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
    }
}
