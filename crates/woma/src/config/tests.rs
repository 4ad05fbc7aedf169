//! Tests of the configuration by tables: every name, every layer, every preset.

use std::fs;
use std::path::Path;
use std::time::Duration;

use woma_core::Machine;

use super::Config;
use super::layers::{Flag, Sources};
use super::setting::{Effect, Setting};
use super::settings::SETTINGS;
use super::types::{
    AuthFailureStatus, BlobsIn, KeySet, ListedTools, LogLevel, OutputLimit, ReplyForm,
    StateWithoutSession, TextFormat, TrustedProxies,
};
use super::value::{MIB, Value, parse};

/// Resources of the reference machine.
const MACHINE: Machine =
    Machine { memory_bytes: 24 * 1024 * MIB, descriptors: 1_048_576, processors: 2, tasks: None };

/// Sources of an ordinary user's process in an empty folder with these variables.
pub(super) fn surrounding(folder: &Path, variables: &[(&str, &str)]) -> Sources {
    let home = [("HOME", "/nobody")];
    let environment = home.iter().chain(variables);
    let environment = environment.map(|(name, value)| (name.into(), value.into())).collect();
    let (flags, directory) = (Vec::new(), folder.to_owned());
    Sources { flags, environment, directory, reads_dot_env: true, is_root: false, machine: MACHINE }
}

pub(super) fn with(variables: &[(&str, &str)]) -> Config {
    let folder = tempfile::tempdir().unwrap();
    Config::from_sources(&surrounding(folder.path(), variables))
        .unwrap_or_else(|problems| panic!("{variables:?}: {problems}"))
}

pub(super) fn refused(variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    match Config::from_sources(&surrounding(folder.path(), variables)) {
        Ok(_) => panic!("{variables:?} was accepted"),
        Err(problems) => problems.to_string(),
    }
}

pub(super) fn flag(name: &str, value: &str) -> Flag {
    let spelled = format!("--{}", name.replace('_', "-"));
    Flag { name: name.to_owned(), value: value.to_owned(), spelled }
}

fn origin(config: &Config, name: &str) -> String {
    let found = config.origins().iter().find(|one| one.setting.name == name);
    found.unwrap_or_else(|| panic!("no setting {name}")).origin.to_string()
}

fn value(config: &Config, name: &str) -> Value {
    let found = config.origins().iter().find(|one| one.setting.name == name);
    found.unwrap_or_else(|| panic!("no setting {name}")).value.clone()
}

