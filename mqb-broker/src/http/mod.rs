//! Health and metrics over HTTP, on a thread and runtime of their own, so that no scrape ever shares a processor's thread.
//!
//! | path | answers |
//! |---|---|
//! | `/livez` | 200 as long as the process answers |
//! | `/readyz` | 200 when clients are served; 503 with the progress of recovery, or when draining |
//! | `/metrics` | OpenMetrics text; 503 until there is something to measure |

mod limits;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::health::{Health, Phase};
use crate::metrics::MetricsSource;

/// Time that one request may take, its figures gathered from every processor included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the pages show. Cheap to clone.
#[derive(Clone)]
pub struct Pages {
    /// Part of life.
    pub health: Arc<Health>,
    /// Figures.
    pub metrics: Arc<MetricsSource>,
}

/// Serves the pages until the process ends. Returns the real address once it does.
///
/// **Errors**: the address cannot be used; no thread.
pub fn start(address: SocketAddr, pages: Pages) -> anyhow::Result<SocketAddr> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("listening for HTTP on {address}"))?;
    listener.set_nonblocking(true)?;
    let real = listener.local_addr()?;
    let (ready, started) = mpsc::sync_channel(1);
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build();
        let result = match runtime {
            Ok(runtime) => runtime.block_on(serve(listener, pages, &ready)),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            // Before the start it is the start's error, later nobody waits for it.
            if let Err(mpsc::SendError(Err(error))) = ready.send(Err(error)) {
                tracing::error!(event = "http.failed", %error, "health and metrics are gone");
            }
        }
    };
    std::thread::Builder::new()
        .name("mqb-http".into())
        .spawn(run)
        .context("starting the HTTP thread")?;
    started
        .recv()
        .context("starting the HTTP thread")?
        .context("starting the HTTP runtime")?;
    Ok(real)
}

async fn serve(
    listener: TcpListener,
    pages: Pages,
    ready: &mpsc::SyncSender<io::Result<()>>,
) -> io::Result<()> {
    let listener = limits::Limited::new(tokio::net::TcpListener::from_std(listener)?);
    let router = Router::new()
        .route("/", get(index))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(pages);
    // The receiver waits for exactly this.
    let _ = ready.send(Ok(()));
    axum::serve(listener, router).await
}

async fn index() -> &'static str {
    "mqb: /livez /readyz /metrics\n"
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(pages): State<Pages>) -> Response {
    let recovery = pages.health.recovery();
    let (status, text) = match pages.health.phase() {
        Phase::Ready => (StatusCode::OK, "ready"),
        Phase::Recovering => (StatusCode::SERVICE_UNAVAILABLE, "recovering"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    let body = serde_json::json!({
        "status": text,
        "recovery": {
            "percent": recovery.percent,
            "done_bytes": recovery.done_bytes,
            "known_bytes": recovery.known_bytes,
            "partitions": recovery.partitions,
        },
    });
    (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        format!("{body}\n"),
    )
        .into_response()
}

async fn metrics(State(pages): State<Pages>) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, pages.metrics.render(&pages.health)).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Ok(Err(error)) => {
            tracing::error!(event = "metrics.failed", %error);
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "figures cannot be written\n",
            )
                .into_response()
        }
        Err(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            "a processor did not answer in time\n",
        )
            .into_response(),
    }
}
