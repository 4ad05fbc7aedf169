//! What may run: whose rules hold for a call, the verdict before it runs, and what the sandbox is told.
//!
//! The rules are a help and a wish of the operator's, never the wall: see docs/THREATS.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use woma_policy::{ErrorFacts, Mode, Profile, Python, Review, Rule};
use woma_sandbox::Guard;
use woma_sandbox::protocol::Note;

use crate::caller::Caller;
use crate::environments::Version;
use crate::{Error, Execution, Service};

/// A longer program is reviewed on a thread that may take its time.
const QUICK_BYTES_MAX: usize = 8 * 1024;
/// Events that a reply has at most.
const EVENTS_MAX: usize = 100;
const SUBJECT_CHARS_MAX: usize = 200;
const MESSAGE_CHARS_MAX: usize = 500;
/// How the kernel begins what it says of an operation that it refused.
const BLOCKED: &str = "[sandbox] BLOCKED";

/// A profile, and what the sandbox is told of it.
#[derive(Debug)]
pub struct Rules {
    pub profile: Profile,
    /// None: everything is allowed.
    guard: Option<Arc<Guard>>,
}

impl Rules {
    pub(crate) fn guard(&self) -> Option<Arc<Guard>> {
        self.guard.clone()
    }
}

impl From<Profile> for Rules {
    fn from(profile: Profile) -> Self {
        let guard = (!profile.is_open()).then(|| Arc::new(guard(&profile)));
        Self { profile, guard }
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
        }
    }

    /// What holds where neither key nor session nor call says anything.
    pub fn server(&self) -> &Profile {
        &self.server.profile
    }

    /// The verdict on a program for somebody who has no server.
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

    /// A session's rules lie within its caller's.
    pub(crate) fn of_session(&self, caller: &Caller, name: &str) -> Result<Arc<Rules>, Error> {
        let inner = &self.find(name)?.profile;
        Ok(Arc::new(inner.within(&self.of(caller)?.profile).into()))
    }
}

/// What is said of a program: the same before a run and without one.
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
        let mut happened = Vec::new();
        execution.notes.retain(|note| match event_of(note, is_annotated) {
            Some(event) => {
                happened.push(event);
                false
            }
            None => true,
        });
        happened.extend(broken_wall(execution));
        if execution.error.as_ref().is_some_and(|error| error.message.starts_with(BLOCKED)) {
            execution.error_category = Some("security");
        }
        execution.events = merge(self.events(), happened);
        let repairs = self.review.repairs.iter().map(|repair| repair.text.clone());
        execution.warnings.extend(repairs.chain(self.review.remarks.iter().cloned()));
        execution.hint = self.hint(source, execution);
        if execution.outcome == "rejected"
            && let (Some(message), Some(first)) = (&mut execution.message, execution.events.first())
        {
            message.push_str(": ");
            message.push_str(&first.message);
        }
    }

    /// What to do about a failure, where that is known.
    fn hint(&self, source: &str, execution: &Execution) -> Option<String> {
        if execution.outcome == "rejected" {
            return self.review.violations.first()?.hint.clone();
        }
        let Some(error) = &execution.error else {
            // Warnings may be worth a word.
            let facts = ErrorFacts { stderr: &execution.stderr, ..ErrorFacts::default() };
            return if execution.stderr.is_empty() { None } else { woma_policy::hint(&facts) };
        };
        let problem =
            self.review.problem.as_ref().filter(|_| {
                execution.error_category == Some("syntax") && self.review.mended.is_none()
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
        })
    }

    /// What the review has to say of the line at which something was blocked.
    fn hint_on_blocked(&self, error: &crate::Raised) -> Option<String> {
        let line = error.line.and_then(|line| usize::try_from(line).ok())?;
        let is_blocked = error.message.starts_with(BLOCKED);
        let mut violations = self.review.violations.iter().filter(|_| is_blocked);
        violations.find(|violation| violation.line == line)?.hint.clone()
    }

    pub(crate) fn guard(&self) -> Option<Arc<Guard>> {
        self.rules.guard.clone()
    }

    /// What the text of the program is against the rules with, whether or not it is reached.
    pub(crate) fn events(&self) -> Vec<SecurityEvent> {
        let action = if self.is_rejected() { Action::Rejected } else { Action::Found };
        let event = |violation: &woma_policy::Violation| SecurityEvent {
            event: match violation.rule {
                Rule::Import => "blocked_import",
                Rule::Builtin => "blocked_builtin",
                Rule::Attribute => "blocked_attribute",
                Rule::Command => "blocked_command",
            },
            action,
            subject: violation.subject.clone(),
            line: u64::try_from(violation.line).ok(),
            message: format!("Line {}: {}", violation.line, violation.reason),
        };
        self.review.violations.iter().take(EVENTS_MAX).map(event).collect()
    }
}

