//! Creation of a session, with files from URLs: the request and the reply of REST and MCP.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use woma_core::{Caller, Code, NewSecret, NewSession, SessionChange, SessionId};

use super::arguments::{Arguments, Problem};
use super::error::Envelope;
use super::reply::WORKSPACE;
use super::schema::{network_field, session_id_field};
use super::sessions::Session;
use super::state::AppState;

/// Limit of files that one call downloads.
const FILE_URLS_MAX: usize = 20;
/// Time of one download, if the call does not say.
const DOWNLOAD_SECONDS: f64 = 30.0;
/// Longest time of one download.
const DOWNLOAD_SECONDS_MAX: f64 = 300.0;

/// A session to create. Every field is optional.
#[derive(Debug, JsonSchema)]
#[schemars(transform = nothing_is_required)]
pub(crate) struct SessionBody {
    /// Default: a random id.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
    /// Display name.
    #[schemars(with = "String", extend("maxLength" = 1000))]
    name: Option<String>,
    #[schemars(with = "String", extend("maxLength" = 1000))]
    description: Option<String>,
    /// Policy for the session's code; it can only narrow the policy of the server or the key.
    #[schemars(with = "String")]
    policy: Option<String>,
    /// Environment: a Python with packages and limits that the operator has named; `get_sandbox_info`
    /// describes them. By default the server's own.
    #[schemars(with = "String")]
    environment: Option<String>,
    /// Up to 32 names and values, to find sessions by.
    #[schemars(with = "BTreeMap<String, String>", extend("maxProperties" = 32))]
    labels: Option<BTreeMap<String, String>>,
    /// Seconds without a call after which the session is deleted; at most and by default the
    /// server's `SESSION_TTL_HOURS`.
    #[schemars(with = "u64", extend("minimum" = 1))]
    lifetime: Option<u64>,
    /// Network of its code, within that of the server or the key: `off`, `open`, or hosts, as a text
    /// or a list.
    #[schemars(schema_with = "network_field")]
    network: Option<String>,
    /// Secrets of its own, 32 at most. Code sees placeholders in environment variables of their names,
    /// and requests to their hosts have the values.
    #[schemars(with = "Vec<SecretBody>", extend("maxItems" = 32))]
    secrets: Option<Vec<NewSecret>>,
    /// Open the session in containers.
    use_container: bool,
    /// Files to download into the session: public http or https addresses, 20 at most.
    #[schemars(with = "Vec<String>")]
    file_urls: Option<Vec<String>>,
    /// Seconds for each download; 30 by default, 300 at most.
    #[schemars(with = "f64")]
    timeout: Option<f64>,
}

fn nothing_is_required(schema: &mut schemars::Schema) {
    schema.remove("required");
}

/// A secret that is bound to hosts. The server keeps its value in memory only.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretBody {
    /// Name of the environment variable that has the placeholder.
    #[schemars(extend("maxLength" = 64))]
    name: String,
    /// One line of visible ASCII characters.
    #[schemars(extend("minLength" = 8, "maxLength" = 4096))]
    value: String,
    /// Hosts that receive the value: `api.example.org`, `*.example.org:8443`. Without a port: HTTPS.
    #[schemars(extend("minItems" = 1, "maxItems" = 32))]
    hosts: Vec<String>,
    /// Parts of a request that may have the value: `headers`, `path`, `query`, `body`. Default: headers.
    #[serde(default)]
    places: Vec<String>,
}

/// The argument `secrets`. No message has a value.
pub(crate) fn secrets(arguments: &mut Arguments) -> Result<Option<Vec<NewSecret>>, Envelope> {
    let Some(given) = arguments.value(&["secrets"])? else { return Ok(None) };
    let read = match given {
        Value::Null => Ok(Vec::new()),
        given => serde_json::from_value::<Vec<SecretBody>>(given),
    };
    let read = read.map_err(|_| {
        Envelope::new(Code::InvalidArgument, "`secrets` is not a list of secrets".to_owned())
            .with_hint(
                "each is an object of `name`, `value`, `hosts` (a list) and, if values may stand \
                 elsewhere than in headers, `places` (a list)",
            )
    })?;
    let made = read.into_iter().map(|SecretBody { name, value, hosts, places }| NewSecret {
        name,
        value,
        hosts,
        places,
    });
    Ok(Some(made.collect()))
}

