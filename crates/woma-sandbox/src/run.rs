//! One run, from the RUN frame to its outcome.
//!
//! The loop waits for the first of: a frame, output, a timer, the death of the kernel. If both a
//! frame and output are ready, the frame goes first: the kernel does not send DISPLAY before its
//! earlier output has been read (docs/PROTOCOL.md), so that output is younger.

use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::budget::{RunBudget, Verdict};
use crate::cell::{Cell, MountedWorkspace, measure_both};
use crate::grace::{GRACE, Grace};
use crate::limits::deleted::Depth;
use crate::limits::memory_reserve::MemoryStatus;
use crate::limits::{Usage, watchdog};
use crate::memory_pressure;
use crate::pipes::{Ends, Pipes};
use crate::protocol::{Done, Frame, Note, OwnMemory, RunFrame, Status, encode_run};
use crate::spec::{Clock, Crash, Event, Exit, Interruption, KernelObject, Outcome, Run, State};
use crate::workspace::Contents;

/// Interval of the watchdog's samples.
const TICK: Duration = Duration::from_millis(100);
/// The same for a session far beyond its memory limit.
const TICK_BEYOND: Duration = Duration::from_millis(20);
/// Memory mappings are scanned in one of this many samples: they take longest.
const MAPS_EVERY: u32 = 5;
/// Time that a kernel that is exiting has to die after its socket closed.
const DEATH_TIME_MAX: Duration = Duration::from_secs(5);
/// The same for a kernel that has closed its socket and is not exiting: it may be about to.
const CLOSED_TIME_MAX: Duration = Duration::from_millis(50);
/// Time that pid 1 of a container has to report how its kernel ended, before the container is killed.
const CONTAINER_DEATH_TIME_MAX: Duration = Duration::from_secs(1);
/// Time that the zygote has to report how a kernel ended.
const STATUS_TIME_MAX: Duration = Duration::from_secs(5);
/// Usage of shorter runs is not read: reading it would cost more than the run.
const USAGE_AFTER: Duration = Duration::from_millis(50);

pub(crate) async fn run(
    cell: &mut Cell,
    run: &Run,
    own_memory: Option<OwnMemory>,
    interrupt: &Notify,
    on_event: &mut (dyn FnMut(Event) + Send),
) -> Exit {
    let started = Instant::now();
    let wall = run.wall.map_or(cell.limits.wall, |wall| wall.min(cell.limits.wall));
    let mut watch = RunWatch::new(cell, started, wall);
    // From here on an interrupt is noticed, whatever this task is waiting for.
    let mut interrupt_requested = pin!(interrupt.notified());
    interrupt_requested.as_mut().enable();
    let (mut pipes, ends) = match Pipes::open(started) {
        Ok(opened) => opened,
        // The server has no descriptors. Nothing was sent: the kernel keeps its variables.
        Err(error) => {
            let exit = Exit::never_started(&error.to_string());
            return Exit { state: State::Preserved, ..exit };
        }
    };
    let begun = timeout_at(watch.deadline, begin(cell, run, own_memory, ends)).await;
    if let Err(error) =
        begun.unwrap_or_else(|_| Err(io::Error::other("the kernel does not read its socket")))
    {
        cell.room.kill();
        let outcome = Outcome::NeverStarted { reason: error.to_string() };
        return RunBudget::new(cell).exit(Verdict::lost(outcome), started, None);
    }
    let mut budget = RunBudget::new(cell);
    let active =
        ActiveRun { cell, watch: &mut watch, pipes: &mut pipes, budget: &mut budget, on_event };
    let end = follow(active, interrupt_requested).await;
    // A kernel that closes its socket and lives on is killed by us; its own cause of death is then
    // lost.
    let died_alone = matches!(end, End::Gone) && dies(cell).await;
    if let End::Done(_) = end {
    } else {
        cell.room.kill();
    }
    for open in pipes.finish(&mut budget, on_event) {
        if let End::Done(_) = end {
            cell.log.adopt(open);
        }
    }
    budget.finish_output(on_event);
    let usage = (started.elapsed() > USAGE_AFTER).then(|| watch.usage(cell));
    let verdict = verdict(cell, end, &watch, usage, died_alone).await;
    let children_killed = report_killed_children(cell, usage, verdict.done.as_deref(), on_event);
    Exit { children_killed, ..budget.exit(verdict, started, usage) }
}

