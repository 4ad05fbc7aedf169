//! Rules on code: which rules hold for a call, the verdict before it runs, and the guard in the sandbox.
//!
//! The rules are a help and a wish of the operator's, never the wall: see docs/THREATS.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use woma_policy::{ErrorFacts, Mode, Profile, Python, Review, Rule};
use woma_sandbox::protocol::Note;
use woma_sandbox::{Crash, Guard, Outcome as RunOutcome};

use crate::environments::Version;
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{Action, ErrorCategory, EventKind, Execution, Outcome, SecurityEvent};
use crate::net::egress::NetworkRules;

/// A longer program is reviewed on a thread that may take its time.
const QUICK_BYTES_MAX: usize = 8 * 1024;
/// Events that a reply has at most.
const EVENTS_MAX: usize = 100;
const SUBJECT_CHARS_MAX: usize = 200;
const MESSAGE_CHARS_MAX: usize = 500;
/// The signal that ends a process for a system call that its filter refuses (SIGSYS).
pub(crate) const BAD_SYSTEM_CALL: i32 = 31;

/// A profile, and what the sandbox is told of it.
#[derive(Debug)]
pub struct Rules {
    pub profile: Profile,
    /// `None` if everything is allowed.
    guard: Option<Arc<Guard>>,
    /// Rules of the network, within those of the caller.
    pub(crate) network: Vec<Arc<NetworkRules>>,
}

impl Rules {
    pub(crate) fn guard(&self) -> Option<Arc<Guard>> {
        self.guard.clone()
    }
}

impl From<Profile> for Rules {
    fn from(profile: Profile) -> Self {
        let guard = (!profile.is_open()).then(|| Arc::new(guard(&profile)));
        // Text that is no rule allows nothing; the operator is told at the start.
        let read = |text: &String| Arc::new(text.parse().unwrap_or_default());
        let network = profile.network.iter().map(read).collect();
        Self { profile, guard, network }
    }
}

fn guard(profile: &Profile) -> Guard {
    Guard {
        imports: profile.imports.iter().map(|set| set.0.iter().cloned().collect()).collect(),
        builtins: profile.blocked_builtins.iter().cloned().collect(),
        attributes: profile.blocked_attributes.iter().cloned().collect(),
        commands: profile.commands,
        annotate: profile.mode == Mode::Annotate,
        names: profile.names.clone(),
    }
}

/// The rules that an operator has: those of the server, and others by name.
#[derive(Debug, Clone)]
pub struct Policies {
    server: Arc<Rules>,
    named: BTreeMap<String, Arc<Rules>>,
    /// Name of the rules of an environment, by its name.
    of_environments: BTreeMap<String, String>,
}

impl Policies {
    /// Nothing is forbidden, and nothing else can be chosen.
    pub fn open() -> Self {
        Self::new(Profile::open(), [])
    }

    /// `named`: what keys and sessions may choose.
    pub fn new(server: Profile, named: impl IntoIterator<Item = Profile>) -> Self {
        let named = named.into_iter();
        Self {
            server: Arc::new(server.into()),
            named: named.map(|one| (one.name.clone(), Arc::new(one.into()))).collect(),
            of_environments: BTreeMap::new(),
        }
    }

    /// The rules where neither key nor session nor call has its own.
    pub fn server(&self) -> &Profile {
        &self.server.profile
    }

    /// The verdict on a program without a server.
    pub fn judge(
        &self,
        source: &str,
        version: Version,
        allowed_imports: Option<&[String]>,
    ) -> Verdict {
        Verdict::new(narrowed(Arc::clone(&self.server), allowed_imports), source, version)
    }

