//! One run, from the RUN frame to its verdict.
//!
//! The loop below waits for whatever comes first: a frame, output, an alarm, the death of the
//! kernel. When both a frame and output are there the frame goes first: the kernel does not send a
//! DISPLAY before its earlier output has been read (docs/PROTOCOL.md), so that output is younger.

use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::cell::{Cell, Lodging};
use crate::limits::{Usage, watchdog};
use crate::pipes::Pipes;
use crate::protocol::{Done, Frame, RunFrame, Status, encode_run};
use crate::spec::{Clock, Crash, Event, Exit, Interruption, Outcome, Run, State};
use crate::tally::Tally;
use crate::workspace::{self, Contents};

/// How long an interrupted run may take to come to an end before its room is killed.
const GRACE: Duration = Duration::from_millis(300);
/// How often the watchdog looks.
const TICK: Duration = Duration::from_millis(100);
/// How long a kernel whose socket is closed may take to be dead, if it is dying.
const DEATH_TIME_MAX: Duration = Duration::from_millis(50);
/// How long the zygote may take to say how a kernel ended.
const STATUS_TIME_MAX: Duration = Duration::from_millis(500);
/// Runs shorter than this are not asked what they used: the answer would cost more than the run.
const USAGE_AFTER: Duration = Duration::from_millis(50);

pub(crate) async fn run(
    cell: &mut Cell,
    run: &Run,
    interrupt: &Notify,
    on_event: &mut (dyn FnMut(Event) + Send),
) -> Exit {
    let started = Instant::now();
    let wall = run.wall.map_or(cell.limits.wall, |wall| wall.min(cell.limits.wall));
    let mut watch = Watch::new(cell, started, wall);
    // From here on an interrupt is heard, whatever this task is doing when it comes.
    let mut asked = pin!(interrupt.notified());
    asked.as_mut().enable();
    let begun = timeout_at(watch.deadline, begin(cell, run, started)).await;
    let mut pipes = match begun.unwrap_or_else(|_| Err(io::Error::other("it does not listen"))) {
        Ok(pipes) => pipes,
        Err(error) => {
            cell.room.kill();
            let outcome = Outcome::NeverStarted { reason: error.to_string() };
            return Tally::new(cell).exit(outcome, State::Lost, started, None, None);
        }
    };
    let mut tally = Tally::new(cell);
    let end = follow(cell, &mut watch, &mut pipes, &mut tally, asked, on_event).await;
    // A kernel that closes its socket and lives on is ended by us, and then who did it is lost.
    let died_alone = matches!(end, End::Gone)
        && timeout(DEATH_TIME_MAX, cell.room.kernel.readable()).await.is_ok();
    if let End::Done(_) = end {
    } else {
        cell.room.kill();
    }
    for open in pipes.finish(&mut tally, on_event) {
        if let End::Done(_) = end {
            cell.log.adopt(open);
        }
    }
    let usage = (started.elapsed() > USAGE_AFTER).then(|| watch.usage(cell));
    let (outcome, state, done) = verdict(cell, end, &watch, usage, died_alone).await;
    cell.kills_seen = usage.map_or(cell.kills_seen, |usage| usage.out_of_memory_kills);
    tally.exit(outcome, state, started, usage, done)
}

async fn begin(cell: &mut Cell, run: &Run, started: Instant) -> io::Result<Pipes> {
    cell.runs = cell.runs.wrapping_add(1);
    let (pipes, ends) = Pipes::open(started)?;
    let figures_max = cell.limits.figures;
    let (source, variables) = (run.source.clone(), run.variables.clone());
    let guard = run.guard.clone();
    let frame = RunFrame { run: cell.runs, source, figures_max, variables, guard };
    let frame = encode_run(&frame).map_err(io::Error::other)?;
    cell.frames.send(&frame, &[ends.stdout.as_fd(), ends.stderr.as_fd()]).await?;
    Ok(pipes)
}

/// Why the loop ended.
enum End {
    Done(Box<Done>),
    /// The kernel is dead, or has closed the socket.
    Gone,
    Abused(String),
    /// We lost patience.
    Killed,
}

/// What stops a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Asked,
    Wall,
    Cpu,
    Memory,
    Workspace,
}

/// The deadline, and what the watchdog has seen.
struct Watch {
    wall: Duration,
    deadline: Instant,
    next_look: Instant,
    /// A look that is being taken, on a thread of its own: with many processes it takes long, and
    /// the deadline does not wait.
    look: Option<JoinHandle<Look>>,
    /// Set when the run is being stopped; the room dies at `deadline` then.
    cause: Option<Cause>,
    /// When to interrupt again.
    next_nudge: Option<Instant>,
    first_cpu: Option<Duration>,
    last: Look,
}

