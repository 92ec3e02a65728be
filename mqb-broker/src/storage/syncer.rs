//! The syncer's duty: group commit. While one fdatasync runs, the writer goes on; the next one covers all of it.

use std::sync::Arc;
use std::time::Instant;

use super::shared::Shared;

/// Makes everything written so far durable, again and again while somebody waits for more.
pub(crate) fn run(shared: &Arc<Shared>) {
    while shared.fault().is_none() && shared.sync_is_wanted() {
        let target = shared.written();
        if target <= shared.synced() {
            // What is wanted is not written yet; the writer asks again.
            break;
        }
        // After `written`: see `publish_written`.
        let dirty = shared.take_dirty();
        for segment in &dirty {
            let Some(file) = segment.file() else { continue };
            let start = Instant::now();
            if let Err(e) = file.sync_data() {
                // The kernel may have dropped the pages and will not say so twice: never retried.
                return shared.fail("fdatasync of", &segment.name, &e);
            }
            shared.stats.synced(start.elapsed());
        }
        shared.publish_synced(target);
        shared.wake_owner();
    }
}
