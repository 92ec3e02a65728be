//! Who runs here: the thread tag, and the identity that each client carries inline.
//!
//! Answers "am I on the thread that owns this?" with one load and one compare against a thread-local at a constant offset. There is no
//! wildcard: a thread that is no processor has tag 0, which no client carries, and a client without a processor carries a tag
//! that no thread has. (`inDispatcherThread` in BlazingMQ, where an unregistered client matches every thread.)

use std::cell::Cell;
use std::fmt;

use std::sync::atomic::{AtomicU32, Ordering};

/// Tag of a client that lives on no processor. No thread ever has it.
const NOWHERE: u32 = u32::MAX;

thread_local! {
    // `const` initialised and without destructor: an access is an address computed from the thread pointer, never a call.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Names one processor of one dispatcher, process-wide; never reused while the process lives.
///
/// Two dispatchers in one process cannot be mistaken for each other.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadTag(u32);

impl ThreadTag {
    /// The tag of the processor whose turn this thread is running, if any.
    #[inline(always)]
    pub fn current() -> Option<Self> {
        match CURRENT.get() {
            0 => None,
            tag => Some(Self(tag)),
        }
    }

    /// True when the calling thread is running a turn of this processor. **Cost**: one load and one compare.
    #[inline(always)]
    pub fn is_current(self) -> bool {
        self.0 == CURRENT.get()
    }

    /// The tag of clients that live nowhere: never current, on any thread.
    pub const fn nowhere() -> Self {
        Self(NOWHERE)
    }

    /// Takes the next unused tag.
    ///
    /// **Panics** after 4 294 967 293 processors, rather than ever handing out a tag twice.
    pub(crate) fn allocate() -> Self {
        // Not from `sync`: a static, and loom's atomics have no const constructor. Nothing is ordered by it.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let tag = NEXT
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (next < NOWHERE - 1).then_some(next + 1)
            })
            .expect("a process starts fewer than four thousand million processors");
        Self(tag)
    }
}

impl fmt::Debug for ThreadTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NOWHERE => f.write_str("ThreadTag(nowhere)"),
            tag => write!(f, "ThreadTag({tag})"),
        }
    }
}

/// Makes a tag current on this thread until dropped, then restores what was current before.
pub(crate) struct Entered {
    before: u32,
    // Must be dropped by the thread that entered.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Entered {
    pub(crate) fn new(tag: ThreadTag) -> Self {
        Self {
            before: CURRENT.replace(tag.0),
            _thread: std::marker::PhantomData,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Number of a processor within its dispatcher, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessorId(pub u16);

impl ProcessorId {
    /// The number as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ProcessorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a client is, as the service that embeds the dispatcher names it; decides placement, and appears in reports.
///
/// A service declares its kinds as constants: `const SESSION: ClientKind = ClientKind::new(0, "session");`
#[derive(Clone, Copy)]
pub struct ClientKind {
    id: u8,
    name: &'static str,
}

impl ClientKind {
    /// How many kinds there can be.
    pub const COUNT: usize = 16;

    /// Declares a kind. **Panics** (at compile time in a constant) unless `id` is below [`ClientKind::COUNT`].
    pub const fn new(id: u8, name: &'static str) -> Self {
        assert!(
            (id as usize) < Self::COUNT,
            "there are 16 kinds of clients at most"
        );
        Self { id, name }
    }

    /// The number given to [`ClientKind::new`].
    pub const fn id(self) -> u8 {
        self.id
    }

    /// The name given to [`ClientKind::new`].
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl PartialEq for ClientKind {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for ClientKind {}

impl fmt::Debug for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

/// Where a client is within its processor: a slot, and the generation that tells this tenant from the ones before and after.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Address {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A client's identity, embedded in it by value and fixed for its life.
#[derive(Clone, Debug)]
pub struct ClientCore {
    thread: ThreadTag,
    processor: ProcessorId,
    kind: ClientKind,
    address: Address,
}

impl ClientCore {
    pub(crate) fn new(
        thread: ThreadTag,
        processor: ProcessorId,
        kind: ClientKind,
        address: Address,
    ) -> Self {
        Self {
            thread,
            processor,
            kind,
            address,
        }
    }

    /// A core for an object that no dispatcher owns (a test, a mock). It is on no thread: it answers "no" everywhere.
    pub const fn unplaced(kind: ClientKind) -> Self {
        Self {
            thread: ThreadTag::nowhere(),
            processor: ProcessorId(0),
            kind,
            address: Address {
                slot: u32::MAX,
                generation: 0,
            },
        }
    }

    /// True when the caller runs on the processor that owns this client. **Cost**: one load, one compare; not virtual, inlined.
    #[inline(always)]
    pub fn in_dispatcher_thread(&self) -> bool {
        self.thread.is_current()
    }

    /// The processor that owns the client.
    pub fn processor(&self) -> ProcessorId {
        self.processor
    }

    /// What the client is.
    pub fn kind(&self) -> ClientKind {
        self.kind
    }

    /// Tag of the owning processor.
    pub fn thread(&self) -> ThreadTag {
        self.thread
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }
}

/// Asserts, in builds with debug assertions, that `self.core` (or the core given) belongs to the processor running here.
///
/// First line of each method that is reached without a [`Cx`](crate::Cx).
#[macro_export]
macro_rules! affine {
    ($core:expr) => {
        debug_assert!(
            $core.in_dispatcher_thread(),
            "{:?} is used outside its processor, on thread {:?}",
            $core,
            ::std::thread::current().name()
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ClientKind = ClientKind::new(3, "test");

    fn core(tag: ThreadTag) -> ClientCore {
        ClientCore::new(
            tag,
            ProcessorId(0),
            KIND,
            Address {
                slot: 0,
                generation: 1,
            },
        )
    }

    #[test]
    fn a_tag_is_current_only_while_entered() {
        let (a, b) = (ThreadTag::allocate(), ThreadTag::allocate());
        assert_eq!(ThreadTag::current(), None);
        let outer = Entered::new(a);
        assert!(core(a).in_dispatcher_thread() && !core(b).in_dispatcher_thread());
        {
            let _inner = Entered::new(b);
            assert!(!core(a).in_dispatcher_thread() && core(b).in_dispatcher_thread());
        }
        assert_eq!(ThreadTag::current(), Some(a));
        drop(outer);
        assert!(!core(a).in_dispatcher_thread());
    }

    #[test]
    fn an_unplaced_client_matches_no_thread() {
        let stray = ClientCore::unplaced(KIND);
        assert!(!stray.in_dispatcher_thread());
        let _entered = Entered::new(ThreadTag::allocate());
        assert!(!stray.in_dispatcher_thread());
    }

    #[test]
    fn a_foreign_thread_answers_no() {
        let tag = ThreadTag::allocate();
        let _entered = Entered::new(tag);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(ThreadTag::current(), None);
                assert!(!core(tag).in_dispatcher_thread());
            });
        });
    }

    #[test]
    fn tags_are_never_given_twice() {
        let mut tags: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1000)
                            .map(|_| ThreadTag::allocate().0)
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 4000);
    }
}