/// What the watchdog saw.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    cpu: Duration,
    /// Only where no cgroup holds it.
    memory_bytes: u64,
    /// Only for a workspace on disk that could be measured.
    workspace: Option<Contents>,
    took: Duration,
}

impl Watch {
    fn new(cell: &Cell, started: Instant, wall: Duration) -> Self {
        // One that is too full already has no time to grow.
        let is_over = cell.folder.as_ref().is_some_and(|folder| folder.allowance.is_over());
        let next_look = if is_over { started } else { started + TICK };
        Self {
            wall,
            deadline: started + wall,
            next_look,
            look: None,
            cause: None,
            next_nudge: None,
            first_cpu: None,
            last: Look::default(),
        }
    }

    fn begin_look(&mut self, cell: &Cell) {
        let group = cell.room.group.clone();
        let roots = [cell.room.init_pid, cell.room.kernel_pid];
        let (folder, limits) = (cell.folder.clone(), cell.limits.clone());
        self.look = Some(tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let (cpu, memory_bytes) = match group {
                Some(group) => (group.cpu(), 0),
                None => {
                    let pids = watchdog::descendants(&roots);
                    let memory = watchdog::memory_bytes(&pids, limits.memory_bytes);
                    (watchdog::cpu(&pids), memory)
                }
            };
            let measured = folder.map(|Lodging { path, allowance, .. }| {
                workspace::measure(&path, allowance.counted_max())
            });
            // A folder that is gone holds nothing.
            let workspace = measured.and_then(Result::ok);
            Look { cpu, memory_bytes, workspace, took: started.elapsed() }
        }));
    }

    /// Says what the run must be stopped for, after a look.
    fn judge(&mut self, look: Look, cell: &Cell) -> Option<Cause> {
        let Cell { limits, folder, .. } = cell;
        // A look that takes long, because there is much to look at, comes less often.
        self.next_look = Instant::now() + TICK.max(look.took * 5);
        self.last.cpu = look.cpu;
        self.last.memory_bytes = self.last.memory_bytes.max(look.memory_bytes);
        let first_cpu = *self.first_cpu.get_or_insert(look.cpu.saturating_sub(TICK));
        if look.memory_bytes > limits.memory_bytes {
            return Some(Cause::Memory);
        }
        if look.cpu.saturating_sub(first_cpu) > limits.cpu {
            return Some(Cause::Cpu);
        }
        let allowance = folder.as_ref().map(|folder| folder.allowance);
        let is_full = allowance
            .zip(look.workspace)
            .is_some_and(|(allowance, found)| !allowance.allows(found));
        is_full.then_some(Cause::Workspace)
    }

    /// What the session has used: by its cgroup, or by what the watchdog saw.
    fn usage(&self, cell: &Cell) -> Usage {
        match &cell.room.group {
            Some(group) => group.usage(),
            None => Usage {
                cpu: self.last.cpu,
                memory_peak_bytes: self.last.memory_bytes,
                out_of_memory_kills: 0,
            },
        }
    }
}

async fn follow(
    cell: &mut Cell,
    watch: &mut Watch,
    pipes: &mut Pipes,
    tally: &mut Tally,
    mut asked: Pin<&mut Notified<'_>>,
    on_event: &mut (dyn FnMut(Event) + Send),
) -> End {
    loop {
        // Here, and not only by the alarm: a flood of frames must not keep it from being heard.
        let now = Instant::now();
        if watch.deadline <= now {
            if watch.cause.is_some() {
                return End::Killed;
            }
            stop(cell, watch, Cause::Wall).await;
        }
        pipes.tick(now);
        let next_look = if watch.look.is_none() { watch.next_look } else { watch.deadline };
        let others = [Some(next_look), watch.next_nudge, pipes.alarm()];
        let alarm = others.into_iter().flatten().fold(watch.deadline, Instant::min);
        tokio::select! {
            biased;
            frame = cell.frames.next() => match frame {
                Ok(Some(Frame::Done(done))) if done.run == cell.runs => return End::Done(done),
                Ok(Some(Frame::Read)) => match tally.asked_to_read() {
                    Ok(()) => pipes.read(tally, on_event),
                    Err(violation) => return End::Abused(violation.to_string()),
                },
                Ok(Some(frame)) => if let Err(violation) = tally.frame(frame, on_event) {
                    return End::Abused(violation.to_string());
                },
                Ok(None) => return End::Gone,
                Err(error) => return End::Abused(error.to_string()),
            },
            stream = pipes.ready() => pipes.take(stream, tally, on_event),
            // The socket says the same, unless a child of the kernel holds a copy of it.
            _ = cell.room.kernel.readable() => return End::Gone,
            () = asked.as_mut(), if watch.cause.is_none() => {
                stop(cell, watch, Cause::Asked).await;
            }
            look = finished(&mut watch.look) => {
                watch.look = None;
                let cause = watch.judge(look, cell);
                if let Some(cause) = cause.filter(|_| watch.cause.is_none()) {
                    stop(cell, watch, cause).await;
                    if cause == Cause::Memory {
                        return End::Killed;
                    }
                }
            }
            () = sleep_until(alarm) => {
                let now = Instant::now();
                if watch.next_nudge.is_some_and(|nudge| nudge <= now) {
                    nudge(cell, watch).await;
                } else if watch.look.is_none() && watch.next_look <= now {
                    watch.begin_look(cell);
                }
            }
        }
    }
}

