//! The hash chains of the audit trail.
//!
//! Each server has a chain. A row has the next position in its server's chain, and a hash over the
//! hash of the row before it and its own columns, so a row that is changed, removed, inserted or
//! moved can be named. The transaction that appends rows also moves the chain's head, which it locks:
//! processes of one server write one chain, and servers that share a database wait for none but
//! themselves.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::StoreError;
use super::statement::{Answer, Statement, Value, change, rows};
use crate::model::hex;

/// Columns that the hash covers, besides chain and position.
pub(super) const HASHED: &str = "at, owner, action, session_id, execution_id, detail";
const HASHED_COUNT: usize = 6;
/// Name of this way to compute hashes.
const FORM: &str = "woma audit 1";

/// Reads the head of a chain and locks it; a new chain begins at zero.
const LOCK_HEAD: &str = "INSERT INTO audit_heads (chain, position, hash) VALUES ($1, 0, '') \
     ON CONFLICT (chain) DO UPDATE SET position = audit_heads.position \
     RETURNING position, hash";
const MOVE_HEAD: &str = "UPDATE audit_heads SET position = $2, hash = $3 WHERE chain = $1";

/// A place in a chain: the position of a row, and its hash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Link {
    pub(super) position: i64,
    pub(super) hash: String,
}

impl Link {
    /// The place of a row with these columns, if it follows this one.
    pub(super) fn next(&self, chain: &str, columns: &[Value]) -> Self {
        let position = self.position.saturating_add(1);
        Self { position, hash: hash(&self.hash, chain, position, columns) }
    }
}

/// The hash of a row, by that of the row before it.
fn hash(before: &str, chain: &str, position: i64, columns: &[Value]) -> String {
    let mut hasher = Sha256::new();
    let fixed = [FORM.into(), before.into(), chain.into(), Value::from(position)];
    for value in fixed.iter().chain(columns.iter().take(HASHED_COUNT)) {
        // Lengths come first, so that no two rows give the same bytes.
        match value {
            Value::Number(Some(number)) => {
                hasher.update([1]);
                hasher.update(number.to_le_bytes());
            }
            Value::Text(Some(text)) => {
                hasher.update([2]);
                hasher.update((text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
            Value::Bytes(Some(bytes)) => {
                hasher.update([3]);
                hasher.update((bytes.len() as u64).to_le_bytes());
                hasher.update(bytes);
            }
            Value::Number(None) | Value::Text(None) | Value::Bytes(None) => hasher.update([0]),
        }
    }
    hex(&hasher.finalize())
}

/// Heads of the chains that one transaction has appended to.
#[derive(Debug, Default)]
pub(super) struct Heads(BTreeMap<String, Head>);

#[derive(Debug)]
struct Head {
    link: Link,
    is_moved: bool,
}

impl Heads {
    /// Statement that must run before the given one, if its chain was not read yet.
    pub(super) fn lock(&self, statement: &Statement) -> Option<Statement> {
        let chain = statement.chain.as_deref()?;
        (!self.0.contains_key(chain)).then(|| rows(LOCK_HEAD, vec![chain.into()]))
    }

    /// Takes the answer of [`Heads::lock`].
    pub(super) fn locked(
        &mut self,
        statement: &Statement,
        answer: Answer,
    ) -> Result<(), StoreError> {
        let Some(chain) = &statement.chain else { return Ok(()) };
        let row = answer.rows.into_iter().next();
        let mut row = row.ok_or_else(|| StoreError::Internal("a chain has no head".to_owned()))?;
        let link = Link { position: row.number()?, hash: row.text()? };
        self.0.insert(chain.clone(), Head { link, is_moved: false });
        Ok(())
    }

    /// The statement with the place that its row will have; `None` for one that appends no row.
    pub(super) fn linked(&self, statement: &Statement) -> Option<(Statement, Link)> {
        let chain = statement.chain.as_deref()?;
        let link = self.0.get(chain)?.link.next(chain, &statement.values);
        let mut linked = statement.clone();
        linked.values.extend([chain.into(), link.position.into(), Value::from(link.hash.as_str())]);
        Some((linked, link))
    }

    /// Moves a head, after a row was appended.
    pub(super) fn appended(&mut self, statement: &Statement, link: Link) {
        if let Some(head) = statement.chain.as_ref().and_then(|chain| self.0.get_mut(chain)) {
            *head = Head { link, is_moved: true };
        }
    }

    /// Statements that write the moved heads, at the end of the transaction.
    pub(super) fn moved(&self) -> Vec<Statement> {
        let moved = self.0.iter().filter(|(_, head)| head.is_moved);
        let write = |(chain, Head { link, .. }): (&String, &Head)| {
            let values =
                vec![chain.as_str().into(), link.position.into(), link.hash.as_str().into()];
            change(MOVE_HEAD, values)
        };
        moved.map(write).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(owner: &str, detail: &str) -> Vec<Value> {
        let none = Value::text_maybe(None);
        vec![1.into(), owner.into(), "run".into(), none.clone(), none, detail.into()]
    }

    #[test]
    fn every_column_place_and_predecessor_changes_the_hash() {
        let start = Link::default();
        let first = start.next("a", &columns("ann", "{}"));
        assert_eq!((first.position, first.hash.len()), (1, 64));
        assert_eq!(first, start.next("a", &columns("ann", "{}")), "it depends on nothing else");
        let mut others = vec![
            start.next("b", &columns("ann", "{}")),
            start.next("a", &columns("bob", "{}")),
            start.next("a", &columns("annr", "un{}")),
            first.next("a", &columns("ann", "{}")),
            Link { hash: first.hash.clone(), position: 0 }.next("a", &columns("ann", "{}")),
        ];
        for index in 0..HASHED_COUNT {
            let mut changed = columns("ann", "{}");
            if let Some(value) = changed.get_mut(index) {
                *value = "other".into();
            }
            others.push(start.next("a", &changed));
        }
        let mut hashes: Vec<&str> = others.iter().map(|link| link.hash.as_str()).collect();
        hashes.push(&first.hash);
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len() + 1);
    }
}