/// Reports children that were killed for memory, by us or by the cgroup, while Python went on.
fn report_killed_children(
    cell: &mut Cell,
    usage: Option<Usage>,
    done: Option<&Done>,
    on_event: &mut (dyn FnMut(Event) + Send),
) -> u64 {
    // A run whose child was killed usually ends in an error.
    let has_raised = done.is_some_and(|done| done.status == Status::Raised);
    let group = cell.room.group.as_ref().filter(|_| has_raised || usage.is_some());
    let kills = group.map_or(cell.earlier_kills, |group| match usage {
        Some(usage) => usage.out_of_memory_kills,
        None => group.out_of_memory_kills(),
    });
    let by_group = kills.saturating_sub(std::mem::replace(&mut cell.earlier_kills, kills));
    let killed = cell.memory_pressure.take_killed() + by_group;
    if killed == 0 || done.is_none() {
        return 0;
    }
    let limit = cell.limits.memory_bytes / (1024 * 1024);
    let what = match killed {
        1 => "A child process was".to_owned(),
        _ => format!("{killed} child processes were"),
    };
    let text = format!("{what} killed because the session reached its memory limit of {limit} MiB");
    let code = "child_killed".to_owned();
    on_event(Event::Note(Note { code, text, subject: None, line: None }));
    killed
}

async fn begin(
    cell: &mut Cell,
    run: &Run,
    memory: Option<OwnMemory>,
    ends: Ends,
) -> io::Result<()> {
    cell.runs = cell.runs.wrapping_add(1);
    let figures_max = cell.limits.figures;
    let Run { source, variables, stdin, script, guard, environ, stdin_pipe, .. } = run.clone();
    let run = cell.runs;
    let frame =
        RunFrame { run, source, figures_max, variables, stdin, script, guard, environ, memory };
    let frame = encode_run(&frame).map_err(io::Error::other)?;
    let mut fds = vec![ends.stdout.as_fd(), ends.stderr.as_fd()];
    fds.extend(stdin_pipe.as_ref().map(|pipe| pipe.as_fd()));
    cell.frames.send(&frame, &fds).await
}

/// Why the loop ended.
enum End {
    Done(Box<Done>),
    /// The kernel is dead, or has closed the socket.
    Gone,
    Violation(String),
    /// The deadline after an interrupt has passed.
    Killed,
}

/// Reason for which a run is stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Asked,
    Wall,
    Cpu,
    Memory,
    Workspace(Interruption),
    Objects(KernelObject),
}

/// Deadline of a run, and the watchdog's samples.
struct RunWatch {
    wall: Duration,
    deadline: Instant,
    next_sample: Instant,
    /// Sample in progress, on a thread of its own: with many processes it takes long, and the
    /// deadline does not wait.
    sample: Option<JoinHandle<Sample>>,
    /// Set while the run is being stopped; the room is then killed at `deadline`, unless there is
    /// more grace.
    cause: Option<Cause>,
    grace: Option<Grace>,
    /// When to interrupt again.
    next_interrupt: Option<Instant>,
    first_cpu: Option<Duration>,
    last: Sample,
    samples: u32,
}

/// One sample of the watchdog.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    cpu: Duration,
    memory: MemoryStatus,
    /// `None` unless a workspace on disk could be measured.
    workspace: Option<Contents>,
    /// Files that are deleted but open.
    deleted: Contents,
    /// The workspace's disk is below its reserve.
    is_low: bool,
    took: Duration,
}

