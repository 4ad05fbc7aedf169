//! Checks the hash chains of the audit trail, and names the first row that is not as it was written.

use std::collections::BTreeMap;
use std::fmt;

use super::audit_purge::{AUDIT_PURGED, Anchor};
use super::chain::{HASHED, Link};
use super::statement::{Row, Value, rows};
use super::{Store, StoreError};

/// Rows read at a time.
const PAGE: i64 = 1_000;

const HEADS: &str = "SELECT chain, position, hash FROM audit_heads ORDER BY chain";
const HEAD: &str = "SELECT position, hash FROM audit_heads WHERE chain = $1";
const HEADLESS: &str = "SELECT chain, position, seq FROM audit WHERE chain IS NOT NULL AND chain \
     NOT IN (SELECT chain FROM audit_heads) ORDER BY seq LIMIT 1";
const UNCHAINED: &str = "SELECT COUNT(*), CAST(COALESCE(MAX(seq), 0) AS BIGINT) FROM audit \
     WHERE chain IS NULL";

/// The last row of a chain: kept elsewhere, it proves that the rows up to it are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHead {
    pub chain: String,
    pub position: i64,
    pub hash: String,
}

/// A chain that was found whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedChain {
    pub head: AuditHead,
    /// Position of the first row; those before it were purged.
    pub first: i64,
    pub rows: u64,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditCheck {
    pub chains: Vec<CheckedChain>,
    /// Rows from before there were chains, which cannot be checked.
    pub unchained: u64,
    /// Heads that were asked for and are older than the first row: they cannot be checked any more.
    pub purged: Vec<AuditHead>,
    /// The first row that is not as it was written.
    pub problem: Option<AuditProblem>,
}

/// A row that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditProblem {
    pub chain: String,
    /// Position in the chain.
    pub position: i64,
    /// Number of the row, if it is there.
    pub seq: Option<i64>,
    pub kind: Tampering,
}

/// Kind of tampering with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tampering {
    /// Its columns or its hash are others, or it has another row's place.
    Changed,
    Removed,
    Inserted,
    /// It is not the row of that head.
    Replaced,
}

impl fmt::Display for AuditProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, position, seq, kind } = self;
        let row = match seq {
            Some(seq) => format!("row {seq} of the audit trail"),
            None => "a row of the audit trail".to_owned(),
        };
        let place = match chain.as_str() {
            "" => "in no chain".to_owned(),
            chain => format!("position {position} of chain {chain}"),
        };
        match kind {
            Tampering::Changed => write!(formatter, "{row} was changed or moved ({place})"),
            Tampering::Removed => {
                write!(formatter, "{row} was removed ({place}), and no purge tells of it")
            }
            Tampering::Inserted => write!(formatter, "{row} was inserted ({place})"),
            Tampering::Replaced => write!(formatter, "{row} is not the one of that head ({place})"),
        }
    }
}

impl Store {
    /// The last row of each chain.
    pub async fn audit_heads(&self) -> Result<Vec<AuditHead>, StoreError> {
        let heads = self.read_all(rows(HEADS, vec![]), head_of).await?;
        Ok(heads.into_iter().filter(|head| !head.chain.is_empty() && head.position > 0).collect())
    }

    /// Checks every chain, and that rows of the given heads are still the same. Servers may write
    /// and purge meanwhile: a problem counts if a second check finds it too.
    pub async fn check_audit(&self, known: &[AuditHead]) -> Result<AuditCheck, StoreError> {
        let first = self.check_audit_once(known).await?;
        match first.problem {
            Some(_) => self.check_audit_once(known).await,
            None => Ok(first),
        }
    }

