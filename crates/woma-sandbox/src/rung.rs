//! The ladder: ways to contain a session, from the strongest to the weakest, and the choice of one.
//!
//! A sandbox uses the highest rung that works here. Whether one works is found by building it. A
//! lower rung than [`Rung::Rooms`] is used only if the operator allows it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::landlock;
use crate::open::room_ids;
use crate::spec::Config;
use crate::steward::client::Client;
use crate::steward::control::{Report, Rotation, Setup, StewardInfo};

/// Longest time to build and try a sandbox without an interpreter.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(10);
/// Landlock interface that keeps signals inside of a session.
pub(crate) const SCOPED_ABI: i32 = 6;
/// Landlock interface that keeps a session from truncating files of others.
pub(crate) const TRUNCATION_ABI: i32 = 3;

/// A way to contain a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rung {
    /// As `Restricted`, on a kernel that cannot keep signals inside of a session: a session may
    /// then send none, not even to its own children.
    Minimal,
    /// Sessions share the namespaces of the server. Landlock, seccomp, limits of processes and the
    /// watchdog contain them; they have no sockets.
    Restricted,
    /// Each session has a room of namespaces and mounts of its own.
    Rooms,
}

impl Rung {
    /// The next lower rung.
    pub fn below(self) -> Option<Self> {
        match self {
            Self::Rooms => Some(Self::Restricted),
            Self::Restricted => Some(Self::Minimal),
            Self::Minimal => None,
        }
    }

    /// Whether sessions share the server's namespaces.
    pub(crate) fn is_shared(self) -> bool {
        self != Self::Rooms
    }

    /// Name in replies and settings; rooms are called by what they amount to.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rooms => "strong",
            Self::Restricted => "restricted",
            Self::Minimal => "minimal",
        }
    }
}

/// Step and reason for which a rung does not work.
pub(crate) type Refused = (String, String);

/// The highest allowed rung that works, with the reason against each higher one; or the reason
/// against the lowest.
pub(crate) async fn choose(config: &Config) -> Result<(Rung, Option<Refused>), Refused> {
    let mut rung = config.highest;
    let mut first_refusal = None;
    loop {
        if rung == config.lowest && first_refusal.is_none() {
            return Ok((rung, None));
        }
        let Err(refused) = try_rung(&config.steward, rung).await else {
            return Ok((rung, first_refusal));
        };
        match rung.below().filter(|below| *below >= config.lowest) {
            Some(below) => rung = below,
            None => return Err(first_refusal.unwrap_or(refused)),
        }
        first_refusal.get_or_insert(refused);
    }
}

/// Builds everything of a rung but an interpreter, and ends it again.
pub(crate) async fn try_rung(
    steward: &std::path::Path,
    rung: Rung,
) -> Result<StewardInfo, Refused> {
    let fail = |step: &str, reason: String| (step.to_owned(), reason);
    if rung.is_shared() {
        check_landlock(rung)?;
    }
    let setup = Setup {
        python: "/nonexistent".into(),
        mounts: Vec::new(),
        tiers: Vec::new(),
        watched: false,
        rotation: Rotation::default(),
        room_ids: room_ids(),
        rung,
        scratch: std::env::temp_dir(),
        trust: None,
    };
    let client = Client::spawn(steward, &setup)
        .map_err(|error| fail("start the steward", error.to_string()))?;
    let reading = "read a report of the steward";
    match timeout(TRIAL_TIME_MAX, client.next()).await {
        Ok(Ok(Some((Report::Started(info), _)))) => Ok(info),
        Ok(Ok(Some((Report::Broken { step, reason }, _)))) => Err((step, reason)),
        Ok(Ok(other)) => Err(fail(reading, format!("unexpected report: {other:?}"))),
        Ok(Err(error)) => Err(fail(reading, error.to_string())),
        Err(_) => Err(fail(reading, format!("no report within {TRIAL_TIME_MAX:?}"))),
    }
}

/// Without namespaces, Landlock is the wall: an interface that is too old is no wall.
fn check_landlock(rung: Rung) -> Result<(), Refused> {
    let (abi, wanted) = (landlock::abi(), needed_abi(rung));
    if abi >= wanted {
        return Ok(());
    }
    let reason = match abi {
        0 => "the kernel does not offer it".to_owned(),
        _ => format!("its interface has version {abi}; without namespaces, {wanted} is needed"),
    };
    Err(("make the Landlock ruleset".to_owned(), reason))
}

/// Landlock interface that a rung without namespaces needs.
pub(crate) fn needed_abi(rung: Rung) -> i32 {
    match rung {
        Rung::Rooms => 1,
        Rung::Restricted => SCOPED_ABI,
        Rung::Minimal => TRUNCATION_ABI,
    }
}
