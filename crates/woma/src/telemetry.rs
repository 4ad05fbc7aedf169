//! Logs: on standard error, in words.

use tracing_subscriber::EnvFilter;

/// Logs go to standard error from here on. `WOMA_LOG` says how much, e.g. `debug`.
pub(crate) fn start() {
    let filter = std::env::var_os("WOMA_LOG").and_then(|text| text.into_string().ok());
    let filter = EnvFilter::new(filter.unwrap_or_else(|| "error".to_owned()));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if subscriber.try_init().is_err() {
        tracing::debug!("a subscriber is in place already");
    }
}
