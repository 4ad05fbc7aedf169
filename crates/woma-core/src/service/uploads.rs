//! Uploads in parts, for files that are too large or connections that are too weak for one request.

use std::io;

use bytes::Bytes;
use futures_util::Stream;

use super::Service;
use crate::error::Error;
use crate::model::SessionId;
use crate::model::caller::Caller;
use crate::workspace::files::Destination;
use crate::workspace::links::Content;
use crate::workspace::uploads::{Added, Upload, UploadState};

impl Service {
    /// Begins an upload of so many bytes.
    pub async fn begin_upload(
        &self,
        caller: &Caller,
        session: &SessionId,
        place: Destination<'_>,
        size_bytes: u64,
    ) -> Result<Upload, Error> {
        caller.may_execute()?;
        self.workspaces()?.begin_upload(caller, session, place, size_bytes).await
    }

    pub async fn upload(&self, caller: &Caller, id: &str) -> Result<Upload, Error> {
        caller.may_execute()?;
        self.workspaces()?.upload(caller, id).await
    }

    pub async fn give_up_upload(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        caller.may_execute()?;
        self.workspaces()?.give_up_upload(caller, id).await
    }

    /// Adds a part that begins where the last one ended; the last part puts the file into its
    /// session. Bytes that come before an error are kept.
    pub async fn continue_upload(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
        content: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    ) -> Result<UploadState, Error> {
        caller.may_execute()?;
        let whole = match self.workspaces()?.add_part(caller, id, offset, content).await? {
            Added::Open(upload) => return Ok(UploadState::Open(upload)),
            Added::Whole(whole) => whole,
        };
        let upload = whole.upload.clone();
        let pieces = Content::File(whole.file.try_clone()?).pieces(0, upload.size_bytes);
        let place = Destination::Path(&upload.path);
        let written = self.write_file(caller, &upload.session, place, pieces).await?;
        whole.remove().await?;
        Ok(UploadState::Done(upload.session, written))
    }
}
