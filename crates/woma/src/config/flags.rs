//! Flags that set settings. They carry text, which the table's parser reads like any other layer.

use std::path::PathBuf;

use clap::Args;

use super::layers::{Flag, Flags};
use super::types::Secret;

/// Flags of every command: the data folder, the environment, the user.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataOptions {
    /// Folder of environments and files [default: `$WOMA_DATA_DIR`, else /var/lib/woma for root and
    /// ~/.local/share/woma for other users]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Python environment instead of the default one: a name in `woma env list`, or the path of a
    /// virtual environment, a prefix or an interpreter
    #[arg(long, global = true, value_name = "PATH|NAME")]
    pub(crate) env: Option<String>,
    /// User to run as when started as root: a name or a number; `root` keeps root [default:
    /// `$RUN_AS`, else the owner of the data folder, else a user woma, else an unused id]
    #[arg(long, global = true, value_name = "NAME|UID")]
    pub(crate) user: Option<String>,
}

/// Flags of every command that needs the whole configuration.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SettingOptions {
    /// The settings file [default: woma.toml in the data folder, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Preset of defaults: default, power-interpreter, sandbox-mcp, ibm-sandbox, sandbox-service,
    /// python-executor or all
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// The address to listen on
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The port to listen on; 0 picks a free one
    #[arg(long, value_name = "N")]
    port: Option<String>,
    /// API key that every request must send; other users of this machine can see it here, unlike in
    /// `API_KEY` or `API_KEY_FILE`
    #[arg(long, value_name = "KEY")]
    api_key: Option<Secret>,
    /// The database
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// Limit of live sessions
    #[arg(long, value_name = "N")]
    max_kernels: Option<String>,
    /// Idle time after which a session's kernel ends
    #[arg(long, value_name = "SECONDS")]
    kernel_timeout: Option<String>,
    /// Largest time limit of a call
    #[arg(long, value_name = "SECONDS")]
    max_execution_time: Option<String>,
    /// Log in detail
    #[arg(long)]
    debug: bool,
    /// Any other setting, by its name in `woma config show`; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print the configuration with its origins and exit
    #[arg(long, hide = true)]
    pub(crate) print_config: bool,
}

impl SettingOptions {
    /// These options, given before a command, together with those after it.
    pub(crate) fn followed_by(self, after: Self) -> Result<Self, GivenTwice> {
        Ok(Self {
            config: one("--config", self.config, after.config)?,
            preset: one("--preset", self.preset, after.preset)?,
            host: one("--host", self.host, after.host)?,
            port: one("--port", self.port, after.port)?,
            api_key: one("--api-key", self.api_key, after.api_key)?,
            database_url: one("--database-url", self.database_url, after.database_url)?,
            max_kernels: one("--max-kernels", self.max_kernels, after.max_kernels)?,
            kernel_timeout: one("--kernel-timeout", self.kernel_timeout, after.kernel_timeout)?,
            max_execution_time: one(
                "--max-execution-time",
                self.max_execution_time,
                after.max_execution_time,
            )?,
            debug: self.debug || after.debug,
            set: [self.set, after.set].concat(),
            print_config: self.print_config || after.print_config,
        })
    }

    /// The first of these options that was given, as written.
    pub(crate) fn first(&self) -> Option<String> {
        let nowhere = DataOptions { data_dir: None, env: None, user: None };
        let print_config = self.print_config.then(|| "--print-config".to_owned());
        self.flags(&nowhere).into_iter().next().map(|flag| flag.spelled).or(print_config)
    }

    pub(crate) fn flags(&self, data: &DataOptions) -> Flags {
        let data_dir = data.data_dir.as_ref().map(|folder| folder.to_string_lossy().into_owned());
        let debug = self.debug.then(|| "true".to_owned());
        let api_key = self.api_key.as_ref().map(|key| key.expose().to_owned());
        let named = [
            ("config", "--config", &self.config),
            ("preset", "--preset", &self.preset),
            ("host", "--host", &self.host),
            ("port", "--port", &self.port),
            ("api_key", "--api-key", &api_key),
            ("database_url", "--database-url", &self.database_url),
            ("max_kernels", "--max-kernels", &self.max_kernels),
            ("kernel_timeout", "--kernel-timeout", &self.kernel_timeout),
            ("max_execution_time", "--max-execution-time", &self.max_execution_time),
            ("debug", "--debug", &debug),
            ("data_dir", "--data-dir", &data_dir),
            ("env", "--env", &data.env),
            ("run_as", "--user", &data.user),
        ];
        let said = named.into_iter().filter_map(|(name, spelled, value)| {
            let (name, spelled) = (name.to_owned(), spelled.to_owned());
            value.clone().map(|value| Flag { name, value, spelled })
        });
        // The first text of a layer wins, but the last flag of a command line should.
        let set = self.set.iter().rev().map(|text| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            let (name, value) = (name.trim().to_owned(), value.to_owned());
            Flag { spelled: format!("--set {name}"), name, value }
        });
        set.chain(said).collect()
    }
}

/// An option that was given before a command and after it.
#[derive(Debug, thiserror::Error)]
#[error("{0} is given twice, before the command and after it: keep one of them")]
pub(crate) struct GivenTwice(&'static str);

fn one<T>(
    spelled: &'static str,
    before: Option<T>,
    after: Option<T>,
) -> Result<Option<T>, GivenTwice> {
    match (before, after) {
        (Some(_), Some(_)) => Err(GivenTwice(spelled)),
        (before, after) => Ok(before.or(after)),
    }
}
