//! `woma keys`: API keys of the server. A new key is printed once, to standard output.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use woma_core::keys::{Error, Key, KeyRing, NewKey};
use woma_core::{NetworkRules, Quota, Scope, Scopes};

use super::remote::{self, Client};
use crate::config::Data;
use crate::config::flags::DataOptions;
use crate::config::remote::{InvalidRemote, RemoteOptions};
use crate::server::rights;
use crate::server::start;
use crate::terminal::{fail, print, tell, try_print};
use crate::units;

const DAY_SECONDS: i64 = 24 * 60 * 60;
/// Longest lifetime, ten years: a longer one is more likely a typing error.
const LIFE_DAYS_MAX: i64 = 3650;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(super) command: Command,
    #[command(flatten)]
    remote: RemoteOptions,
}

impl Options {
    /// The server elsewhere whose keys are meant, if they are not those of this machine's.
    pub(super) fn elsewhere(&self, data: &DataOptions) -> Result<Option<Client>, InvalidRemote> {
        Ok(self.remote.server(data)?.map(Client::new))
    }
}

/// Runs the command on a server elsewhere.
pub(super) fn on(client: &Client, command: &Command) -> ExitCode {
    remote::finish(match command {
        Command::Create(options) => remote::keys::create(client, options.wanted(), options.json),
        Command::List { json } => remote::keys::list(client, *json),
        Command::Revoke { key, json } => remote::keys::revoke(client, key, *json),
    })
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a key and print it; it cannot be shown again
    Create(CreateOptions),
    /// List the keys, including revoked ones
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key; a running server rejects it within a second
    Revoke {
        /// Its name or its id
        #[arg(value_name = "NAME|ID")]
        key: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateOptions {
    /// Name of the key: letters, digits, `.`, `_` and `-`
    name: String,
    /// Allowed scopes: execute, read, admin, schedule
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "execute,read")]
    scope: Vec<Scope>,
    /// Limit of executions a minute [default: the server's `RATE_LIMIT_EXEC`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Limit of concurrent sessions [default: the server's `MAX_SESSIONS`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sessions: Option<u32>,
    /// Storage quota, such as 500m or 10g [default: the server's `STORAGE_MB`]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    storage: Option<u64>,
    /// Policy for the key's code, in place of the server's: open, tiers, power-interpreter, or a
    /// name in the server's policy file
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Network of the key's sessions, in place of the server's: off, open, or hosts such as
    /// `data.example,*.example.org,api.example.org:8443`
    #[arg(long, value_name = "RULES")]
    network: Option<NetworkRules>,
    /// Time until expiry, such as 12h, 30d or 8w [default: no expiry]
    #[arg(long, value_name = "TIME", value_parser = life)]
    expires: Option<SignedDuration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl CreateOptions {
    /// The body of a request for this key.
    fn wanted(&self) -> Map<String, Value> {
        let scopes: Vec<_> = self.scope.iter().map(|scope| scope.as_str()).collect();
        let fields = [
            ("name", Some(json!(self.name))),
            ("scopes", Some(json!(scopes))),
            ("executions_per_minute", self.rate.map(Value::from)),
            ("sessions", self.sessions.map(Value::from)),
            ("storage_bytes", self.storage.map(Value::from)),
            ("policy", self.policy.clone().map(Value::from)),
            ("network", self.network.as_ref().map(|rules| json!(rules.to_string()))),
            ("expires_in", self.expires.map(|life| json!(life.as_secs()))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

pub(crate) fn main(data: &Data, command: Command) -> ExitCode {
    // Without a data folder, only `create` has something to do.
    let is_needed = data.folder.exists() || matches!(command, Command::Create(_));
    if is_needed
        && let Err(error) = rights::become_server_user(data.run_as.as_deref(), &data.folder)
    {
        return fail(&*error, start::hint(&*error).as_deref());
    }
    let ring = match KeyRing::open(data.folder.join("keys.json")) {
        Ok(ring) => ring,
        Err(error) => return fail(&error, None),
    };
    let answer = match command {
        Command::Create(options) => create(&ring, options, try_print).map(|()| String::new()),
        Command::List { json } => list(&ring, json),
        Command::Revoke { key, json } => revoke(&ring, &key, json),
    };
    match answer {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, None),
    }
}

/// Shows the key itself before it is stored; `show` says whether it succeeded.
fn create(
    ring: &KeyRing,
    options: CreateOptions,
    show: impl FnOnce(&str) -> bool,
) -> Result<(), Error> {
    let wanted = NewKey {
        name: options.name,
        scopes: options.scope.into_iter().collect::<Scopes>(),
        quota: Quota {
            sessions: options.sessions,
            storage_bytes: options.storage,
            executions_per_minute: options.rate,
        },
        policy: options.policy,
        network: options.network,
        expires_at: options.expires.map(|life| whole_seconds(Timestamp::now() + life)),
    };
    let (key, _) = ring.create_told(wanted, |key, plaintext| {
        show(&match options.json {
            true => pretty(&json!({ "key": plaintext.expose(), "about": key })),
            false => format!("{}\n", plaintext.expose()),
        })
    })?;
    let (name, id) = (&key.name, &key.id);
    tell(&format!("key `{name}` ({id}) created: {}", describe(&key)));
    tell("Save it now: only its digest is stored, and it cannot be shown again.");
    tell("Clients send it as `Authorization: Bearer <key>` or `X-API-Key: <key>`.");
    Ok(())
}

fn list(ring: &KeyRing, json: bool) -> Result<String, Error> {
    let keys = ring.list()?;
    if json {
        return Ok(pretty(&json!(keys)));
    }
    let mut text = String::new();
    for key in &keys {
        writeln!(text, "{:<13} {:<24} {}", key.id, key.name, describe(key)).unwrap_or_default();
    }
    if keys.is_empty() {
        tell("There are no keys; `woma keys create NAME` creates one.");
    }
    Ok(text)
}

fn revoke(ring: &KeyRing, key: &str, is_json: bool) -> Result<String, Error> {
    let revoked = ring.revoke(key)?;
    tell("A running server rejects it within a second.");
    if is_json {
        let (id, name) = (&revoked.id, &revoked.name);
        return Ok(pretty(&json!({ "key_id": id, "name": name, "revoked": true })));
    }
    Ok(format!("revoked {} ({})\n", revoked.name, revoked.id))
}

/// Describes a key in one line: scopes, quotas, expiry.
fn describe(key: &Key) -> String {
    let mut text = key.scopes.to_string();
    let Quota { sessions, storage_bytes, executions_per_minute } = key.quota;
    let limits = [
        executions_per_minute.map(|count| format!("{count} executions/min")),
        sessions.map(|count| format!("{count} sessions")),
        storage_bytes.map(|bytes| format!("{bytes} bytes")),
        key.policy.as_ref().map(|name| format!("policy {name}")),
        key.network.as_ref().map(|rules| format!("network {rules}")),
        key.expires_at.map(|end| {
            let over = end <= Timestamp::now();
            format!("{} {end}", if over { "expired" } else { "expires" })
        }),
        key.revoked_at.map(|end| format!("revoked {end}")),
    ];
    for limit in limits.iter().flatten() {
        text = format!("{text}, {limit}");
    }
    text
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn whole_seconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

fn split(text: &str) -> Result<(i64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("`{text}` does not begin with a number"))?;
    Ok((number, unit))
}

fn life(text: &str) -> Result<SignedDuration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "m" => 60,
        "h" => 60 * 60,
        "d" => DAY_SECONDS,
        "w" => 7 * DAY_SECONDS,
        _ => return Err("use m, h, d or w after the number".to_owned()),
    };
    match number.checked_mul(seconds) {
        Some(life) if (1..=LIFE_DAYS_MAX * DAY_SECONDS).contains(&life) => {
            Ok(SignedDuration::from_secs(life))
        }
        _ => Err("the lifetime of a key is between 1m and 3650d".to_owned()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let wanted = units::bytes(text).filter(|bytes| *bytes > 0);
    wanted.ok_or_else(|| "use a number followed by k, m, g or t".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use jiff::SignedDuration;
    use woma_core::Scopes;
    use woma_core::keys::KeyRing;

    use super::{Command, create, list, revoke};
    use super::{bytes, life};

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(words: &[&str]) -> Result<Command, clap::Error> {
        let words = [&["keys"], words].concat();
        Line::try_parse_from(words).map(|line| line.command)
    }

    fn make(ring: &KeyRing, words: &[&str]) -> String {
        let mut shown = String::new();
        let show = |text: &str| {
            shown.push_str(text);
            true
        };
        match parse(words).unwrap() {
            Command::Create(options) => create(ring, options, show).unwrap(),
            other => panic!("{other:?}"),
        }
        shown
    }

    #[test]
    fn parses_lifetimes_and_sizes() {
        let table = [("1m", 60), ("12h", 43_200), ("30d", 2_592_000), ("8w", 4_838_400)];
        for (text, seconds) in table {
            assert_eq!(life(text), Ok(SignedDuration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "d", "0d", "30", "30x", "-1d", "1.5d", "3651d", "99999999999999999999d", "1 d"]
        {
            assert!(life(text).is_err(), "{text}");
        }
        for (text, expected) in
            [("1", 1), ("2k", 2048), ("3M", 3 << 20), ("4GB", 4 << 30), ("5tib", 5 << 40)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "0g", "g", "-1", "1x", "1bb", "99999999999g", "9223372036854775807t"]
        {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_is_made_listed_and_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let ring = KeyRing::open(folder.path().join("keys.json")).unwrap();
        let words = ["create", "ci", "--scope", "read,admin", "--rate", "5", "--sessions", "2"];
        let words = [&words[..], &["--storage", "1g", "--expires", "30d"]].concat();
        let printed = make(&ring, &words);
        let plaintext = printed.strip_suffix('\n').unwrap();
        let caller = ring.authenticate(plaintext).unwrap().unwrap();
        assert_eq!(caller.scopes, Scopes { read: true, admin: true, ..Scopes::none() });
        assert_eq!(caller.quota.storage_bytes, Some(1 << 30));
        assert_eq!(caller.quota.sessions, Some(2));
        assert_eq!(caller.quota.executions_per_minute, Some(5));

        let secret = plaintext.rsplit('_').next().unwrap();
        let (text, json) = (list(&ring, false).unwrap(), list(&ring, true).unwrap());
        assert!(text.contains("ci") && text.contains("read,admin, 5 executions/min, 2 sessions"));
        assert!(!text.contains(secret) && !json.contains(secret) && !json.contains("sha256"));

        assert!(revoke(&ring, "ci", false).unwrap().starts_with("revoked ci ("));
        assert_eq!(ring.authenticate(plaintext).unwrap(), None);
        assert!(list(&ring, false).unwrap().contains("revoked"));
        assert!(revoke(&ring, "ci", true).is_err());
    }

    #[test]
    fn json_contains_the_key_and_its_details() {
        let folder = tempfile::tempdir().unwrap();
        let ring = KeyRing::open(folder.path().join("keys.json")).unwrap();
        let printed = make(&ring, &["create", "a", "--json"]);
        let value: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(ring.authenticate(value["key"].as_str().unwrap()).unwrap().is_some());
        assert_eq!(value["about"]["name"], "a");
        assert_eq!(value["about"]["scopes"], serde_json::json!(["execute", "read"]));
    }

    #[test]
    fn wrong_options_are_refused() {
        let table: [&[&str]; 7] = [
            &["create"],
            &["create", "a", "--scope", "root"],
            &["create", "a", "--scope", ""],
            &["create", "a", "--rate", "0"],
            &["create", "a", "--storage", "0"],
            &["create", "a", "--expires", "soon"],
            &["revoke"],
        ];
        for words in table {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
