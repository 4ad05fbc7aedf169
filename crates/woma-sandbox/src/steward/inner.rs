//! The inner half of the steward: pid 1 of the outer sandbox. It starts the zygotes, builds rooms,
//! and passes each room to a zygote to be entered. One thread, one loop, no user code.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};
use rustix::process::{
    DumpableBehavior, Gid, Signal, Uid, chdir, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::control::{Open, Order, Report, Setup, Standing, Tier};
use super::launcher::Ids;
use super::room::{self, Room};
use super::template::{OUTER, TEMPLATE};
use super::zygote::{self, Zygote, ZygoteReport};
use crate::channel;
use crate::failure::{Failure, step};
use crate::sys::{self, Forked, SingleThreaded};
use crate::{landlock, proof, seccomp};

/// A zygote that died is started again after this long, doubled with each death in a row.
const RESTART_DELAY_MIN: Duration = Duration::from_millis(50);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(5);
/// Rooms of each tier that are made ahead, with a forked child in them, while there is nothing else
/// to do. They are nobody's: limits, files and the lock-down come with the session.
const SPARES: usize = 2;
/// How long nothing must have happened before that is done: a session that is being opened needs
/// the processors more.
const QUIET: Duration = Duration::from_millis(10);
const SPARE_RETRY: Duration = Duration::from_secs(1);

pub(crate) fn main(
    control: &OwnedFd,
    wait: &OwnedFd,
    setup: &Setup,
    ids: Ids,
    proof: SingleThreaded,
) -> Result<(), Failure> {
    enter(wait, ids, proof)?;
    let kit = zygote::Kit {
        python: setup.python.clone(),
        ruleset: step("make the Landlock ruleset", landlock::ruleset(Path::new(TEMPLATE)))?,
        filters: step("compile the seccomp filters", seccomp::compile(setup.watched))?,
    };
    let (uid_base, uid_count) = match ids {
        Ids::Range { base, count } => (Some(base), count),
        Ids::Own => (None, 1),
    };
    let namespaces = step("read the namespaces", proof::namespaces("self"))?;
    let standing = Standing { uid_base, uid_count, namespaces };
    step("report", channel::send(control, &Report::Standing(standing), &[]))?;
    let mut steward = Steward {
        control,
        kit,
        proof,
        uid_count,
        rooms_made: 0,
        places: BTreeMap::new(),
        spares: Vec::new(),
        spares_due: Instant::now(),
        pending: BTreeMap::new(),
        sessions: BTreeMap::new(),
    };
    for tier in &setup.tiers {
        steward.places.insert(*tier, Place::default());
    }
    loop {
        steward.start_zygotes();
        if !steward.turn()? {
            return Ok(());
        }
    }
}

/// The steps from a fresh fork to pid 1 of a sandbox that shows nothing but the template.
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
    step("be enterable", set_dumpable_behavior(DumpableBehavior::Dumpable))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // While the host's /proc is still in sight: a fresh one may only be mounted beside a whole one.
    step("mount proc", mount("proc", format!("{OUTER}/proc"), "proc", flags, None))?;
    step("bind the outer root", mount_bind_recursive(OUTER, OUTER))?;
    step("enter the outer root", chdir(OUTER))?;
    room::pivot()?;
    step("reap children", sys::reap_automatically())?;
    use_up_process_2(proof)
}

/// Kernels are process 2 of their rooms, and libraries tell a fork by its changed process id: no
/// zygote may have that one.
fn use_up_process_2(proof: SingleThreaded) -> Result<(), Failure> {
    match step("use up process 2", sys::clone3(proof, 0))? {
        Forked::Child => sys::exit_now(0),
        Forked::Parent { .. } => Ok(()),
    }
}

/// A tier's zygote, or the time at which the next one is due.
#[derive(Debug, Default)]
struct Place {
    zygote: Option<Zygote>,
    due: Option<Instant>,
    deaths_in_a_row: u32,
}

impl Place {
    fn ready(&self) -> Option<&Zygote> {
        self.zygote.as_ref().filter(|zygote| zygote.ready)
    }
}

/// A room with a child of the zygote in it or on its way there; nobody's session yet.
#[derive(Debug)]
struct Spare {
    tier: Tier,
    room: Room,
    /// By this the child is told whose it is.
    orders: OwnedFd,
    /// The child's pidfd, once it is born.
    kernel: Option<OwnedFd>,
}

/// A spare that has become somebody's, while its room is being furnished.
#[derive(Debug)]
struct Pending {
    session: u64,
    spare: Spare,
    furnished: bool,
}

