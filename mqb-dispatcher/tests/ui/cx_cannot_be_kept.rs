//! A `Cx` cannot be kept beyond the call that it was lent for.
use mqb_dispatcher::{Client, ClientCore, Cx};

struct Hoarder {
    core: ClientCore,
    kept: Option<&'static mut Cx<'static, u32>>,
}

impl Client<u32> for Hoarder {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, u32>, _: u32) {
        self.kept = Some(cx);
    }
}

fn main() {}