/// Every variable of the older systems: its name, a value other than the default, and its setting.
const VARIABLES: &[(&str, &str, &str)] = &[
    ("DATABASE_URL", "postgresql+asyncpg://u:p@h/d", "database_url"),
    ("API_KEY", "k-1", "api_key"),
    ("PORT", "9001", "port"),
    ("HOST", "0.0.0.0", "host"),
    ("DEBUG", "true", "debug"),
    ("LOG_LEVEL", "DEBUG", "log_level"),
    ("MAX_EXECUTION_TIME", "120", "max_execution_time"),
    ("SANDBOX_TIMEOUT", "31", "default_timeout"),
    ("DEFAULT_TIMEOUT", "31", "default_timeout"),
    ("SANDBOX_DEFAULT_TIMEOUT", "31", "default_timeout"),
    ("SANDBOX_MAX_TIMEOUT", "301", "max_execution_time"),
    ("MAX_MEMORY_MB", "4096", "max_memory_mb"),
    ("DEFAULT_MEMORY_LIMIT", "128m", "default_memory_limit"),
    ("SANDBOX_DEFAULT_MEMORY_LIMIT", "256m", "container_memory_limit"),
    ("MAX_CONCURRENT_KERNELS", "6", "max_kernels"),
    ("MAX_KERNELS", "11", "max_kernels"),
    ("KERNEL_TIMEOUT", "1800", "kernel_timeout"),
    ("SANDBOX_FILE_MAX_MB", "51", "file_max_mb"),
    ("SANDBOX_FILE_TTL_HOURS", "0", "file_ttl_hours"),
    ("MAX_CONCURRENT_JOBS", "5", "max_concurrent_jobs"),
    ("JOB_TIMEOUT", "600", "job_timeout"),
    ("MAX_QUEUED_JOBS", "100", "max_queued_jobs"),
    ("PUBLIC_BASE_URL", "https://woma.example", "public_base_url"),
    ("PUBLIC_URL", "https://woma.example", "public_base_url"),
    ("RAILWAY_PUBLIC_DOMAIN", "woma.example", "public_base_url"),
    ("SANDBOX_MAX_OUTPUT_SIZE", "2097152", "output_limit"),
    ("MAX_OUTPUT_SIZE", "10000", "output_limit"),
    ("SANDBOX_ENABLE_NETWORK", "true", "enable_network"),
    ("ENABLE_NETWORK_ACCESS", "1", "enable_network"),
    ("SANDBOX_ENABLE_FILESYSTEM", "true", "enable_filesystem"),
    ("SANDBOX_ENABLE_DATA_SCIENCE", "true", "enable_data_science"),
    ("SANDBOX_ALLOWED_IMPORTS", "math,json", "allowed_imports"),
    ("SANDBOX_ENABLE_CONTAINER_MODE", "true", "enable_container_mode"),
    ("SANDBOX_CONTAINER_IMAGE", "mine:1", "container_image"),
    ("BLOCKED_PACKAGES", "os,sys", "blocked_packages"),
    ("PYTHONPATH", "/app", "pythonpath"),
    ("MAX_FILE_SIZE_MB", "501", "max_file_size_mb"),
    ("SANDBOX_DIR", "/a", "sandbox_dir"),
    ("UPLOAD_DIR", "/b", "upload_dir"),
    ("TEMP_DIR", "/c", "temp_dir"),
    ("LOG_DIR", "/d", "log_dir"),
    ("JOB_CLEANUP_HOURS", "25", "job_cleanup_hours"),
    ("WEBHOOKS", "false", "webhooks"),
    ("ALLOWED_HOSTS", "*", "allowed_hosts"),
    ("KERNEL_CLEANUP_INTERVAL", "61", "kernel_cleanup_interval"),
    ("SESSION_POOL_SIZE", "4", "session_pool_size"),
    ("SESSION_POOL_MAX_IDLE_TIME", "601", "session_pool_max_idle_time"),
    ("SESSION_POOL_REFILL_INTERVAL", "31", "session_pool_refill_interval"),
    ("SANDBOX_ENV_DIR", "/e", "sandbox_env_dir"),
    ("COMPAT_PROFILE", "all", "preset"),
    ("REQUIRE_API_KEY", "true", "require_api_key"),
    ("PRIVATE_DOWNLOADS", "true", "private_downloads"),
    ("RATE_LIMIT_EXEC", "60", "rate_limit_exec"),
    ("IMPORT_BLOCK_MODE", "annotate", "import_block_mode"),
    ("MIN_ISOLATION", "restricted", "min_isolation"),
    ("ALLOWED_ORIGINS", "https://woma.example", "allowed_origins"),
    ("LOG_FORMAT", "json", "log_format"),
    ("TRUST_PROXY", "true", "trust_proxy"),
    ("ALLOW_OPEN", "true", "allow_open"),
    ("MAX_QUEUE", "1", "max_queue"),
    ("MAX_CONNECTIONS", "2", "max_connections"),
    ("MAX_SESSIONS", "1", "max_sessions"),
    ("STORAGE_MB", "100", "storage_mb"),
    ("MIN_FREE_DISK", "7%", "min_free_disk"),
    ("MAX_CODE_BYTES", "100k", "max_code_bytes"),
    ("MAX_BODY_MB", "1", "max_body_mb"),
    ("CONTEXT_BUDGET_CHARS", "10000", "context_budget_chars"),
    ("KEPT_OUTPUT_MB", "1", "kept_output_mb"),
    ("SHUTDOWN_GRACE", "1", "shutdown_grace"),
    ("REPLY", "full", "reply"),
    ("TEXT_FORMAT", "plain", "text_format"),
    ("STDERR_TRACEBACK", "true", "stderr_traceback"),
    ("ERROR_AS_TEXT", "true", "error_as_text"),
    ("VARIABLES_AS_TYPES", "true", "variables_as_types"),
    ("FAILURE_IS_ERROR", "false", "failure_is_error"),
    ("LOG_CODE", "true", "log_code"),
    ("STATE_WITHOUT_SESSION", "new", "state_without_session"),
    ("LISTED_TOOLS", "all", "listed_tools"),
];

#[test]
fn every_variable_is_accepted_and_reaches_its_setting() {
    let untouched = with(&[]);
    for (variable, text, name) in VARIABLES {
        for spelled in [(*variable).to_owned(), format!("WOMA_{variable}")] {
            let config = with(&[(&spelled, text)]);
            assert_eq!(origin(&config, name), format!("environment {spelled}"));
            assert_ne!(value(&config, name), value(&untouched, name), "{spelled} {name}");
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".env"), format!("# one\n{variable}={text}\n")).unwrap();
        let config = Config::from_sources(&surrounding(folder.path(), &[])).unwrap();
        let place = folder.path().join(".env");
        assert_eq!(origin(&config, name), format!("{}:2 {variable}", place.display()));
        assert_ne!(value(&config, name), value(&untouched, name), "{variable} {name}");
    }
}

