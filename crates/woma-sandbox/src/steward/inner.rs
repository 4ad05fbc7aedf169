//! The inner steward, pid 1 of the outer sandbox. It starts the zygotes, builds rooms, and has
//! zygotes fork into them. One thread, one loop, no user code.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};
use rustix::process::{
    DumpableBehavior, Gid, Signal, Uid, chdir, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::control::{Open, Order, Report, Setup, StewardInfo, Tier};
use super::launcher::Ids;
use super::room::{self, Room, RoomPlan};
use super::root::{self, Inodes};
use super::shared;
use super::template::{OUTER, Template};
use super::zygote::{self, ZygoteReport};
use super::zygotes::{Generation, Lost, Zygotes};
use crate::channel;
use crate::failure::{Failure, step};
use crate::sys::{self, Forked, SingleThreaded};
use crate::{proof, seccomp};

/// Spare rooms per tier, made while idle, each with a forked child. They belong to no session:
/// limits, files and lock-down come with the session.
const SPARES: usize = 2;
/// Idle time before a spare is made: a session that is being opened needs the processors more.
const QUIET: Duration = Duration::from_millis(10);
const SPARE_RETRY: Duration = Duration::from_secs(1);

pub(crate) fn main(
    control: &OwnedFd,
    wait: &OwnedFd,
    setup: &Setup,
    (ids, template): (Ids, Template),
    proof: SingleThreaded,
) -> Result<(), Failure> {
    enter(wait, ids, proof)?;
    let inodes = root::probe(&template)?;
    let (uid_base, uid_count) = match ids {
        Ids::Range { base, count } => (Some(base), count),
        Ids::Own => (None, 1),
    };
    let namespaces = step("read the namespaces", proof::namespaces("self"))?;
    let shared_inodes = match &inodes {
        Inodes::Own => None,
        Inodes::Shared(why) => Some(why.clone()),
    };
    let own_devices = template.own_devices;
    let info = StewardInfo { uid_base, uid_count, namespaces, shared_inodes, own_devices };
    let plan = RoomPlan { template, inodes, ids: setup.room_ids, base: None };
    serve(control, setup, (ids, plan), info, proof)
}

/// Serves the orders of the server until it is gone.
pub(crate) fn serve(
    control: &OwnedFd,
    setup: &Setup,
    (ids, plan): (Ids, RoomPlan),
    info: StewardInfo,
    proof: SingleThreaded,
) -> Result<(), Failure> {
    let parts = zygote::ZygoteParts {
        python: setup.python.clone(),
        filters: step("compile the seccomp filters", seccomp::compile(setup.watched, setup.rung))?,
        rung: setup.rung,
        has_trust: setup.trust.is_some(),
    };
    let uid_count = info.uid_count;
    if setup.tiers.is_empty() {
        room::try_one(&plan, matches!(ids, Ids::Range { .. }), proof)?;
    }
    step("report", channel::send(control, &Report::Started(info), &[]))?;
    let mut steward = Steward {
        control,
        parts,
        plan,
        proof,
        uid_count,
        rooms_made: 0,
        zygotes: Zygotes::new(&setup.tiers, setup.rotation),
        spares: Vec::new(),
        spares_due: Instant::now(),
        pending: BTreeMap::new(),
        sessions: BTreeMap::new(),
    };
    loop {
        steward.zygotes.start_due(&steward.parts, &steward.plan, steward.proof);
        if !steward.turn()? {
            return Ok(());
        }
    }
}

/// Steps from a fresh fork to pid 1 of a sandbox that shows only the template.
fn enter(wait: &OwnedFd, ids: Ids, proof: SingleThreaded) -> Result<(), Failure> {
    let mut go = [0; 8];
    step("die with the launcher", set_parent_process_death_signal(Some(Signal::KILL)))?;
    let (length, _) = step("wait for the id map", channel::receive_bytes(wait, &mut go))?;
    if length == 0 {
        sys::exit_now(1);
    }
    if let Ids::Range { .. } = ids {
        step("drop groups", set_thread_groups(&[]))?;
        let (uid, gid) = (Uid::ROOT, Gid::ROOT);
        step("set the group", set_thread_res_gid(gid, gid, gid))?;
        step("set the user", set_thread_res_uid(uid, uid, uid))?;
    }
    step("die with the launcher", set_parent_process_death_signal(Some(Signal::KILL)))?;
    step("become dumpable", set_dumpable_behavior(DumpableBehavior::Dumpable))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // While the host's /proc is still visible: a new one may only be mounted beside a complete one.
    step("mount proc", mount("proc", format!("{OUTER}/proc"), "proc", flags, None))?;
    step("bind the outer root", mount_bind_recursive(OUTER, OUTER))?;
    step("enter the outer root", chdir(OUTER))?;
    root::pivot()?;
    step("reap children", sys::reap_automatically())?;
    use_up_process_2(proof)
}

/// Uses up pid 2. Kernels are pid 2 of their rooms, and libraries detect a fork by a changed pid:
/// no zygote may have that one.
fn use_up_process_2(proof: SingleThreaded) -> Result<(), Failure> {
    match step("use up process 2", sys::clone3(proof, 0))? {
        Forked::Child => sys::exit_now(0),
        Forked::Parent { .. } => Ok(()),
    }
}

/// A room with a child of the zygote, forked or being forked; it belongs to no session yet.
#[derive(Debug)]
struct Spare {
    tier: Tier,
    /// Generation of the parent zygote.
    generation: Generation,
    room: Room,
    /// Socket that tells the child its session.
    orders: OwnedFd,
    /// The child's pidfd, once it is forked.
    kernel: Option<OwnedFd>,
}

/// A spare assigned to a session, while its room is being furnished.
#[derive(Debug)]
struct Pending {
    session: u64,
    spare: Spare,
    furnished: bool,
}

struct Steward<'a> {
    control: &'a OwnedFd,
    parts: zygote::ZygoteParts,
    plan: RoomPlan,
    proof: SingleThreaded,
    uid_count: u32,
    rooms_made: u64,
    zygotes: Zygotes,
    spares: Vec<Spare>,
    /// Earliest time for the next spare, after one failed.
    spares_due: Instant,
    /// By room id.
    pending: BTreeMap<u64, Pending>,
    /// Session of each room, until its kernel or its zygote has ended.
    sessions: BTreeMap<u64, (Generation, u64)>,
}

