//! From the configuration to a running service: the same for every door.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use woma_core::blobs::S3;
use woma_core::fetch::FetchRules;
use woma_core::{Contents, Limits, Service, Settings, VaultSettings};

use crate::cli::DataOptions;
use crate::config::flags::SettingOptions;
use crate::config::layers::Flags;
use crate::config::problem::Problems;
use crate::config::types::{BlobsIn, ListedTools, MinIsolation, OutputLimit, Secret};
use crate::config::{Config, Data, command};
use crate::doors::{Doors, Manner};
use crate::mcp;
use crate::policies;
use crate::telemetry;
use crate::terminal::{print, tell};

/// Reads the configuration, and starts logging as it says. `None` when it was only to be shown.
pub(crate) fn configure(
    data: &DataOptions,
    options: &SettingOptions,
    load: fn(&Flags) -> Result<Config, Problems>,
) -> Result<Option<Config>, Box<dyn Error>> {
    let config = load(&options.flags(data))?;
    if options.print_config {
        print(&command::show(&config, false, true));
        return Ok(None);
    }
    telemetry::start(&config);
    for warning in &config.warnings {
        tell(&format!("woma: {warning}"));
    }
    if config.min_isolation == MinIsolation::Restricted {
        tell("woma: MIN_ISOLATION=restricted changes nothing: this version demands every wall");
    }
    Ok(Some(config))
}

/// `address`: where it listens, if it does.
pub(crate) async fn doors(
    config: &Config,
    address: Option<SocketAddr>,
    conformance: bool,
) -> Result<Doors, Box<dyn Error>> {
    let data = Data::new(&DataOptions {
        data_dir: Some(config.data_dir.clone()),
        env: config.environment.clone(),
    })?;
    // Making the environment takes half a minute, once; it says what it does.
    let environment = tokio::task::spawn_blocking(move || data.environment()).await??;
    let packages = environment.packages()?;
    let listed_tools = match &config.listed_tools {
        ListedTools::Canonical => Vec::new(),
        ListedTools::All => vec!["*".to_owned()],
        ListedTools::Names(names) => names.clone(),
    };
    for name in mcp::unknown_tools(&listed_tools) {
        tell(&format!("woma: the tool `{name}` is not there yet, so it is not listed"));
    }
    let manner = Manner {
        preset: config.preset.clone(),
        environment: environment.clone(),
        packages,
        state_without_session: config.state_without_session,
        context_chars: config.context_budget_chars,
        body_bytes_max: usize::try_from(config.body_bytes_max)?,
        text_format: config.text_format,
        base_url: address.map(|address| base_url(config, address)),
        listed_tools,
        conformance,
    };
    let policies = policies::policies(config)?;
    let policy = policies.server();
    if !policy.is_open() {
        tracing::info!(policy = policy.name, mode = ?policy.mode, "Code is held to rules");
    }
    let settings = Settings { policies, ..settings(config, environment)? };
    let service = Service::start(settings).await?;
    // Takes a second, and nobody has to wait for it.
    let examined = service.clone();
    tokio::spawn(async move { examined.examine().await });
    Ok(Doors { service, manner: Arc::new(manner), reached_by: None })
}

/// By the operator's word, else by the address that is listened on.
fn base_url(config: &Config, address: SocketAddr) -> String {
    match &config.public_base_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None if address.ip().is_unspecified() => format!("http://localhost:{}", address.port()),
        None => format!("http://{address}"),
    }
}

pub(crate) fn vault(config: &Config) -> VaultSettings {
    VaultSettings {
        sessions_folder: config.sandbox_dir.clone(),
        contents: contents(config),
        database_url: config.database_url.as_ref().map(|url| url.expose().to_owned()),
        file_bytes_max: config.file_bytes_max,
        storage_bytes_max: Some(config.storage_bytes_max).filter(|bytes| *bytes > 0),
        checkpoint_bytes_max: config.checkpoint_bytes_max,
        keeps_code: config.audit_code,
        session_ttl: Some(config.session_ttl).filter(|ttl| !ttl.is_zero()),
        audit_retention: Some(config.audit_retention).filter(|time| !time.is_zero()),
        fetch: FetchRules {
            bytes_max: config.fetch_bytes_max,
            allow_private: config.fetch_allow_private,
            ..FetchRules::default()
        },
        file_ttl: Some(config.file_ttl).filter(|ttl| !ttl.is_zero()),
        ..VaultSettings::new(config.data_dir.clone())
    }
}

fn contents(config: &Config) -> Contents {
    let exposed = |secret: &Option<Secret>| {
        secret.as_ref().map(|secret| secret.expose().to_owned()).filter(|text| !text.is_empty())
    };
    match config.blobs_in {
        BlobsIn::Folder => Contents::Folder,
        BlobsIn::Database => Contents::Database,
        // What is needed is there: the configuration was refused otherwise.
        BlobsIn::S3 => Contents::S3(S3 {
            bucket: config.s3_bucket.clone().unwrap_or_default(),
            region: config.s3_region.clone(),
            endpoint: config.s3_endpoint.clone(),
            access_key_id: config.s3_access_key_id.clone().unwrap_or_default(),
            secret_access_key: exposed(&config.s3_secret_access_key).unwrap_or_default(),
            session_token: exposed(&config.s3_session_token),
            prefix: config.s3_prefix.clone(),
            ca_file: config.s3_ca_file.clone(),
        }),
    }
}

fn settings(
    config: &Config,
    environment: woma_core::environments::Environment,
) -> Result<Settings, Box<dyn Error>> {
    let (output_bytes, output_chars_max) = match config.output_limit {
        OutputLimit::Bytes(bytes) => (bytes, None),
        // A character takes four bytes at most.
        OutputLimit::Characters(chars) => (chars.saturating_mul(4), Some(usize::try_from(chars)?)),
    };
    let limits = Limits {
        wall: config.timeout_max,
        cpu: config.timeout_max.max(Limits::default().cpu),
        cpu_cores: config.cpu_cores,
        memory_bytes: config.memory_bytes_max,
        processes: config.processes,
        workspace_bytes: config.workspace_bytes,
        output_bytes,
        ..Limits::default()
    };
    Ok(Settings {
        limits,
        pool: config.pool_size,
        timeout_default: config.timeout_default,
        timeout_max: config.timeout_max,
        memory_bytes_default: config.memory_bytes_default,
        kernels_max: config.kernels_max,
        sessions_max: config.sessions_max,
        queue_max: config.queue_max,
        idle_max: config.idle_timeout,
        source_bytes_max: usize::try_from(config.code_bytes_max)?,
        kept_bytes_max: usize::try_from(config.kept_output_bytes)?,
        output_chars_max,
        executions_per_minute: config.executions_per_minute,
        vault: Some(vault(config)),
        uploads: config.upload_dir.clone(),
        ..Settings::new(environment)
    })
}

/// The way out of a failure to start, where there is one that its message does not name.
pub(crate) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    error.downcast_ref::<woma_core::Error>().and_then(woma_core::Error::hint)
}