#[test]
fn the_table_is_sound() {
    let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    let mut variables: Vec<&str> =
        SETTINGS.iter().flat_map(Setting::variables).map(|(variable, _)| variable).collect();
    for names in [&mut names, &mut variables] {
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "a name is there twice");
    }
    for setting in SETTINGS {
        let default = setting.default;
        let is_read = default.is_empty() || parse(setting.kind, default).is_some();
        assert!(is_read, "{}: default {default}", setting.name);
        assert!(setting.about.trim().ends_with('.'), "{} is not documented", setting.name);
        assert!(!setting.kind.expected().is_empty());
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = with(&[]);
    assert_eq!((config.host.as_str(), config.port), ("127.0.0.1", 8080));
    assert_eq!(config.timeout_default, Duration::from_secs(55));
    assert_eq!(config.timeout_max, Duration::from_secs(600));
    assert_eq!(config.memory_bytes_default, 2048 * MIB);
    assert_eq!(config.memory_bytes_max, 2048 * MIB);
    assert_eq!(config.output_limit, OutputLimit::Bytes(MIB));
    assert_eq!((config.kernels_max, config.pool_size), (500, 3));
    assert_eq!((config.memory_bytes_all, config.running_max), (18 * 1024 * MIB, 16));
    assert_eq!(config.idle_timeout, Duration::from_secs(300));
    assert_eq!((config.queue_max, config.sessions_max), (256, 1000));
    assert_eq!(config.connections_max, 4096);
    assert_eq!((config.code_bytes_max, config.body_bytes_max), (MIB, 72 * MIB));
    assert_eq!((config.context_budget_chars, config.kept_output_bytes), (25_000, 32 * MIB));
    assert_eq!(config.shutdown_grace, Duration::from_secs(10));
    assert_eq!(config.data_dir, Path::new("/nobody/.local/share/woma"));
    assert!(config.api_key.is_none() && !config.require_api_key && !config.allow_open);
    assert_eq!(config.auth_failure_status, AuthFailureStatus::Unauthorized);
    assert_eq!(config.warnings, Vec::<String>::new());
}

/// One row for each system: port, time limits, memory, output, state, text.
#[test]
fn presets_have_the_numbers_of_the_systems_they_stand_for() {
    use OutputLimit::{Bytes, Characters};
    use StateWithoutSession::{Default, Ephemeral, New, Own};
    use TextFormat::{Json, Plain, Streams};
    let rows = [
        ("default", 8080, 55, 600, 2048, Bytes(MIB), Own, Json, 0),
        ("power-interpreter", 8080, 600, 600, 4096, Bytes(MIB), Default, Plain, 13),
        ("sandbox-mcp", 16010, 30, 30, 512, Bytes(MIB), New, Json, 4),
        ("ibm-sandbox", 9000, 30, 300, 2048, Bytes(1_048_576), Ephemeral, Json, 3),
        ("sandbox-service", 8001, 30, 120, 512, Characters(10_000), Ephemeral, Json, 2),
        ("python-executor", 8000, 60, 300, 2048, Bytes(MIB), Ephemeral, Streams, 5),
        ("all", 8080, 55, 600, 2048, Bytes(MIB), Own, Json, 0),
    ];
    for (name, port, timeout, cap, memory, output, state, text, tools) in rows {
        let config = with(&[("COMPAT_PROFILE", name)]);
        assert_eq!(config.preset, name);
        assert_eq!(config.port, port, "{name}");
        assert_eq!(config.timeout_default, Duration::from_secs(timeout), "{name}");
        assert_eq!(config.timeout_max, Duration::from_secs(cap), "{name}");
        assert_eq!(config.memory_bytes_default, memory * MIB, "{name}");
        assert_eq!(config.output_limit, output, "{name}");
        assert_eq!(config.state_without_session, state, "{name}");
        assert_eq!(config.text_format, text, "{name}");
        let is_older = !["default", "all"].contains(&name);
        let form = if is_older { ReplyForm::Full } else { ReplyForm::Lean };
        assert_eq!(config.reply, form, "{name}");
        let listed = match &config.listed_tools {
            ListedTools::Names(names) => names.len(),
            ListedTools::Usual | ListedTools::Canonical | ListedTools::All => 0,
        };
        assert_eq!(listed, tools, "{name}");
        let is_first = name == "power-interpreter";
        assert_eq!(config.require_api_key, is_first, "{name}");
        assert_eq!(config.auth_failure_status.code(), if is_first { 403 } else { 401 });
        assert_eq!(config.warnings, Vec::<String>::new(), "{name}");
    }
    assert_eq!(with(&[("COMPAT_PROFILE", "all")]).listed_tools, ListedTools::All);
    assert_eq!(with(&[]).listed_tools, ListedTools::Usual);
    let canonical = [("LISTED_TOOLS", "canonical")];
    assert_eq!(with(&canonical).listed_tools, ListedTools::Canonical);
}

