//! From the configuration to a running service, for both kinds of server.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use woma_core::blobs::S3;
use woma_core::fetch::FetchRules;
use woma_core::{
    Contents, EgressSettings, Isolation, JobSettings, LayerState, Limits, LinkedFiles,
    PackageSettings, Runtime, RuntimeChoice, Service, Settings, StorageSettings, Tier,
};

use super::policies;
use super::rights::PreparedEnvironment;
use super::telemetry;
use crate::api::pools::Pools;
use crate::api::shape::Shape;
use crate::api::state::{AppState, Client, Presentation};
use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::layers::Flags;
use crate::config::problem::Problems;
use crate::config::types::{
    BlobsIn, ListedTools, MinIsolation, OutputLimit, Preload, RuntimeName, Secret,
};
use crate::config::{Config, Data, show};
use crate::mcp;
use crate::terminal::{print, tell};

/// Reads the configuration and starts logging. `None` if `--print-config` asked to print it only.
pub(crate) fn configure(
    data: &DataOptions,
    options: &SettingOptions,
    load: fn(&Flags) -> Result<Config, Problems>,
) -> Result<Option<Config>, Box<dyn Error>> {
    let config = load(&options.flags(data))?;
    if options.print_config {
        print(&show::show(&config, false, true));
        return Ok(None);
    }
    telemetry::start(&config);
    for warning in &config.warnings {
        tell(&format!("woma: {warning}"));
    }
    Ok(Some(config))
}

/// Starts the service. `address`: the HTTP address, if there is one. `prepared`: the environment,
/// if it was inspected before privileges were dropped.
pub(crate) async fn app_state(
    config: &Config,
    address: Option<SocketAddr>,
    conformance: bool,
    prepared: Option<PreparedEnvironment>,
) -> Result<AppState, Box<dyn Error>> {
    let PreparedEnvironment { environment, packages, named } = match prepared {
        Some(prepared) => prepared,
        None => find_environment(config).await?,
    };
    if let ListedTools::Names(names) = &config.listed_tools {
        for name in mcp::unknown_tools(names) {
            tell(&format!("woma: the tool `{name}` is not available yet and is not listed"));
        }
    }
    let presentation = Presentation {
        preset: config.preset.clone(),
        environment: environment.clone(),
        packages,
        state_without_session: config.state_without_session,
        context_chars: config.context_budget_chars,
        body_bytes_max: usize::try_from(config.body_bytes_max)?,
        reply: config.reply,
        text_format: config.text_format,
        shape: Shape {
            stderr_traceback: config.stderr_traceback,
            error_as_text: config.error_as_text,
            variables_as_types: config.variables_as_types,
        },
        failure_is_error: config.failure_is_error,
        container_memory_bytes: config.container_memory_bytes,
        base_url: address.map(|address| base_url(config, address)),
        listed_tools: config.listed_tools.clone(),
        conformance,
    };
    let mut policies = policies::policies(config)?;
    for named in &named {
        if let Some(policy) = &named.policy {
            let bound = policies.bind(&named.name, policy);
            bound.map_err(|error| format!("the environment `{}`: {error}", named.name))?;
        }
        if let Err(why) = &named.made {
            let name = &named.name;
            tell(&format!("woma: sessions cannot use the environment `{name}`: {why}"));
        }
    }
    let policy = policies.server();
    if !policy.is_open() {
        tracing::info!(policy = policy.name, mode = ?policy.mode, "A code policy is in force");
    }
    let mut settings = Settings { policies, ..settings(config, environment)? };
    let present = presentation.packages.iter();
    settings.distributions =
        present.map(|package| (package.name.clone(), package.version.clone())).collect();
    settings.environments = named;
    let service = Service::start(settings).await?;
    warn_of_weak_isolation(&service);
    // Takes a second, in the background.
    let examined = service.clone();
    if config.min_isolation == MinIsolation::Full {
        examined.examine().await;
        require_full_isolation(&examined)?;
    } else {
        tokio::spawn(async move { examined.examine().await });
    }
    let client = Client::Rest;
    let presentation = Arc::new(presentation);
    let pools = Arc::new(Pools::new(config.connections_max, presentation.body_bytes_max));
    Ok(AppState { service, presentation, pools, client, request_base_url: None })
}

/// Finds the environment; creates the default one on first use, which takes half a minute.
async fn find_environment(config: &Config) -> Result<PreparedEnvironment, Box<dyn Error>> {
    let data = Data::new(&DataOptions {
        data_dir: Some(config.data_dir.clone()),
        env: config.environment.clone(),
        user: None,
    })?;
    let (data, environment) = tokio::task::spawn_blocking(move || {
        let environment = data.environment();
        (data, environment)
    })
    .await?;
    PreparedEnvironment::new(config, &data, environment?)
}

