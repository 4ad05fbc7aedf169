//! The inner half of the steward: pid 1 of the outer sandbox. It starts the zygotes, builds rooms,
//! and passes each room to a zygote to be entered. One thread, one loop, no user code.

use std::collections::BTreeMap;
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
use crate::{landlock, seccomp};

/// A zygote that died is started again after this long, doubled with each death in a row.
const RESTART_DELAY_MIN: Duration = Duration::from_millis(50);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(5);
/// Rooms made ahead, while there is nothing else to do.
const SPARE_ROOMS: usize = 2;
/// How long nothing must have happened before that is done: a session that is being opened needs
/// the processors more.
const QUIET: Duration = Duration::from_millis(10);

pub(crate) fn main(
    control: &OwnedFd,
    wait: &OwnedFd,
    setup: &Setup,
    ids: Ids,
    proof: SingleThreaded,
) -> Result<(), Failure> {
    enter(wait, ids, proof)?;
    let abi = landlock::abi();
    let kit = zygote::Kit {
        python: setup.python.clone(),
        ruleset: step("make the Landlock ruleset", landlock::ruleset(Path::new(TEMPLATE)))?,
        filters: step("compile the seccomp filters", seccomp::compile())?,
    };
    let (uid_base, uid_count) = match ids {
        Ids::Range { base, count } => (Some(base), count),
        Ids::Own => (None, 1),
    };
    let standing = Standing { uid_base, uid_count, landlock_abi: abi };
    step("report", channel::send(control, &Report::Standing(standing), &[]))?;
    let mut steward = Steward {
        control,
        kit,
        proof,
        places: BTreeMap::new(),
        pending: BTreeMap::new(),
        spares: Vec::new(),
        rooms_made: 0,
        uid_count,
    };
    for tier in &setup.tiers {
        steward.places.insert(*tier, Place::default());
    }
    loop {
        steward.start_zygotes()?;
        if !steward.turn()? {
            return Ok(());
        }
    }
}

/// The steps from a fresh fork to pid 1 of a sandbox that shows nothing but the template.
fn enter(wait: &OwnedFd, ids: Ids, proof: SingleThreaded) -> Result<(), Failure> {
    let mut go = [0; 8];
    step("wait for the id map", channel::receive_bytes(wait, &mut go))?;
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

struct Steward<'a> {
    control: &'a OwnedFd,
    kit: zygote::Kit,
    proof: SingleThreaded,
    places: BTreeMap<Tier, Place>,
    /// Rooms that are being furnished and entered, both at once.
    pending: BTreeMap<u64, Pending>,
    spares: Vec<Room>,
    rooms_made: u64,
    uid_count: u32,
}

#[derive(Debug)]
struct Pending {
    tier: Tier,
    room: Room,
    furnished: bool,
    /// The kernel's pidfd.
    kernel: Option<OwnedFd>,
}

