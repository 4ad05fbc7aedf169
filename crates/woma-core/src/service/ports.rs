//! Servers in sessions: connections to them for their owners.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::Service;
use crate::error::Error;
use crate::model::SessionId;
use crate::model::caller::Caller;
use crate::shares::{Permit, Shares};

/// Connections to servers in sessions, of all callers. Both ends of each are sockets of a room, which
/// may have 512.
pub(super) const PORT_CONNECTIONS: usize = 128;
/// The first port that a process of a session can listen at.
const PORT_MIN: u16 = 1024;

/// A connection to a server in a session. It counts for its caller until it is dropped.
#[derive(Debug)]
pub struct PortConnection {
    pub stream: TcpStream,
    pub permit: Permit,
}

impl Service {
    /// Connects to a server that listens in a session of the caller's.
    pub async fn connect_port(
        &self,
        caller: &Caller,
        id: &SessionId,
        port: u16,
    ) -> Result<PortConnection, Error> {
        if !self.shared.settings.ports {
            return Err(Error::PortsOff);
        }
        caller.may_execute()?;
        let session = self.sessions.find(caller, id)?;
        let absent = || Error::NoServer { session: id.clone(), port };
        let sockets = session.room_sockets().filter(|_| port >= PORT_MIN).ok_or_else(absent)?;
        let ports: &Arc<Shares> = &self.shared.ports;
        let permit = ports
            .take(&caller.id)
            .ok_or_else(|| Error::PortsBusy { limit: ports.most(&caller.id) })?;
        match sockets.connect(port).await {
            Ok(stream) => Ok(PortConnection { stream, permit }),
            Err(error) => {
                if error.kind() != io::ErrorKind::ConnectionRefused {
                    tracing::debug!(%error, session = %id, port, "A port was not reached");
                }
                Err(absent())
            }
        }
    }
}