#[test]
fn a_later_layer_wins_over_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let data_dir = data.to_str().unwrap();
    let mut sources = surrounding(folder.path(), &[("WOMA_DATA_DIR", data_dir)]);
    let seen = |sources: &Sources| {
        let config = Config::from_sources(sources).unwrap();
        (config.port, origin(&config, "port"))
    };
    assert_eq!(seen(&sources), (8080, "default".to_owned()));

    fs::write(data.join("woma.toml"), "preset = \"python-executor\"\n").unwrap();
    assert_eq!(seen(&sources), (8000, "preset python-executor".to_owned()));

    fs::write(data.join("woma.toml"), "preset = \"python-executor\"\nport = 1\n").unwrap();
    let file = format!("{}:2", data.join("woma.toml").display());
    assert_eq!(seen(&sources), (1, file));

    fs::write(folder.path().join(".env"), "PORT=2\n").unwrap();
    let file = format!("{}:1 PORT", folder.path().join(".env").display());
    assert_eq!(seen(&sources), (2, file));

    sources.environment.push(("PORT".into(), "3".into()));
    assert_eq!(seen(&sources), (3, "environment PORT".to_owned()));

    sources.flags.push(flag("port", "4"));
    assert_eq!(seen(&sources), (4, "flag --port".to_owned()));
}

#[test]
fn the_preset_is_taken_from_the_highest_layer_that_names_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = surrounding(folder.path(), &[("WOMA_CONFIG", "my.toml")]);
    fs::write(folder.path().join("my.toml"), "preset = \"sandbox-mcp\"").unwrap();
    let preset = |sources: &Sources| Config::from_sources(sources).unwrap().preset;
    assert_eq!(preset(&sources), "sandbox-mcp");
    fs::write(folder.path().join(".env"), "COMPAT_PROFILE=ibm-sandbox").unwrap();
    assert_eq!(preset(&sources), "ibm-sandbox");
    sources.environment.push(("COMPAT_PROFILE".into(), "sandbox_service".into()));
    assert_eq!(preset(&sources), "sandbox-service");
    sources.flags.push(flag("preset", "all"));
    assert_eq!(preset(&sources), "all");
}

#[test]
fn warns_of_variables_that_differ() {
    let both = with(&[("MAX_CONCURRENT_KERNELS", "6"), ("MAX_KERNELS", "7")]);
    assert_eq!(both.kernels_max, 7);
    assert_eq!(both.warnings.len(), 1, "{:?}", both.warnings);
    assert!(both.warnings[0].contains("MAX_CONCURRENT_KERNELS = 6 is not"), "{:?}", both.warnings);
    let same = with(&[("MAX_CONCURRENT_KERNELS", "6"), ("MAX_KERNELS", "6")]);
    assert_eq!((same.kernels_max, same.warnings.len()), (6, 0));

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".env"), "MAX_KERNELS=7\n").unwrap();
    let sources = surrounding(folder.path(), &[("MAX_CONCURRENT_KERNELS", "6")]);
    let layers = Config::from_sources(&sources).unwrap();
    assert_eq!((layers.kernels_max, layers.warnings.len()), (6, 1));
}

#[test]
fn a_name_of_our_own_keeps_other_programs_variables_out() {
    let config = with(&[("WOMA_DEBUG", "false"), ("DEBUG", "app:*")]);
    assert_eq!(config.log_level, LogLevel::Info);
    assert!(refused(&[("DEBUG", "app:*")]).starts_with("DEBUG (environment) is `app:*`"));
}

