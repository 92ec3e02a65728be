//! How clients come to live on a processor, from any thread and from within any handler.

use std::fmt;
use std::sync::Arc;

use crate::client::{Client, Cx};
use crate::group::{Control, Group, Item};
use crate::handle::{EventSource, Handle};
use crate::tag::{ClientCore, ClientKind, ProcessorId};

/// Where a client should live, and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// On the processor, of those that the kind may use, with the fewest clients of the kind.
    LeastLoaded(ClientKind),
    /// On this one.
    Processor(ProcessorId, ClientKind),
}

/// Why a client was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The dispatcher is stopping or has stopped.
    #[error("the dispatcher is stopping")]
    Stopped,
    /// The processor has as many clients as it may.
    #[error("processor {processor} has all its {max_clients} clients")]
    Full {
        /// Which one.
        processor: ProcessorId,
        /// The configured bound.
        max_clients: u32,
    },
    /// There is no such processor.
    #[error("there is no processor {processor} among {count}")]
    NoProcessor {
        /// The one asked for.
        processor: ProcessorId,
        /// How many there are.
        count: usize,
    },
}

/// Registers clients. Cheap to clone; usable everywhere.
pub struct Registrar<E: Send + 'static> {
    group: Arc<Group<E>>,
}

impl<E: Send + 'static> Registrar<E> {
    pub(crate) fn new(group: Arc<Group<E>>) -> Self {
        Self { group }
    }

    /// Has a client made and kept by a processor; returns its handle at once.
    ///
    /// `make` runs on the processor, before any event posted to the handle is delivered. If the dispatcher is stopping or the processor
    /// full, `make` is dropped unrun and the handle is stale from birth: see [`Registrar::try_register`] to be told.
    pub fn register<F>(&self, at: Placement, make: F) -> Handle<E>
    where
        F: FnOnce(ClientCore, &mut Cx<'_, E>) -> Box<dyn Client<E>> + Send + 'static,
    {
        self.try_register(at, make)
            .unwrap_or_else(|_| self.group.stale_handle())
    }

    /// As [`Registrar::register`], but says why not. **Errors**: see [`RegisterError`].
    pub fn try_register<F>(&self, at: Placement, make: F) -> Result<Handle<E>, RegisterError>
    where
        F: FnOnce(ClientCore, &mut Cx<'_, E>) -> Box<dyn Client<E>> + Send + 'static,
    {
        let group = &self.group;
        let (processor, kind) = match at {
            Placement::LeastLoaded(kind) => (group.least_loaded(kind), kind),
            Placement::Processor(processor, kind) => (processor, kind),
        };
        let shared = group
            .processors
            .get(processor.index())
            .ok_or(RegisterError::NoProcessor {
                processor,
                count: group.processors.len(),
            })?;
        if group.is_stopping(kind) {
            return Err(RegisterError::Stopped);
        }
        let address = shared.slots.reserve().ok_or(RegisterError::Full {
            processor,
            max_clients: group.config.max_clients,
        })?;
        group.count_in(processor, kind);
        let core = ClientCore::new(shared.tag, processor, kind, address);
        let control = Item::Control(Box::new(Control::Register {
            core,
            make: Box::new(make),
        }));
        // Never by an outbox: whoever learns the handle from us may reach the processor before our outbox is published.
        match group.push_register(processor, control) {
            Ok(()) => Ok(Handle::new(Arc::clone(group), processor, address)),
            Err(_refused) => {
                shared.slots.release(address);
                group.count_out(processor, kind);
                Err(RegisterError::Stopped)
            }
        }
    }

    /// An event source for a thread that is no processor.
    pub fn event_source(&self) -> EventSource<E> {
        EventSource::new(Arc::clone(&self.group))
    }

    /// Number of processors.
    pub fn processors(&self) -> u16 {
        self.group.processors.len() as u16
    }

    /// Runs `f` once on every processor that may have clients of `kind`, as a barrier; `done` after the last of them, on its thread
    /// (or here, if all have stopped).
    pub fn on_all(
        &self,
        kind: ClientKind,
        f: impl Fn(&mut Cx<'_, E>) + Send + Sync + 'static,
        done: impl FnOnce() + Send + 'static,
    ) {
        self.group.on_all(kind, Arc::new(f), Box::new(done));
    }
}

impl<E: Send + 'static> Clone for Registrar<E> {
    fn clone(&self) -> Self {
        Self {
            group: Arc::clone(&self.group),
        }
    }
}

impl<E: Send + 'static> fmt::Debug for Registrar<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar")
            .field("processors", &self.group.processors.len())
            .finish()
    }
}
