//! The request of a job as it is stored: read again by the server that runs it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::model::caller::{Caller, CallerId, Quota, Scopes};
use crate::model::{Execute, SessionChoice, hex};

/// Code to run, with its options.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredRequest {
    code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    variables: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdin: Option<String>,
    capture_output: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowed_imports: Option<Vec<String>>,
    inline_displays: bool,
}

/// A caller, with the permissions that it had when it asked for the job.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredCaller {
    id: String,
    name: String,
    scopes: Scopes,
    quota: Quota,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<String>,
}

/// A request and its digest, by which a repeated one is told from another one.
pub(crate) fn write(request: &Execute) -> Result<(String, String), Error> {
    let Execute { source, timeout, memory_bytes, variables, stdin, .. } = request.clone();
    let stored = StoredRequest {
        code: source,
        timeout: timeout.filter(|timeout| timeout.is_finite()),
        memory_bytes,
        variables,
        stdin,
        capture_output: request.capture_output,
        allowed_imports: request.allowed_imports.clone(),
        inline_displays: request.inline_displays,
    };
    let json = serde_json::to_string(&stored).map_err(|_| Error::Lost)?;
    let session = request.session.named();
    let session = session.as_ref().map_or("", |session| session.as_str());
    let digest = Sha256::new().chain_update(session).chain_update([0]).chain_update(&json);
    Ok((json, hex(&digest.finalize())))
}

/// The digest of a request whose end is told to an address.
pub(crate) fn with_webhook(digest: String, url: Option<&str>) -> String {
    let Some(url) = url else { return digest };
    hex(&Sha256::new().chain_update(digest).chain_update([0]).chain_update(url).finalize())
}

pub(crate) fn read(json: &str) -> Result<Execute, Error> {
    let stored: StoredRequest = serde_json::from_str(json).map_err(|_| Error::Lost)?;
    Ok(Execute {
        timeout: stored.timeout,
        memory_bytes: stored.memory_bytes,
        variables: stored.variables,
        stdin: stored.stdin,
        capture_output: stored.capture_output,
        allowed_imports: stored.allowed_imports,
        inline_displays: stored.inline_displays,
        // The session's folder is known apart; its kernel is not used.
        ..Execute::new(stored.code, SessionChoice::Ephemeral)
    })
}

pub(crate) fn write_caller(caller: &Caller) -> Result<String, Error> {
    let stored = StoredCaller {
        id: caller.id.as_str().to_owned(),
        name: caller.name.clone(),
        scopes: caller.scopes,
        quota: caller.quota,
        policy: caller.policy.as_deref().map(str::to_owned),
        network: caller.network.as_deref().map(str::to_owned),
    };
    serde_json::to_string(&stored).map_err(|_| Error::Lost)
}

pub(crate) fn read_caller(json: &str) -> Result<Caller, Error> {
    let stored: StoredCaller = serde_json::from_str(json).map_err(|_| Error::Lost)?;
    Ok(Caller {
        id: CallerId::new(stored.id),
        name: stored.name,
        scopes: stored.scopes,
        quota: stored.quota,
        policy: stored.policy.map(Into::into),
        network: stored.network.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use super::{read, read_caller, write, write_caller};
    use crate::model::caller::Caller;
    use crate::model::{Execute, SessionChoice, SessionId};

    #[test]
    fn a_request_is_read_as_it_was_written_and_its_digest_tells_sessions_apart() {
        let named = |id: &str| SessionChoice::Named(SessionId::parse(id).unwrap());
        let mut request = Execute::new("print(1)", named("a"));
        request.timeout = Some(3.5);
        request.variables.insert("x".to_owned(), 1.into());
        request.stdin = Some("yes\n".to_owned());
        let (json, digest) = write(&request).unwrap();
        let read = read(&json).unwrap();
        assert_eq!((read.source, read.timeout), ("print(1)".to_owned(), Some(3.5)));
        assert_eq!(
            (read.variables, read.stdin),
            (request.variables.clone(), request.stdin.clone())
        );
        let other = Execute { session: named("b"), ..request.clone() };
        assert_ne!(write(&other).unwrap().1, digest);
        assert_eq!(write(&request).unwrap().1, digest);
    }

    #[test]
    fn a_caller_keeps_its_scopes_and_rules() {
        let (policy, network) = (Some("closed".into()), Some("data.example".into()));
        let caller = Caller { policy, network, ..Caller::local() };
        assert_eq!(read_caller(&write_caller(&caller).unwrap()).unwrap(), caller);
    }
}
