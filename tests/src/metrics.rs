//! The broker's HTTP side as a test sees it: a minimal GET and a reader of the Prometheus text format.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An HTTP answer.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

/// `GET path`, one connection per call.
///
/// **Errors** as the socket gives them, and `InvalidData` when the answer is not HTTP.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let bad = || {
        std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            text.chars().take(200).collect::<String>(),
        )
    };
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(bad)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(bad)?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        unchunk(body).ok_or_else(bad)?
    } else {
        body.to_owned()
    };
    Ok(Response { status, body })
}

fn unchunk(mut text: &str) -> Option<String> {
    let mut out = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.push_str(rest.get(..size)?);
        text = rest.get(size + 2..)?;
    }
}

/// One scrape of `/metrics`.
#[derive(Debug, Default)]
pub struct Scrape {
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: String,
    value: f64,
}

impl Scrape {
    /// Scrapes the broker behind `address`.
    pub fn of(address: SocketAddr) -> Scrape {
        let response = get(address, "/metrics").expect("the metrics page answers");
        assert_eq!(response.status, 200, "{}", response.body);
        Scrape::parse(&response.body)
    }

    /// Reads the text format; comment lines are skipped.
    pub fn parse(text: &str) -> Scrape {
        let samples = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(parse_sample)
            .collect();
        Scrape { samples }
    }

    /// The sum of all samples of `name` whose labels contain every one of `labels` (each `key="value"` as printed).
    /// `None` when there is no such sample: an absent metric is not a zero.
    pub fn sum(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let mut matching = self
            .samples
            .iter()
            .filter(|sample| {
                sample.name == name && labels.iter().all(|label| sample.labels.contains(label))
            })
            .map(|sample| sample.value)
            .peekable();
        matching.peek()?;
        Some(matching.sum())
    }

    /// The names of all metrics, once each.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .samples
            .iter()
            .map(|sample| sample.name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let (series, value) = line.trim().rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    Some(Sample {
        name: name.to_owned(),
        labels: labels.trim_end_matches('}').to_owned(),
        value: value.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_matching_labels() {
        let scrape = Scrape::parse("# HELP a b\nx{q=\"1\",r=\"2\"} 3\nx{q=\"1\",r=\"4\"} 5\ny 7\n");
        assert_eq!(scrape.sum("x", &["q=\"1\""]), Some(8.0));
        assert_eq!(scrape.sum("x", &["q=\"1\"", "r=\"4\""]), Some(5.0));
        assert_eq!(scrape.sum("y", &[]), Some(7.0));
        assert_eq!(scrape.sum("z", &[]), None);
    }

    #[test]
    fn chunks_are_joined() {
        assert_eq!(
            unchunk("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").as_deref(),
            Some("abcde")
        );
    }
}