impl Steward<'_> {
    /// Starts the zygotes that are due. A higher tier waits until the base can serve: the first cell
    /// must not share the machine with an import of everything.
    fn start_zygotes(&mut self) -> Result<(), Failure> {
        let base_ready = self.places.get(&Tier::Base).is_none_or(Place::is_ready);
        for (tier, place) in &mut self.places {
            let due = place.due.is_none_or(|due| due <= Instant::now());
            if place.zygote.is_none() && due && (*tier == Tier::Base || base_ready) {
                place.zygote = Some(zygote::start(&self.kit, *tier, self.proof)?);
            }
        }
        Ok(())
    }

    /// Waits for one thing to happen and deals with it. False when the server is gone.
    fn turn(&mut self) -> Result<bool, Failure> {
        let mut fds = vec![PollFd::new(self.control, PollFlags::IN)];
        let zygotes: Vec<(Tier, &Zygote)> = self
            .places
            .iter()
            .filter_map(|(tier, place)| Some((*tier, place.zygote.as_ref()?)))
            .collect();
        for (_, zygote) in &zygotes {
            fds.push(PollFd::new(&zygote.socket, PollFlags::IN));
        }
        let unfurnished: Vec<(u64, &Room)> = self
            .pending
            .iter()
            .filter(|(_, pending)| !pending.furnished)
            .map(|(id, pending)| (*id, &pending.room))
            .collect();
        for (_, room) in &unfurnished {
            fds.push(PollFd::new(&room.commands, PollFlags::IN));
        }
        let wants_spare = self.wants_spare();
        let timeout = if wants_spare { Some(QUIET) } else { self.next_due() };
        let timeout = timeout.map(timespec);
        match poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Ok(0) if wants_spare => {
                let room = self.create_room()?;
                self.spares.push(room);
                return Ok(true);
            }
            other => step("wait for work", other)?,
        };
        let mut ready =
            fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
        let order = ready.next() == Some(true);
        let tiers: Vec<Tier> = zygotes.iter().map(|(tier, _)| *tier).collect();
        let rooms: Vec<u64> = unfurnished.iter().map(|(id, _)| *id).collect();
        // What was begun first: a server waits for it already.
        for (tier, ready) in tiers.into_iter().zip(ready.by_ref()) {
            if ready {
                self.hear(tier)?;
            }
        }
        for (id, ready) in rooms.into_iter().zip(ready) {
            if ready {
                self.hear_init(id)?;
            }
        }
        if order {
            let Some((order, fds)) = step("read an order", channel::receive(self.control))? else {
                return Ok(false);
            };
            self.obey(order, &fds)?;
        }
        Ok(true)
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
            Order::Open(open) => match self
                .take_room()
                .and_then(|room| self.open(&open, fds, &room).map(|()| room))
            {
                Ok(room) => {
                    let pending = Pending { tier: open.tier, room, furnished: false, kernel: None };
                    self.pending.insert(open.id, pending);
                    Ok(())
                }
                Err(failure) => self.refuse(open.id, failure),
            },
            Order::Restart(tier) => self.bury(tier, "it did not answer"),
        }
    }

    /// Has the room furnished and entered, at the same time.
    fn open(&self, open: &Open, fds: &[OwnedFd], room: &Room) -> Result<(), Failure> {
        let missing = || std::io::Error::other("a descriptor is missing");
        let place = self.places.get(&open.tier).filter(|place| place.is_ready());
        let zygote = place.and_then(|place| place.zygote.as_ref());
        let no_zygote = || std::io::Error::other("its zygote is not ready");
        let zygote = step("find the zygote", zygote.ok_or_else(no_zygote))?;
        let mut fds = fds.iter();
        let kernel_socket = step("read an order", fds.next().ok_or_else(missing))?;
        let log = step("read an order", fds.next().ok_or_else(missing))?;
        let mut sent: Vec<BorrowedFd<'_>> = vec![
            room.pid_namespace.as_fd(),
            room.bell.as_fd(),
            room.init.as_fd(),
            kernel_socket.as_fd(),
            log.as_fd(),
        ];
        sent.extend(fds.map(AsFd::as_fd));
        step("ask the zygote", zygote.enter(open, &sent))?;
        room.furnish(&open.furnishing)
    }

    fn wants_spare(&self) -> bool {
        self.spares.len() < SPARE_ROOMS
            && self.pending.is_empty()
            && self.places.values().any(Place::is_ready)
    }

    fn take_room(&mut self) -> Result<Room, Failure> {
        match self.spares.pop() {
            Some(room) => Ok(room),
            None => self.create_room(),
        }
    }

    /// Ids come round again after the whole range; zero is the steward's own, if there are others.
    fn create_room(&mut self) -> Result<Room, Failure> {
        self.rooms_made += 1;
        let others = u64::from(self.uid_count.saturating_sub(1));
        let uid = match others {
            0 => 0,
            _ => u32::try_from(self.rooms_made % others).unwrap_or(0) + 1,
        };
        room::create(uid, self.proof)
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
            ZygoteReport::Entered { id } => {
                if let Some(pending) = self.pending.get_mut(&id) {
                    pending.kernel = fds.into_iter().next();
                }
                self.hand_over(id)
            }
            ZygoteReport::Exited { id, status } => self.report(&Report::Exited { id, status }, &[]),
        }
    }

    fn hear_init(&mut self, id: u64) -> Result<(), Failure> {
        let Some(pending) = self.pending.get_mut(&id) else { return Ok(()) };
        match pending.room.hear() {
            Ok(()) => {
                pending.furnished = true;
                self.hand_over(id)
            }
            Err(failure) => {
                // Dropped: its kernel finds the door shut and ends.
                self.pending.remove(&id);
                self.refuse(id, failure)
            }
        }
    }

    /// Gives a room to the server once it is both furnished and entered.
    fn hand_over(&mut self, id: u64) -> Result<(), Failure> {
        let ready = |pending: &Pending| pending.furnished && pending.kernel.is_some();
        if !self.pending.get(&id).is_some_and(ready) {
            return Ok(());
        }
        let Some(Pending { room, kernel: Some(kernel), .. }) = self.pending.remove(&id) else {
            return Ok(());
        };
        let fds = [room.commands.as_fd(), room.init.as_fd(), kernel.as_fd()];
        self.report(&Report::Opened { id, uid: room.uid }, &fds)
    }

    /// Ends a zygote for good, fails what it was doing, and plans its successor.
    fn bury(&mut self, tier: Tier, reason: &str) -> Result<(), Failure> {
        let Some(place) = self.places.get_mut(&tier) else { return Ok(()) };
        let Some(zygote) = place.zygote.take() else { return Ok(()) };
        zygote.kill();
        let delay = RESTART_DELAY_MIN * 2_u32.saturating_pow(place.deaths_in_a_row.min(10));
        // The first death of a healthy zygote is mended at once.
        let delay = if place.deaths_in_a_row == 0 { Duration::ZERO } else { delay };
        place.due = Some(Instant::now() + delay.min(RESTART_DELAY_MAX));
        place.deaths_in_a_row = place.deaths_in_a_row.saturating_add(1);
        let reason = reason.to_owned();
        self.report(&Report::ZygoteGone { tier, reason: reason.clone() }, &[])?;
        let lost: Vec<u64> = self
            .pending
            .iter()
            .filter_map(|(id, pending)| (pending.tier == tier).then_some(*id))
            .collect();
        for id in lost {
            self.pending.remove(&id);
            let step = "enter the room".to_owned();
            let report =
                Report::Failed { id, step, reason: format!("the zygote is gone: {reason}") };
            self.report(&report, &[])?;
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

impl Place {
    fn is_ready(&self) -> bool {
        self.zygote.as_ref().is_some_and(|zygote| zygote.ready)
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