    async fn check_audit_once(&self, known: &[AuditHead]) -> Result<AuditCheck, StoreError> {
        let mut check = AuditCheck::default();
        let heads = self.read_all(rows(HEADS, vec![]), head_of).await?;
        let unchained = heads.iter().find(|head| head.chain.is_empty()).map(|head| head.position);
        for head in heads.iter().filter(|head| !head.chain.is_empty() && head.position > 0) {
            let known: Vec<&AuditHead> =
                known.iter().filter(|known| known.chain == head.chain).collect();
            match self.walk(head, &known).await? {
                Ok((chain, purged)) => {
                    check.chains.push(chain);
                    check.purged.extend(purged);
                }
                Err(problem) => check.problem = check.problem.or(Some(problem)),
            }
        }
        let lost = known.iter().find(|known| !heads.iter().any(|head| head.chain == known.chain));
        if let (Some(lost), None) = (lost, &check.problem) {
            let AuditHead { chain, position, .. } = lost.clone();
            let kind = Tampering::Removed;
            check.problem = Some(AuditProblem { chain, position, seq: None, kind });
        }
        self.check_others(unchained.unwrap_or(0), &mut check).await?;
        Ok(check)
    }

    /// Looks for rows that are in no chain, or in one without a head.
    async fn check_others(&self, last: i64, check: &mut AuditCheck) -> Result<(), StoreError> {
        if let Some(mut row) = self.read(rows(HEADLESS, vec![])).await?.into_iter().next() {
            let (chain, position, seq) = (row.text()?, row.number()?, Some(row.number()?));
            let kind = Tampering::Inserted;
            check.problem.get_or_insert(AuditProblem { chain, position, seq, kind });
        }
        if let Some(mut row) = self.read(rows(UNCHAINED, vec![])).await?.into_iter().next() {
            check.unchained = row.count()?;
            let found = row.number()?;
            if found > last {
                let (chain, kind) = (String::new(), Tampering::Inserted);
                let problem = AuditProblem { chain, position: 0, seq: Some(found), kind };
                check.problem.get_or_insert(problem);
            }
        }
        Ok(())
    }

    /// Reads a chain from its first row to its end.
    async fn walk(
        &self,
        head: &AuditHead,
        known: &[&AuditHead],
    ) -> Result<Result<(CheckedChain, Vec<AuditHead>), AuditProblem>, StoreError> {
        let chain = head.chain.as_str();
        let sql = format!(
            "SELECT seq, position, hash, {HASHED} FROM audit WHERE chain = $1 AND position > $2 \
             ORDER BY position LIMIT {PAGE}"
        );
        let mut walk = Walk::new(head, known);
        loop {
            let after = walk.last.as_ref().map_or(i64::MIN, |last| last.position);
            let page = self.read(rows(sql.clone(), vec![chain.into(), after.into()])).await?;
            if page.is_empty() {
                break;
            }
            for row in page {
                if let Err(problem) = walk.add(ChainRow::read(row)?) {
                    return Ok(Err(problem));
                }
            }
        }
        let now = self.read_one(rows(HEAD, vec![chain.into()]), |mut row| {
            Ok(Link { position: row.number()?, hash: row.text()? })
        });
        Ok(walk.finish(&now.await?.unwrap_or_default()))
    }
}

fn head_of(mut row: Row) -> Result<AuditHead, StoreError> {
    Ok(AuditHead { chain: row.text()?, position: row.number()?, hash: row.text()? })
}

/// A row of a chain, as it is stored.
struct ChainRow {
    seq: i64,
    link: Link,
    columns: Vec<Value>,
}

impl ChainRow {
    fn read(mut row: Row) -> Result<Self, StoreError> {
        let (seq, position) = (row.number()?, row.number()?);
        let hash = row.text_maybe()?.unwrap_or_default();
        let mut columns = vec![Value::Number(row.number_maybe()?)];
        for _ in 0..5 {
            columns.push(Value::Text(row.text_maybe()?));
        }
        Ok(Self { seq, link: Link { position, hash }, columns })
    }

    /// The anchor in the row of a purge.
    fn anchor(&self) -> Option<Anchor> {
        match self.columns.as_slice() {
            [_, _, Value::Text(Some(action)), _, _, Value::Text(Some(detail))]
                if action == AUDIT_PURGED =>
            {
                serde_json::from_str(detail).ok()
            }
            _ => None,
        }
    }
}

