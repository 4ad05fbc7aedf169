//! Addresses of files: a stored version outlives the session that made it. A client that knows an
//! address may download.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::Service;
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{SessionId, StoredFile};
use crate::storage::blobs::Digest;
use crate::workspace::links::{Chart, Content, Downloaded, shown_number};

impl Service {
    /// Stores a file of a session as it is now, and gives it an address. One that is stored already
    /// keeps its address, unless that expires soon.
    pub async fn make_address(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: &str,
    ) -> Result<StoredFile, Error> {
        let opened = self.open_file(caller, session, path).await?;
        let stored = self.workspaces()?.make_address(caller, session, opened).await?;
        let detail = json!({ "path": stored.path, "bytes": stored.size_bytes });
        self.note(caller, "export_link", Some(session), &detail);
        Ok(stored)
    }

    /// A stored file by its address; `owner` where addresses are for their owners only.
    pub async fn download(&self, id: &str, owner: Option<&Caller>) -> Result<Downloaded, Error> {
        self.workspaces()?.download(id, owner).await
    }

    /// The latest file of that name that a session has made; else the latest picture that a run
    /// has shown under it.
    pub async fn chart(
        &self,
        caller: &Caller,
        session: &SessionId,
        name: &str,
    ) -> Result<Chart, Error> {
        caller.may_read()?;
        if let Some(chart) = self.workspaces()?.stored_chart(caller, session, name).await? {
            return Ok(chart);
        }
        let shown = shown_number(name).and_then(|number| {
            self.executor.output_cache.latest_picture(&caller.id, session, number)
        });
        let picture =
            shown.ok_or_else(|| Error::no_file(name.chars().take(255).collect::<String>()))?;
        Ok(Chart {
            name: name.to_owned(),
            size_bytes: picture.bytes.len() as u64,
            digest: Digest::of(&picture.bytes).to_string(),
            content: Content::Bytes(picture.bytes.to_vec().into()),
            media_type: picture.media_type,
        })
    }

    /// Counts a download in the background.
    pub fn count_download(&self, id: Uuid) {
        let Ok(workspaces) = self.workspaces().map(Arc::clone) else { return };
        tokio::spawn(async move {
            if let Err(error) = workspaces.storage.db.count_download(id).await {
                tracing::debug!(%error, "A download was not counted");
            }
        });
    }
}
