//! What reports call a client: written when it comes, read by the watchdog and after a panic.

use std::sync::{Arc, Mutex};

use crate::sync::lock;
use crate::tag::ClientKind;

/// By slot.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Vec<Option<Name>>>);

#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) kind: ClientKind,
    // None: it goes by its kind.
    name: Option<Arc<str>>,
}

impl Name {
    pub(crate) fn text(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| self.kind.name().into())
    }
}

impl Names {
    pub(crate) fn insert(&self, slot: u32, kind: ClientKind, name: Option<&str>) {
        let mut names = lock(&self.0);
        let slot = slot as usize;
        if slot >= names.len() {
            names.resize(slot + 1, None);
        }
        names[slot] = Some(Name {
            kind,
            name: name.map(Arc::from),
        });
    }

    pub(crate) fn remove(&self, slot: u32) {
        // Dropped after the lock.
        let _gone = lock(&self.0).get_mut(slot as usize).and_then(Option::take);
    }

    pub(crate) fn find(&self, slot: u32) -> Option<Name> {
        lock(&self.0).get(slot as usize).cloned().flatten()
    }
}
