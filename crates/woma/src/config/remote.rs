//! A server elsewhere, for commands that can use one: its address and its key.

use std::path::{Path, PathBuf};

use clap::Args;

use super::flags::DataOptions;
use super::layers::read_bounded;
use super::types::Secret;

pub(super) const URL_VARIABLE: &str = "WOMA_URL";
const KEY_VARIABLE: &str = "WOMA_API_KEY";
/// Size limit of a file with a key.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Flags that name a server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server elsewhere")]
pub(crate) struct RemoteOptions {
    /// Use the server at this address, such as `https://woma.example` [default: `$WOMA_URL`]
    #[arg(long = "url", id = "server_url", global = true, value_name = "URL")]
    url: Option<String>,
    /// File with the key of that server [default: the key in `$WOMA_API_KEY`]
    #[arg(long = "key-file", id = "server_key_file", global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The key itself; other users of this machine can see it here, unlike in the two above
    #[arg(
        long = "key",
        id = "server_key",
        global = true,
        value_name = "KEY",
        conflicts_with = "server_key_file"
    )]
    key: Option<Secret>,
}

/// Address and key of a server.
#[derive(Debug)]
pub(crate) struct RemoteServer {
    /// Without a trailing slash.
    pub(crate) base_url: String,
    pub(crate) key: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidRemote {
    #[error("no server is named: use --url URL, or set WOMA_URL")]
    NoServer,
    #[error("{0} has no effect without --url or WOMA_URL")]
    NoEffect(&'static str),
    #[error(
        "--data-dir names a server of this machine, and --url another one: leave one of them out"
    )]
    TwoServers,
    #[error("`{0}` is not the address of a server: use http(s)://host[:port][/path]")]
    BadUrl(String),
    #[error("{0} holds no key: it must be one line without spaces")]
    BadKey(String),
    #[error("cannot read the key in {path}: {cause}")]
    KeyFile { path: String, cause: std::io::Error },
}

impl RemoteOptions {
    /// The server that is meant, if it is not the one of this machine's data folder.
    pub(crate) fn server(&self, data: &DataOptions) -> Result<Option<RemoteServer>, InvalidRemote> {
        // An option beats a variable.
        let variable = match (&self.url, &data.data_dir) {
            (None, None) => variable(URL_VARIABLE),
            _ => None,
        };
        self.resolve(data, variable, variable_of_key)
    }

    /// As [`Self::server`], for commands that need one.
    pub(crate) fn server_required(
        &self,
        data: &DataOptions,
    ) -> Result<RemoteServer, InvalidRemote> {
        self.server(data)?.ok_or(InvalidRemote::NoServer)
    }

    fn resolve(
        &self,
        data: &DataOptions,
        variable: Option<String>,
        key_in_environment: impl FnOnce() -> Option<String>,
    ) -> Result<Option<RemoteServer>, InvalidRemote> {
        if self.url.is_some() && data.data_dir.is_some() {
            return Err(InvalidRemote::TwoServers);
        }
        let Some(url) = self.url.clone().or(variable) else {
            return match (&self.key_file, &self.key) {
                (Some(_), _) => Err(InvalidRemote::NoEffect("--key-file")),
                (_, Some(_)) => Err(InvalidRemote::NoEffect("--key")),
                (None, None) => Ok(None),
            };
        };
        let base_url = base_url(&url)?;
        let key = match (&self.key, &self.key_file) {
            (Some(key), _) => Some(checked(key.expose(), "--key")?),
            (None, Some(path)) => Some(key_in(path)?),
            (None, None) => {
                key_in_environment().map(|key| checked(&key, KEY_VARIABLE)).transpose()?
            }
        };
        Ok(Some(RemoteServer { base_url, key }))
    }
}

fn variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.into_string().ok()?;
    Some(text).filter(|text| !text.trim().is_empty())
}

fn variable_of_key() -> Option<String> {
    variable(KEY_VARIABLE)
}