/// Something that was not allowed: in the reply, the log and the metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SecurityEvent {
    /// `blocked_import`, `blocked_builtin`, `blocked_attribute`, `blocked_command`,
    /// `blocked_system_call` or `broken_channel`.
    #[serde(rename = "security_event")]
    pub event: &'static str,
    pub action: Action,
    /// The module, builtin, attribute or command.
    pub subject: String,
    /// Line of the code that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub line: Option<u64>,
    pub message: String,
}

/// What became of something that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is in the text, and the run did not reach it.
    Found,
    /// The whole program was refused.
    Rejected,
    /// It was left out, and the run went on.
    Annotated,
    /// It was stopped while the code ran.
    Blocked,
}

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Rejected => "rejected",
            Self::Annotated => "annotated",
            Self::Blocked => "blocked",
        }
    }
}

/// A note of the kernel's that tells of something blocked. It may be a lie, about its own run only.
pub(crate) fn event_of(note: &Note, is_annotated: bool) -> Option<SecurityEvent> {
    const CODES: [&str; 4] =
        ["blocked_import", "blocked_builtin", "blocked_attribute", "blocked_command"];
    let event = *CODES.iter().find(|code| **code == note.code)?;
    let is_import = event == "blocked_import";
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
    let is_wall = execution.error_category == Some("security") && execution.outcome == "crashed";
    let message = execution.message.clone().unwrap_or_default();
    let is_call = message.contains("bad system call");
    is_wall.then(|| SecurityEvent {
        event: if is_call { "blocked_system_call" } else { "broken_channel" },
        action: Action::Blocked,
        subject: String::new(),
        line: None,
        message,
    })
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

impl Service {
    /// What would become of a program, without running it.
    pub async fn validate(
        &self,
        caller: &Caller,
        source: &str,
        session: Option<&crate::SessionId>,
        allowed_imports: Option<&[String]>,
    ) -> Result<Verdict, Error> {
        crate::service::may_read(caller)?;
        crate::execute::check_source(source, self.shared.settings.source_bytes_max)?;
        let session = session.and_then(|id| self.shared.sessions.find(caller, id).ok());
        let rules = match session.and_then(|session| session.rules.clone()) {
            Some(rules) => rules,
            None => self.shared.settings.policies.of(caller)?,
        };
        self.judge(narrowed(rules, allowed_imports), source).await
    }

    /// The verdict on a program.
    pub(crate) async fn judge(&self, rules: Arc<Rules>, source: &str) -> Result<Verdict, Error> {
        let version = self.shared.settings.environment.version;
        if source.len() <= QUICK_BYTES_MAX {
            return Ok(Verdict::new(rules, source, version));
        }
        let source = source.to_owned();
        let judged = tokio::task::spawn_blocking(move || Verdict::new(rules, &source, version));
        judged.await.map_err(|_| Error::Lost)
    }
}

/// A call may take away, and never add.
pub(crate) fn narrowed(rules: Arc<Rules>, allowed_imports: Option<&[String]>) -> Arc<Rules> {
    match allowed_imports {
        Some(allowed) => Arc::new(rules.profile.narrowed(allowed).into()),
        None => rules,
    }
}
