//! Sockets watched by a processor: its mio registry, and whose each token is.

use std::io;

use mio::event::{Event, Source};
use mio::{Interest, Registry, Token};
use slab::Slab;

use crate::tag::Address;

/// Names a watched socket on its processor. Never refers to a later one that took its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IoToken(usize);

/// The token of the processor's own waker.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// What a socket is ready for, or what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Readiness(u8);

impl Readiness {
    /// A read will not block.
    pub const READABLE: Self = Self(1);
    /// A write will not block.
    pub const WRITABLE: Self = Self(2);
    /// The peer will send no more.
    pub const READ_CLOSED: Self = Self(4);
    /// Nothing more can be sent.
    pub const WRITE_CLOSED: Self = Self(8);
    /// The socket has an error.
    pub const ERROR: Self = Self(16);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if anything of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// True if reading makes sense: data, end of stream or an error is to be had.
    pub const fn is_readable(self) -> bool {
        self.has(Self(Self::READABLE.0 | Self::READ_CLOSED.0 | Self::ERROR.0))
    }

    /// True if writing makes sense.
    pub const fn is_writable(self) -> bool {
        self.has(Self(
            Self::WRITABLE.0 | Self::WRITE_CLOSED.0 | Self::ERROR.0,
        ))
    }

    pub(crate) fn of(event: &Event) -> Self {
        let flag = |set: bool, flag: Self| if set { flag } else { Self(0) };
        flag(event.is_readable(), Self::READABLE)
            .with(flag(event.is_writable(), Self::WRITABLE))
            .with(flag(event.is_read_closed(), Self::READ_CLOSED))
            .with(flag(event.is_write_closed(), Self::WRITE_CLOSED))
            .with(flag(event.is_error(), Self::ERROR))
    }
}

/// Who watches which socket.
pub(crate) struct IoTable {
    registry: Registry,
    entries: Slab<Entry>,
    // Counts registrations: the upper half of a token, so that no token of the recent past is ever given out again.
    registered: u32,
}

struct Entry {
    owner: Address,
    token: IoToken,
    // The owner's next entry; its first is in its slot.
    next: Option<u32>,
}

impl IoTable {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            entries: Slab::new(),
            registered: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// `first` is the head of the owner's list of entries.
    pub(crate) fn register(
        &mut self,
        owner: Address,
        first: &mut Option<u32>,
        source: &mut (impl Source + ?Sized),
        interest: Interest,
    ) -> io::Result<IoToken> {
        let vacant = self.entries.vacant_entry();
        let index =
            u32::try_from(vacant.key()).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.registered = self.registered.wrapping_add(1) & 0x7fff_ffff;
        let token = IoToken(index as usize | (self.registered as usize) << 32);
        self.registry.register(source, Token(token.0), interest)?;
        vacant.insert(Entry {
            owner,
            token,
            next: first.replace(index),
        });
        Ok(token)
    }

    pub(crate) fn reregister(
        &self,
        owner: Address,
        token: IoToken,
        source: &mut (impl Source + ?Sized),
        interest: Interest,
    ) -> io::Result<()> {
        self.owned(owner, token)?;
        self.registry.reregister(source, Token(token.0), interest)
    }

    pub(crate) fn deregister(
        &mut self,
        owner: Address,
        first: &mut Option<u32>,
        token: IoToken,
        source: &mut (impl Source + ?Sized),
    ) -> io::Result<()> {
        let index = self.owned(owner, token)?;
        self.unlink(first, index);
        self.entries.remove(index as usize);
        self.registry.deregister(source)
    }

    /// Forgets all that a client watched; closing the sockets takes them out of the operating system's set.
    pub(crate) fn forget(&mut self, mut first: Option<u32>) {
        while let Some(index) = first {
            first = self.entries.remove(index as usize).next;
        }
    }

    /// Whose a token is, unless it was deregistered meanwhile.
    pub(crate) fn owner(&self, token: IoToken) -> Option<Address> {
        self.entries
            .get(token.0 & 0xffff_ffff)
            .filter(|entry| entry.token == token)
            .map(|entry| entry.owner)
    }

    pub(crate) fn token(token: Token) -> IoToken {
        IoToken(token.0)
    }

    fn owned(&self, owner: Address, token: IoToken) -> io::Result<u32> {
        match self.owner(token) {
            Some(found) if found == owner => Ok((token.0 & 0xffff_ffff) as u32),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn unlink(&mut self, first: &mut Option<u32>, index: u32) {
        let next = self.entries[index as usize].next;
        let mut link = *first;
        if link == Some(index) {
            *first = next;
            return;
        }
        while let Some(at) = link {
            let entry = &mut self.entries[at as usize];
            if entry.next == Some(index) {
                entry.next = next;
                return;
            }
            link = entry.next;
        }
    }
}
