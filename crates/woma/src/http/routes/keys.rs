//! API keys over REST, for callers with the scope `admin`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::keys::{Key, KeyRing, NewKey};
use woma_core::{Code, Quota, Scope, Scopes};

use crate::api::arguments::{Arguments, Problem};
use crate::api::error::Envelope;
use crate::api::listing::PageRequest;
use crate::api::state::AppState;
use crate::http::extract::{BodyArguments, CallerOf, PathParams, QueryArguments};

/// Longest lifetime of a key, in seconds: ten years, as on the command line.
const LIFETIME_MAX_S: u64 = 3_650 * 24 * 60 * 60;

/// A key to create.
#[derive(Debug, JsonSchema)]
#[schemars(transform = name_is_required)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct KeyRequest {
    /// Unique among the keys that are not revoked.
    #[schemars(extend("maxLength" = 64, "pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    name: String,
    /// `execute`, `read` and `admin`; the caller must have each of them. Default: execute and read.
    #[schemars(schema_with = "scopes_schema")]
    scopes: Vec<String>,
    /// Seconds until it expires. Default: it does not.
    #[schemars(with = "u64", extend("minimum" = 1, "maximum" = LIFETIME_MAX_S))]
    expires_in: Option<u64>,
    /// Limit of executions a minute.
    #[schemars(with = "u32", extend("minimum" = 1))]
    executions_per_minute: Option<u32>,
    /// Limit of concurrent sessions.
    #[schemars(with = "u32", extend("minimum" = 1))]
    sessions: Option<u32>,
    /// Storage quota, in bytes.
    #[schemars(with = "u64", extend("minimum" = 1))]
    storage_bytes: Option<u64>,
    /// Policy for the code of its callers, in place of the server's.
    #[schemars(with = "String")]
    policy: Option<String>,
    /// Network of its callers' sessions, in place of the server's: `off`, `open`, or hosts.
    #[schemars(with = "String")]
    network: Option<String>,
}

fn name_is_required(schema: &mut schemars::Schema) {
    schema.insert("required".to_owned(), serde_json::json!(["name"]));
}

fn scopes_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array", "minItems": 1, "uniqueItems": true,
        "items": { "type": "string", "enum": ["execute", "read", "admin"] },
    })
}

/// A key without its secret.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyBody {
    key_id: String,
    name: String,
    scopes: Vec<&'static str>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    revoked_at: Option<String>,
    /// Whether requests with it are accepted now.
    is_usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    executions_per_minute: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    sessions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    storage_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    network: Option<String>,
}

impl From<Key> for KeyBody {
    fn from(key: Key) -> Self {
        Self {
            is_usable: key.is_usable(Timestamp::now()),
            key_id: key.id,
            name: key.name,
            scopes: key.scopes.iter().map(Scope::as_str).collect(),
            created_at: key.created_at.to_string(),
            expires_at: key.expires_at.map(|time| time.to_string()),
            revoked_at: key.revoked_at.map(|time| time.to_string()),
            executions_per_minute: key.quota.executions_per_minute,
            sessions: key.quota.sessions,
            storage_bytes: key.quota.storage_bytes,
            policy: key.policy,
            network: key.network.map(|rules| rules.to_string()),
        }
    }
}

/// A new key. Its secret is shown once and stored nowhere.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CreatedKey {
    /// The whole key, which a client sends as `Authorization: Bearer <key>`.
    key: String,
    #[serde(flatten)]
    about: KeyBody,
}

/// Keys in the order of their ids, including revoked ones.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Keys {
    keys: Vec<KeyBody>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next: Option<String>,
}

pub(crate) async fn list(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    Extension(ring): Extension<Arc<KeyRing>>,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<Keys>, Envelope> {
    let page = PageRequest::read(&mut query)?;
    let keys = state.service.keys(&caller, &ring).await?;
    let (keys, next) = page.of(keys, |key| &key.id);
    Ok(Json(Keys { keys: keys.into_iter().map(KeyBody::from).collect(), next }))
}

pub(crate) async fn show(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    Extension(ring): Extension<Arc<KeyRing>>,
    PathParams(id): PathParams<String>,
) -> Result<Json<KeyBody>, Envelope> {
    let keys = state.service.keys(&caller, &ring).await?;
    let found = keys.into_iter().find(|key| key.id == id);
    found.map(|key| Json(key.into())).ok_or_else(|| {
        let id: String = id.chars().take(64).collect();
        Envelope::new(Code::NotFound, format!("the key `{id}` does not exist"))
    })
}

pub(crate) async fn create(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    Extension(ring): Extension<Arc<KeyRing>>,
    BodyArguments(mut arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let wanted = wanted(&mut arguments)?;
    if let Some(name) = arguments.names().next() {
        let name: String = name.chars().take(64).collect();
        let message = format!("`{name}` is not a field of a new key");
        return Err(Envelope::new(Code::InvalidArgument, message));
    }
    let (key, secret) = state.service.create_key(&caller, &ring, wanted).await?;
    let location = format!("/api/v1/keys/{}", key.id);
    let created = CreatedKey { key: secret.expose().to_owned(), about: key.into() };
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(created)).into_response())
}

fn wanted(arguments: &mut Arguments) -> Result<NewKey, Envelope> {
    let name = arguments.required(&["name"], "a name for the key")?;
    let scopes = match arguments.list(&["scopes"])? {
        None => Scopes::usual(),
        Some(words) => words.iter().map(|word| scope(word)).collect::<Result<_, _>>()?,
    };
    let life = positive(arguments, "expires_in", LIFETIME_MAX_S)?;
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let rate = positive(arguments, "executions_per_minute", u32::MAX.into())?;
    let sessions = positive(arguments, "sessions", u32::MAX.into())?;
    let network = arguments.text(&["network"])?;
    Ok(NewKey {
        name,
        scopes,
        quota: Quota {
            sessions: small(sessions),
            storage_bytes: positive(arguments, "storage_bytes", u64::MAX)?,
            executions_per_minute: small(rate),
        },
        policy: arguments.text(&["policy"])?,
        network: network.map(|text| text.parse().map_err(woma_core::Error::from)).transpose()?,
        expires_at: life.map(expiry),
    })
}

fn scope(word: &str) -> Result<Scope, Envelope> {
    word.parse().map_err(|_| {
        let word: String = word.chars().take(40).collect();
        let message = format!("`{word}` is no scope: use execute, read or admin");
        Envelope::new(Code::InvalidArgument, message)
    })
}

fn positive(
    arguments: &mut Arguments,
    name: &'static str,
    most: u64,
) -> Result<Option<u64>, Problem> {
    let Some(number) = arguments.count(&[name])? else { return Ok(None) };
    let expected = "a positive whole number within its range";
    match (1..=most).contains(&number) {
        true => Ok(Some(number)),
        false => Err(Problem::Wrong { name, expected, got: number.to_string() }),
    }
}

/// In whole seconds, to keep the file of keys readable.
fn expiry(life_s: u64) -> Timestamp {
    let now = Timestamp::now().as_second();
    let end = now.saturating_add(i64::try_from(life_s).unwrap_or(i64::MAX));
    Timestamp::from_second(end).unwrap_or(Timestamp::MAX)
}

pub(crate) async fn revoke(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    Extension(ring): Extension<Arc<KeyRing>>,
    PathParams(id): PathParams<String>,
) -> Result<StatusCode, Envelope> {
    state.service.revoke_key(&caller, &ring, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
