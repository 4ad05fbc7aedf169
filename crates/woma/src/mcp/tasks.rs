//! Tasks: long executions that a client which knows how fetches later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus,
};
use tokio_util::sync::CancellationToken;
use woma_core::{Caller, CallerId, Execution, Running};

use crate::error::Envelope;

/// How long the result of a task is kept.
const KEPT: Duration = Duration::from_mins(60);
/// A result takes up to a megabyte.
const TASKS_MAX: usize = 64;
const POLL_MS: u64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct Tasks {
    table: Arc<Mutex<BTreeMap<String, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    owner: CallerId,
    task: Task,
    payload: TaskPayload,
    stop: CancellationToken,
    since: Instant,
}

impl Tasks {
    /// Takes a running execution over. When it ends, its answer is made and kept.
    pub(super) fn adopt<F>(
        &self,
        caller: &Caller,
        mut running: Running,
        answer: impl FnOnce(Execution) -> F + Send + 'static,
    ) -> CreateTaskResult
    where
        F: Future<Output = CallToolResult> + Send,
    {
        let id = running.execution_id().to_string();
        let now = jiff::Timestamp::now().to_string();
        let ttl_ms = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
        let task = Task::new(id.clone(), TaskStatus::Working, now.clone(), now)
            .with_ttl_ms(ttl_ms)
            .with_poll_interval_ms(POLL_MS);
        let stop = CancellationToken::new();
        let entry = Entry {
            owner: caller.id.clone(),
            task: task.clone(),
            payload: TaskPayload::Working,
            stop: stop.clone(),
            since: Instant::now(),
        };
        self.insert(id.clone(), entry);
        let table = Arc::clone(&self.table);
        tokio::spawn(async move {
            let end = tokio::select! {
                end = running.finish() => Some(end),
                () = stop.cancelled() => None,
            };
            let payload = match end {
                None => TaskPayload::Cancelled,
                Some(Ok(execution)) => completed(&answer(execution).await),
                Some(Err(error)) => failed(&Envelope::from(error).message),
            };
            drop(running);
            if let Some(entry) = lock(&table).get_mut(&id) {
                entry.task.last_updated_at = jiff::Timestamp::now().to_string();
                entry.payload = payload;
                entry.since = Instant::now();
            }
        });
        CreateTaskResult::new(task)
    }

    fn insert(&self, id: String, entry: Entry) {
        let mut table = lock(&self.table);
        table.retain(|_, entry| {
            !entry.payload.status().is_terminal() || entry.since.elapsed() < KEPT
        });
        if table.len() >= TASKS_MAX {
            let ended = table.iter().filter(|(_, entry)| entry.payload.status().is_terminal());
            let oldest = ended.min_by_key(|(_, entry)| entry.since).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                table.remove(&oldest);
            }
        }
        table.insert(id, entry);
    }

    pub(super) fn get(&self, caller: &Caller, id: &str) -> Result<GetTaskResult, ErrorData> {
        let table = lock(&self.table);
        let entry = table.get(id).filter(|entry| entry.owner == caller.id).ok_or_else(unknown)?;
        Ok(GetTaskResult::new(DetailedTask::new(entry.task.clone(), entry.payload.clone())))
    }

    pub(super) fn cancel(&self, caller: &Caller, id: &str) -> Result<(), ErrorData> {
        let table = lock(&self.table);
        let entry = table.get(id).filter(|entry| entry.owner == caller.id).ok_or_else(unknown)?;
        entry.stop.cancel();
        Ok(())
    }
}

fn completed(result: &CallToolResult) -> TaskPayload {
    match serde_json::to_value(result) {
        Ok(serde_json::Value::Object(result)) => TaskPayload::Completed { result },
        _ => failed("the answer could not be written"),
    }
}

fn failed(message: &str) -> TaskPayload {
    let code = rmcp::model::ErrorCode::INTERNAL_ERROR.0;
    let mut error = rmcp::model::JsonObject::new();
    error.insert("code".to_owned(), code.into());
    error.insert("message".to_owned(), message.into());
    TaskPayload::Failed { error }
}

fn unknown() -> ErrorData {
    ErrorData::invalid_params("there is no such task, or it is too old", None)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rmcp::model::{Task, TaskPayload, TaskStatus};
    use tokio_util::sync::CancellationToken;
    use woma_core::{Caller, CallerId};

    use super::{Entry, TASKS_MAX, Tasks, lock};

    fn entry(owner: &str, payload: TaskPayload) -> Entry {
        let task = Task::new("t".to_owned(), TaskStatus::Working, String::new(), String::new());
        let (owner, stop) = (CallerId::new(owner), CancellationToken::new());
        Entry { owner, task, payload, stop, since: Instant::now() }
    }

    #[test]
    fn ended_tasks_make_room_and_running_ones_never_do() {
        let tasks = Tasks::default();
        tasks.insert("running".to_owned(), entry("me", TaskPayload::Working));
        for number in 0..TASKS_MAX * 2 {
            tasks.insert(format!("ended {number}"), entry("me", TaskPayload::Cancelled));
        }
        assert_eq!(lock(&tasks.table).len(), TASKS_MAX);
        let me = Caller { id: CallerId::new("me"), ..Caller::local() };
        assert!(tasks.get(&me, "running").is_ok());
        assert!(tasks.get(&me, "ended 0").is_err(), "the oldest went first");
        assert!(tasks.get(&me, &format!("ended {}", TASKS_MAX * 2 - 1)).is_ok());
        let other = Caller { id: CallerId::new("other"), ..Caller::local() };
        assert!(tasks.get(&other, "running").is_err() && tasks.cancel(&other, "running").is_err());
    }
}