#[test]
fn defaults_above_their_cap_are_lowered_and_settings_above_it_refused() {
    let lowered = with(&[("MAX_EXECUTION_TIME", "30")]);
    assert_eq!(lowered.timeout_default, Duration::from_secs(30));
    assert!(lowered.warnings[0].contains("lowered to 30 s"), "{:?}", lowered.warnings);
    let refusal = refused(&[("MAX_EXECUTION_TIME", "30"), ("SANDBOX_TIMEOUT", "31")]);
    assert!(refusal.contains("more than MAX_EXECUTION_TIME allows (30 s)"), "{refusal}");

    let memory = with(&[("MAX_MEMORY_MB", "4096")]);
    assert_eq!(memory.memory_bytes_default, 4096 * MIB);
    assert_eq!(memory.warnings, Vec::<String>::new());
    let preset = with(&[("COMPAT_PROFILE", "ibm-sandbox"), ("MAX_MEMORY_MB", "64")]);
    assert_eq!((preset.memory_bytes_default, preset.warnings.len()), (64 * MIB, 0));
    assert_eq!(preset.container_memory_bytes, Some(128 * MIB));
    let contained = with(&[("SANDBOX_DEFAULT_MEMORY_LIMIT", "256m")]);
    assert_eq!(contained.memory_bytes_default, 2048 * MIB);
    assert_eq!(contained.warnings, [] as [String; 0]);
    // One limit in these systems: what raises it raises the default.
    for preset in ["power-interpreter", "sandbox-mcp"] {
        let config = with(&[("COMPAT_PROFILE", preset), ("MAX_EXECUTION_TIME", "900")]);
        assert_eq!(config.timeout_default, Duration::from_secs(900), "{preset}");
        assert_eq!(config.timeout_max, Duration::from_secs(900), "{preset}");
    }
    // A body has room for the largest file in base64, and for what is around it.
    let bodies = with(&[]);
    assert!(bodies.body_bytes_max > bodies.file_bytes_max / 3 * 4 + 2 * MIB);
    // Only servers that may listen openly do.
    let host = |more: &[(&str, &str)]| {
        let preset = [("COMPAT_PROFILE", "sandbox-mcp")];
        with(&[&preset, more].concat()).host
    };
    assert_eq!(host(&[]), "127.0.0.1");
    assert_eq!(host(&[("API_KEY", "k-1")]), "0.0.0.0");
    assert_eq!(host(&[("ALLOW_OPEN", "true")]), "0.0.0.0");
    assert_eq!(host(&[("API_KEY", "k-1"), ("HOST", "10.0.0.1")]), "10.0.0.1");
    let refusal = refused(&[("DEFAULT_MEMORY_LIMIT", "3g")]);
    assert!(refusal.contains("more than MAX_MEMORY_MB allows (2 GiB)"), "{refusal}");
}

#[test]
fn reports_all_errors_at_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("my.toml"), "prot = 1\nhost = 'a b'\n\n[server]\nport = 1\n")
        .unwrap();
    fs::write(folder.path().join(".env"), "\nMAX_KERNELS=none\nWOMA_COLOUR=blue\nCOLOUR=red\n")
        .unwrap();
    let mut sources = surrounding(
        folder.path(),
        &[("WOMA_CONFIG", "my.toml"), ("PORT", "http"), ("WOMA_HOTS", "x"), ("UNRELATED", "x")],
    );
    sources.flags.push(flag("log_level", "loud"));
    sources.flags.push(flag("api_key", ""));
    let told = Config::from_sources(&sources).unwrap_err().to_string();
    let place = folder.path().display();
    for expected in [
        "9 settings are wrong:".to_owned(),
        format!("{place}/my.toml:1: there is no setting `prot`; did you mean `port`?"),
        format!("host ({place}/my.toml:2) is `a b`: expected an IP address or a host name"),
        format!("{place}/my.toml:4: there is no setting `server`"),
        format!("MAX_KERNELS ({place}/.env:2) is `none`: expected a whole number from 1 to 100000"),
        format!("WOMA_COLOUR ({place}/.env:3) is not a setting of woma"),
        "PORT (environment) is `http`: expected a whole number from 0 to 65535".to_owned(),
        "WOMA_HOTS (environment) is not a setting of woma; did you mean `WOMA_HOST`?".to_owned(),
        "--log-level (command line) is `loud`: expected `trace`, ".to_owned(),
        "--api-key (command line) is empty: expected visible ASCII characters".to_owned(),
    ] {
        assert!(told.contains(&expected), "{expected}\n---\n{told}");
    }
    assert_eq!(told.lines().count(), 10, "{told}");
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_line_and_never_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let sources = surrounding(folder.path(), &[("WOMA_CONFIG", "my.toml")]);
    let told = |text: Option<&str>| {
        if let Some(text) = text {
            fs::write(folder.path().join("my.toml"), text).unwrap();
        }
        Config::from_sources(&sources).unwrap_err().to_string()
    };
    assert!(told(None).contains("my.toml (environment WOMA_CONFIG) cannot be read"));
    let broken = told(Some("port = 1\napi_key = \"secret-1\n"));
    assert!(broken.contains("my.toml:2: ") && !broken.contains("secret-1"), "{broken}");
    let twice = told(Some("port = 1\nport = 2\n"));
    assert!(twice.contains("my.toml:2: "), "{twice}");
    let table = told(Some("port = { a = 1 }\n"));
    assert!(table.contains("port (") && table.contains("is a TOML table"), "{table}");
    let alias = told(Some("max_concurrent_kernels = 2\n"));
    assert!(alias.contains("did you mean `max_kernels`?"), "{alias}");
    let config = told(Some("config = \"other.toml\"\n"));
    assert!(config.contains("config cannot be set in"), "{config}");
}

