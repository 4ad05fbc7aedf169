//! Sessions and files of another system, added beside what is there.

use super::files::{FileRow, inserted};
use super::sessions::SessionRow;
use super::statement::{Statement, Value, change};
use super::{Store, StoreError};

impl Store {
    /// Adds a session and files, all or none of them. Rows that are there already stay as they are;
    /// returns whether the session is new, and how many files are.
    pub(crate) async fn adopt(
        &self,
        session: Option<&SessionRow>,
        files: &[FileRow],
    ) -> Result<(bool, u64), StoreError> {
        let mut unit: Vec<Statement> = session.map(added).into_iter().collect();
        let of_files = unit.len();
        unit.extend(files.iter().map(inserted).map(|row| row.or_keep("id")));
        if unit.is_empty() {
            return Ok((false, 0));
        }
        let answers = self.write(unit).await?;
        let touched = |answers: &[super::Answer]| answers.iter().map(|answer| answer.touched).sum();
        let (session, files) = answers.split_at(of_files.min(answers.len()));
        let is_new: u64 = touched(session);
        Ok((is_new > 0, touched(files)))
    }
}

fn added(session: &SessionRow) -> Statement {
    let sql = "INSERT INTO sessions (owner, id, name, description, created_at, last_used_at) \
               VALUES ($1, $2, $3, $4, $5, $6)";
    let values = vec![
        session.owner.as_str().into(),
        session.id.as_str().into(),
        Value::text_maybe(session.name.as_deref()),
        Value::text_maybe(session.description.as_deref()),
        Value::time(session.created_at),
        Value::time(session.last_used_at),
    ];
    change(sql, values).or_keep("owner, id")
}
