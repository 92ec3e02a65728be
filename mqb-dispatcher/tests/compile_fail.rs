//! What the compiler must refuse: `Cx` and client state leaving their thread, `Cx` outliving its call.
#![cfg(not(mqb_loom))]

#[test]
fn what_belongs_to_a_turn_stays_in_it() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