/// The configured base URL, else one made from the listening address.
fn base_url(config: &Config, address: SocketAddr) -> String {
    match &config.public_base_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None if address.ip().is_unspecified() => format!("http://localhost:{}", address.port()),
        None => format!("http://{address}"),
    }
}

pub(crate) fn storage_settings(config: &Config) -> StorageSettings {
    StorageSettings {
        sessions_folder: config.sandbox_dir.clone(),
        contents: contents(config),
        database_url: config.database_url.as_ref().map(|url| url.expose().to_owned()),
        file_bytes_max: config.file_bytes_max,
        linked: match config.linked_extensions.as_slice() {
            [] => LinkedFiles::All,
            some => {
                let plain = |text: &String| text.trim_start_matches('.').to_ascii_lowercase();
                LinkedFiles::Extensions(some.iter().map(plain).collect())
            }
        },
        storage_bytes_max: Some(config.storage_bytes_max).filter(|bytes| *bytes > 0),
        checkpoint_bytes_max: config.checkpoint_bytes_max,
        reserve: config.min_free_disk,
        keeps_code: config.audit_code,
        exports: config.export_dir.clone(),
        session_ttl: Some(config.session_ttl).filter(|ttl| !ttl.is_zero()),
        audit_retention: Some(config.audit_retention).filter(|time| !time.is_zero()),
        audit_day_bytes_max: config.audit_day_bytes_max,
        fetch: FetchRules {
            bytes_max: config.fetch_bytes_max,
            allow_private: config.fetch_allow_private,
            ..FetchRules::default()
        },
        file_ttl: Some(config.file_ttl).filter(|ttl| !ttl.is_zero()),
        ..StorageSettings::new(config.data_dir.clone())
    }
}

/// Places of a server's data, in words, for the operator.
#[derive(Debug, Serialize)]
pub(crate) struct Places {
    /// Sessions, executions, keys that servers share, the audit trail.
    pub(crate) records: String,
    /// Contents of files with an address, charts and checkpoints.
    pub(crate) contents: String,
}

pub(crate) fn places(config: &Config) -> Places {
    let folder = config.data_dir.display();
    let records = match config.database_url {
        Some(_) => "PostgreSQL".to_owned(),
        None => format!("SQLite in the data folder, {folder}"),
    };
    let contents = match config.blobs_in {
        BlobsIn::Folder if config.database_url.is_none() => {
            format!("in the data folder, {folder}")
        }
        BlobsIn::Folder => {
            format!("in the data folder, {folder}: a server with another folder does not find them")
        }
        BlobsIn::Database => "PostgreSQL".to_owned(),
        BlobsIn::S3 => {
            let bucket = config.s3_bucket.as_deref().unwrap_or_default();
            let at = config.s3_endpoint.as_deref().unwrap_or("AWS");
            format!("S3, the bucket {bucket} at {at}")
        }
    };
    Places { records, contents }
}

/// Line at the start of a server whose records or contents are not in its data folder.
pub(crate) fn storage_line(config: &Config) -> Option<String> {
    let Places { records, contents } = places(config);
    let is_elsewhere = config.database_url.is_some() || config.blobs_in != BlobsIn::Folder;
    is_elsewhere.then(|| format!("woma: records: {records}; contents of files: {contents}"))
}

