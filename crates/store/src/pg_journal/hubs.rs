//! Where the hubs of a journal are: each, whether it serves or waits, writes down its own addresses now and then, and the one that
//! serves reads them all.
//!
//! Not fenced: who was replaced may say where it is as well. Addresses are hints; who is there shows by its key.

use super::session::{Session, Trouble};
use std::net::SocketAddr;

/// Most addresses that are read: the newest.
pub(super) const HUBS_MAX: usize = 16;
/// Most that one hub writes: the other one's are read as well.
const OWN_MAX: usize = HUBS_MAX / 2;

/// A row is written again once it is an hour old; before that it is not even locked, and nothing is written. Addresses may be given
/// twice, and the clock goes on from one row to the next.
const WRITE: &str = "INSERT INTO {s}.hubs (address, seen) \
                     SELECT address, clock_timestamp() FROM (SELECT DISTINCT unnest($1::text[])) own (address) \
                     WHERE NOT EXISTS (SELECT FROM {s}.hubs known WHERE known.address = own.address \
                                       AND known.seen >= clock_timestamp() - interval '1 hour') \
                     ON CONFLICT (address) DO UPDATE SET seen = excluded.seen";
/// Who has not been seen for a day is dropped.
const DROP: &str = "DELETE FROM {s}.hubs WHERE seen < clock_timestamp() - interval '1 day'";
/// In an order that renewing does not change.
const READ: &str =
    "SELECT address FROM (SELECT address FROM {s}.hubs ORDER BY seen DESC LIMIT 16) newest ORDER BY address";

/// Writes where this hub is: the first [`OWN_MAX`] of its addresses.
pub(super) async fn write(session: &mut Session, own: &[SocketAddr]) -> Result<(), Trouble> {
    let own: Vec<String> = own.iter().take(OWN_MAX).map(ToString::to_string).collect();
    session.execute(WRITE, &[&own]).await.map(drop)
}

/// Writes where this hub is, and reads where all are.
pub(super) async fn exchange(session: &mut Session, own: &[SocketAddr]) -> Result<Vec<SocketAddr>, Trouble> {
    write(session, own).await?;
    session.execute(DROP, &[]).await?;
    let rows = session.rows(READ, &[]).await?;
    Ok(rows.iter().filter_map(|row| row.get::<_, &str>(0).parse().ok()).collect())
}
