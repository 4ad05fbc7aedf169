//! `woma env freeze`: a lock of what a session has, from the store of this machine's server, which may
//! run meanwhile.

use std::error::Error;
use std::process::ExitCode;

use clap::Args;
use woma_core::{SessionId, freeze, stored_packages};

use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::templates::{self, TemplateOrigin};
use crate::config::{Config, Data};
use crate::server::{rights, start};
use crate::terminal::{fail, print};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Session whose packages are locked
    #[arg(value_name = "SESSION")]
    session: String,
    /// Caller that the session belongs to, such as `local` or `key:1a2b3c`
    #[arg(long, value_name = "ID", default_value = "local")]
    owner: String,
    #[command(flatten)]
    pub(crate) settings: SettingOptions,
}

pub(super) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    match act(data, options) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let hint = error.downcast_ref::<woma_core::Error>().and_then(woma_core::Error::hint);
            fail(&*error, hint.as_deref())
        }
    }
}

fn act(given: &DataOptions, options: &Options) -> Result<String, Box<dyn Error>> {
    let session = SessionId::parse(&options.session)?;
    let configured =
        start::configure(given, &options.settings, Config::load_without_foreign_dot_env)?;
    let Some(config) = configured else { return Ok(String::new()) };
    let data = Data::new(&DataOptions {
        data_dir: Some(config.data_dir.clone()),
        env: config.environment.clone(),
        user: None,
    })?;
    // Before the rights of who may read them are given up.
    let folder = config.environments_dir.clone().unwrap_or_else(|| data.templates.clone());
    let templates = templates::read(&folder)?;
    if config.data_dir.exists() {
        rights::become_server_user(config.run_as.as_deref(), &config.data_dir)?;
    }
    let storage = start::storage_settings(&config);
    if storage.database_url.is_none() && !storage.folder.join("woma.db").is_file() {
        let folder = storage.folder.display();
        return Err(format!("no server has stored anything in {folder}: use --data-dir DIR").into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stored = stored_packages(&storage, &options.owner, &session);
    let (named, set) = runtime.block_on(stored)?;
    let template = named.as_ref().and_then(|name| templates.get(name));
    let environment = match (&named, template.map(|template| &template.origin)) {
        (None, _) | (Some(_), Some(TemplateOrigin::Default)) => {
            data.environment_if_made()?.ok_or("there is no environment yet")?
        }
        (Some(_), Some(TemplateOrigin::Existing(other))) => data.find(other)?,
        (Some(name), _) => data.find(name)?,
    };
    Ok(freeze(&environment, &set)?)
}