fn contents(config: &Config) -> Contents {
    let exposed = |secret: &Option<Secret>| {
        secret.as_ref().map(|secret| secret.expose().to_owned()).filter(|text| !text.is_empty())
    };
    match config.blobs_in {
        BlobsIn::Folder => Contents::Folder,
        BlobsIn::Database => Contents::Database,
        // The configuration has checked that the required settings are set.
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

fn runtime(named: RuntimeName) -> RuntimeChoice {
    match named {
        RuntimeName::Auto => RuntimeChoice::Auto,
        RuntimeName::Runsc => RuntimeChoice::Named(Runtime::Runsc),
        RuntimeName::Crun => RuntimeChoice::Named(Runtime::Crun),
        RuntimeName::Runc => RuntimeChoice::Named(Runtime::Runc),
    }
}

fn settings(
    config: &Config,
    environment: woma_core::environments::Environment,
) -> Result<Settings, Box<dyn Error>> {
    let (output_bytes, output_chars_max) = match config.output_limit {
        OutputLimit::Bytes(bytes) => (bytes, None),
        // A character takes at most four bytes.
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
        containers: config.containers.then(|| runtime(config.container_runtime)),
        container_memory_bytes: config.container_memory_bytes,
        pool: config.pool_size,
        preload: match config.preload {
            Preload::Full => Tier::Full,
            Preload::Base => Tier::Base,
        },
        timeout_default: config.timeout_default,
        timeout_max: config.timeout_max,
        memory_bytes_default: config.memory_bytes_default,
        kernels_max: config.kernels_max,
        running_max: config.running_max,
        memory_bytes_all: Some(config.memory_bytes_all),
        sessions_max: config.sessions_max,
        queue_max: config.queue_max,
        idle_max: config.idle_timeout,
        source_bytes_max: usize::try_from(config.code_bytes_max)?,
        kept_bytes_max: usize::try_from(config.kept_output_bytes)?,
        output_chars_max,
        executions_per_minute: config.executions_per_minute,
        logs_code: config.log_code,
        storage: Some(storage_settings(config)),
        uploads: config.upload_dir.clone(),
        lowest_rung: config.min_isolation.lowest_rung(),
        jobs: job_settings(config),
        egress: egress_settings(config),
        secrets: config.secrets.clone(),
        packages: package_settings(config)?,
        ports: config.ports,
        environment_idle: config.environment_idle,
        ..Settings::new(environment)
    })
}

fn egress_settings(config: &Config) -> EgressSettings {
    EgressSettings {
        rules: Arc::new(config.network.clone()),
        hosts: config.network_hosts.clone(),
        connections_max: config.network_connections,
        session_connections_max: config.network_session_connections,
        session_bytes_max: Some(config.network_session_bytes).filter(|bytes| *bytes > 0),
        idle_max: config.network_idle,
        ca_file: config.network_ca_file.clone(),
    }
}

pub(crate) fn package_settings(config: &Config) -> Result<PackageSettings, Box<dyn Error>> {
    let index_url = config.package_index_url.as_ref().map(|url| url.expose().to_owned());
    let index_url = index_url.filter(|url| !url.is_empty());
    if let Some(text) = &index_url {
        // The message has no part of the address, which may have a password.
        if !PackageSettings::is_address(text) {
            return Err("PACKAGE_INDEX_URL is not an http or https address".into());
        }
    }
    let token = config.package_index_token.as_ref().map(|token| token.expose().to_owned());
    Ok(PackageSettings {
        is_on: config.installs,
        index_url,
        authorization: token
            .filter(|token| !token.is_empty())
            .map(|token| format!("Bearer {token}")),
        ca_file: config.package_ca_file.clone(),
        wheelhouse: config.package_wheelhouse.clone(),
        blocked: config.blocked_packages.clone(),
        allows_source: config.package_allow_source,
        bytes_max: config.package_bytes_max,
        count_max: config.package_count_max,
        timeout: config.package_timeout,
        per_minute: config.package_per_minute,
        at_once: config.package_at_once,
        fresh: config.package_fresh,
        layer_ttl: config.package_layer_ttl,
        cache_bytes: config.package_cache_bytes,
    })
}

pub(crate) fn job_settings(config: &Config) -> JobSettings {
    JobSettings {
        running_max: config.jobs_running_max,
        queued_max: config.jobs_queued_max,
        timeout_max: config.job_timeout,
        retention: config.job_retention,
        webhooks: config.webhooks.then(|| JobSettings::webhook_rules(config.fetch_allow_private)),
        ..JobSettings::default()
    }
}

/// Hint for a failure to start, if its message has none.
pub(crate) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(woma_sandbox::rights::Error::Rights { .. }) = error.downcast_ref() {
        return Some(KEEP_ROOT_HINT.to_owned());
    }
    error.downcast_ref::<woma_core::Error>().and_then(woma_core::Error::hint)
}

/// Tells the operator of a server that runs below the walls of a room.
fn warn_of_weak_isolation(service: &Service) {
    let (rung, why) = service.health().rung;
    let Some((step, reason)) = why else { return };
    let fix = woma_sandbox::doctor::fix();
    let rung = rung.name();
    tell(&format!(
        "woma: WARNING: isolation is `{rung}`: sessions share this container's namespaces, user and \
         kernel interfaces; Landlock and seccomp keep them apart (docs/THREATS.md). Rooms of their \
         own were refused ({step}: {reason}). For the full walls, {fix}"
    ));
    tracing::warn!(isolation = rung, step, reason, "Sessions have no namespaces of their own");
}

/// Fails unless every isolation layer is enforced.
fn require_full_isolation(service: &Service) -> Result<(), Box<dyn Error>> {
    let Some(found) = service.health().isolation else {
        return Err("the isolation was not examined".into());
    };
    if found.isolation == Isolation::Full {
        return Ok(());
    }
    let short = found.layers.iter().filter(|layer| layer.state != LayerState::Enforced);
    let short: Vec<_> = short.map(|layer| format!("{}: {}", layer.name, layer.detail)).collect();
    let (level, short) = (found.isolation.name(), short.join("; "));
    Err(format!(
        "isolation is {level}, and MIN_ISOLATION=full requires more ({short}); `woma doctor` \
                 says how to get it, MIN_ISOLATION=strong does not require it"
    )
    .into())
}
const KEEP_ROOT_HINT: &str = "another --data-dir or --env, another --user, or `--user root`, which keeps \
                         root's rights";