fn base_url(text: &str) -> Result<String, InvalidRemote> {
    let bad = || InvalidRemote::BadUrl(text.to_owned());
    let trimmed = text.trim().trim_end_matches('/');
    let (scheme, rest) = trimmed.split_once("://").ok_or_else(bad)?;
    let authority = rest.split('/').next().unwrap_or_default();
    let is_web = ["http", "https"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    let is_plain =
        trimmed.chars().all(|letter| letter.is_ascii_graphic() && !"?#\\\"<>".contains(letter));
    // A key does not belong into an address.
    match is_web && is_plain && !authority.is_empty() && !authority.contains('@') {
        true => Ok(trimmed.to_owned()),
        false => Err(bad()),
    }
}

fn key_in(path: &Path) -> Result<Secret, InvalidRemote> {
    let shown = path.display().to_string();
    let text = read_bounded(path, KEY_FILE_BYTES_MAX)
        .map_err(|cause| InvalidRemote::KeyFile { path: shown.clone(), cause })?;
    checked(&text, &shown)
}

fn checked(text: &str, source: &str) -> Result<Secret, InvalidRemote> {
    let key = text.trim();
    match !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(Secret::from(key.to_owned())),
        false => Err(InvalidRemote::BadKey(source.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{DataOptions, InvalidRemote, RemoteOptions, RemoteServer, Secret};

    fn resolve(
        options: &RemoteOptions,
        data_dir: Option<&str>,
        variables: (Option<&str>, Option<&str>),
    ) -> Result<Option<RemoteServer>, InvalidRemote> {
        let data_dir = data_dir.map(PathBuf::from);
        let data = DataOptions { data_dir, env: None, user: None };
        let (url, key) = variables;
        options.resolve(&data, url.map(str::to_owned), || key.map(str::to_owned))
    }

    fn at(url: &str) -> RemoteOptions {
        RemoteOptions { url: Some(url.to_owned()), ..RemoteOptions::default() }
    }

    #[test]
    fn addresses_are_checked() {
        for (url, expected) in [
            ("http://127.0.0.1:8080", Some("http://127.0.0.1:8080")),
            ("https://woma.example/lab/", Some("https://woma.example/lab")),
            (" HTTPS://woma.example ", Some("HTTPS://woma.example")),
            ("woma.example", None),
            ("ftp://woma.example", None),
            ("http://", None),
            ("http://woma:key@woma.example", None),
            ("http://woma.example/?x=1", None),
            ("http://woma.example/ x", None),
            ("http://woma.example/#x", None),
        ] {
            let found = resolve(&at(url), None, (None, None)).ok().flatten();
            assert_eq!(found.map(|server| server.base_url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn the_key_comes_from_a_file_a_variable_or_an_option() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "in-file\n").unwrap();
        let key = |options: RemoteOptions| {
            let found = resolve(&options, None, (None, Some("in-variable")));
            found.map(|server| server.unwrap().key.map(|key| key.expose().to_owned()))
        };
        let url = || at("http://x");
        assert_eq!(key(url()).unwrap().as_deref(), Some("in-variable"));
        let by_file = RemoteOptions { key_file: Some(path.clone()), ..url() };
        assert_eq!(key(by_file).unwrap().as_deref(), Some("in-file"));
        let given = Some(Secret::from("given".to_owned()));
        assert_eq!(key(RemoteOptions { key: given, ..url() }).unwrap().as_deref(), Some("given"));
        for (content, expected) in [("", "holds no key"), ("two words", "holds no key")] {
            std::fs::write(&path, content).unwrap();
            let options = RemoteOptions { key_file: Some(path.clone()), ..url() };
            assert!(key(options).unwrap_err().to_string().contains(expected));
        }
        let absent = RemoteOptions { key_file: Some(folder.path().join("none")), ..url() };
        assert!(key(absent).unwrap_err().to_string().starts_with("cannot read the key"));
    }

    #[test]
    fn a_server_of_this_machine_is_not_one_elsewhere() {
        let none = RemoteOptions::default();
        assert!(resolve(&none, None, (None, Some("key"))).unwrap().is_none());
        assert!(resolve(&none, None, (Some("http://x"), None)).unwrap().is_some());
        let two = resolve(&at("http://x"), Some("/data"), (None, None)).unwrap_err();
        assert!(matches!(two, InvalidRemote::TwoServers));
        let key = RemoteOptions { key: Some(Secret::from("k".to_owned())), ..none.clone() };
        assert!(resolve(&key, None, (None, None)).unwrap_err().to_string().starts_with("--key "));
    }
}
