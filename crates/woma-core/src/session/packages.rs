//! The packages of one session: the set, its changes one at a time, and the rooms that show it.

use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;
use woma_sandbox::RoomFolders;
use woma_sandbox::sync::lock;

use crate::model::PackageSet;
use crate::packages::layers::Layer;

#[derive(Debug, Default)]
pub(crate) struct SessionPackages {
    set: Mutex<PackageSet>,
    /// Held by a change.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The room of the kernel, and the layer that it shows.
    room: Mutex<Option<(RoomFolders, Option<Arc<Layer>>)>>,
    /// For the reply of the next run.
    note: Mutex<Option<String>>,
}

impl SessionPackages {
    pub(super) fn new(set: PackageSet) -> Self {
        Self { set: Mutex::new(set), ..Self::default() }
    }

    pub(crate) fn set(&self) -> PackageSet {
        lock(&self.set).clone()
    }

    /// Name of the layer; empty without packages.
    pub(crate) fn layer(&self) -> String {
        lock(&self.set).layer.clone()
    }

    pub(crate) fn change(&self, set: PackageSet) {
        *lock(&self.set) = set;
    }

    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// The kernel's room, from now on.
    pub(crate) fn enter(&self, room: RoomFolders) {
        *lock(&self.room) = Some((room, None));
    }

    pub(crate) fn room(&self) -> Option<RoomFolders> {
        lock(&self.room).as_ref().map(|(room, _)| room.clone())
    }

    /// Holds a layer for as long as the room may show it.
    pub(crate) fn hold(&self, layer: Arc<Layer>) {
        if let Some((_, held)) = &mut *lock(&self.room) {
            *held = Some(layer);
        }
    }

    pub(crate) fn tell(&self, note: Option<String>) {
        if note.is_some() {
            *lock(&self.note) = note;
        }
    }

    pub(crate) fn take_note(&self) -> Option<String> {
        lock(&self.note).take()
    }

    /// The kernel has ended.
    pub(crate) fn leave(&self) {
        *lock(&self.room) = None;
    }
}