    fn find(&self, name: &str) -> Result<&Arc<Rules>, Error> {
        self.named.get(name).ok_or_else(|| Error::NoPolicy {
            name: name.chars().take(64).collect(),
            known: self.named.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    /// A key's own rules take the place of the server's.
    pub fn of(&self, caller: &Caller) -> Result<Arc<Rules>, Error> {
        let rules = match &caller.policy {
            Some(name) => self.find(name)?,
            None => &self.server,
        };
        Ok(Arc::clone(rules))
    }

    /// Rules of a session, if it has any of its own: those that it has chosen, within those of its
    /// environment, within its caller's.
    pub(crate) fn of_session(
        &self,
        caller: &Caller,
        chosen: Option<&str>,
        environment: Option<&str>,
    ) -> Result<Option<Arc<Rules>>, Error> {
        let of_environment = environment.and_then(|name| self.of_environments.get(name));
        let names: Vec<&str> =
            of_environment.map(String::as_str).into_iter().chain(chosen).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let mut profile = self.of(caller)?.profile.clone();
        for name in names {
            profile = self.find(name)?.profile.within(&profile);
        }
        Ok(Some(Arc::new(profile.into())))
    }

    /// Has the sessions of an environment have these rules, which must exist.
    pub fn bind(&mut self, environment: &str, policy: &str) -> Result<(), Error> {
        self.find(policy)?;
        self.of_environments.insert(environment.to_owned(), policy.to_owned());
        Ok(())
    }
}

/// Variables that a program assigns to, as far as its text tells.
pub(crate) fn assigned(source: &str, Version(major, minor, _): Version) -> Vec<String> {
    woma_policy::assigned(source, Python { major, minor })
}

/// The verdict on a program, the same with a run and without one.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub rules: Arc<Rules>,
    pub review: Review,
}

impl Verdict {
    fn new(rules: Arc<Rules>, source: &str, Version(major, minor, _): Version) -> Self {
        let review = woma_policy::review(source, &rules.profile, Python { major, minor });
        Self { rules, review }
    }

    /// The whole program is refused before it runs. An attribute that is written down is looked up
    /// by Python itself, where nothing can stop it: it is refused in every mode. So is a module that
    /// another one carries, but where imports are no more than noted.
    pub fn is_rejected(&self) -> bool {
        let mut violations = self.review.violations.iter();
        violations.any(|violation| match self.rules.profile.mode {
            Mode::Reject => true,
            Mode::Raise => violation.is_free,
            Mode::Annotate => violation.is_free && violation.rule == Rule::Attribute,
        })
    }

    /// Adds what the rules have to say to what came of a run.
    pub(crate) fn tell(&self, source: &str, execution: &mut Execution) {
        let is_annotated = self.rules.profile.mode == Mode::Annotate;
        // Hosts that the run was kept from.
        let mut happened = std::mem::take(&mut execution.events);
        execution.notes.retain(|note| match event_of(note, is_annotated) {
            Some(event) => {
                happened.push(event);
                false
            }
            None => true,
        });
        happened.extend(broken_wall(execution));
        if execution.error.as_ref().is_some_and(|error| error.blocked) {
            execution.error_category = Some(ErrorCategory::Security);
        }
        execution.events = merge(self.events(), happened);
        let repairs = self.review.repairs.iter().map(|repair| repair.text.clone());
        execution.warnings.extend(repairs.chain(self.review.remarks.iter().cloned()));
        execution.hint = self.hint(source, execution);
        if execution.outcome == Outcome::Rejected
            && let (Some(message), Some(first)) = (&mut execution.message, execution.events.first())
        {
            message.push_str(": ");
            message.push_str(&first.message);
        }
    }

    /// Advice on a failure, where it is known.
    fn hint(&self, source: &str, execution: &Execution) -> Option<String> {
        if execution.outcome == Outcome::Rejected {
            return self.review.violations.first()?.hint.clone();
        }
        let Some(error) = &execution.error else {
            // Warnings may be worth a word.
            let is_networked = execution.is_networked;
            let facts =
                ErrorFacts { stderr: &execution.stderr, is_networked, ..ErrorFacts::default() };
            return if execution.stderr.is_empty() { None } else { woma_policy::hint(&facts) };
        };
        let problem = self.review.problem.as_ref().filter(|_| {
            execution.error_category == Some(ErrorCategory::Syntax) && self.review.mended.is_none()
        });
        if let Some(hint) = problem.and_then(|problem| problem.hint.clone()) {
            return Some(hint);
        }
        if let Some(hint) = self.hint_on_blocked(error) {
            return Some(hint);
        }
        let row = error.line.and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
        woma_policy::hint(&ErrorFacts {
            name: &error.name,
            message: &error.message,
            line: row.and_then(|row| source.lines().nth(row)),
            traceback: &error.traceback,
            stderr: &execution.stderr,
            is_networked: execution.is_networked,
        })
    }

    /// The hint of the review for the line at which an operation was blocked.
    fn hint_on_blocked(&self, error: &woma_sandbox::protocol::Raised) -> Option<String> {
        let line = error.line.and_then(|line| usize::try_from(line).ok())?;
        let is_blocked = error.blocked;
        let mut violations = self.review.violations.iter().filter(|_| is_blocked);
        violations.find(|violation| violation.line == line)?.hint.clone()
    }

    pub(crate) fn guard(&self) -> Option<Arc<Guard>> {
        self.rules.guard.clone()
    }

    /// Violations in the text of the program, reached or not.
    pub(crate) fn events(&self) -> Vec<SecurityEvent> {
        let action = if self.is_rejected() { Action::Rejected } else { Action::Found };
        let event = |violation: &woma_policy::Violation| SecurityEvent {
            event: match violation.rule {
                Rule::Import => EventKind::BlockedImport,
                Rule::Builtin => EventKind::BlockedBuiltin,
                Rule::Attribute => EventKind::BlockedAttribute,
                Rule::Command => EventKind::BlockedCommand,
            },
            action,
            subject: violation.subject.clone(),
            line: u64::try_from(violation.line).ok(),
            message: format!("Line {}: {}", violation.line, violation.reason),
        };
        self.review.violations.iter().take(EVENTS_MAX).map(event).collect()
    }
}

/// A note of the kernel's that tells of something blocked. It may be a lie, about its own run only.
pub(crate) fn event_of(note: &Note, is_annotated: bool) -> Option<SecurityEvent> {
    let event = EventKind::of_note(&note.code)?;
    let is_import = event == EventKind::BlockedImport;
    let cut = |text: &str, max: usize| text.chars().take(max).collect();
    Some(SecurityEvent {
        event,
        action: if is_annotated && is_import { Action::Annotated } else { Action::Blocked },
        subject: cut(note.subject.as_deref().unwrap_or_default(), SUBJECT_CHARS_MAX),
        line: note.line,
        message: cut(&note.text, MESSAGE_CHARS_MAX),
    })
}

/// A wall of the sandbox that was run against hard enough to end the session.
fn broken_wall(execution: &Execution) -> Option<SecurityEvent> {
    let event = match &execution.outcome {
        Outcome::Ran(RunOutcome::Crashed(Crash::Signal(BAD_SYSTEM_CALL))) => {
            EventKind::BlockedSystemCall
        }
        Outcome::Ran(RunOutcome::Crashed(Crash::Protocol(_))) => EventKind::BrokenChannel,
        _ => return None,
    };
    let message = execution.message.clone().unwrap_or_default();
    let action = Action::Blocked;
    Some(SecurityEvent { event, action, subject: String::new(), line: None, message })
}

/// One event for each thing: what was stopped at a line was also found there.
pub(crate) fn merge(found: Vec<SecurityEvent>, happened: Vec<SecurityEvent>) -> Vec<SecurityEvent> {
    let is_same = |one: &SecurityEvent, other: &SecurityEvent| {
        (one.event, &one.subject, one.line) == (other.event, &other.subject, other.line)
    };
    let mut events = happened;
    for event in found {
        if !events.iter().any(|known| is_same(known, &event)) {
            events.push(event);
        }
    }
    events.sort_by_key(|event| event.line);
    events.truncate(EVENTS_MAX);
    events
}

/// The verdict on a program, on another thread if it is long.
pub(crate) async fn judge(
    rules: Arc<Rules>,
    source: &str,
    version: Version,
) -> Result<Verdict, Error> {
    if source.len() <= QUICK_BYTES_MAX {
        return Ok(Verdict::new(rules, source, version));
    }
    let source = source.to_owned();
    let judged = tokio::task::spawn_blocking(move || Verdict::new(rules, &source, version));
    judged.await.map_err(|_| Error::Lost)
}

/// A call may take away, and never add.
pub(crate) fn narrowed(rules: Arc<Rules>, allowed_imports: Option<&[String]>) -> Arc<Rules> {
    match allowed_imports {
        Some(allowed) => Arc::new(rules.profile.narrowed(allowed).into()),
        None => rules,
    }
}
