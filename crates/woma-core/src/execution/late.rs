//! Output of a session that comes after the end of the run that caused it: threads, child
//! processes. The next reply announces it.

use woma_sandbox::protocol::Note;

use crate::model::Execution;
use crate::session::state::{Session, SessionState};

/// Adds output that no reply has announced, and a note about it.
pub(super) fn tell(session: &Session, state: &mut SessionState, execution: &mut Execution) {
    if let Some(kernel) = state.kernel.live_mut() {
        session.add_log(&kernel.cell.take_log());
    }
    let (bytes, text) = session.take_late_output();
    if bytes == 0 {
        return;
    }
    let text_of_note = format!(
        "{bytes} bytes of output came after the end of an earlier run: \
         read_output(execution_id=\"{}\", stream=\"late\")",
        execution.id
    );
    execution.late_output = text;
    let code = "late_output".to_owned();
    execution.notes.push(Note { code, text: text_of_note, subject: None, line: None });
}