#[test]
fn a_file_holds_values_of_toml() {
    let folder = tempfile::tempdir().unwrap();
    let text = "port = 8_081\ncpus = 1.5\ntrust_proxy = true\nmax_body_mb = \"1g\"\n\
                allowed_hosts = [\"a.example\", \"b.example\"]\napi_key_file = \"key\"\n\
                jwt_issuer = \"https://issuer.example\"\njwt_audience = \"woma\"\n\
                jwt_jwks = \"jwks.json\"\n";
    fs::write(folder.path().join("my.toml"), text).unwrap();
    fs::write(folder.path().join("key"), "from-a-file\n").unwrap();
    let mut sources = surrounding(Path::new("/nowhere"), &[]);
    sources.flags.push(flag("config", folder.path().join("my.toml").to_str().unwrap()));
    let config = Config::from_sources(&sources).unwrap();
    assert_eq!((config.port, config.trust_proxy), (8081, TrustedProxies::Anyone));
    assert!((config.cpu_cores - 1.5).abs() < f64::EPSILON);
    assert_eq!(config.body_bytes_max, 1024 * MIB);
    assert_eq!(config.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(config.api_key.unwrap().expose(), "from-a-file");
    assert_eq!(config.jwt_jwks, Some(KeySet::File(folder.path().join("jwks.json"))));
}

#[test]
fn the_key_comes_from_one_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "  in-the-file\n").unwrap();
    fs::write(folder.path().join("empty"), "\n").unwrap();
    fs::write(folder.path().join("two"), "a\nb\n").unwrap();
    fs::write(folder.path().join(".env"), "API_KEY=in-dot-env\n").unwrap();
    let load = |variables: &[(&str, &str)]| {
        let loaded = Config::from_sources(&surrounding(folder.path(), variables));
        loaded.map(|config| config.api_key.unwrap().expose().to_owned())
    };
    let told = |variables: &[(&str, &str)]| load(variables).unwrap_err().to_string();
    assert_eq!(load(&[]).unwrap(), "in-dot-env");
    assert_eq!(load(&[("API_KEY", "")]).unwrap(), "in-dot-env");
    assert_eq!(load(&[("API_KEY_FILE", "key")]).unwrap(), "in-the-file");
    assert!(told(&[("API_KEY_FILE", "key"), ("API_KEY", "x")]).contains("keep one of them"));
    assert!(told(&[("API_KEY_FILE", "absent")]).contains("absent (environment API_KEY_FILE)"));
    assert!(told(&[("API_KEY_FILE", "empty")]).contains("must hold one key"));
    assert!(told(&[("API_KEY_FILE", "two")]).contains("must hold one key"));
}

#[test]
fn contents_go_to_the_database_unless_a_setting_says_otherwise() {
    let database = ("DATABASE_URL", "postgres://u:p@h/d");
    assert_eq!(with(&[]).blobs_in, BlobsIn::Folder);
    assert_eq!(with(&[database]).blobs_in, BlobsIn::Database);
    assert_eq!(with(&[database, ("BLOBS_IN", "folder")]).blobs_in, BlobsIn::Folder);
}

