//! Authentication, asked for by newer SDKs before they negotiate. Pure.
//!
//! Policy: everybody is let in without credentials, and nothing else than "without credentials" is understood.

use mqb_core::control::{
    Authentication, AuthenticationRequest, AuthenticationResponse, Category, Status,
};

const ANONYMOUS: &str = "ANONYMOUS";
/// What the reference broker answers to a mechanism that it does not know.
const UNKNOWN_MECHANISM: i32 = -2;

/// Judges credentials. Returns whether the peer may go on, and the answer, to be sent in the encoding of the request.
pub fn judge(request: &AuthenticationRequest) -> (bool, Authentication) {
    let is_anonymous = request.mechanism.eq_ignore_ascii_case(ANONYMOUS);
    let status = if is_anonymous {
        Status {
            category: Category::Success,
            code: 0,
            message: String::new(),
        }
    } else {
        Status {
            category: Category::Refused,
            code: UNKNOWN_MECHANISM,
            message: "only the ANONYMOUS mechanism is supported".into(),
        }
    };
    (
        is_anonymous,
        Authentication::Response(AuthenticationResponse {
            status,
            lifetime_ms: None,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(mechanism: &str) -> (bool, Category) {
        match judge(&AuthenticationRequest {
            mechanism: mechanism.into(),
            data: Some(b"user:password".to_vec()),
        }) {
            (may_stay, Authentication::Response(response)) => (may_stay, response.status.category),
            (_, other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_anonymous_may_stay_in_any_spelling() {
        assert_eq!(ask("ANONYMOUS"), (true, Category::Success));
        assert_eq!(ask("anonymous"), (true, Category::Success));
        assert_eq!(ask("BASIC"), (false, Category::Refused));
        assert_eq!(ask(""), (false, Category::Refused));
    }
}