/// The argument `network`: a text, or a list of hosts.
fn network_text(arguments: &mut Arguments) -> Result<Option<String>, Problem> {
    Ok(arguments.list(&["network"])?.map(|hosts| hosts.join(", ")))
}

/// A change of a session: what the arguments leave out stays as it is.
pub(crate) fn change(arguments: &mut Arguments) -> Result<SessionChange, Envelope> {
    let lifetime = arguments.count(&["lifetime"])?;
    Ok(SessionChange {
        name: arguments.text(&["name"])?,
        description: arguments.text(&["description"])?,
        labels: arguments.texts(&["labels"])?,
        network: network_text(arguments)?.map(|text| (text != "default").then_some(text)),
        secrets: secrets(arguments)?,
        lifetime: lifetime.map(|seconds| (seconds > 0).then(|| Duration::from_secs(seconds))),
    })
}

/// A session that was created, and the files that were downloaded into it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CreatedSession {
    #[serde(flatten)]
    pub(crate) session: Session,
    /// The same as `sandbox_dir`.
    pub(crate) working_directory: &'static str,
    /// Names of the files that `file_urls` asked for.
    pub(crate) downloaded_files: Vec<String>,
    /// One sentence for each file that could not be downloaded.
    pub(crate) errors: Vec<String>,
    /// Notes on the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Creates a session and downloads its files. A failed download is in the reply: the session exists.
pub(crate) async fn create(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<CreatedSession, Envelope> {
    let body = SessionBody {
        session_id: arguments.text(&["session_id"])?,
        name: arguments.text(&["name"])?,
        description: arguments.text(&["description"])?,
        policy: arguments.text(&["policy"])?,
        environment: arguments.text(&["environment"])?,
        labels: arguments.texts(&["labels"])?,
        lifetime: arguments.count(&["lifetime"])?,
        network: network_text(&mut arguments)?,
        secrets: secrets(&mut arguments)?,
        use_container: arguments.flag(&["use_container"])?.unwrap_or(false),
        file_urls: arguments.list(&["file_urls", "files"])?,
        timeout: arguments.number(&["timeout"])?,
    };
    let urls: Vec<String> = body.file_urls.unwrap_or_default();
    if urls.len() > FILE_URLS_MAX {
        let message =
            format!("`file_urls` has {} addresses; the limit is {FILE_URLS_MAX}", urls.len());
        return Err(Envelope::new(Code::TooLarge, message)
            .with_hint("download the rest with fetch_from_url"));
    }
    let wanted = NewSession {
        id: body.session_id.as_deref().map(SessionId::parse).transpose()?,
        name: body.name,
        description: body.description.unwrap_or_default(),
        policy: body.policy,
        environment: body.environment,
        labels: body.labels.unwrap_or_default(),
        lifetime: body.lifetime.map(Duration::from_secs),
        network: body.network,
        secrets: body.secrets.unwrap_or_default(),
        use_container: body.use_container,
    };
    let made = state.service.create_session(caller, wanted).await?;
    let seconds = body.timeout.unwrap_or(DOWNLOAD_SECONDS).clamp(1.0, DOWNLOAD_SECONDS_MAX);
    let limit = Duration::from_secs_f64(seconds);
    let (mut downloaded_files, mut errors) = (Vec::new(), Vec::new());
    for url in urls {
        match download(state, caller, &made.id, &url, limit).await {
            Ok(name) => downloaded_files.push(name),
            Err(error) => errors.push(error),
        }
    }
    Ok(CreatedSession {
        session: made.into(),
        working_directory: WORKSPACE,
        downloaded_files,
        errors,
        warnings: arguments.unknown().collect(),
    })
}

/// Name of the downloaded file, or the reason why there is none.
async fn download(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    url: &str,
    limit: Duration,
) -> Result<String, String> {
    let fetching = state.service.fetch_from_url(caller, session, url, None);
    let shown: String = url.chars().take(200).collect();
    match tokio::time::timeout(limit, fetching).await {
        Ok(Ok(written)) => Ok(written.path),
        Ok(Err(error)) => Err(format!("{shown}: {}", Envelope::from(error).message)),
        Err(_) => Err(format!("{shown}: not complete after {} s", limit.as_secs())),
    }
}
