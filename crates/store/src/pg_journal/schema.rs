//! The tables, which the journal makes for itself.
//!
//! | table | what |
//! |---|---|
//! | `about` | one row: version of the tables, random identity of the journal |
//! | `lease` | one row: who may write. Its epoch is a key, so that taking over waits for what writes, and renewing does not |
//! | `batches` | records: the first's number, how many, who wrote them, their bytes as in the embedded log, checksum |
//! | `snapshots`, `chunks` | states: a snapshot is there once its row in `snapshots` is |
//! | `files` | what hubs that replace one another share beside the records: the key, and the list of nodes |
//! | `hubs` | where these hubs are, and when that was said last |

use super::Place;
use super::session::{Session, Trouble};
use crate::journal::JournalError;
use crate::journal::format::Identity;

/// The version of the tables.
pub(crate) const VERSION: i32 = 1;
/// Kept by one that makes the tables: an arbitrary number of ours.
const MAKING: &str = "7238114956021";

/// Why the tables cannot be used.
pub(crate) enum Unready {
    /// The connection was lost: it may work the next time.
    Lost(String),
    /// It will be the same the next time.
    Final(JournalError),
}

/// What is known of the tables.
pub(crate) struct Ready {
    /// The journal's name.
    pub identity: Identity,
    /// The server flushes nothing.
    pub is_unsafe: bool,
}

/// Finds or makes the tables.
pub(crate) async fn prepare(session: &mut Session, place: &Place) -> Result<Ready, Unready> {
    let failed = |why| failed(place, why);
    // Tables that were made by a version before this one lack the last.
    let there = "SELECT to_regclass('{s}.about') IS NOT NULL AND to_regclass('{s}.hubs') IS NOT NULL, \
                 current_setting('fsync') = 'off'";
    let found = session.rows(there, &[]).await.map_err(failed)?;
    let (is_there, is_unsafe) = found.first().map_or((false, false), |row| (row.get(0), row.get(1)));
    if !is_there {
        session.run(&making()).await.map_err(failed)?;
    }
    let identity = about(session, place).await?;
    Ok(Ready { identity, is_unsafe })
}

/// The journal's name, if the tables are there. Makes none.
pub(crate) async fn find(session: &mut Session, place: &Place) -> Result<Option<Identity>, Unready> {
    let rows =
        session.rows("SELECT to_regclass('{s}.about') IS NOT NULL", &[]).await.map_err(|why| failed(place, why))?;
    if rows.first().is_some_and(|row| row.get(0)) { about(session, place).await.map(Some) } else { Ok(None) }
}

fn failed(place: &Place, trouble: Trouble) -> Unready {
    match trouble {
        Trouble::Lost(why) => Unready::Lost(why),
        Trouble::Refused(_, why) => Unready::Final(place.failed("make or read the tables of", why)),
    }
}

async fn about(session: &mut Session, place: &Place) -> Result<Identity, Unready> {
    let wrong = |why| Unready::Final(place.failed("read the tables of", why));
    let about = session.rows("SELECT version, identity FROM {s}.about", &[]).await;
    let rows = about.map_err(|why| failed(place, why))?;
    let row = rows.first().ok_or_else(|| wrong("the table `about` is empty"))?;
    let (version, identity): (i32, Vec<u8>) = (row.get(0), row.get(1));
    if version != VERSION {
        let (found, known) = (version, VERSION);
        return Err(Unready::Final(JournalError::NewerTables { place: place.to_string(), found, known }));
    }
    let identity = identity.try_into().map_err(|_| wrong("its identity is not 16 bytes"))?;
    Ok(Identity(identity))
}

fn making() -> String {
    // `md5(random)` is enough: it is a name, and no secret.
    format!(
        "BEGIN;
SELECT pg_advisory_xact_lock({MAKING});
CREATE SCHEMA IF NOT EXISTS {{s}};
CREATE TABLE IF NOT EXISTS {{s}}.about (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL, identity bytea NOT NULL);
INSERT INTO {{s}}.about (version, identity)
    VALUES ({VERSION}, decode(md5(random()::text || clock_timestamp()::text), 'hex')) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS {{s}}.lease (
    epoch bigint PRIMARY KEY, one boolean NOT NULL UNIQUE DEFAULT true CHECK (one),
    holder text NOT NULL, name text NOT NULL, expires timestamptz NOT NULL);
INSERT INTO {{s}}.lease (epoch, holder, name, expires) VALUES (0, '', '', '-infinity') ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS {{s}}.batches (
    first bigint PRIMARY KEY, count integer NOT NULL, epoch bigint NOT NULL, logic_version bigint NOT NULL,
    bytes bytea NOT NULL, checksum bytea NOT NULL);
ALTER TABLE {{s}}.batches ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS {{s}}.snapshots (
    seq bigint PRIMARY KEY, epoch bigint NOT NULL, logic_version bigint NOT NULL, chunks bigint NOT NULL,
    bytes bigint NOT NULL);
CREATE TABLE IF NOT EXISTS {{s}}.chunks (
    seq bigint, number bigint, bytes bytea NOT NULL, checksum bytea NOT NULL, PRIMARY KEY (seq, number));
ALTER TABLE {{s}}.chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS {{s}}.files (name text PRIMARY KEY, bytes bytea NOT NULL);
CREATE TABLE IF NOT EXISTS {{s}}.hubs (address text PRIMARY KEY, seen timestamptz NOT NULL);
COMMIT"
    )
}

/// The checksum of a batch: keyed by the journal's identity, of all that the row says.
pub(crate) fn batch_sum(identity: &Identity, numbers: [i64; 4], bytes: &[u8]) -> [u8; 16] {
    sum(identity, b"batch", &numbers, bytes)
}

/// The checksum of a chunk of a snapshot.
pub(crate) fn chunk_sum(identity: &Identity, seq: i64, number: i64, bytes: &[u8]) -> [u8; 16] {
    sum(identity, b"chunk", &[seq, number], bytes)
}

fn sum(identity: &Identity, what: &[u8], numbers: &[i64], bytes: &[u8]) -> [u8; 16] {
    let key = *blake3::hash(&[&identity.0[..], what].concat()).as_bytes();
    let mut hasher = blake3::Hasher::new_keyed(&key);
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    let hash = hasher.update(bytes).finalize();
    std::array::from_fn(|at| hash.as_bytes()[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::hex;

    #[test]
    fn golden_checksums() {
        let identity = Identity(*b"0123456789abcdef");
        let (batch, chunk) = (batch_sum(&identity, [41, 2, 3, 7], b"records"), chunk_sum(&identity, 9, 1, b"state"));
        assert_eq!(hex(&batch), "2bd27d25788c897841dabe8329013626");
        assert_eq!(hex(&chunk), "8453027f584bb5a945450cdb5181bee5");
    }
}
