//! A client that holds what is not `Send` cannot be made elsewhere and brought along.
use std::rc::Rc;

use mqb_dispatcher::{Client, ClientCore, ClientKind, Cx, Placement, Registrar};

struct Holder(ClientCore, Rc<u32>);

impl Client<u32> for Holder {
    fn core(&self) -> &ClientCore {
        &self.0
    }

    fn on_event(&mut self, _: &mut Cx<'_, u32>, _: u32) {}
}

fn bring_along(registrar: &Registrar<u32>, state: Rc<u32>) {
    let at = Placement::LeastLoaded(ClientKind::new(0, "holder"));
    registrar.register(at, move |core, _| Box::new(Holder(core, state)));
}

fn main() {}
