//! Negotiation and authentication, tied to a connection. Before they are done anything unexpected ends it.

use mqb_core::control::{Authentication, Encoding, Negotiation, decode_event};
use mqb_core::wire::{Event as WireEvent, EventKind};
use mqb_dispatcher::Cx;

use super::auth;
use super::client::{Phase, Session};
use super::negotiate::{self, Peer, Verdict};
use crate::event::{Event, SessionUp};

impl Session {
    /// One event of a peer that has not negotiated.
    pub(super) fn handshake(
        &mut self,
        cx: &mut Cx<'_, Event>,
        event: &WireEvent<'_>,
        authenticated: bool,
    ) {
        match event.header.kind {
            EventKind::Control => match decode_event(event) {
                Ok(Negotiation::ClientIdentity(identity)) => {
                    let verdict =
                        negotiate::judge(&identity, self.address.ip(), self.id.0, self.settings());
                    self.apply(cx, verdict, authenticated);
                }
                Ok(_) => self.lose(cx, "not a client's identity"),
                Err(error) => self.lose(cx, format!("not a valid negotiation: {error}")),
            },
            EventKind::Authentication if !authenticated => {
                if self.authenticate(cx, event) {
                    self.phase = Phase::Handshake {
                        authenticated: true,
                    };
                }
            }
            kind => self.lose(
                cx,
                format!("event of kind {} before the negotiation", kind.to_wire()),
            ),
        }
    }

    fn apply(&mut self, cx: &mut Cx<'_, Event>, verdict: Verdict, authenticated: bool) {
        match verdict {
            Verdict::Welcome(peer, response) => {
                self.send(peer.encoding, &*response);
                self.welcome(cx, peer, authenticated);
            }
            Verdict::Refuse(encoding, response, cause) => {
                self.send(encoding, &*response);
                self.linger(cx, cause);
            }
            Verdict::Drop(cause) => self.lose(cx, cause),
        }
    }

    fn welcome(&mut self, cx: &mut Cx<'_, Event>, peer: Peer, authenticated: bool) {
        tracing::info!(
            event = "session.opened", session = self.id.0, peer = %peer.description, address = %self.address,
            admin = peer.is_admin, "peer connected"
        );
        cx.set_name(&peer.description);
        self.arm(cx, self.check_interval());
        if peer.is_admin {
            self.phase = Phase::Admin;
        } else {
            self.phase = Phase::Running { authenticated };
            let up = SessionUp {
                session: self.id,
                handle: self.me.clone(),
                identity: peer.identity.clone(),
                description: peer.description.clone(),
            };
            cx.post(&self.context.registry, Event::SessionUp(Box::new(up)));
            self.is_announced = true;
        }
        self.peer = Some(peer);
    }

    /// Judges credentials and answers. Returns whether the peer may go on; if not, the connection is on its way out.
    fn authenticate(&mut self, cx: &mut Cx<'_, Event>, event: &WireEvent<'_>) -> bool {
        let request = match decode_event(event) {
            Ok(Authentication::Request(request)) => request,
            Ok(Authentication::Response(_)) => {
                self.lose(cx, "an authentication response from a client");
                return false;
            }
            Err(error) => {
                self.lose(cx, format!("not a valid authentication: {error}"));
                return false;
            }
        };
        let (may_stay, answer) = auth::judge(&request);
        let encoding = Encoding::from_type_specific(event.header.type_specific).unwrap_or_default();
        self.send(encoding, &answer);
        if !may_stay {
            self.linger(cx, "authentication refused");
        }
        may_stay
    }

    /// Credentials on a running connection: only a peer that showed some at the beginning renews them.
    pub(super) fn reauthenticate(
        &mut self,
        cx: &mut Cx<'_, Event>,
        event: &WireEvent<'_>,
        authenticated: bool,
    ) {
        if authenticated {
            self.authenticate(cx, event);
        } else {
            self.lose(cx, "authentication on a connection that began without");
        }
    }
}
