//! MCP tasks: long executions whose result the client fetches later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus,
};
use tokio_util::sync::CancellationToken;
use woma_core::{Caller, CallerId, Execution, Running, share_of_caller};
use woma_sandbox::sync::lock;

use crate::api::error::Envelope;

/// Retention of a task's result.
const KEPT: Duration = Duration::from_mins(60);
/// Limit of tasks; a result takes up to a megabyte.
const TASKS_MAX: usize = 64;
/// Limit of one caller's tasks.
const TASKS_OF_CALLER_MAX: usize = share_of_caller(TASKS_MAX);
const POLL_MS: u64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct Tasks {
    table: Arc<Mutex<BTreeMap<String, TaskEntry>>>,
}

#[derive(Debug)]
struct TaskEntry {
    owner: CallerId,
    task: Task,
    payload: TaskPayload,
    stop: CancellationToken,
    since: Instant,
}

impl Tasks {
    /// Whether another task has room: ended ones make way, running ones do not. Without room, the
    /// call goes on as an ordinary one.
    pub(super) fn has_room(&self, caller: &Caller) -> bool {
        let table = lock(&self.table);
        let running = table.values().filter(|entry| !entry.payload.status().is_terminal());
        let owners: Vec<&CallerId> = running.map(|entry| &entry.owner).collect();
        let of_caller = owners.iter().filter(|owner| ***owner == caller.id).count();
        owners.len() < TASKS_MAX && of_caller < TASKS_OF_CALLER_MAX
    }

    /// Turns a running execution into a task; its result is stored when it ends.
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
        let entry = TaskEntry {
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

    fn insert(&self, id: String, entry: TaskEntry) {
        let mut table = lock(&self.table);
        table.retain(|_, entry| {
            !entry.payload.status().is_terminal() || entry.since.elapsed() < KEPT
        });
        let of_caller = table.values().filter(|known| known.owner == entry.owner).count();
        let is_over = of_caller >= TASKS_OF_CALLER_MAX;
        if is_over || table.len() >= TASKS_MAX {
            let ended = table.iter().filter(|(_, entry)| entry.payload.status().is_terminal());
            // Results of others stay, if the caller has had its part; else those of the caller
            // with the most go first.
            let largest = if is_over { Some(entry.owner.clone()) } else { largest(&table) };
            let ended = ended.filter(|(_, known)| Some(&known.owner) == largest.as_ref());
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

/// The caller with the most ended tasks.
fn largest(table: &BTreeMap<String, TaskEntry>) -> Option<CallerId> {
    let mut counts = BTreeMap::<&CallerId, usize>::new();
    for entry in table.values().filter(|entry| entry.payload.status().is_terminal()) {
        *counts.entry(&entry.owner).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(owner, _)| owner.clone())
}

fn completed(result: &CallToolResult) -> TaskPayload {
    match serde_json::to_value(result) {
        Ok(serde_json::Value::Object(result)) => TaskPayload::Completed { result },
        _ => failed("cannot encode the result"),
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
    ErrorData::invalid_params("the task does not exist or has expired", None)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rmcp::model::{Task, TaskPayload, TaskStatus};
    use tokio_util::sync::CancellationToken;
    use woma_core::{Caller, CallerId};

    use super::{TASKS_MAX, TASKS_OF_CALLER_MAX, TaskEntry, Tasks, lock};

    fn entry(owner: &str, payload: TaskPayload) -> TaskEntry {
        let task = Task::new("t".to_owned(), TaskStatus::Working, String::new(), String::new());
        let (owner, stop) = (CallerId::new(owner), CancellationToken::new());
        TaskEntry { owner, task, payload, stop, since: Instant::now() }
    }

    #[test]
    fn evicts_ended_tasks_only() {
        let tasks = Tasks::default();
        tasks.insert("running".to_owned(), entry("me", TaskPayload::Working));
        for number in 0..TASKS_MAX * 2 {
            tasks.insert(format!("ended {number}"), entry("me", TaskPayload::Cancelled));
        }
        assert_eq!(lock(&tasks.table).len(), TASKS_OF_CALLER_MAX);
        let me = Caller { id: CallerId::new("me"), ..Caller::local() };
        assert!(tasks.get(&me, "running").is_ok());
        assert!(tasks.get(&me, "ended 0").is_err(), "the oldest went first");
        assert!(tasks.get(&me, &format!("ended {}", TASKS_MAX * 2 - 1)).is_ok());
        let other = Caller { id: CallerId::new("other"), ..Caller::local() };
        assert!(tasks.get(&other, "running").is_err() && tasks.cancel(&other, "running").is_err());
    }

    #[test]
    fn a_full_table_takes_results_from_the_caller_with_the_most() {
        let tasks = Tasks::default();
        tasks.insert("old".to_owned(), entry("quiet", TaskPayload::Cancelled));
        for (owner, count) in [("greedy", TASKS_OF_CALLER_MAX), ("other", TASKS_OF_CALLER_MAX - 1)]
        {
            for number in 0..count {
                tasks.insert(format!("{owner} {number}"), entry(owner, TaskPayload::Cancelled));
            }
        }
        assert_eq!(lock(&tasks.table).len(), TASKS_MAX);
        tasks.insert("new".to_owned(), entry("newcomer", TaskPayload::Working));
        assert_eq!(lock(&tasks.table).len(), TASKS_MAX);
        let of = |name: &str| Caller { id: CallerId::new(name), ..Caller::local() };
        assert!(tasks.get(&of("quiet"), "old").is_ok(), "the oldest, of a caller with one");
        assert!(tasks.get(&of("greedy"), "greedy 0").is_err());
        assert!(tasks.get(&of("newcomer"), "new").is_ok());
    }

    #[test]
    fn one_caller_has_its_part_of_all_tasks() {
        let tasks = Tasks::default();
        let of = |name: &str| Caller { id: CallerId::new(name), ..Caller::local() };
        tasks.insert("theirs".to_owned(), entry("other", TaskPayload::Cancelled));
        for number in 0..TASKS_OF_CALLER_MAX {
            assert!(tasks.has_room(&of("me")));
            tasks.insert(format!("running {number}"), entry("me", TaskPayload::Working));
        }
        assert!(!tasks.has_room(&of("me")) && tasks.has_room(&of("other")));
        tasks.insert("one more".to_owned(), entry("me", TaskPayload::Cancelled));
        assert!(tasks.get(&of("other"), "theirs").is_ok(), "a result of another caller stays");
        for number in 0..TASKS_OF_CALLER_MAX {
            tasks.insert(format!("their {number}"), entry("other", TaskPayload::Working));
        }
        assert!(!tasks.has_room(&of("third")), "{TASKS_MAX} are running");
    }
}