/// Source of an event.
#[derive(Debug, Clone, Copy)]
enum PollEvent {
    Order,
    Zygote(Generation),
    Init(u64),
}

impl Steward<'_> {
    /// Waits for events and handles them. False when the server is gone.
    fn turn(&mut self) -> Result<bool, Failure> {
        let wanted = self.wanted_spare();
        let timeout = wanted.map(|_| QUIET).or_else(|| self.zygotes.next_due());
        let events = self.wait(timeout)?;
        if events.is_empty()
            && let Some(tier) = wanted
        {
            match self.make_spare(tier) {
                Ok(spare) => self.spares.push(spare),
                // A failed spare affects no session.
                Err(failure) => {
                    eprintln!("steward: cannot make a spare: {failure}");
                    self.spares_due = Instant::now() + SPARE_RETRY;
                }
            }
        }
        for event in events {
            match event {
                PollEvent::Zygote(generation) => self.read_zygote_report(generation)?,
                PollEvent::Init(room) => self.read_init_reply(room)?,
                PollEvent::Order => {
                    let Some((order, fds)) = step("read an order", channel::receive(self.control))?
                    else {
                        return Ok(false);
                    };
                    self.carry_out(order, &fds)?;
                }
            }
        }
        Ok(true)
    }

    /// Waits for events. Those of opens in progress come before new orders: the server waits for
    /// them.
    fn wait(&self, timeout: Option<Duration>) -> Result<Vec<PollEvent>, Failure> {
        let mut events = Vec::new();
        let mut fds = Vec::new();
        for (generation, zygote) in self.zygotes.all() {
            events.push(PollEvent::Zygote(generation));
            fds.push(PollFd::new(&zygote.socket, PollFlags::IN));
        }
        for (room, pending) in self.pending.iter().filter(|(_, pending)| !pending.furnished) {
            events.push(PollEvent::Init(*room));
            fds.push(PollFd::new(&pending.spare.room.commands, PollFlags::IN));
        }
        events.push(PollEvent::Order);
        fds.push(PollFd::new(self.control, PollFlags::IN));
        match poll(&mut fds, timeout.map(timespec).as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            other => step("wait for work", other)?,
        };
        let ready = fds.iter().map(|fd| !fd.revents().is_empty());
        Ok(events
            .into_iter()
            .zip(ready)
            .filter_map(|(event, ready)| ready.then_some(event))
            .collect())
    }

    fn carry_out(&mut self, order: Order, fds: &[OwnedFd]) -> Result<(), Failure> {
        match order {
            Order::Open(open) => match self.open(&open, fds) {
                Ok(pending) => {
                    let room = pending.spare.room.id;
                    self.sessions.insert(room, (pending.spare.generation, open.id));
                    self.pending.insert(room, pending);
                    self.hand_over(room)
                }
                Err(failure) => self.refuse(open.id, failure),
            },
            Order::Serve(tier) => {
                self.zygotes.add(tier);
                Ok(())
            }
            Order::Restart(tier) => match self.zygotes.serving_generation(tier) {
                Some(generation) => self.discard_zygote(generation, "it did not answer"),
                None => Ok(()),
            },
        }
    }

    /// Assigns a spare to a session, or makes one. Furnishing and forking run in parallel.
    fn open(&mut self, open: &Open, fds: &[OwnedFd]) -> Result<Pending, Failure> {
        let spare = match self.spares.iter().position(|spare| spare.tier == open.tier) {
            Some(found) => self.spares.remove(found),
            None => self.make_spare(open.tier)?,
        };
        let mut sent = vec![spare.room.ready_socket.as_fd(), spare.room.init.as_fd()];
        sent.extend(fds.iter().map(AsFd::as_fd));
        let session = zygote::SessionOrder { rlimits: &open.rlimits };
        step("send the child its session", channel::send(&spare.orders, &session, &sent))?;
        spare.room.furnish(&open.furnishing)?;
        Ok(Pending { session: open.id, spare, furnished: false })
    }

    /// A tier with too few spares.
    fn wanted_spare(&self) -> Option<Tier> {
        let lacks =
            |tier: Tier| self.spares.iter().filter(|spare| spare.tier == tier).count() < SPARES;
        let mut ready = self.zygotes.ready();
        let now = self.pending.is_empty() && self.spares_due <= Instant::now();
        now.then(|| ready.find(|tier| lacks(*tier))).flatten()
    }

    fn make_spare(&mut self, tier: Tier) -> Result<Spare, Failure> {
        self.rooms_made += 1;
        let id = self.rooms_made;
        // Ids are reused after the whole range; zero is the steward's own, if there are others.
        let uid = match u64::from(self.uid_count.saturating_sub(1)) {
            0 => 0,
            others => u32::try_from(id % others).unwrap_or(0) + 1,
        };
        let not_ready = || io::Error::other("its zygote is not ready");
        if !self.zygotes.is_ready(tier) {
            return step("find the zygote", Err(not_ready()));
        }
        let room = match self.plan.base {
            Some(_) => shared::create(id, &self.plan, self.proof)?,
            None => room::create(id, uid, &self.plan, self.proof)?,
        };
        let (orders, theirs) = step("make a socket", channel::pair())?;
        let serving = self.zygotes.serving(tier);
        let (generation, zygote) = step("find the zygote", serving.ok_or_else(not_ready))?;
        step("ask the zygote", zygote.fork_into(&room, &theirs))?;
        Ok(Spare { tier, generation, room, orders, kernel: None })
    }

    fn read_zygote_report(&mut self, generation: Generation) -> Result<(), Failure> {
        let Some(zygote) = self.zygotes.get(generation) else { return Ok(()) };
        let (report, fds) = match zygote.receive() {
            Ok(Some(received)) => received,
            Ok(None) => return self.discard_zygote(generation, "it exited"),
            Err(error) => {
                return self
                    .discard_zygote(generation, &format!("cannot read its report: {error}"));
            }
        };
        match report {
            ZygoteReport::Ready { boot_ms, loaded, failed } => {
                let Some(tier) = self.zygotes.take_over(generation) else { return Ok(()) };
                // Spares of its predecessor have the address layout that is being replaced.
                let is_older = |spare: &Spare| spare.tier == tier && spare.generation != generation;
                self.spares.retain(|spare| !is_older(spare));
                self.report(&Report::ZygoteReady { tier, boot_ms, loaded, failed }, &[])
            }
            ZygoteReport::Born { room } => {
                let spare = self.spares.iter_mut().find(|spare| spare.room.id == room);
                let pending = self.pending.get_mut(&room).map(|pending| &mut pending.spare);
                if let Some(spare) = spare.or(pending) {
                    spare.kernel = fds.into_iter().next();
                }
                self.hand_over(room)
            }
            ZygoteReport::Exited { room, status } => {
                self.zygotes.child_ended(generation);
                self.spares.retain(|spare| spare.room.id != room);
                if self.plan.base.is_some() {
                    shared::kill_orphans(shared::Orphans::Leaderless);
                }
                match self.sessions.remove(&room) {
                    Some((_, id)) => self.report(&Report::Exited { id, status }, &[]),
                    None => Ok(()),
                }
            }
        }
    }

    fn read_init_reply(&mut self, room: u64) -> Result<(), Failure> {
        let Some(pending) = self.pending.get_mut(&room) else { return Ok(()) };
        match pending.spare.room.receive_reply() {
            Ok(()) => {
                pending.furnished = true;
                self.hand_over(room)
            }
            Err(failure) => {
                let session = pending.session;
                // Dropping it closes the ready socket, and the child ends.
                self.pending.remove(&room);
                self.refuse(session, failure)
            }
        }
    }

    /// Passes a room to the server once it is furnished and its child is forked.
    fn hand_over(&mut self, room: u64) -> Result<(), Failure> {
        let ready = |pending: &Pending| pending.furnished && pending.spare.kernel.is_some();
        if !self.pending.get(&room).is_some_and(ready) {
            return Ok(());
        }
        let Some(Pending { session: id, spare, .. }) = self.pending.remove(&room) else {
            return Ok(());
        };
        let Spare { room, kernel: Some(kernel), .. } = spare else { return Ok(()) };
        if self.plan.base.is_some() {
            room.tell_kernel(&kernel)?;
        }
        let fds = [room.commands.as_fd(), room.init.as_fd(), kernel.as_fd()];
        let opened = Report::Opened { id, uid: room.uid, places: room.places.clone() };
        self.report(&opened, &fds)
    }

    /// Kills a zygote and fails the opens that waited for it.
    fn discard_zygote(&mut self, generation: Generation, reason: &str) -> Result<(), Failure> {
        let Some(Lost { tier, is_tier_down }) = self.zygotes.lose(generation) else {
            return Ok(());
        };
        self.spares.retain(|spare| spare.generation != generation);
        self.sessions.retain(|_, (of, _)| *of != generation);
        if is_tier_down {
            self.report(&Report::ZygoteGone { tier, reason: reason.to_owned() }, &[])?;
        }
        let (lost, kept) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|(_, pending)| pending.spare.generation == generation);
        self.pending = kept;
        let lost: BTreeMap<u64, Pending> = lost;
        for pending in lost.into_values() {
            let reason = format!("the zygote has ended: {reason}");
            let step = "enter the room".to_owned();
            self.report(&Report::Failed { id: pending.session, step, reason }, &[])?;
        }
        Ok(())
    }

    fn refuse(&self, id: u64, failure: Failure) -> Result<(), Failure> {
        let reason = failure.source.to_string();
        self.report(&Report::Failed { id, step: failure.step, reason }, &[])
    }

    fn report(&self, report: &Report, fds: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        step("report to the server", channel::send(self.control, report, fds))
    }
}

fn timespec(duration: Duration) -> Timespec {
    // Rounded up by a millisecond, so that timers are due on wake-up.
    let duration = duration + Duration::from_millis(1);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