struct Steward<'a> {
    control: &'a OwnedFd,
    kit: zygote::Kit,
    proof: SingleThreaded,
    uid_count: u32,
    rooms_made: u64,
    places: BTreeMap<Tier, Place>,
    spares: Vec<Spare>,
    /// When the next may be made, after one could not be.
    spares_due: Instant,
    /// By room.
    pending: BTreeMap<u64, Pending>,
    /// Which session a room was given to, until its kernel has ended or its zygote is gone.
    sessions: BTreeMap<u64, (Tier, u64)>,
}

/// What woke the steward.
#[derive(Debug, Clone, Copy)]
enum Event {
    Order,
    Zygote(Tier),
    Init(u64),
}

impl Steward<'_> {
    /// Starts the zygotes that are due. A higher tier waits until the base can serve: the first cell
    /// must not share the machine with an import of everything.
    fn start_zygotes(&mut self) {
        let base_ready = self.places.get(&Tier::Base).is_none_or(|base| base.ready().is_some());
        for (tier, place) in &mut self.places {
            let due = place.due.is_none_or(|due| due <= Instant::now());
            if place.zygote.is_none() && due && (*tier == Tier::Base || base_ready) {
                match zygote::start(&self.kit, *tier, self.proof) {
                    Ok(zygote) => place.zygote = Some(zygote),
                    Err(failure) => {
                        eprintln!("steward: no zygote: {failure}");
                        place.due = Some(Instant::now() + RESTART_DELAY_MAX);
                    }
                }
            }
        }
    }

    /// Waits for something to happen and deals with it. False when the server is gone.
    fn turn(&mut self) -> Result<bool, Failure> {
        let wanted = self.wanted_spare();
        let timeout = wanted.map(|_| QUIET).or_else(|| self.next_due());
        let events = self.wait(timeout)?;
        if events.is_empty()
            && let Some(tier) = wanted
        {
            match self.make_spare(tier) {
                Ok(spare) => self.spares.push(spare),
                // Housekeeping that fails costs nobody their session.
                Err(failure) => {
                    eprintln!("steward: no spare: {failure}");
                    self.spares_due = Instant::now() + SPARE_RETRY;
                }
            }
        }
        for event in events {
            match event {
                Event::Zygote(tier) => self.hear(tier)?,
                Event::Init(room) => self.hear_init(room)?,
                Event::Order => {
                    let Some((order, fds)) = step("read an order", channel::receive(self.control))?
                    else {
                        return Ok(false);
                    };
                    self.obey(order, &fds)?;
                }
            }
        }
        Ok(true)
    }

    /// What has happened; what was begun before a new order comes first, for a server waits for it.
    fn wait(&self, timeout: Option<Duration>) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        let mut fds = Vec::new();
        for (tier, place) in &self.places {
            if let Some(zygote) = &place.zygote {
                events.push(Event::Zygote(*tier));
                fds.push(PollFd::new(&zygote.socket, PollFlags::IN));
            }
        }
        for (room, pending) in self.pending.iter().filter(|(_, pending)| !pending.furnished) {
            events.push(Event::Init(*room));
            fds.push(PollFd::new(&pending.spare.room.commands, PollFlags::IN));
        }
        events.push(Event::Order);
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

    fn next_due(&self) -> Option<Duration> {
        let waiting = self.places.values().filter(|place| place.zygote.is_none());
        waiting
            .filter_map(|place| place.due)
            .map(|due| due.saturating_duration_since(Instant::now()))
            .min()
    }

    fn obey(&mut self, order: Order, fds: &[OwnedFd]) -> Result<(), Failure> {
        match order {
            Order::Open(open) => match self.open(&open, fds) {
                Ok(pending) => {
                    let room = pending.spare.room.id;
                    self.sessions.insert(room, (open.tier, open.id));
                    self.pending.insert(room, pending);
                    self.hand_over(room)
                }
                Err(failure) => self.refuse(open.id, failure),
            },
            Order::Restart(tier) => self.bury(tier, "it did not answer"),
        }
    }

    /// Gives a spare to a session, or makes one for it: furnished and born at the same time.
    fn open(&mut self, open: &Open, fds: &[OwnedFd]) -> Result<Pending, Failure> {
        let spare = match self.spares.iter().position(|spare| spare.tier == open.tier) {
            Some(found) => self.spares.remove(found),
            None => self.make_spare(open.tier)?,
        };
        let mut sent = vec![spare.room.bell.as_fd(), spare.room.init.as_fd()];
        sent.extend(fds.iter().map(AsFd::as_fd));
        let session = zygote::Session { rlimits: &open.rlimits };
        step("tell the child", channel::send(&spare.orders, &session, &sent))?;
        spare.room.furnish(&open.furnishing)?;
        Ok(Pending { session: open.id, spare, furnished: false })
    }

    /// The tier that has fewer spares than it should.
    fn wanted_spare(&self) -> Option<Tier> {
        let lacks =
            |tier: Tier| self.spares.iter().filter(|spare| spare.tier == tier).count() < SPARES;
        let ready = self.places.iter().filter(|(_, place)| place.ready().is_some());
        let mut ready = ready.map(|(tier, _)| *tier);
        let now = self.pending.is_empty() && self.spares_due <= Instant::now();
        now.then(|| ready.find(|tier| lacks(*tier))).flatten()
    }

    fn make_spare(&mut self, tier: Tier) -> Result<Spare, Failure> {
        self.rooms_made += 1;
        let id = self.rooms_made;
        // Ids come round again after the whole range; zero is the steward's own, if there are others.
        let uid = match u64::from(self.uid_count.saturating_sub(1)) {
            0 => 0,
            others => u32::try_from(id % others).unwrap_or(0) + 1,
        };
        let zygote = self.places.get(&tier).and_then(Place::ready);
        let not_ready = || io::Error::other("its zygote is not ready");
        let zygote = step("find the zygote", zygote.ok_or_else(not_ready))?;
        let room = room::create(id, uid, self.proof)?;
        let (orders, theirs) = step("make a socket", channel::pair())?;
        step("ask the zygote", zygote.fork_into(&room, &theirs))?;
        Ok(Spare { tier, room, orders, kernel: None })
    }

    fn hear(&mut self, tier: Tier) -> Result<(), Failure> {
        let Some(zygote) = self.places.get(&tier).and_then(|place| place.zygote.as_ref()) else {
            return Ok(());
        };
        let (report, fds) = match zygote.hear() {
            Ok(Some(heard)) => heard,
            Ok(None) => return self.bury(tier, "it ended"),
            Err(error) => return self.bury(tier, &format!("it cannot be understood: {error}")),
        };
        match report {
            ZygoteReport::Ready { boot_ms, loaded, failed } => {
                if let Some(place) = self.places.get_mut(&tier) {
                    place.deaths_in_a_row = 0;
                    if let Some(zygote) = place.zygote.as_mut() {
                        zygote.ready = true;
                    }
                }
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
                self.spares.retain(|spare| spare.room.id != room);
                match self.sessions.remove(&room) {
                    Some((_, id)) => self.report(&Report::Exited { id, status }, &[]),
                    None => Ok(()),
                }
            }
        }
    }

    fn hear_init(&mut self, room: u64) -> Result<(), Failure> {
        let Some(pending) = self.pending.get_mut(&room) else { return Ok(()) };
        match pending.spare.room.hear() {
            Ok(()) => {
                pending.furnished = true;
                self.hand_over(room)
            }
            Err(failure) => {
                let session = pending.session;
                // Dropped: its child finds the bell gone and ends.
                self.pending.remove(&room);
                self.refuse(session, failure)
            }
        }
    }

    /// Gives a room to the server once it is furnished and its child is born.
    fn hand_over(&mut self, room: u64) -> Result<(), Failure> {
        let ready = |pending: &Pending| pending.furnished && pending.spare.kernel.is_some();
        if !self.pending.get(&room).is_some_and(ready) {
            return Ok(());
        }
        let Some(Pending { session: id, spare, .. }) = self.pending.remove(&room) else {
            return Ok(());
        };
        let Spare { room, kernel: Some(kernel), .. } = spare else { return Ok(()) };
        let fds = [room.commands.as_fd(), room.init.as_fd(), kernel.as_fd()];
        self.report(&Report::Opened { id, uid: room.uid }, &fds)
    }

    /// Ends a zygote for good, fails what it was doing, and plans its successor.
    fn bury(&mut self, tier: Tier, reason: &str) -> Result<(), Failure> {
        let Some(place) = self.places.get_mut(&tier) else { return Ok(()) };
        let Some(zygote) = place.zygote.take() else { return Ok(()) };
        zygote.kill();
        // The first death of a healthy zygote is mended at once.
        let delay = match place.deaths_in_a_row {
            0 => Duration::ZERO,
            deaths => RESTART_DELAY_MIN * 2_u32.saturating_pow(deaths.min(10)),
        };
        place.due = Some(Instant::now() + delay.min(RESTART_DELAY_MAX));
        place.deaths_in_a_row = place.deaths_in_a_row.saturating_add(1);
        self.spares.retain(|spare| spare.tier != tier);
        self.sessions.retain(|_, (of, _)| *of != tier);
        self.report(&Report::ZygoteGone { tier, reason: reason.to_owned() }, &[])?;
        let (lost, kept) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|(_, pending)| pending.spare.tier == tier);
        self.pending = kept;
        let lost: BTreeMap<u64, Pending> = lost;
        for pending in lost.into_values() {
            let reason = format!("the zygote is gone: {reason}");
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
    // One millisecond more, so that what is due is due when we wake.
    let duration = duration + Duration::from_millis(1);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