/// State of a check of one chain.
struct Walk<'a> {
    chain: &'a str,
    /// Position of the head when the walk began.
    end: i64,
    first: Option<ChainRow>,
    last: Option<Link>,
    last_seq: i64,
    rows: u64,
    /// Hashes before the first row, by position, as purges tell them.
    anchors: BTreeMap<i64, String>,
    known: &'a [&'a AuditHead],
}

impl<'a> Walk<'a> {
    fn new(head: &'a AuditHead, known: &'a [&'a AuditHead]) -> Self {
        let (anchors, first, last) = Default::default();
        let AuditHead { chain, position: end, .. } = head;
        Self { chain, end: *end, first, last, last_seq: i64::MIN, rows: 0, anchors, known }
    }

    fn problem(&self, position: i64, seq: Option<i64>, kind: Tampering) -> AuditProblem {
        AuditProblem { chain: self.chain.to_owned(), position, seq, kind }
    }

    fn add(&mut self, row: ChainRow) -> Result<(), AuditProblem> {
        let (position, seq) = (row.link.position, Some(row.seq));
        let before = match &self.last {
            Some(last) if position == last.position => {
                return Err(self.problem(position, seq, Tampering::Inserted));
            }
            Some(last) if position != last.position + 1 => {
                return Err(self.problem(last.position + 1, None, Tampering::Removed));
            }
            Some(last) => Some(last.clone()),
            None if position == 1 => Some(Link::default()),
            None => None,
        };
        let is_right =
            before.is_none_or(|before| before.next(self.chain, &row.columns) == row.link);
        if !is_right || row.seq <= self.last_seq {
            let is_new = position > self.end;
            let kind = if is_new { Tampering::Inserted } else { Tampering::Changed };
            return Err(self.problem(position, seq, kind));
        }
        let is_known = |known: &&&AuditHead| known.position == position;
        if self.known.iter().find(is_known).is_some_and(|known| known.hash != row.link.hash) {
            return Err(self.problem(position, seq, Tampering::Replaced));
        }
        if let Some(anchor) = row.anchor() {
            self.anchors.insert(anchor.through, anchor.hash);
        }
        (self.last, self.last_seq) = (Some(row.link.clone()), row.seq);
        self.rows += 1;
        self.first.get_or_insert(row);
        Ok(())
    }

    /// `now`: the head after the walk.
    fn finish(self, now: &Link) -> Result<(CheckedChain, Vec<AuditHead>), AuditProblem> {
        let (Some(first), Some(last)) = (&self.first, &self.last) else {
            return Err(self.problem(1, None, Tampering::Removed));
        };
        let start = first.link.position;
        if start != 1 {
            let Some(hash) = self.anchors.get(&(start - 1)) else {
                return Err(self.problem(start - 1, None, Tampering::Removed));
            };
            let before = Link { position: start - 1, hash: hash.clone() };
            if before.next(self.chain, &first.columns) != first.link {
                return Err(self.problem(start, Some(first.seq), Tampering::Changed));
            }
        }
        if last.position < self.end {
            return Err(self.problem(last.position + 1, None, Tampering::Removed));
        }
        if last.position > now.position {
            return Err(self.problem(last.position, Some(self.last_seq), Tampering::Inserted));
        }
        if last.position == now.position && last.hash != now.hash {
            return Err(self.problem(last.position, Some(self.last_seq), Tampering::Changed));
        }
        let beyond = self.known.iter().find(|known| known.position > now.position);
        if let Some(known) = beyond {
            return Err(self.problem(known.position, None, Tampering::Removed));
        }
        let purged = self.known.iter().filter(|known| known.position < start);
        let purged = purged.map(|known| (*known).clone()).collect();
        let Link { position, hash } = last.clone();
        let head = AuditHead { chain: self.chain.to_owned(), position, hash };
        Ok((CheckedChain { head, first: start, rows: self.rows }, purged))
    }
}
