//! The table of settings: everything that an operator can set, once. The documentation, the example
//! file and `woma config show` are made from it. A `fieldless` setting is checked as all others are,
//! but nothing reads it: it has no effect yet, or its effect is on the value of another one.

use std::path::PathBuf;
use std::time::Duration;

use super::layers::Resolved;
use super::presets;
use super::problem::WrongKind;
use super::setting::Reading::{Characters, HttpsHost, Same};
use super::setting::{Alias, Setting};
use super::types::{
    AuthFailureStatus, BlobsIn, BlockMode, Field, KeySet, ListedTools, LogFormat, LogLevel,
    MinIsolation, OutputLimit, Secret, StateWithoutSession, TextFormat,
};
use super::value::{Kind, MIB, SizeUnit, TimeUnit};

const GIB: u64 = 1024 * MIB;
const DAY: u64 = 86_400;

const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

const fn seconds(min: u64, max: u64) -> Kind {
    Kind::Time { unit: TimeUnit::Seconds, min, max }
}

const fn hours(max: u64) -> Kind {
    Kind::Time { unit: TimeUnit::Hours, min: 0, max }
}

/// A plain number counts bytes.
const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Size { unit: SizeUnit::Bytes, min, max }
}

/// A plain number counts mebibytes.
const fn mebibytes(min: u64, max: u64) -> Kind {
    Kind::Size { unit: SizeUnit::Mebibytes, min, max }
}

const fn set(
    name: &'static str,
    variable: &'static str,
    kind: Kind,
    default: &'static str,
) -> Setting {
    Setting::new(name, variable, kind, default)
}