async fn finished(look: &mut Option<JoinHandle<Look>>) -> Look {
    match look {
        // A look that panicked saw nothing.
        Some(look) => look.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// Asks the run to end, and sets the time at which it is made to.
async fn stop(cell: &Cell, watch: &mut Watch, cause: Cause) {
    watch.cause = Some(cause);
    watch.deadline = Instant::now() + GRACE;
    if cause != Cause::Memory {
        nudge(cell, watch).await;
    }
}

/// SIGINT, and the time for the next one: Python drops an interrupt that falls into a finalizer.
async fn nudge(cell: &Cell, watch: &mut Watch) {
    watch.next_nudge = Some(Instant::now() + GRACE / 3);
    if let Err(error) = cell.room.interrupt().await {
        tracing::debug!(%error, "a run cannot be interrupted; it will be killed");
    }
}

/// How the run ended, by what was seen from outside.
async fn verdict(
    cell: &mut Cell,
    end: End,
    watch: &Watch,
    usage: Option<Usage>,
    died_alone: bool,
) -> (Outcome, State, Option<Box<Done>>) {
    let stopped = watch.cause.map(|cause| stopped_by(cell, cause, watch.wall));
    match end {
        End::Done(done) => {
            let said = match done.status {
                Status::Completed => Outcome::Completed,
                Status::Raised => Outcome::Raised,
                Status::Interrupted => Outcome::Interrupted(Interruption::Asked),
            };
            let state = match &stopped {
                // What the run started must end with it, and if it cannot be made to, all must.
                Some(_) if !swept(cell).await => {
                    cell.room.kill();
                    State::Lost
                }
                _ => State::Preserved,
            };
            (stopped.unwrap_or(said), state, Some(done))
        }
        End::Killed => (stopped.unwrap_or(Outcome::Raised), State::Lost, None),
        End::Abused(reason) => (Outcome::Crashed(Crash::Protocol(reason)), State::Lost, None),
        End::Gone => {
            let memory = Outcome::OutOfMemory { limit_bytes: cell.limits.memory_bytes };
            let usage = usage.unwrap_or_else(|| watch.usage(cell));
            if usage.out_of_memory_kills > cell.kills_seen {
                return (memory, State::Lost, None);
            }
            let outcome = match stopped {
                Some(outcome) => outcome,
                None => Outcome::Crashed(cause_of_death(cell, died_alone).await),
            };
            (outcome, State::Lost, None)
        }
    }
}

fn stopped_by(cell: &Cell, cause: Cause, wall: Duration) -> Outcome {
    match cause {
        Cause::Asked => Outcome::Interrupted(Interruption::Asked),
        Cause::Wall => Outcome::TimedOut(Clock::Wall { limit: wall }),
        Cause::Cpu => Outcome::TimedOut(Clock::Cpu { limit: cell.limits.cpu }),
        Cause::Memory => Outcome::OutOfMemory { limit_bytes: cell.limits.memory_bytes },
        Cause::Workspace => Outcome::Interrupted(Interruption::WorkspaceFull),
    }
}

/// Ends every other process of the room. A large one takes a moment to be gone after it was killed;
/// a fork bomb is never gone.
async fn swept(cell: &Cell) -> bool {
    for wait_ms in [0, 2, 10, 50] {
        sleep_until(Instant::now() + Duration::from_millis(wait_ms)).await;
        match cell.room.sweep().await {
            Ok(true) => return true,
            Ok(false) => {}
            Err(_) => return false,
        }
    }
    false
}

async fn cause_of_death(cell: &mut Cell, died_alone: bool) -> Crash {
    let Some(exit) = cell.exit.take() else { return Crash::Lost("it ended earlier".to_owned()) };
    match timeout(STATUS_TIME_MAX, exit).await {
        Ok(Ok(status)) if libc::WIFSIGNALED(status) => match libc::WTERMSIG(status) {
            libc::SIGKILL if !died_alone => Crash::Protocol("it closed its channel".to_owned()),
            signal => Crash::Signal(signal),
        },
        Ok(Ok(status)) => Crash::Exited(libc::WEXITSTATUS(status)),
        Ok(Err(_)) => Crash::Lost("the steward ended".to_owned()),
        Err(_) => Crash::Lost("nobody knows how it ended".to_owned()),
    }
}
