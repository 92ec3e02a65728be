//! A queue URI that owns its text.

use std::fmt;

use mqb_core::uri::Uri;

use crate::error::Error;

/// A parsed queue URI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct QueueUri {
    text: String,
    canonical_bytes: usize,
    app_id: Option<String>,
}

impl QueueUri {
    pub(crate) fn parse(text: &str) -> Result<QueueUri, Error> {
        let uri = Uri::parse(text).map_err(|source| Error::Uri {
            uri: text.to_owned(),
            source,
        })?;
        let (canonical_bytes, app_id) = (uri.canonical().len(), uri.app_id().map(str::to_owned));
        Ok(QueueUri {
            text: text.to_owned(),
            canonical_bytes,
            app_id,
        })
    }

    /// Without the app id: what names a queue.
    pub(crate) fn canonical(&self) -> &str {
        &self.text[..self.canonical_bytes]
    }

    pub(crate) fn app_id(&self) -> Option<&str> {
        self.app_id.as_deref()
    }
}

impl fmt::Display for QueueUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