#[test]
fn a_bucket_needs_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    fs::write(&file, "of-a-file\n").unwrap();
    let file = file.to_str().unwrap();
    let keys = [("BLOBS_IN", "s3"), ("S3_BUCKET", "b"), ("AWS_ACCESS_KEY_ID", "k")];
    let given = |more: &[(&'static str, &'static str)]| [&keys, more].concat();
    let told = refused(&[("BLOBS_IN", "s3")]);
    for name in ["S3_BUCKET", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"] {
        assert!(told.contains(name), "{told}");
    }
    assert!(refused(&keys).contains("BLOBS_IN=s3 needs S3_SECRET_ACCESS_KEY, which is not set"));
    assert!(refused(&[("BLOBS_IN", "database")]).contains("needs DATABASE_URL"));
    // Without that choice, variables of other programs are not checked.
    with(&[("AWS_ACCESS_KEY_ID", "k"), ("AWS_REGION", "eu-west-1")]);

    let config = with(&[&keys[..], &[("S3_SECRET_ACCESS_KEY_FILE", file)]].concat());
    assert_eq!(config.s3_secret_access_key.unwrap().expose(), "of-a-file");
    let config = with(&given(&[("AWS_SECRET_ACCESS_KEY", "s-1"), ("AWS_DEFAULT_REGION", "r-1")]));
    assert_eq!(config.s3_region, "r-1");
    assert_eq!(value(&config, "s3_secret_access_key").show(), "(set)");

    let secret = ("S3_SECRET_ACCESS_KEY", "s");
    for near in ["http://127.0.0.1:9000", "http://localhost:9000/", "http://[::1]:9", "https://m"] {
        with(&given(&[secret, ("S3_ENDPOINT", near)]));
    }
    let far = ("S3_ENDPOINT", "http://minio.example:9000");
    let told = refused(&given(&[secret, far]));
    assert!(told.contains("S3_ALLOW_HTTP=true"), "{told}");
    with(&given(&[secret, far, ("S3_ALLOW_HTTP", "true")]));
}

#[test]
fn a_dot_env_of_other_programs_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let sources = surrounding(folder.path(), &[]);
    let path = folder.path().join(".env");
    fs::write(&path, "APP_NAME=My App\nexport PORT = \"81\" # ours\n").unwrap();
    let config = Config::from_sources(&sources).unwrap();
    assert_eq!(config.port, 81);
    assert_eq!(config.warnings.len(), 1);
    assert!(config.warnings[0].contains(".env:1 is ignored"), "{:?}", config.warnings);
    // Text after an open quote would be lost silently.
    for ours in ["A='open\nAPI_KEY=secret-1\n", "API_KEY=secret-1 2\n", "WOMA_X=a b\n"] {
        fs::write(&path, ours).unwrap();
        let told = Config::from_sources(&sources).unwrap_err().to_string();
        assert!(told.contains(".env:1: ") && !told.contains("secret-1"), "{told}");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(Config::from_sources(&sources).unwrap().port, 8080);
}

#[test]
fn a_dot_env_cannot_choose_the_programs_outside_of_the_sandbox() {
    for variable in ["WOMA_ENV", "WOMA_DATA_DIR", "WOMA_CONFIG"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("woma.toml"), "port = 1").unwrap();
        fs::write(folder.path().join(".env"), format!("{variable}=.\n")).unwrap();
        let told = Config::from_sources(&surrounding(folder.path(), &[])).unwrap_err().to_string();
        assert!(told.starts_with(&format!("{variable} cannot be set in ")), "{told}");
    }
}

#[test]
fn variables_of_a_kubernetes_service_are_not_ours() {
    let config = with(&[
        ("WOMA_PORT", "tcp://10.0.0.7:8080"),
        ("WOMA_PORT_8080_TCP", "tcp://10.0.0.7:8080"),
        ("WOMA_PORT_8080_TCP_ADDR", "10.0.0.7"),
        ("WOMA_SERVICE_HOST", "10.0.0.7"),
        ("WOMA_SERVICE_PORT", "8080"),
        ("WOMA_SERVICE_PORT_HTTP", "8080"),
        ("WOMA_MCP_PORT", "tcp://10.0.0.8:80"),
        ("WOMA_LOG", "debug"),
        ("WOMA_TEST_ANYTHING", "1"),
        ("WOMA_BENCH_ANYTHING", "1"),
        ("PORT", "8090"),
    ]);
    assert_eq!(config.port, 8090);
}

#[test]
fn rejects_incomplete_groups_of_settings() {
    assert!(refused(&[("JWT_ISSUER", "https://i.example")]).contains("without JWT_AUDIENCE"));
    assert!(refused(&[("JWT_AUDIENCE", "a")]).contains("without JWT_ISSUER"));
    assert!(refused(&[("JWT_JWKS", "keys.json")]).contains("without JWT_ISSUER"));
    let tokens = with(&[("JWT_ISSUER", "https://i.example/"), ("JWT_AUDIENCE", "a")]);
    assert_eq!(
        (tokens.jwt_issuer.as_deref(), tokens.warnings.len()),
        (Some("https://i.example/"), 0)
    );
    assert_eq!(tokens.jwt_audience.as_deref(), Some("a"));
    let plain = with(&[("JWT_ISSUER", "http://i.example"), ("JWT_AUDIENCE", "a")]);
    assert!(plain.warnings[0].contains("plain HTTP"), "{:?}", plain.warnings);
    let debug = with(&[("DEBUG", "1")]);
    assert_eq!(debug.log_level, LogLevel::Debug);
    assert_eq!(debug.log_level.directive(), "debug");
    assert_eq!(with(&[("DEBUG", "1"), ("LOG_LEVEL", "WARN")]).log_level, LogLevel::Warning);
}

