//! Secrets of a run: their placeholders go in, and no value comes out.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use woma_sandbox::protocol::{Display, Done, Form, Json, Note};
use woma_sandbox::{Cell, Event, Exit, Run, Stream};

use super::Executor;
use super::request::Admitted;
use super::spine::follow;
use crate::net::secrets::{Covered, Mask};
use crate::session::state::Kernel;

impl Executor {
    /// Gives a kernel's network the secrets that hold for this run. Returns the changes of its
    /// environment, and a note if secrets are gone that the session was given.
    pub(super) fn place_secrets(
        &self,
        kernel: &mut Kernel,
        admitted: &Admitted,
    ) -> (Map<String, Value>, Option<Note>) {
        let network = &kernel.network;
        let current = network.secrets();
        let (caller, session) = (&admitted.caller, network.session.as_ref());
        if let Some(changed) = self.secrets.changed(caller, session, admitted.id.as_str(), &current)
        {
            network.set_secrets(changed);
        }
        let secrets = network.secrets();
        let mut changes = Map::new();
        let lost = network.named().into_iter().filter(|name| !secrets.has(name));
        let lost: Vec<_> = lost.collect();
        if secrets.is_empty() && kernel.environ.is_empty() && lost.is_empty() {
            return (changes, None);
        }
        let wanted: Map<String, Value> = secrets
            .placed
            .iter()
            .map(|one| (one.secret.name.clone(), one.placeholder.clone().into()))
            .collect();
        let gone = kernel.environ.keys().filter(|name| !wanted.contains_key(*name));
        changes.extend(gone.map(|name| (name.clone(), Value::Null)));
        let new = wanted.iter().filter(|(name, value)| kernel.environ.get(*name) != Some(value));
        changes.extend(new.map(|(name, value)| (name.clone(), value.clone())));
        kernel.environ = wanted;
        (changes, (!lost.is_empty()).then(|| lost_note(&lost)))
    }
}

fn lost_note(names: &[String]) -> Note {
    let text = format!(
        "the values of these secrets of the session are gone, because the server keeps them in memory \
         only and has been started anew: {}. The client that gave them to the session can give them \
         again (`secrets` of PATCH /api/v1/sessions/{{id}})",
        names.join(", ")
    );
    Note { code: "secrets_lost".to_owned(), text, subject: None, line: None }
}

/// Takes the values of secrets out of what a run sends.
pub(super) struct Cover(Option<Parts>);

struct Parts {
    mask: Arc<Mask>,
    /// Each stream as the reply has it, and what may belong to its end, as it comes.
    stdout: [Covered; 2],
    stderr: [Covered; 2],
}

impl Cover {
    pub(super) fn of(kernel: &Kernel) -> Self {
        Self(kernel.network.secrets().mask.clone().map(|mask| {
            let streams = || [(); 2].map(|()| Covered::new(Arc::clone(&mask)));
            Parts { stdout: streams(), stderr: streams(), mask: Arc::clone(&mask) }
        }))
    }

    /// Runs code. Neither the events nor the end have values.
    pub(super) async fn follow(
        self,
        cell: &mut Cell,
        run: &Run,
        stop: &CancellationToken,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Exit {
        let Some(mut parts) = self.0 else { return follow(cell, run, stop, on_event).await };
        let mut covered = |event: Event| {
            if let Some(event) = parts.event(event) {
                on_event(event);
            }
        };
        let mut exit = follow(cell, run, stop, &mut covered).await;
        for stream in [Stream::Stdout, Stream::Stderr] {
            let bytes = parts.stream(stream)[0].finish().to_vec();
            if !bytes.is_empty() {
                on_event(Event::Output { stream, bytes });
            }
        }
        if let Some(done) = &mut exit.done {
            parts.done(done);
        }
        exit
    }
}

impl Parts {
    fn stream(&mut self, stream: Stream) -> &mut [Covered; 2] {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn event(&mut self, event: Event) -> Option<Event> {
        let mut pass = |stream: Stream, copy: usize, bytes: Vec<u8>| {
            let [kept, held] = self.stream(stream);
            let covered = if copy == 0 { kept } else { held };
            let bytes = covered.push(bytes.into()).to_vec();
            (!bytes.is_empty()).then_some(bytes)
        };
        Some(match event {
            Event::Output { stream, bytes } => {
                Event::Output { stream, bytes: pass(stream, 0, bytes)? }
            }
            Event::Middle { stream, bytes } => {
                Event::Middle { stream, bytes: pass(stream, 0, bytes)? }
            }
            Event::Held { stream, bytes } => Event::Held { stream, bytes: pass(stream, 1, bytes)? },
            Event::Gap { stream, bytes } => Event::Gap { stream, bytes },
            Event::Display(mut display) => {
                self.display(&mut display);
                Event::Display(display)
            }
            Event::Note(mut note) => {
                self.text(&mut note.text);
                if let Some(subject) = &mut note.subject {
                    self.text(subject);
                }
                Event::Note(note)
            }
        })
    }

    fn display(&self, display: &mut Display) {
        for form in display.data.values_mut() {
            match form {
                Form::Text(text) => self.text(text),
                Form::Json(json) => self.json(json),
            }
        }
        if let Some(metadata) = &mut display.metadata {
            self.json(metadata);
        }
        for (_, bytes) in &mut display.binary {
            if let Some(covered) = self.mask.bytes(bytes) {
                *bytes = covered;
            }
        }
    }

    fn done(&self, done: &mut Done) {
        if let Some(error) = &mut done.error {
            let texts = [&mut error.name, &mut error.message].into_iter();
            let lines = error.traceback.iter_mut().chain(&mut error.own);
            texts.chain(lines).chain(&mut error.missing).for_each(|text| self.text(text));
        }
        if let Some(result) = &mut done.result {
            self.text(&mut result.text);
            if let Some(json) = &mut result.json {
                self.json(json);
            }
        }
        for variable in &mut done.variables {
            let texts = [&mut variable.name, &mut variable.type_name].into_iter();
            texts.chain(&mut variable.about).for_each(|text| self.text(text));
        }
    }

    fn text(&self, text: &mut String) {
        if let Some(covered) = self.mask.text(text) {
            *text = covered;
        }
    }

    fn json(&self, json: &mut Json) {
        if let Some(covered) = self.mask.text(json.text()) {
            let covered = Json::parse(covered).or_else(|| Json::parse("null".to_owned()));
            if let Some(covered) = covered {
                *json = covered;
            }
        }
    }
}
