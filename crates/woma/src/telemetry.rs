//! Logs: on standard error, for people or for machines.

use tracing_subscriber::EnvFilter;

use crate::config::Config;
use crate::config::types::LogFormat;

/// For commands that say themselves what is worth saying. `WOMA_LOG` asks for more, e.g. `debug`.
pub(crate) fn start_quietly() {
    start_with("error", LogFormat::Human);
}

/// As the operator wants it; `WOMA_LOG` goes before.
pub(crate) fn start(config: &Config) {
    // What the libraries below us say in detail is for their authors.
    let level = config.log_level.directive();
    let directives = match level {
        "debug" | "trace" => format!("{level},hyper=info,rmcp=info,h2=info"),
        _ => format!("{level},rmcp=warn"),
    };
    start_with(&directives, config.log_format);
}

fn start_with(directives: &str, format: LogFormat) {
    let asked = std::env::var_os("WOMA_LOG").and_then(|text| text.into_string().ok());
    let filter = EnvFilter::new(asked.unwrap_or_else(|| directives.to_owned()));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Human => subscriber.with_ansi(crate::terminal::is_interactive()).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    if started.is_err() {
        tracing::debug!("a subscriber is in place already");
    }
}
