//! Sockets watched by processors that are turned by hand: real ones, so readiness takes the kernel's time, not the test's.
#![cfg(not(mqb_loom))]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use mqb_dispatcher::mio::Interest;
use mqb_dispatcher::mio::net::TcpStream;
use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Cx, Handle, IoToken, Manual, Placement, ProcessorId, Readiness,
};

const KIND: ClientKind = ClientKind::new(0, "reader");
const P0: ProcessorId = ProcessorId(0);

type Act = fn(&mut Reader, &mut Cx<'_, Act2>);
/// A step that the test tells the client to take.
struct Act2(Act);

struct Reader {
    core: ClientCore,
    socket: TcpStream,
    token: IoToken,
    told: Sender<Vec<u8>>,
    /// Bytes that one call reads at most.
    share: usize,
}

impl Client<Act2> for Reader {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Act2>, act: Act2) {
        (act.0)(self, cx);
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Act2>, token: IoToken, ready: Readiness) {
        assert_eq!(token, self.token);
        if !ready.is_readable() {
            return;
        }
        let mut bytes = vec![0; self.share];
        match self.socket.read(&mut bytes) {
            Ok(count) => {
                bytes.truncate(count);
                self.told.send(bytes).unwrap();
                if count > 0 {
                    cx.ready_again(token, Readiness::READABLE);
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

struct World {
    manual: Manual<Act2>,
    reader: Handle<Act2>,
    peer: std::net::TcpStream,
    heard: std::sync::mpsc::Receiver<Vec<u8>>,
}

impl World {
    fn new(share: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut socket = TcpStream::from_std(socket);
        let (told, heard) = channel();
        let mut manual = Manual::new(1).unwrap();
        let reader = manual
            .registrar()
            .register(Placement::LeastLoaded(KIND), move |core, cx| {
                let token = cx.register_io(&mut socket, Interest::READABLE).unwrap();
                Box::new(Reader {
                    core,
                    socket,
                    token,
                    told,
                    share,
                })
            });
        manual.run_until_idle(10);
        Self {
            manual,
            reader,
            peer,
            heard,
        }
    }

    /// Turns until something was read.
    fn read(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.manual.turn(P0);
            match self.heard.try_recv() {
                Ok(bytes) => return bytes,
                Err(_) => assert!(Instant::now() < deadline, "the socket never became ready"),
            }
        }
    }
}

#[test]
fn a_handler_that_takes_its_share_is_called_again_in_the_next_turn() {
    let mut world = World::new(3);
    world.peer.write_all(b"abcdefgh").unwrap();
    assert_eq!(world.read(), b"abc");
    assert!(world.heard.try_recv().is_err(), "one share per turn");
    assert_eq!([world.read(), world.read()].concat(), b"defgh");
    drop(world.peer.shutdown(std::net::Shutdown::Write));
    assert_eq!(world.read(), b"", "the end of the stream is readable too");
}

#[test]
fn a_socket_that_is_not_watched_any_more_is_not_reported() {
    let mut world = World::new(16);
    world.reader.post(Act2(|reader, cx| {
        cx.deregister_io(reader.token, &mut reader.socket).unwrap();
        assert!(cx.deregister_io(reader.token, &mut reader.socket).is_err());
        // Even what was asked for in the same breath.
        cx.ready_again(reader.token, Readiness::READABLE);
    }));
    world.peer.write_all(b"unheard").unwrap();
    world.manual.run_until_idle(10);
    // It is there: watched once more, it is reported.
    assert!(world.heard.try_recv().is_err());
    world.reader.post(Act2(|reader, cx| {
        let before = reader.token;
        reader.token = cx
            .register_io(&mut reader.socket, Interest::READABLE)
            .unwrap();
        assert_ne!(before, reader.token, "a token is not given out again");
    }));
    assert_eq!(world.read(), b"unheard");
}

#[test]
fn interest_can_change_and_reports_what_is_ready_already() {
    let mut world = World::new(16);
    world.reader.post(Act2(|reader, cx| {
        cx.reregister_io(reader.token, &mut reader.socket, Interest::WRITABLE)
            .unwrap();
    }));
    world.manual.run_until_idle(10);
    world.peer.write_all(b"later").unwrap();
    world.manual.run_until_idle(10);
    assert!(world.heard.try_recv().is_err());
    world.reader.post(Act2(|reader, cx| {
        cx.reregister_io(reader.token, &mut reader.socket, Interest::READABLE)
            .unwrap();
    }));
    assert_eq!(world.read(), b"later");
}

#[test]
fn a_client_that_goes_takes_its_socket_along() {
    let mut world = World::new(16);
    world.reader.unregister();
    world.manual.run_until_idle(10);
    world
        .peer
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    assert_eq!(world.peer.read(&mut [0]).unwrap(), 0);
    assert_eq!(world.manual.stats().processors[0].clients, 0);
}