impl Sample {
    /// Disk usage of the workspace, including deleted files that are open.
    fn held(&self) -> Option<Contents> {
        let Contents { bytes, files } = self.workspace?;
        let bytes = bytes.saturating_add(self.deleted.bytes);
        Some(Contents { bytes, files: files.saturating_add(self.deleted.files) })
    }
}

impl RunWatch {
    fn new(cell: &Cell, started: Instant, wall: Duration) -> Self {
        // A workspace over its limit gets no time to grow.
        let is_over = cell.folder.as_ref().is_some_and(|folder| folder.allowance.is_over());
        let next_sample = if is_over { started } else { started + TICK };
        Self {
            wall,
            deadline: started + wall,
            next_sample,
            sample: None,
            cause: None,
            grace: None,
            next_interrupt: None,
            first_cpu: None,
            last: Sample::default(),
            samples: 0,
        }
    }

    fn begin_sample(&mut self, cell: &Cell) {
        let group = cell.room.group.clone();
        let roots = [cell.room.init_pid, cell.room.kernel_pid];
        let (folder, memory) = (cell.folder.clone(), memory_pressure::probe(cell));
        self.samples = self.samples.wrapping_add(1);
        let with_maps = self.samples.is_multiple_of(MAPS_EVERY);
        let depth = if with_maps { Depth::OpenAndMapped } else { Depth::Open };
        self.sample = Some(tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let memory = memory.read();
            let cpu = match group {
                Some(group) => group.cpu(),
                None => watchdog::cpu(&watchdog::descendants(&roots)),
            };
            let mut sample = Sample { cpu, memory, ..Sample::default() };
            if let Some(MountedWorkspace { path, scratch, allowance, deleted, reserve, .. }) =
                folder
            {
                // A folder that no longer exists holds nothing.
                let counted_max = allowance.counted_max();
                sample.workspace = measure_both(&path, scratch.as_deref(), counted_max).ok();
                sample.deleted = deleted.measure(cpu, depth);
                sample.is_low = reserve.is_some_and(|reserve| reserve.is_low_now());
            }
            Sample { took: started.elapsed(), ..sample }
        }));
    }

    /// Takes in a sample and returns why the run must be stopped, if it must.
    fn check_limits(&mut self, sample: Sample, cell: &mut Cell) -> Option<Cause> {
        // Slow samples, of many files or processes, are taken less often.
        let is_urgent = memory_pressure::is_far_beyond(cell, sample.memory);
        let pause = if is_urgent { TICK_BEYOND } else { TICK.max(sample.took * 5) };
        self.next_sample = Instant::now() + pause;
        let Cell { limits, folder, .. } = cell;
        self.last.cpu = sample.cpu;
        let used_bytes = self.last.memory.used_bytes.max(sample.memory.used_bytes);
        self.last.memory = MemoryStatus { used_bytes, ..sample.memory };
        let first_cpu = *self.first_cpu.get_or_insert(sample.cpu.saturating_sub(TICK));
        if sample.cpu.saturating_sub(first_cpu) > limits.cpu {
            return Some(Cause::Cpu);
        }
        let (folder, found) = folder.as_mut().zip(sample.workspace)?;
        // A workspace that does not grow is not stopped for those that do.
        folder.allowance.hold(sample.is_low, self.last.held().unwrap_or(folder.allowance.found()));
        (self.last.workspace, self.last.deleted) = (Some(found), sample.deleted);
        let excess = folder.allowance.excess(found, sample.deleted);
        excess.map(|excess| Cause::Workspace(excess.into()))
    }

    /// Usage of the session, from its cgroup or from the watchdog's samples.
    fn usage(&self, cell: &Cell) -> Usage {
        match &cell.room.group {
            Some(group) => group.usage(),
            None => Usage {
                cpu: self.last.cpu,
                memory_peak_bytes: self.last.memory.used_bytes,
                out_of_memory_kills: 0,
            },
        }
    }
}

/// A run in progress.
struct ActiveRun<'a> {
    cell: &'a mut Cell,
    watch: &'a mut RunWatch,
    pipes: &'a mut Pipes,
    budget: &'a mut RunBudget,
    on_event: &'a mut (dyn FnMut(Event) + Send),
}

