//! The table of all settings. The reference, the example file and `woma config show` are generated
//! from it. A `fieldless` setting is checked, but has no field: it has no effect yet, or only affects
//! the value of another setting.

use std::path::PathBuf;
use std::time::Duration;

use woma_core::{NetworkRules, OperatorSecrets, PlacedHosts, ReserveSize};

use super::layers::Resolved;
use super::presets;
use super::problem::WrongKind;
use super::setting::Reading::{Characters, HttpsHost, Same};
use super::setting::{Alias, Setting};
use super::types::{
    AuthFailureStatus, BlobsIn, BlockMode, Field, KeySet, ListedTools, LogFormat, LogLevel,
    MinIsolation, OutputLimit, Preload, ReplyForm, RuntimeName, Secret, StateWithoutSession,
    TextFormat, TrustedProxies,
};
use super::value::{Kind, MIB, SizeUnit, TimeUnit};

const GIB: u64 = 1024 * MIB;
const DAY: u64 = 86_400;

const NO_IMAGES: &str = "containers show the server's own Python environment, and no image";

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

/// Generates the type, its reader and the list of settings from one table.
macro_rules! settings {
    ($($group:literal {
        $($(#[doc = $about:literal])+ $field:ident: $type:ty = $setting:expr;)*
    } fieldless {
        $($(#[doc = $later_about:literal])+ _ = $later:expr;)*
    })+) => {
        /// Settings in force, with every default filled in.
        #[derive(Debug, Clone)]
        pub(crate) struct Config {
            /// Warnings for the operator.
            pub(crate) warnings: Vec<String>,
            pub(super) resolved: Vec<Resolved>,
            /// Of `secrets_file`.
            pub(crate) secrets: OperatorSecrets,
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
                let secrets = OperatorSecrets::default();
                Ok(Self { warnings, resolved, secrets, $($($field,)*)+ })
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
    "Locations" {
        /// Preset: the system whose defaults apply, and the tools that `tools/list` shows.
        preset: String = set("preset", "COMPAT_PROFILE", Kind::Choice(presets::NAMES), "default");
        /// Folder of environments, sessions' files and the database. If not set: /var/lib/woma for
        /// root, ~/.local/share/woma for other users.
        data_dir: PathBuf = set("data_dir", "WOMA_DATA_DIR", Kind::Path, "").not_in_dot_env();
        /// Python environment of sessions: a name that `woma env list` shows, or the path of a
        /// virtual environment, a prefix or an interpreter. If not set: the default environment.
        environment: Option<String> = set("env", "WOMA_ENV", Kind::Text, "").not_in_dot_env();
        /// Folder of templates of environments that sessions can name. If not set: `environments` in
        /// the data folder.
        environments_dir: Option<PathBuf> =
            set("environments_dir", "ENVIRONMENTS_DIR", Kind::Path, "").not_in_files();
        /// Time without a session after which a named environment is ended.
        environment_idle: Duration =
            set("environment_idle", "ENVIRONMENT_IDLE", seconds(1, DAY), "600");
        /// User that a server started as root switches to: a name or a number. `root` keeps root's
        /// privileges. If not set: the owner of the data folder, else a user `woma`, else an
        /// unused id.
        run_as: Option<String> = set("run_as", "RUN_AS", Kind::Text, "").not_in_dot_env();
        /// `PostgreSQL` database for sessions, files and the audit trail. If not set: an `SQLite`
        /// file in the data folder.
        database_url: Option<Secret> = set("database_url", "DATABASE_URL", Kind::Database, "");
        /// Storage of the contents of files with an address, charts and checkpoints: `folder`,
        /// `database` (needs `DATABASE_URL`), or `s3` (needs `S3_BUCKET` and its keys). If not set:
        /// `database` if `DATABASE_URL` is set, else `folder`.
        blobs_in: BlobsIn = set("blobs_in", "BLOBS_IN", Kind::Choice(BlobsIn::WORDS), "folder");
        /// Folder of sessions' files. If not set: a folder in the data folder.
        sandbox_dir: Option<PathBuf> = set("sandbox_dir", "SANDBOX_DIR", Kind::Path, "");
        /// Folder that sessions can read but not write, as /uploads, /app/uploads and
        /// /home/ubuntu/uploads.
        upload_dir: Option<PathBuf> = set("upload_dir", "UPLOAD_DIR", Kind::Path, "");
        /// Folder that gets copies of the files that code makes, for clients of `woma stdio`, which
        /// cannot download them; replies have their paths. A session has a folder of its own in
        /// it, which is removed with the session. If not set: `exports` in the data folder. `woma
        /// serve` does not use it.
        export_dir: Option<PathBuf> =
            set("export_dir", "EXPORT_DIR", Kind::Path, "").not_in_dot_env();
    } fieldless {
        /// Settings file, in TOML. If not set: `woma.toml` in the data folder, if it exists.
        _ = set("config", "WOMA_CONFIG", Kind::Path, "").not_in_files();
        /// Folder of packages that sessions install, in older systems. Here, they are in the data
        /// folder.
        _ = set("sandbox_env_dir", "SANDBOX_ENV_DIR", Kind::Path, "").never("packages of sessions are in the data folder");
        /// Folders in which sessions find modules, separated by `:`. The server itself never uses
        /// it.
        _ = set("pythonpath", "PYTHONPATH", Kind::Text, "").later("sessions find modules in their Python environment only (WOMA_ENV)");
        /// Folder of temporary files in older systems. Here, sessions have temporary files of
        /// their own, in memory.
        _ = set("temp_dir", "TEMP_DIR", Kind::Path, "").never("temporary files of sessions are in memory, each session has its own");
        /// Folder of log files in older systems. Here, logs go to standard error.
        _ = set("log_dir", "LOG_DIR", Kind::Path, "").never("logs go to standard error");
    }

    "Files in S3" {
        /// Bucket for `BLOBS_IN=s3`. Bucket and `S3_PREFIX` together belong to one database: only
        /// servers that share that database may share them.
        s3_bucket: Option<String> = set("s3_bucket", "S3_BUCKET", Kind::Text, "");
        /// Prefix of the names of all objects, such as `woma/files`.
        s3_prefix: Option<String> = set("s3_prefix", "S3_PREFIX", Kind::Text, "");
        /// Region of the bucket. Servers other than Amazon's usually accept any region.
        s3_region: String = set("s3_region", "S3_REGION", Kind::Text, "us-east-1")
            .aliases(&[Alias("AWS_REGION", Same), Alias("AWS_DEFAULT_REGION", Same)]);
        /// Address of a server other than Amazon's, such as `https://minio.example:9000`.
        s3_endpoint: Option<String> = set("s3_endpoint", "S3_ENDPOINT", Kind::BaseUrl, "")
            .aliases(&[Alias("AWS_ENDPOINT_URL_S3", Same), Alias("AWS_ENDPOINT_URL", Same)]);
        /// PEM file of the certificate authorities to trust for `S3_ENDPOINT`, instead of the
        /// public ones.
        s3_ca_file: Option<PathBuf> = set("s3_ca_file", "S3_CA_FILE", Kind::Path, "")
            .aliases(&[Alias("AWS_CA_BUNDLE", Same)]);
        /// Id of the access key. The key must be allowed to list the bucket, and to get, put and
        /// delete objects.
        s3_access_key_id: Option<String> =
            set("s3_access_key_id", "S3_ACCESS_KEY_ID", Kind::Text, "")
                .aliases(&[Alias("AWS_ACCESS_KEY_ID", Same)]);
        /// Secret of the access key.
        s3_secret_access_key: Option<Secret> =
            set("s3_secret_access_key", "S3_SECRET_ACCESS_KEY", Kind::Token, "")
                .aliases(&[Alias("AWS_SECRET_ACCESS_KEY", Same)]);
        /// Session token of a temporary access key. The server does not renew it.
        s3_session_token: Option<Secret> =
            set("s3_session_token", "S3_SESSION_TOKEN", Kind::Token, "")
                .aliases(&[Alias("AWS_SESSION_TOKEN", Same)]);
    } fieldless {
        /// Allows plain HTTP to an `S3_ENDPOINT` on another machine. Everyone on the network path
        /// can then read every file.
        _ = set("s3_allow_http", "S3_ALLOW_HTTP", Kind::Bool, "false");
        /// File that holds the secret, instead of `S3_SECRET_ACCESS_KEY`.
        _ = set("s3_secret_access_key_file", "S3_SECRET_ACCESS_KEY_FILE", Kind::Path, "");
    }

    "Address" {
        /// Address to listen on. Every address but loopback needs a key, or `ALLOW_OPEN`. With
        /// `API_KEY` or `ALLOW_OPEN`, presets of older servers listen on 0.0.0.0, as those did.
        host: String = set("host", "HOST", Kind::Host, "127.0.0.1");
        /// Port to listen on; 0 picks a free one.
        port: u16 = set("port", "PORT", integer(0, 65_535), "8080");
        /// Allows the server to listen on an address other than loopback without any key. Everyone
        /// who reaches the port can then run code.
        allow_open: bool = set("allow_open", "ALLOW_OPEN", Kind::Bool, "false");
        /// Base URL of links in replies: the address by which clients reach the server. If not
        /// set: taken from each request.
        public_base_url: Option<String> =
            set("public_base_url", "PUBLIC_BASE_URL", Kind::BaseUrl, "").aliases(&[
                Alias("PUBLIC_URL", Same),
                Alias("RAILWAY_PUBLIC_DOMAIN", HttpsHost),
            ]);
        /// Proxies whose X-Forwarded headers are believed: their addresses and networks, such as
        /// `10.0.0.0/8,::1`. The client's address is then the last one in X-Forwarded-For that is
        /// not one of theirs; it is used for the log and against guessed keys. `true` believes
        /// every address that connects, as one proxy: only for a server that nobody reaches but
        /// through a proxy which sets these headers.
        trust_proxy: TrustedProxies = set("trust_proxy", "TRUST_PROXY", Kind::Proxies, "false");
        /// Names that are accepted in the Host header, in addition to loopback, the address
        /// listened on and `PUBLIC_BASE_URL`; `*` accepts every name.
        allowed_hosts: Vec<String> = set("allowed_hosts", "ALLOWED_HOSTS", Kind::Hosts, "");
        /// Origins of web pages that may call the server, in addition to its own; `*` accepts
        /// every origin.
        allowed_origins: Vec<String> =
            set("allowed_origins", "ALLOWED_ORIGINS", Kind::Origins, "");
        /// Largest body of a request. The default has room for a file of `SANDBOX_FILE_MAX_MB`
        /// in base64.
        body_bytes_max: u64 = set("max_body_mb", "MAX_BODY_MB", mebibytes(MIB, 4 * GIB), "72");
        /// Time that running code has to finish after the server was told to stop.
        shutdown_grace: Duration =
            set("shutdown_grace", "SHUTDOWN_GRACE", seconds(0, 3600), "10");
    } fieldless {}

    "Keys" {
        /// Key that every request must present. Without it and without named keys, the server is
        /// open.
        api_key: Option<Secret> = set("api_key", "API_KEY", Kind::Token, "");
        /// Refuses to start without a key.
        require_api_key: bool = set("require_api_key", "REQUIRE_API_KEY", Kind::Bool, "false");
        /// HTTP status for a missing or wrong key.
        auth_failure_status: AuthFailureStatus = set(
            "auth_failure_status",
            "AUTH_FAILURE_STATUS",
            Kind::Choice(AuthFailureStatus::WORDS),
            "401",
        );
        /// Executions that one caller may start per minute. If not set: no limit but the capacity
        /// of the server.
        executions_per_minute: Option<u32> =
            set("rate_limit_exec", "RATE_LIMIT_EXEC", integer(1, 1_000_000), "");
        /// OAuth issuer whose tokens are accepted instead of a key. Needs `JWT_AUDIENCE`.
        jwt_issuer: Option<String> = set("jwt_issuer", "JWT_ISSUER", Kind::Url, "");
        /// Audience that a token must be issued for. Needs `JWT_ISSUER`.
        jwt_audience: Option<String> = set("jwt_audience", "JWT_AUDIENCE", Kind::Text, "");
        /// Public keys of the issuer: a URL or a file. Without it, the issuer's metadata names their address.
        jwt_jwks: Option<KeySet> = set("jwt_jwks", "JWT_JWKS", Kind::UrlOrPath, "");
        /// Requires a key for downloads too: that of the file's owner.
        private_downloads: bool =
            set("private_downloads", "PRIVATE_DOWNLOADS", Kind::Bool, "false");
    } fieldless {
        /// File that holds the key, instead of `API_KEY`.
        _ = set("api_key_file", "API_KEY_FILE", Kind::Path, "");
    }

    "Logs" {
        /// Least severe level that is logged.
        log_level: LogLevel =
            set("log_level", "LOG_LEVEL", Kind::Choice(LogLevel::WORDS), "info");
        /// Format of the log: text for people, or one JSON object per line.
        log_format: LogFormat =
            set("log_format", "LOG_FORMAT", Kind::Choice(LogFormat::WORDS), "human");
        /// Logs the first 100 characters of each program at the level `info`; they are logged at
        /// `debug` otherwise. Code may be confidential.
        log_code: bool = set("log_code", "LOG_CODE", Kind::Bool, "false");
    } fieldless {
        /// Sets the log level to `debug`, unless `LOG_LEVEL` is set in the same place or a stronger
        /// one.
        _ = set("debug", "DEBUG", Kind::Bool, "false");
    }

    "Replies" {
        /// Tools that `tools/list` shows: `usual` for those that most work needs, `canonical` for
        /// all of Woma's own names, `all` for every alias, or a list of names. Tools that are not
        /// listed can be called too.
        listed_tools: ListedTools = set("listed_tools", "LISTED_TOOLS", Kind::Tools, "usual");
        /// Replies of tools over MCP: `lean` has what a model needs to go on, without empty
        /// fields; `full` has every field of the REST reply, as older systems do.
        reply: ReplyForm = set("reply", "REPLY", Kind::Choice(ReplyForm::WORDS), "lean");
        /// Text block of a full reply: the whole reply as JSON; `plain` text with files and a line
        /// about the run; or `streams`, which is the output and the error only.
        text_format: TextFormat =
            set("text_format", "TEXT_FORMAT", Kind::Choice(TextFormat::WORDS), "json");
        /// Adds the traceback of failed code, or the reason why it was stopped, to `stderr`, as a
        /// Python process does.
        stderr_traceback: bool =
            set("stderr_traceback", "STDERR_TRACEBACK", Kind::Bool, "false");
        /// Sends the error of a run as text, in `error`; its details are then in `error_detail`.
        error_as_text: bool = set("error_as_text", "ERROR_AS_TEXT", Kind::Bool, "false");
        /// Sends `variables` over REST as an object of names and types, instead of a list of names.
        variables_as_types: bool =
            set("variables_as_types", "VARIABLES_AS_TYPES", Kind::Bool, "false");
        /// Marks failed code as an error of the tool (`isError`) over MCP. If false, only the reply
        /// tells it: bridges such as mcpo then answer 200 with the reply, and not 500.
        failure_is_error: bool =
            set("failure_is_error", "FAILURE_IS_ERROR", Kind::Bool, "true");
        /// Session of a call that names no session. `own`: an MCP client with a process, a connection
        /// or an MCP session has a session of its own, other MCP calls get a new session, and REST
        /// uses the caller's session `default`. Or for all: the caller's session `default`, a new
        /// session that is kept, or an ephemeral session that ends with the call.
        state_without_session: StateWithoutSession = set(
            "state_without_session",
            "STATE_WITHOUT_SESSION",
            Kind::Choice(StateWithoutSession::WORDS),
            "own",
        );
        /// Characters of one run that a model is shown; the rest can be read afterwards.
        context_budget_chars: usize = set(
            "context_budget_chars",
            "CONTEXT_BUDGET_CHARS",
            integer(1_000, 10_000_000),
            "25000",
        );
        /// Memory for the cache of whole outputs, which can be read afterwards; the oldest are
        /// evicted first.
        kept_output_bytes: u64 =
            set("kept_output_mb", "KEPT_OUTPUT_MB", mebibytes(0, 64 * GIB), "32");
    } fieldless {}

    "Limits of a call" {
        /// Time limit of a call that does not ask for one. Many clients give up after 60 seconds, and
        /// would not read of a later end. Lowered to `MAX_EXECUTION_TIME` if that is less; in the
        /// presets `power-interpreter` and `sandbox-mcp`, equal to it.
        timeout_default: Duration =
            set("default_timeout", "DEFAULT_TIMEOUT", seconds(1, DAY), "55")
                .aliases(&[Alias("SANDBOX_TIMEOUT", Same), Alias("SANDBOX_DEFAULT_TIMEOUT", Same)]);
        /// Longest time limit that a call can ask for.
        timeout_max: Duration =
            set("max_execution_time", "MAX_EXECUTION_TIME", seconds(1, DAY), "600")
                .aliases(&[Alias("SANDBOX_MAX_TIMEOUT", Same)]);
        /// Memory limit of a session whose calls do not ask for one. If not set: `MAX_MEMORY_MB`.
        memory_bytes_default: u64 = set(
            "default_memory_limit",
            "DEFAULT_MEMORY_LIMIT",
            bytes(32 * MIB, 4096 * GIB),
            "",
        );
        /// Largest memory limit of a session, for all of its processes together.
        memory_bytes_max: u64 =
            set("max_memory_mb", "MAX_MEMORY_MB", mebibytes(32 * MIB, 4096 * GIB), "2048");
        /// Limit of a run's standard output and standard error together in a reply; the rest can be
        /// read afterwards, within the session's disk limit.
        /// `MAX_OUTPUT_SIZE` counts characters, the other names count bytes.
        output_limit: OutputLimit = set("output_limit", "OUTPUT_LIMIT", Kind::Output, "1m")
            .aliases(&[
                Alias("SANDBOX_MAX_OUTPUT_SIZE", Same),
                Alias("MAX_OUTPUT_SIZE", Characters),
            ]);
        /// Size limit of the program in a call.
        code_bytes_max: u64 =
            set("max_code_bytes", "MAX_CODE_BYTES", bytes(1024, 64 * MIB), "1m");
        /// Number of processors that a session may use at once.
        cpu_cores: f64 = set("cpus", "CPUS", Kind::Decimal { min: 0.1, max: 1024.0 }, "2");
        /// Size limit of a session's working directory.
        workspace_bytes: u64 =
            set("disk_mb", "DISK_MB", mebibytes(MIB, 4096 * GIB), "1024");
        /// Number of processes and threads that a session may have.
        processes: u64 = set("processes", "PROCESSES", integer(8, 100_000), "256");
    } fieldless {}

    "Sessions" {
        /// Number of live sessions; one caller may have seven eighths of them. If all are taken,
        /// an idle session is saved and ended: one of the caller's own, or one of a caller with
        /// more than its fair share. If not set: one for each 32 MiB of `SESSIONS_MEMORY`, at most
        /// 1000, and no more than half of `MAX_SESSIONS` or than the server's limits of open files
        /// and processes allow.
        kernels_max: usize = set("max_kernels", "MAX_KERNELS", integer(1, 100_000), "")
            .aliases(&[Alias("MAX_CONCURRENT_KERNELS", Same)]);
        /// Memory limit of all sessions together: mebibytes, or a percentage of the memory of the
        /// machine or of the server's cgroup, whichever is smaller. Near it, idle sessions are
        /// saved and ended. Enforced by cgroups, where they are available.
        memory_bytes_all: u64 = set("sessions_memory", "SESSIONS_MEMORY", Kind::Memory, "75%");
        /// Time that a session may be idle before its variables are saved and its process is
        /// ended.
        idle_timeout: Duration =
            set("kernel_timeout", "KERNEL_TIMEOUT", seconds(1, 30 * DAY), "300");
        /// Number of sessions that are kept ready for new callers.
        pool_size: usize = set("session_pool_size", "SESSION_POOL_SIZE", integer(0, 1_000), "3");
        /// Libraries that a new session finds imported: `full` for the whole scientific stack, or
        /// `base` for numpy, pandas and matplotlib, where memory is scarce (400 MiB less, once for
        /// all sessions) or the server starts often (5 s of a processor less). Code can import the
        /// others all the same, in the time that this takes.
        preload: Preload = set("preload", "PRELOAD", Kind::Choice(Preload::WORDS), "full");
        /// Number of calls that run at once; one caller may have seven eighths of them, and
        /// waiting callers take turns. If not set: eight for each processor, at least 16. Never
        /// more than `MAX_KERNELS`.
        running_max: usize = set("max_running", "MAX_RUNNING", integer(1, 100_000), "");
        /// Number of calls that may wait; further calls are refused with a time to retry after.
        queue_max: usize = set("max_queue", "MAX_QUEUE", integer(0, 1_000_000), "256");
        /// Number of connections that are open at once. One address may have seven eighths of
        /// them, and one caller seven eighths of that in requests. If not set: 4096, or one for
        /// every four descriptors that the server may have, whichever is less.
        connections_max: usize =
            set("max_connections", "MAX_CONNECTIONS", integer(1, 1_000_000), "");
        /// Number of sessions that are held in memory, live or not.
        sessions_max: usize = set("max_sessions", "MAX_SESSIONS", integer(1, 1_000_000), "1000");
        /// Least isolation that the server starts with, as `woma doctor` rates it: `full` requires
        /// every layer, `strong` every wall. `restricted` does without namespaces and mounts, where
        /// a container refuses them; `minimal` also without signals, on kernels before 6.12. The
        /// server uses the best that works.
        min_isolation: MinIsolation =
            set("min_isolation", "MIN_ISOLATION", Kind::Choice(MinIsolation::WORDS), "strong");
    } fieldless {
        /// Interval of cleanups in older systems. Here, sessions are ended when their time is
        /// over.
        _ = set("kernel_cleanup_interval", "KERNEL_CLEANUP_INTERVAL", seconds(1, DAY), "60")
            .never("sessions are ended when their time is over (KERNEL_TIMEOUT)");
        /// Age limit of ready sessions in older systems. Here, they do not age.
        _ = set(
            "session_pool_max_idle_time",
            "SESSION_POOL_MAX_IDLE_TIME",
            seconds(1, 30 * DAY),
            "600",
        )
        .never("sessions that wait for callers do not age");
        /// Interval of refills in older systems. Here, a ready session that was taken is replaced
        /// at once.
        _ = set(
            "session_pool_refill_interval",
            "SESSION_POOL_REFILL_INTERVAL",
            seconds(1, DAY),
            "30",
        )
        .never("a ready session that was taken is replaced at once");
    }

    "Files" {
        /// Largest upload, and largest file that gets a download address; larger files stay in the
        /// session.
        file_bytes_max: u64 =
            set("file_max_mb", "SANDBOX_FILE_MAX_MB", mebibytes(MIB, 64 * GIB), "50");
        /// Extensions of files that get a download address after a run, such as csv or png. If the
        /// list is empty, every file gets one, but for hidden files and Python's caches.
        linked_extensions: Vec<String> =
            set("linked_extensions", "LINKED_EXTENSIONS", Kind::List, "");
        /// Storage limit of a caller whose key has none of its own; 0 for no limit. It counts
        /// stored versions of files, saved variables and records of executions, and for uploads
        /// also the files of all sessions.
        storage_bytes_max: u64 =
            set("storage_mb", "STORAGE_MB", mebibytes(0, 4096 * GIB), "10240");
        /// Space that stays free on the disks of the data folder and of `SANDBOX_DIR`: mebibytes,
        /// a size such as 10g, or a percentage such as 5%, which applies to inodes too. Below it,
        /// runs that make their folder grow are stopped and nothing new is stored; the server's
        /// own records are still written. 0 reserves nothing. If not set: the smaller of 5 % and 5
        /// GiB, and of inodes the smaller of 5 % and 100000.
        min_free_disk: ReserveSize = set("min_free_disk", "MIN_FREE_DISK", Kind::Reserve, "");
        /// Size limit of a session's saved variables, which are restored after a restart or an
        /// eviction; 0 saves no variables.
        checkpoint_bytes_max: u64 =
            set("checkpoint_max_mb", "CHECKPOINT_MAX_MB", mebibytes(0, 64 * GIB), "256");
        /// Time after its last use at which a session is deleted, with its files; 0 for never.
        session_ttl: Duration = set("session_ttl_hours", "SESSION_TTL_HOURS", hours(87_600), "720");
        /// Retention of records of executions and of the audit trail; 0 for ever.
        audit_retention: Duration = set(
            "audit_retention_hours",
            "AUDIT_RETENTION_HOURS",
            hours(876_000),
            "2160",
        );
        /// Size limit of the audit trail of one caller and one day (UTC). Entries beyond it are
        /// only counted, and two entries say so: one when the limit is reached, one after the day.
        audit_day_bytes_max: u64 =
            set("audit_mb_per_day", "AUDIT_MB_PER_DAY", mebibytes(MIB, 64 * GIB), "64");
        /// Stores the code itself with the record of each execution, and not only its digest.
        audit_code: bool = set("audit_code", "AUDIT_CODE", Kind::Bool, "false");
        /// Time that a download address is valid; 0 for ever.
        file_ttl: Duration = set("file_ttl_hours", "SANDBOX_FILE_TTL_HOURS", hours(87_600), "72");
        /// Largest file that is fetched from a URL.
        fetch_bytes_max: u64 =
            set("max_file_size_mb", "MAX_FILE_SIZE_MB", mebibytes(MIB, 64 * GIB), "500");
        /// Allows fetching from private networks and from this machine. For tests, and for servers
        /// whose callers may reach everything that the server can reach.
        fetch_allow_private: bool =
            set("fetch_allow_private", "FETCH_ALLOW_PRIVATE", Kind::Bool, "false");
    } fieldless {}

    "Jobs" {
        /// Number of jobs that this server runs at once, besides the calls of `MAX_RUNNING`;
        /// further jobs wait. One caller may have seven eighths of them, and one less than all. 0
        /// turns jobs off.
        jobs_running_max: usize =
            set("max_concurrent_jobs", "MAX_CONCURRENT_JOBS", integer(0, 10_000), "4");
        /// Number of jobs that may wait; one caller may have seven eighths of them. Further ones
        /// are refused with a time to retry after.
        jobs_queued_max: usize =
            set("max_queued_jobs", "MAX_QUEUED_JOBS", integer(1, 1_000_000), "10000");
        /// Longest time limit of a job; one that asks for none has 600 seconds. Also the limit of
        /// a call that goes on as a job (`on_timeout`).
        job_timeout: Duration = set("job_timeout", "JOB_TIMEOUT", seconds(1, 30 * DAY), "1800");
        /// Retention of jobs that have ended, with their results.
        job_retention: Duration =
            set("job_cleanup_hours", "JOB_CLEANUP_HOURS", hours(87_600), "24");
        /// Lets callers have the end of a job told to an address (`webhook`). Only public addresses
        /// are reached, unless `FETCH_ALLOW_PRIVATE` is set.
        webhooks: bool = set("webhooks", "WEBHOOKS", Kind::Bool, "true");
    } fieldless {}

    "Network" {
        /// Network of sessions whose key does not say otherwise: `off`, `open` (every public host),
        /// or hosts separated by commas, such as `data.example, *.example.org, api.example.org:8443`. An
        /// entry without ports means 80 and 443, `:*` every port. A session may choose less.
        network: NetworkRules = set("network", "NETWORK", Kind::NetworkRules, "off");
        /// Hosts that sessions reach at an address of the operator's choice, whatever DNS says:
        /// `NAME:PORT=ADDRESS:PORT`, separated by commas. This is the only way to hosts in private
        /// networks and on this machine; `NETWORK` must allow the name too.
        network_hosts: PlacedHosts = set("network_hosts", "NETWORK_HOSTS", Kind::PlacedHosts, "");
        /// Number of connections of all sessions to the network at once. One caller may have seven
        /// eighths of them.
        network_connections: usize =
            set("network_connections", "NETWORK_CONNECTIONS", integer(1, 100_000), "1024");
        /// Number of connections of one session to the network at once. Each takes two of the 512 sockets
        /// that a session may have.
        network_session_connections: usize =
            set("network_session_connections", "NETWORK_SESSION_CONNECTIONS", integer(1, 200), "128");
        /// Traffic of one session in both directions, while the server remembers it; 0 for no limit.
        network_session_bytes: u64 =
            set("network_session_bytes", "NETWORK_SESSION_BYTES", bytes(0, 1024 * 1024 * GIB), "10g");
        /// PEM file of authorities that sessions trust too, and the server at hosts of secrets.
        network_ca_file: Option<PathBuf> = set("network_ca_file", "NETWORK_CA_FILE", Kind::Path, "");
        /// TOML file of secrets that requests of sessions have and code does not see (docs/OPERATING.md).
        secrets_file: Option<PathBuf> = set("secrets_file", "SECRETS_FILE", Kind::Path, "");
        /// Lets callers reach servers in their sessions, such as Flask or Streamlit, under
        /// `/sessions/{id}/ports/{port}/`.
        ports: bool = set("ports", "PORTS", Kind::Bool, "false");
        /// Time after which a connection of a session ends that has had no byte in either direction.
        network_idle: Duration =
            set("network_idle_timeout", "NETWORK_IDLE_TIMEOUT", seconds(1, DAY), "300");
    } fieldless {}

    "Policy" {
        /// Rules for code, in addition to the limits of the sandbox: `open`, `tiers`,
        /// `power-interpreter`, or a name in `POLICY_FILE`. If not set: `tiers` if
        /// `SANDBOX_ALLOWED_IMPORTS` is set, else `open`.
        policy: Option<String> = set("policy", "SANDBOX_POLICY", Kind::Text, "");
        /// File of additional rules, in TOML.
        policy_file: Option<PathBuf> = set("policy_file", "POLICY_FILE", Kind::Path, "");
        /// Adds the network modules to the policy `tiers`. `NETWORK` decides what they can reach.
        enable_network: bool =
            set("enable_network", "SANDBOX_ENABLE_NETWORK", Kind::Bool, "false")
                .aliases(&[Alias("ENABLE_NETWORK_ACCESS", Same)]);
        /// Adds the file system modules to the policy `tiers`.
        enable_filesystem: bool =
            set("enable_filesystem", "SANDBOX_ENABLE_FILESYSTEM", Kind::Bool, "false");
        /// Adds the data science modules to the policy `tiers`.
        enable_data_science: bool =
            set("enable_data_science", "SANDBOX_ENABLE_DATA_SCIENCE", Kind::Bool, "false");
        /// Modules that a restricted policy allows, instead of its own list.
        allowed_imports: Vec<String> =
            set("allowed_imports", "SANDBOX_ALLOWED_IMPORTS", Kind::List, "");
        /// Effect of an import that is not allowed: `raise` an error at its line, `annotate` the
        /// reply and go on, or `reject` the whole program before it runs.
        import_block_mode: BlockMode = set(
            "import_block_mode", "IMPORT_BLOCK_MODE", Kind::Choice(BlockMode::WORDS), "raise",
        );
    } fieldless {}

    "Packages" {
        /// Lets sessions install packages: by the tool `install_package`, and by `pip` in code.
        installs: bool = set("installs", "INSTALLS", Kind::Bool, "true");
        /// Simple index of packages, which may have a user name and a password. Sessions see neither
        /// its address nor these. If not set: the index that the installer uses by itself.
        package_index_url: Option<Secret> =
            set("package_index_url", "PACKAGE_INDEX_URL", Kind::Token, "").aliases(&[
                Alias("UV_DEFAULT_INDEX", Same),
                Alias("UV_INDEX_URL", Same),
                Alias("PIP_INDEX_URL", Same),
            ]);
        /// Token for `PACKAGE_INDEX_URL`, sent as `Authorization: Bearer` and to no other host.
        package_index_token: Option<Secret> =
            set("package_index_token", "PACKAGE_INDEX_TOKEN", Kind::Token, "");
        /// Certificate authorities in PEM format that the index may be signed by, beside those of the
        /// web.
        package_ca_file: Option<PathBuf> =
            set("package_ca_file", "PACKAGE_CA_FILE", Kind::Path, "")
                .aliases(&[Alias("SSL_CERT_FILE", Same)]);
        /// Folder of wheels that sessions may install, before those of the index. Without
        /// `PACKAGE_INDEX_URL`, they may install nothing else.
        package_wheelhouse: Option<PathBuf> =
            set("package_wheelhouse", "PACKAGE_WHEELHOUSE", Kind::Path, "");
        /// Packages that cannot be installed.
        blocked_packages: Vec<String> = set("blocked_packages", "BLOCKED_PACKAGES", Kind::List,
            "os,subprocess,sys,importlib,ctypes,multiprocessing,threading");
        /// Builds packages that have no wheel from source, in a sandbox of its own.
        package_allow_source: bool =
            set("package_allow_source", "PACKAGE_ALLOW_SOURCE", Kind::Bool, "false");
        /// Disk usage of the packages of one session.
        package_bytes_max: u64 =
            set("package_max_mb", "PACKAGE_MAX_MB", mebibytes(MIB, 64 * GIB), "1024");
        /// Number of packages of one session.
        package_count_max: usize =
            set("package_max_count", "PACKAGE_MAX_COUNT", integer(1, 2_000), "200");
        /// Longest time of one installation.
        package_timeout: Duration =
            set("package_timeout", "PACKAGE_TIMEOUT", seconds(1, 3600), "300");
        /// Installations of one caller in a minute. Those that need none do not count.
        package_per_minute: u32 =
            set("package_rate_limit", "PACKAGE_RATE_LIMIT", integer(1, 100_000), "20");
        /// Installations at once. One caller may have seven eighths of them, and one less than all.
        package_at_once: usize =
            set("package_installs", "PACKAGE_INSTALLS", integer(1, 1_000), "4");
        /// Time for which pages of the index, and what was installed by a request, are believed.
        package_fresh: Duration =
            set("package_index_seconds", "PACKAGE_INDEX_SECONDS", seconds(1, DAY), "600");
        /// Time after its last use at which the installed form of a set of packages is removed.
        package_layer_ttl: Duration =
            set("package_unused_hours", "PACKAGE_UNUSED_HOURS", hours(87_600), "720");
        /// Disk usage of downloaded files that are kept for further installations.
        package_cache_bytes: u64 =
            set("package_cache_mb", "PACKAGE_CACHE_MB", mebibytes(MIB, 1024 * GIB), "2048");
    } fieldless {}

    "Containers" {
        /// Allows sessions in containers: of calls with `use_container`, and of policies that demand it.
        containers: bool =
            set("enable_container_mode", "SANDBOX_ENABLE_CONTAINER_MODE", Kind::Bool, "false");
        /// Program that runs these containers. `auto` takes the first of `crun`, `runc` and `runsc` that
        /// is installed and works here, and no other after that.
        container_runtime: RuntimeName =
            set("container_runtime", "CONTAINER_RUNTIME", Kind::Choice(RuntimeName::WORDS), "auto");
        /// Memory limit of a run in a container that asks for none, not `DEFAULT_MEMORY_LIMIT`.
        container_memory_bytes: Option<u64> = set(
            "container_memory_limit",
            "SANDBOX_DEFAULT_MEMORY_LIMIT",
            bytes(32 * MIB, 4096 * GIB),
            "",
        );
    } fieldless {
        /// Image of these containers.
        _ = set("container_image", "SANDBOX_CONTAINER_IMAGE", Kind::Text, "python-sandbox:latest")
            .later(NO_IMAGES);
    }
}