#[test]
fn without_home_the_data_folder_is_required() {
    let mut sources = surrounding(Path::new("/nowhere"), &[]);
    sources.environment.clear();
    let told = Config::from_sources(&sources).unwrap_err().to_string();
    assert_eq!(told, "neither HOME nor WOMA_DATA_DIR is set: use --data-dir DIR");
    sources.flags.push(flag("data_dir", "/srv/woma"));
    assert_eq!(Config::from_sources(&sources).unwrap().data_dir, Path::new("/srv/woma"));
    sources.flags.clear();
    sources.is_root = true;
    assert_eq!(Config::from_sources(&sources).unwrap().data_dir, Path::new("/var/lib/woma"));
}

#[test]
fn secrets_are_never_printed() {
    let variables = [("API_KEY", "secret-1"), ("DATABASE_URL", "postgres://u:secret-2@h/d")];
    let config = with(&variables);
    let printed = [
        super::show::show(&config, false, true),
        super::show::show(&config, true, true),
        format!("{config:?} {:?}", flag("api_key", "secret-5")),
        refused(&[("API_KEY", "secret-3\u{7f}"), ("DATABASE_URL", "mysql://u:secret-4@h/d")]),
    ];
    for text in printed {
        assert!(!text.contains("secret-"), "{text}");
    }
    assert_eq!(config.api_key.unwrap().expose(), "secret-1");
}

#[test]
fn settings_without_an_effect_say_so() {
    let shown = super::show::show(&with(&[("SANDBOX_CONTAINER_IMAGE", "a:1")]), false, false);
    let line = shown.lines().find(|line| line.starts_with("container_image")).unwrap();
    assert!(line.contains("environment SANDBOX_CONTAINER_IMAGE  (accepted, "), "{line}");
    assert!(shown.contains("blocked_packages") && !shown.contains("temp_dir"));
    let all = super::show::show(&with(&[]), false, true);
    let marked = SETTINGS.iter().filter(|setting| setting.effect != Effect::Now).count();
    assert_eq!(all.matches("(accepted, ").count(), marked);
    assert_eq!(all.lines().count(), SETTINGS.len());
}

#[test]
fn kernels_and_their_memory_follow_from_the_machine() {
    let of = |machine: Machine, variables: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources { machine, ..surrounding(folder.path(), variables) };
        let config = Config::from_sources(&sources).unwrap();
        (config.memory_bytes_all / MIB, config.kernels_max)
    };
    let memory = |mib: u64| Machine { memory_bytes: mib * MIB, ..MACHINE };
    assert_eq!(of(memory(1024), &[]), (768, 24));
    assert_eq!(of(memory(16 * 1024), &[]), (12_288, 384));
    // Half of the known sessions, so that one can always be evicted.
    assert_eq!(of(memory(1024 * 1024), &[]), (786_432, 500));
    assert_eq!(of(memory(1024 * 1024), &[("MAX_SESSIONS", "10000")]), (786_432, 1000));
    assert_eq!(of(MACHINE, &[("MAX_SESSIONS", "20")]).1, 10);
    assert_eq!(of(MACHINE, &[("SESSIONS_MEMORY", "50%")]), (12_288, 384));
    assert_eq!(of(MACHINE, &[("SESSIONS_MEMORY", "320")]), (320, 10));
    assert_eq!(of(MACHINE, &[("SESSIONS_MEMORY", "320"), ("MAX_KERNELS", "77")]), (320, 77));
    assert_eq!(of(Machine { descriptors: 1024, ..MACHINE }, &[]).1, 32);
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine { processors: 64, ..MACHINE };
    let large = Sources { machine, ..surrounding(folder.path(), &[]) };
    assert_eq!(Config::from_sources(&large).unwrap().running_max, 512);
    assert_eq!(of(Machine { tasks: Some(512), ..MACHINE }, &[]).1, 32);
    for preset in ["sandbox-mcp", "ibm-sandbox", "sandbox-service", "python-executor"] {
        assert_eq!(of(MACHINE, &[("COMPAT_PROFILE", preset)]).1, 10, "{preset}");
    }
    assert_eq!(of(MACHINE, &[("COMPAT_PROFILE", "power-interpreter")]).1, 6);
    assert_eq!(of(MACHINE, &[("COMPAT_PROFILE", "all")]).1, 500);
}