async fn follow(run: ActiveRun<'_>, mut interrupt_requested: Pin<&mut Notified<'_>>) -> End {
    let ActiveRun { cell, watch, pipes, budget, on_event } = run;
    loop {
        // Checked on every turn, not only by the timer: a flood of frames must not delay it.
        let now = Instant::now();
        if watch.deadline <= now {
            match &watch.grace {
                None => stop(cell, watch, Cause::Wall).await,
                Some(grace) => match grace.extend() {
                    Some(deadline) => watch.deadline = deadline,
                    None => return End::Killed,
                },
            }
        }
        pipes.tick(now);
        let next_sample = if watch.sample.is_none() { watch.next_sample } else { watch.deadline };
        let others = [Some(next_sample), watch.next_interrupt, pipes.alarm()];
        let alarm = others.into_iter().flatten().fold(watch.deadline, Instant::min);
        let has_pending = cell.frames.has_pending();
        tokio::select! {
            biased;
            frame = cell.frames.next(budget.for_next_frame()) => match frame {
                Ok(Some(Frame::Done(done))) if done.run == cell.runs => return End::Done(done),
                Ok(Some(Frame::Read)) => match budget.asked_to_read() {
                    Ok(()) => pipes.read(budget, on_event),
                    Err(violation) => return End::Violation(violation.to_string()),
                },
                Ok(Some(frame)) => if let Err(violation) = budget.frame(frame, on_event) {
                    return End::Violation(violation.to_string());
                },
                Ok(None) => return End::Gone,
                Err(error) => return End::Violation(error.to_string()),
            },
            stream = pipes.ready(), if !has_pending => pipes.take(stream, budget, on_event),
            // The socket says the same, unless a child of the kernel holds a copy of it.
            _ = cell.room.kernel.readable() => return End::Gone,
            () = interrupt_requested.as_mut(), if watch.cause.is_none() => {
                stop(cell, watch, Cause::Asked).await;
            }
            what = cell.objects.exceeded(), if watch.cause.is_none() => {
                stop(cell, watch, Cause::Objects(what)).await;
            }
            sample = finished(&mut watch.sample) => {
                watch.sample = None;
                let cause = watch.check_limits(sample, cell);
                if !memory_pressure::respond(cell, sample.memory).await {
                    watch.cause.get_or_insert(Cause::Memory);
                    return End::Killed;
                }
                if let Some(cause) = cause.filter(|_| watch.cause.is_none()) {
                    stop(cell, watch, cause).await;
                }
            }
            () = sleep_until(alarm) => {
                let now = Instant::now();
                if watch.next_interrupt.is_some_and(|at| at <= now) {
                    send_interrupt(cell, watch).await;
                } else if watch.sample.is_none() && watch.next_sample <= now {
                    watch.begin_sample(cell);
                }
            }
        }
    }
}

