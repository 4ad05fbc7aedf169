//! Output of earlier runs.

use std::sync::Arc;

use super::Service;
use crate::error::Error;
use crate::execution::output_cache::Entry;
use crate::model::caller::Caller;
use crate::model::{Picture, SessionId};
use crate::text::{self, OutputStream, Page};
use crate::workspace::files::blocking;

impl Service {
    /// Output of threads and processes of a session after their run had ended.
    pub fn session_log(&self, caller: &Caller, id: &SessionId) -> Result<String, Error> {
        caller.may_read()?;
        let log = self.sessions.find(caller, id)?.log();
        // Looking held the turn for a moment, in which the session could not be evicted.
        self.sessions.make_room();
        Ok(log)
    }

    /// A part of an earlier execution's output, by characters.
    pub async fn read_output(
        &self,
        caller: &Caller,
        execution_id: &str,
        stream: OutputStream,
        offset: u64,
        limit: usize,
    ) -> Result<Page, Error> {
        let entry = self.kept(caller, execution_id)?;
        let kept = match stream {
            OutputStream::Stdout => &entry.stdout,
            OutputStream::Stderr => &entry.stderr,
            OutputStream::Traceback => &entry.traceback,
            OutputStream::Result => &entry.result,
            OutputStream::Late => &entry.late,
        };
        let Some((middle, gap)) = entry.middle(stream) else {
            return Ok(text::page(&text::readable(kept), offset, limit));
        };
        let head = kept.get(..gap.start).unwrap_or_default().to_owned();
        let tail = kept.get(gap.end..).unwrap_or_default().to_owned();
        blocking(move || Ok(middle.page(&head, &tail, offset, limit)?)).await
    }

    /// A picture of an earlier execution; they count from 1.
    pub fn picture(
        &self,
        caller: &Caller,
        execution_id: &str,
        number: usize,
    ) -> Result<Picture, Error> {
        let entry = self.kept(caller, execution_id)?;
        let picture = number.checked_sub(1).and_then(|index| entry.pictures.get(index));
        picture.cloned().ok_or_else(|| Error::NoPicture(entry.id.clone(), number))
    }

    fn kept(&self, caller: &Caller, execution_id: &str) -> Result<Arc<Entry>, Error> {
        caller.may_read()?;
        let entry = self.executor.output_cache.find(&caller.id, execution_id);
        let shown: String = execution_id.chars().take(64).collect();
        entry.ok_or(Error::NoExecution(shown))
    }
}