/// Makes of one table the type, its reading and the list of settings.
macro_rules! settings {
    ($($group:literal {
        $($(#[doc = $about:literal])+ $field:ident: $type:ty = $setting:expr;)*
    } fieldless {
        $($(#[doc = $later_about:literal])+ _ = $later:expr;)*
    })+) => {
        /// What the operator has set, with every default filled in.
        #[derive(Debug, Clone)]
        pub(crate) struct Config {
            /// What the operator should know, though nothing is wrong.
            pub(crate) warnings: Vec<String>,
            pub(super) resolved: Vec<Resolved>,
            $($($(#[doc = $about])+ pub(crate) $field: $type,)*)+
        }

        pub(crate) const SETTINGS: &[Setting] = &[$(
            $($setting.documented($group, concat!($($about),+)),)*
            $($later.documented($group, concat!($($later_about),+)),)*
        )+];

        impl Config {
            pub(super) fn build(
                resolved: Vec<Resolved>,
                warnings: Vec<String>,
            ) -> Result<Self, WrongKind> {
                $($(let $field = take::<$type>(&resolved, $setting.name)?;)*)+
                Ok(Self { warnings, resolved, $($($field,)*)+ })
            }
        }
    };
}

fn take<T: Field>(resolved: &[Resolved], name: &'static str) -> Result<T, WrongKind> {
    let found = resolved.iter().find(|one| one.setting.name == name);
    found.and_then(|one| T::from_value(&one.value)).ok_or(WrongKind(name))
}

pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

settings! {
    "Where things are" {
        /// Which system's defaults to begin with, and which tools `tools/list` shows.
        preset: String = set("preset", "COMPAT_PROFILE", Kind::Choice(presets::NAMES), "default");
        /// Where environments and files are kept. Without it, /var/lib/woma for root and
        /// ~/.local/share/woma for everybody else.
        data_dir: PathBuf = set("data_dir", "WOMA_DATA_DIR", Kind::Path, "").not_in_dot_env();
        /// The Python environment of sessions: a name that `woma env list` shows, or the path of a
        /// virtual environment, a prefix or an interpreter. Without it, the default one.
        environment: Option<String> = set("env", "WOMA_ENV", Kind::Text, "").not_in_dot_env();
        /// The `PostgreSQL` for sessions, files and the audit trail. Without it, a file in the data
        /// folder.
        database_url: Option<Secret> = set("database_url", "DATABASE_URL", Kind::Database, "");
        /// Where the contents of files with an address, of charts and of checkpoints are kept:
        /// `folder`, `database`, which needs `DATABASE_URL`, or `s3`, which needs `S3_BUCKET` and
        /// its keys.
        blobs_in: BlobsIn = set("blobs_in", "BLOBS_IN", Kind::Choice(BlobsIn::WORDS), "folder");
        /// The folder of sessions' files, if it is not in the data folder.
        sandbox_dir: Option<PathBuf> = set("sandbox_dir", "SANDBOX_DIR", Kind::Path, "");
        /// A folder that sessions can read and not write, as /uploads, /app/uploads and
        /// /home/ubuntu/uploads.
        upload_dir: Option<PathBuf> = set("upload_dir", "UPLOAD_DIR", Kind::Path, "");
    } fieldless {
        /// The settings file, in TOML. Without it, `woma.toml` in the data folder is read if it is
        /// there.
        _ = set("config", "WOMA_CONFIG", Kind::Path, "").not_in_files();
        /// The folder of packages that sessions install.
        _ = set("sandbox_env_dir", "SANDBOX_ENV_DIR", Kind::Path, "").later();
        /// Folders in which sessions find modules, separated by `:`. The server never uses it.
        _ = set("pythonpath", "PYTHONPATH", Kind::Text, "").later();
        /// Sessions have temporary files of their own, in memory.
        _ = set("temp_dir", "TEMP_DIR", Kind::Path, "").never();
        /// Logs go to standard error.
        _ = set("log_dir", "LOG_DIR", Kind::Path, "").never();
    }

    "Files in S3" {
        /// The bucket for `BLOBS_IN=s3`. With `S3_PREFIX` it belongs to one database: servers that
        /// share a database share it, and no others do.
        s3_bucket: Option<String> = set("s3_bucket", "S3_BUCKET", Kind::Text, "");
        /// What the names of all objects begin with, as in `woma/files`.
        s3_prefix: Option<String> = set("s3_prefix", "S3_PREFIX", Kind::Text, "");
        /// The region of the bucket. Servers other than Amazon's mostly take any.
        s3_region: String = set("s3_region", "S3_REGION", Kind::Text, "us-east-1")
            .aliases(&[Alias("AWS_REGION", Same), Alias("AWS_DEFAULT_REGION", Same)]);
        /// The address of a server other than Amazon's, as in `https://minio.example:9000`.
        s3_endpoint: Option<String> = set("s3_endpoint", "S3_ENDPOINT", Kind::BaseUrl, "")
            .aliases(&[Alias("AWS_ENDPOINT_URL_S3", Same), Alias("AWS_ENDPOINT_URL", Same)]);
        /// A file of authorities in PEM that an `S3_ENDPOINT` is believed by, in place of those of
        /// the web.
        s3_ca_file: Option<PathBuf> = set("s3_ca_file", "S3_CA_FILE", Kind::Path, "")
            .aliases(&[Alias("AWS_CA_BUNDLE", Same)]);
        /// The id of the key. It must be allowed to list the bucket, and to get, put and delete
        /// objects.
        s3_access_key_id: Option<String> =
            set("s3_access_key_id", "S3_ACCESS_KEY_ID", Kind::Text, "")
                .aliases(&[Alias("AWS_ACCESS_KEY_ID", Same)]);
        /// The secret of the key.
        s3_secret_access_key: Option<Secret> =
            set("s3_secret_access_key", "S3_SECRET_ACCESS_KEY", Kind::Token, "")
                .aliases(&[Alias("AWS_SECRET_ACCESS_KEY", Same)]);
        /// What belongs to a key that ends by itself. The server does not renew it.
        s3_session_token: Option<Secret> =
            set("s3_session_token", "S3_SESSION_TOKEN", Kind::Token, "")
                .aliases(&[Alias("AWS_SESSION_TOKEN", Same)]);
    } fieldless {
        /// Speak plain HTTP with an `S3_ENDPOINT` that is not on this machine. Whoever is in
        /// between can then read every file.
        _ = set("s3_allow_http", "S3_ALLOW_HTTP", Kind::Bool, "false");
        /// A file that holds the secret, in place of `S3_SECRET_ACCESS_KEY`.
        _ = set("s3_secret_access_key_file", "S3_SECRET_ACCESS_KEY_FILE", Kind::Path, "");
    }

    "Address" {
        /// The address to listen on. Anything but loopback needs a key, or `ALLOW_OPEN`.
        host: String = set("host", "HOST", Kind::Host, "127.0.0.1");
        /// The port to listen on; 0 picks a free one.
        port: u16 = set("port", "PORT", integer(0, 65_535), "8080");
        /// Listen on an address other than loopback without any key. Everybody who reaches the
        /// port can then run code.
        allow_open: bool = set("allow_open", "ALLOW_OPEN", Kind::Bool, "false");
        /// The address that clients reach the server by, for links in replies. Without it, it is
        /// made from each request.
        public_base_url: Option<String> =
            set("public_base_url", "PUBLIC_BASE_URL", Kind::BaseUrl, "").aliases(&[
                Alias("PUBLIC_URL", Same),
                Alias("RAILWAY_PUBLIC_DOMAIN", HttpsHost),
            ]);
        /// Believe the X-Forwarded headers. Only for a server that is reached through a proxy which
        /// sets them.
        trust_proxy: bool = set("trust_proxy", "TRUST_PROXY", Kind::Bool, "false");
        /// Names that requests may have in their Host header, besides loopback, the address
        /// listened on and `PUBLIC_BASE_URL`; `*` allows all.
        allowed_hosts: Vec<String> = set("allowed_hosts", "ALLOWED_HOSTS", Kind::Hosts, "");
        /// Origins of web pages that may call the server, besides its own; `*` allows all.
        allowed_origins: Vec<String> =
            set("allowed_origins", "ALLOWED_ORIGINS", Kind::Origins, "");
        /// The largest body of a request.
        body_bytes_max: u64 = set("max_body_mb", "MAX_BODY_MB", mebibytes(MIB, 4 * GIB), "64");
        /// How long running code may go on after the server was told to stop.
        shutdown_grace: Duration =
            set("shutdown_grace", "SHUTDOWN_GRACE", seconds(0, 3600), "10");
    } fieldless {}

    "Keys" {
        /// The key that every request must bring. Without it and without named keys the server is
        /// open.
        api_key: Option<Secret> = set("api_key", "API_KEY", Kind::Token, "");
        /// Refuse to start without a key.
        require_api_key: bool = set("require_api_key", "REQUIRE_API_KEY", Kind::Bool, "false");
        /// The HTTP status for a missing or wrong key.
        auth_failure_status: AuthFailureStatus = set(
            "auth_failure_status",
            "AUTH_FAILURE_STATUS",
            Kind::Choice(AuthFailureStatus::WORDS),
            "401",
        );
        /// Executions per minute that one caller may start. Without it, as many as there is room
        /// for.
        executions_per_minute: Option<u32> =
            set("rate_limit_exec", "RATE_LIMIT_EXEC", integer(1, 1_000_000), "");
        /// The issuer whose tokens are accepted in place of a key. Needs `JWT_AUDIENCE`.
        jwt_issuer: Option<String> = set("jwt_issuer", "JWT_ISSUER", Kind::Url, "");
        /// The audience that a token must be made for. Needs `JWT_ISSUER`.
        jwt_audience: Option<String> = set("jwt_audience", "JWT_AUDIENCE", Kind::Text, "");
        /// The issuer's keys: an address or a file. Needed with `JWT_ISSUER`.
        jwt_jwks: Option<KeySet> = set("jwt_jwks", "JWT_JWKS", Kind::UrlOrPath, "");
        /// Ask for a key on downloads too, and for that of the file's owner.
        private_downloads: bool =
            set("private_downloads", "PRIVATE_DOWNLOADS", Kind::Bool, "false");
    } fieldless {
        /// A file that holds the key, in place of `API_KEY`.
        _ = set("api_key_file", "API_KEY_FILE", Kind::Path, "");
    }

    "Logs" {
        /// How much is logged.
        log_level: LogLevel =
            set("log_level", "LOG_LEVEL", Kind::Choice(LogLevel::WORDS), "info");
        /// Lines for people, or one JSON object per line.
        log_format: LogFormat =
            set("log_format", "LOG_FORMAT", Kind::Choice(LogFormat::WORDS), "human");
    } fieldless {
        /// Log in detail, unless `LOG_LEVEL` says otherwise.
        _ = set("debug", "DEBUG", Kind::Bool, "false");
    }

    "Replies" {
        /// The tools that `tools/list` shows: those of woma's own names, all names, or these.
        /// Others can be called all the same.
        listed_tools: ListedTools = set("listed_tools", "LISTED_TOOLS", Kind::Tools, "canonical");
        /// The text block of a tool's reply: the whole reply as JSON, or plain text.
        text_format: TextFormat =
            set("text_format", "TEXT_FORMAT", Kind::Choice(TextFormat::WORDS), "json");
        /// The session of a call that names none: the caller's session `default`, a new one that is
        /// kept, or one that ends with the call.
        state_without_session: StateWithoutSession = set(
            "state_without_session",
            "STATE_WITHOUT_SESSION",
            Kind::Choice(StateWithoutSession::WORDS),
            "default",
        );
        /// The longest text that a model is shown of one run; the rest can be read afterwards.
        context_budget_chars: usize = set(
            "context_budget_chars",
            "CONTEXT_BUDGET_CHARS",
            integer(1_000, 10_000_000),
            "25000",
        );
        /// Memory for whole outputs that can be read afterwards; the oldest go first.
        kept_output_bytes: u64 =
            set("kept_output_mb", "KEPT_OUTPUT_MB", mebibytes(0, 64 * GIB), "32");
    } fieldless {}

    "Limits of a call" {
        /// The time limit of a call that asks for none. Lowered to `MAX_EXECUTION_TIME` where that
        /// is less.
        timeout_default: Duration =
            set("default_timeout", "DEFAULT_TIMEOUT", seconds(1, DAY), "60")
                .aliases(&[Alias("SANDBOX_TIMEOUT", Same), Alias("SANDBOX_DEFAULT_TIMEOUT", Same)]);
        /// The longest time limit that a call can ask for.
        timeout_max: Duration =
            set("max_execution_time", "MAX_EXECUTION_TIME", seconds(1, DAY), "600")
                .aliases(&[Alias("SANDBOX_MAX_TIMEOUT", Same)]);
        /// The memory of a session whose calls ask for none. Without it, `MAX_MEMORY_MB`.
        memory_bytes_default: u64 = set(
            "default_memory_limit",
            "DEFAULT_MEMORY_LIMIT",
            bytes(32 * MIB, 4096 * GIB),
            "",
        )
        .aliases(&[Alias("SANDBOX_DEFAULT_MEMORY_LIMIT", Same)]);
        /// The most memory that a session can have, all its processes together.
        memory_bytes_max: u64 =
            set("max_memory_mb", "MAX_MEMORY_MB", mebibytes(32 * MIB, 4096 * GIB), "2048");
        /// How much of a run's standard output and error is kept, together. `MAX_OUTPUT_SIZE`
        /// counts characters, the other names count bytes.
        output_limit: OutputLimit = set("output_limit", "OUTPUT_LIMIT", Kind::Output, "1m")
            .aliases(&[
                Alias("SANDBOX_MAX_OUTPUT_SIZE", Same),
                Alias("MAX_OUTPUT_SIZE", Characters),
            ]);
        /// The longest program that a call may bring.
        code_bytes_max: u64 =
            set("max_code_bytes", "MAX_CODE_BYTES", bytes(1024, 64 * MIB), "1m");
        /// Processors that a session may keep busy at once.
        cpu_cores: f64 = set("cpus", "CPUS", Kind::Decimal { min: 0.1, max: 1024.0 }, "2");
        /// The size of a session's working directory.
        workspace_bytes: u64 =
            set("disk_mb", "DISK_MB", mebibytes(MIB, 4096 * GIB), "1024");
        /// Processes and threads of a session.
        processes: u64 = set("processes", "PROCESSES", integer(8, 100_000), "256");
    } fieldless {}

    "Sessions" {
        /// Sessions that may be alive at once. When there is no room, the oldest idle one makes it.
        kernels_max: usize = set("max_kernels", "MAX_KERNELS", integer(1, 100_000), "10")
            .aliases(&[Alias("MAX_CONCURRENT_KERNELS", Same)]);
        /// How long a session may be idle before it is ended.
        idle_timeout: Duration =
            set("kernel_timeout", "KERNEL_TIMEOUT", seconds(1, 30 * DAY), "300");
        /// Sessions that are kept ready for new callers.
        pool_size: usize = set("session_pool_size", "SESSION_POOL_SIZE", integer(0, 1_000), "3");
        /// Calls that may wait for room; others are told to come again.
        queue_max: usize = set("max_queue", "MAX_QUEUE", integer(0, 1_000_000), "256");
        /// Sessions that are remembered, alive or not.
        sessions_max: usize = set("max_sessions", "MAX_SESSIONS", integer(1, 1_000_000), "1000");
        /// The least isolation that the server starts with. `restricted` is accepted for machines
        /// that cannot raise every wall; none is supported so far.
        min_isolation: MinIsolation =
            set("min_isolation", "MIN_ISOLATION", Kind::Choice(MinIsolation::WORDS), "full");
    } fieldless {
        /// Sessions are ended when their time is over, not at intervals.
        _ = set("kernel_cleanup_interval", "KERNEL_CLEANUP_INTERVAL", seconds(1, DAY), "60")
            .never();
        /// Ready sessions do not age.
        _ = set(
            "session_pool_max_idle_time",
            "SESSION_POOL_MAX_IDLE_TIME",
            seconds(1, 30 * DAY),
            "600",
        )
        .never();
        /// A ready session that was taken is replaced at once.
        _ = set(
            "session_pool_refill_interval",
            "SESSION_POOL_REFILL_INTERVAL",
            seconds(1, DAY),
            "30",
        )
        .never();
    }

    "Files" {
        /// The largest file that gets a download address and the largest upload; larger files stay
        /// in the session.
        file_bytes_max: u64 =
            set("file_max_mb", "SANDBOX_FILE_MAX_MB", mebibytes(MIB, 64 * GIB), "50");
        /// How much a caller may keep whose key does not say otherwise: stored versions of files and
        /// saved variables, and for uploads the files of all sessions too; 0 for no limit.
        storage_bytes_max: u64 =
            set("storage_mb", "STORAGE_MB", mebibytes(0, 4096 * GIB), "10240");
        /// How much of a session's variables is saved, to be brought back after a restart or an
        /// eviction; 0 saves none.
        checkpoint_bytes_max: u64 =
            set("checkpoint_max_mb", "CHECKPOINT_MAX_MB", mebibytes(0, 64 * GIB), "256");
        /// How long a session is kept that nobody uses, with its files; 0 for ever.
        session_ttl: Duration = set(
            "session_ttl_hours",
            "SESSION_TTL_HOURS",
            hours(87_600),
            "720",
        );
        /// How long records of executions and the audit trail are kept; 0 for ever.
        audit_retention: Duration = set(
            "audit_retention_hours",
            "AUDIT_RETENTION_HOURS",
            hours(876_000),
            "2160",
        );
        /// Keep the code itself with the record of each execution, and not only its digest.
        audit_code: bool = set("audit_code", "AUDIT_CODE", Kind::Bool, "false");
        /// How long a download address works; 0 for ever.
        file_ttl: Duration = set("file_ttl_hours", "SANDBOX_FILE_TTL_HOURS", hours(87_600), "72");
        /// The largest file that is fetched from an address.
        fetch_bytes_max: u64 =
            set("max_file_size_mb", "MAX_FILE_SIZE_MB", mebibytes(MIB, 64 * GIB), "500");
        /// Fetch from private networks and from this machine too. For tests, and for servers whose
        /// callers may reach everything that the server can.
        fetch_allow_private: bool =
            set("fetch_allow_private", "FETCH_ALLOW_PRIVATE", Kind::Bool, "false");
    } fieldless {}

    "Jobs" {} fieldless {
        /// Jobs that run at once; others wait.
        _ = set("max_concurrent_jobs", "MAX_CONCURRENT_JOBS", integer(1, 10_000), "4").later();
        /// The longest time that a job may take.
        _ = set("job_timeout", "JOB_TIMEOUT", seconds(1, 30 * DAY), "1800").later();
        /// How long the result of a job is kept.
        _ = set("job_cleanup_hours", "JOB_CLEANUP_HOURS", hours(87_600), "24").later();
    }

    "Policy" {
        /// The rules for code, besides what the sandbox lets it: `open`, `tiers`,
        /// `power-interpreter`, or a name of `POLICY_FILE`. Without it, `open`, and `tiers` where
        /// `SANDBOX_ALLOWED_IMPORTS` is set.
        policy: Option<String> = set("policy", "SANDBOX_POLICY", Kind::Text, "");
        /// A file of rules of your own, in TOML.
        policy_file: Option<PathBuf> = set("policy_file", "POLICY_FILE", Kind::Path, "");
        /// Add the network modules to the policy `tiers`. Sessions reach no network all the same:
        /// there is no way out of them yet.
        enable_network: bool =
            set("enable_network", "SANDBOX_ENABLE_NETWORK", Kind::Bool, "false")
                .aliases(&[Alias("ENABLE_NETWORK_ACCESS", Same)]);
        /// Add the file system modules to the policy `tiers`.
        enable_filesystem: bool =
            set("enable_filesystem", "SANDBOX_ENABLE_FILESYSTEM", Kind::Bool, "false");
        /// Add the data science modules to the policy `tiers`.
        enable_data_science: bool =
            set("enable_data_science", "SANDBOX_ENABLE_DATA_SCIENCE", Kind::Bool, "false");
        /// The modules that a restricted policy allows, in place of all of its own.
        allowed_imports: Vec<String> =
            set("allowed_imports", "SANDBOX_ALLOWED_IMPORTS", Kind::List, "");
        /// What an import that is not allowed does: raise at its line, leave a note and go on, or
        /// refuse the whole program before it runs.
        import_block_mode: BlockMode = set(
            "import_block_mode",
            "IMPORT_BLOCK_MODE",
            Kind::Choice(BlockMode::WORDS),
            "raise",
        );
    } fieldless {
        /// Packages that cannot be installed.
        _ = set(
            "blocked_packages",
            "BLOCKED_PACKAGES",
            Kind::List,
            "os,subprocess,sys,importlib,ctypes,multiprocessing,threading",
        )
        .later();
    }

    "Containers" {} fieldless {
        /// Allow calls to ask for a container of their own.
        _ = set("enable_container_mode", "SANDBOX_ENABLE_CONTAINER_MODE", Kind::Bool, "false")
            .later();
        /// The image of such containers.
        _ = set("container_image", "SANDBOX_CONTAINER_IMAGE", Kind::Text, "python-sandbox:latest")
            .later();
    }
}