async fn finished(sample: &mut Option<JoinHandle<Sample>>) -> Sample {
    match sample {
        // A sample that panicked is empty.
        Some(sample) => sample.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// Asks the run to end, and sets the deadline for it.
async fn stop(cell: &Cell, watch: &mut RunWatch, cause: Cause) {
    watch.cause = Some(cause);
    watch.grace = Some(Grace::begin(&cell.room));
    watch.deadline = Instant::now() + GRACE;
    send_interrupt(cell, watch).await;
}

/// Sends SIGINT and schedules the next: Python drops an interrupt that falls into a finalizer.
async fn send_interrupt(cell: &Cell, watch: &mut RunWatch) {
    let pause = watch.grace.as_ref().map_or(GRACE, Grace::pause);
    watch.next_interrupt = Some(Instant::now() + pause);
    if let Err(error) = cell.room.interrupt().await {
        tracing::debug!(%error, "cannot interrupt a run; it will be killed");
    }
}

/// Whether a kernel whose socket is closed dies by itself.
async fn dies(cell: &mut Cell) -> bool {
    if cell.runtime().is_some() {
        return cell.has_reported_exit(CONTAINER_DEATH_TIME_MAX).await;
    }
    let is_exiting = watchdog::is_exiting(cell.room.kernel_pid);
    let time_max = if is_exiting { DEATH_TIME_MAX } else { CLOSED_TIME_MAX };
    timeout(time_max, cell.room.kernel.readable()).await.is_ok()
}

/// Decides how the run ended, by what was observed from outside.
async fn verdict(
    cell: &mut Cell,
    end: End,
    watch: &RunWatch,
    usage: Option<Usage>,
    died_alone: bool,
) -> Verdict {
    let stopped = watch.cause.map(|cause| stopped_by(cell, cause, watch.wall));
    match end {
        End::Done(done) => {
            let said = match done.status {
                Status::Completed => Outcome::Completed,
                Status::Raised => Outcome::Raised,
                Status::Interrupted => Outcome::Interrupted(Interruption::Asked),
            };
            let state = match &stopped {
                // Processes that the run started must end with it; if they cannot be killed, the
                // room is.
                Some(_) if !swept(cell).await => {
                    cell.room.kill();
                    State::Lost
                }
                _ => State::Preserved,
            };
            Verdict { outcome: stopped.unwrap_or(said), state, done: Some(done) }
        }
        End::Killed => Verdict::lost(stopped.unwrap_or(Outcome::Raised)),
        End::Violation(reason) => Verdict::lost(Outcome::Crashed(Crash::Protocol(reason))),
        End::Gone => {
            let usage = usage.unwrap_or_else(|| watch.usage(cell));
            let is_killed = usage.out_of_memory_kills > cell.earlier_kills;
            if let Some(outcome) = stopped.filter(|_| !is_killed) {
                return Verdict::lost(outcome);
            }
            let outcome = match cause_of_death(cell, died_alone).await {
                // A kernel that exited by itself was not killed, even if another process was.
                crash @ Crash::Exited(_) => Outcome::Crashed(crash),
                Crash::Signal(signal) if signal != libc::SIGKILL => {
                    Outcome::Crashed(Crash::Signal(signal))
                }
                _ if is_killed => Outcome::OutOfMemory { limit_bytes: cell.limits.memory_bytes },
                crash => Outcome::Crashed(crash),
            };
            Verdict::lost(outcome)
        }
    }
}

fn stopped_by(cell: &Cell, cause: Cause, wall: Duration) -> Outcome {
    match cause {
        Cause::Asked => Outcome::Interrupted(Interruption::Asked),
        Cause::Wall => Outcome::TimedOut(Clock::Wall { limit: wall }),
        Cause::Cpu => Outcome::TimedOut(Clock::Cpu { limit: cell.limits.cpu }),
        Cause::Memory => Outcome::OutOfMemory { limit_bytes: cell.limits.memory_bytes },
        Cause::Workspace(why) => Outcome::Interrupted(why),
        Cause::Objects(what) => {
            let limit = cell.objects.limit(what);
            Outcome::Interrupted(Interruption::TooMany { what, limit })
        }
    }
}

/// Kills every other process of the room. A large process takes a moment to disappear after
/// SIGKILL; a fork bomb never does.
async fn swept(cell: &Cell) -> bool {
    for wait_ms in [0, 2, 10, 50, 100, 200] {
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
    let Some(exit) = cell.exit.take() else { return Crash::Lost("it had ended before".to_owned()) };
    match timeout(STATUS_TIME_MAX, exit).await {
        Ok(Ok(status)) if libc::WIFSIGNALED(status) => match libc::WTERMSIG(status) {
            libc::SIGKILL if !died_alone => Crash::Protocol("it closed its channel".to_owned()),
            signal => Crash::Signal(signal),
        },
        Ok(Ok(status)) => Crash::Exited(libc::WEXITSTATUS(status)),
        Ok(Err(_)) => Crash::Lost("the steward ended".to_owned()),
        Err(_) => Crash::Lost("its exit status was not reported".to_owned()),
    }
}
