//! Queue URIs.
//!
//! ```text
//! bmq://domain[.~tier]/queue[?id=app]
//! domain, queue, app: letters, digits, '-', '_', '.'      tier: letters, digits, '-'
//! canonical: without ?id=...                              qualified domain: domain[.~tier]
//! ```

use std::fmt;

use thiserror::Error;

use crate::limits::{APP_ID_BYTES_MAX, DOMAIN_BYTES_MAX, QUEUE_NAME_BYTES_MAX};

const SCHEME: &str = "bmq://";
const QUERY: &str = "?id=";
const TIER: &str = ".~";

/// Why a URI is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum UriError {
    /// Does not begin with `bmq://`.
    #[error("does not begin with bmq://")]
    Scheme,
    /// No domain, or one with a wrong character, or too long.
    #[error("domain is not valid")]
    Domain,
    /// A tier with a wrong character, or an empty one.
    #[error("tier is not valid")]
    Tier,
    /// No queue name, or one with a wrong character, or too long.
    #[error("queue name is not valid")]
    Queue,
    /// A query that is not `?id=` with a valid app id.
    #[error("app id is not valid")]
    AppId,
}

/// A queue URI, borrowed.
///
/// ```
/// let uri = mqb_core::uri::Uri::parse("bmq://my.domain.~lab/orders?id=billing").unwrap();
/// assert_eq!(uri.qualified_domain(), "my.domain.~lab");
/// assert_eq!((uri.domain(), uri.tier()), ("my.domain", Some("lab")));
/// assert_eq!((uri.queue(), uri.app_id()), ("orders", Some("billing")));
/// assert_eq!(uri.canonical(), "bmq://my.domain.~lab/orders");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uri<'a> {
    canonical: &'a str,
    /// Where the slash in front of the queue's name is.
    slash: usize,
    app_id: Option<&'a str>,
}

impl<'a> Uri<'a> {
    /// Takes a URI apart.
    ///
    /// **Errors**: it does not follow the grammar, or a part is too long.
    pub fn parse(text: &'a str) -> Result<Uri<'a>, UriError> {
        let rest = text.strip_prefix(SCHEME).ok_or(UriError::Scheme)?;
        let (path, app_id) = match rest.find('?') {
            Some(at) => (
                &rest[..at],
                Some(rest[at..].strip_prefix(QUERY).ok_or(UriError::AppId)?),
            ),
            None => (rest, None),
        };
        let (authority, queue) = path.split_once('/').ok_or(UriError::Queue)?;
        let (domain, tier) = match authority.split_once(TIER) {
            Some((domain, tier)) => (domain, Some(tier)),
            None => (authority, None),
        };
        if authority.len() > DOMAIN_BYTES_MAX || !is_name(domain) {
            return Err(UriError::Domain);
        }
        if tier.is_some_and(|tier| {
            tier.is_empty()
                || !tier
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }) {
            return Err(UriError::Tier);
        }
        if queue.len() > QUEUE_NAME_BYTES_MAX || !is_name(queue) {
            return Err(UriError::Queue);
        }
        if app_id.is_some_and(|app_id| !is_app_id(app_id)) {
            return Err(UriError::AppId);
        }
        let slash = SCHEME.len() + authority.len();
        Ok(Uri {
            canonical: &text[..SCHEME.len() + path.len()],
            slash,
            app_id,
        })
    }

    /// The URI without its app id: what names a queue.
    #[inline]
    pub fn canonical(&self) -> &'a str {
        self.canonical
    }

    /// The domain with its tier.
    #[inline]
    pub fn qualified_domain(&self) -> &'a str {
        &self.canonical[SCHEME.len()..self.slash]
    }

    /// The domain without its tier.
    pub fn domain(&self) -> &'a str {
        let qualified = self.qualified_domain();
        qualified
            .split_once(TIER)
            .map_or(qualified, |(domain, _)| domain)
    }

    /// The tier.
    pub fn tier(&self) -> Option<&'a str> {
        self.qualified_domain()
            .split_once(TIER)
            .map(|(_, tier)| tier)
    }

    /// The queue's name within its domain.
    #[inline]
    pub fn queue(&self) -> &'a str {
        &self.canonical[self.slash + 1..]
    }

    /// The app id.
    #[inline]
    pub fn app_id(&self) -> Option<&'a str> {
        self.app_id
    }
}

impl fmt::Display for Uri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.canonical)?;
        self.app_id
            .map_or(Ok(()), |app_id| write!(f, "{QUERY}{app_id}"))
    }
}

impl fmt::Debug for Uri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether `text` may be an app id. Peers send them outside of URIs too.
pub fn is_app_id(text: &str) -> bool {
    text.len() <= APP_ID_BYTES_MAX && is_name(text)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_ones_round_trip() {
        let long = format!(
            "bmq://{}/{}?id={}",
            "d".repeat(255),
            "q".repeat(64),
            "a".repeat(255)
        );
        assert_eq!(long.len(), crate::limits::URI_BYTES_MAX);
        for text in [
            "bmq://d/q",
            "bmq://a.b-c_d/Q-1_x.y",
            "bmq://d.~t-1/q",
            "bmq://d/q?id=__default",
            "bmq://../..",
            &long,
        ] {
            assert_eq!(Uri::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_ones_are_refused_with_the_part_at_fault() {
        use UriError::{AppId, Domain, Queue, Scheme, Tier};
        let long_queue = format!("bmq://d/{}", "q".repeat(65));
        let long_domain = format!("bmq://{}/q", "d".repeat(256));
        let long_app = format!("bmq://d/q?id={}", "a".repeat(256));
        for (text, error) in [
            ("", Scheme),
            ("bmq:/d/q", Scheme),
            ("BMQ://d/q", Scheme),
            ("bmq://d", Queue),
            ("bmq://d/", Queue),
            ("bmq:///q", Domain),
            ("bmq://d d/q", Domain),
            ("bmq://d~t/q", Domain),
            ("bmq://.~t/q", Domain),
            ("bmq://d.~/q", Tier),
            ("bmq://d.~t_u/q", Tier),
            ("bmq://d.~t.~u/q", Tier),
            ("bmq://d/q/r", Queue),
            ("bmq://d/q~", Queue),
            ("bmq://d/q\u{1a}", Queue),
            ("bmq://d/qü", Queue),
            ("bmq://d/q?id=", AppId),
            ("bmq://d/q?", AppId),
            ("bmq://d/q?x=1", AppId),
            ("bmq://d/q?id=a&x=1", AppId),
            ("bmq://d/q?id=a?id=b", AppId),
            ("bmq://d/q?id=a\0", AppId),
            (&long_queue, Queue),
            (&long_domain, Domain),
            (&long_app, AppId),
        ] {
            assert_eq!(Uri::parse(text), Err(error), "{text:?}");
        }
    }
}
