//! Snapshots of older formats, read as what they mean today. Writing them is not for here.
//!
//! A [`Format`] names the records that it has in another shape than today's, each with what becomes of it. Where a format has
//! something that is no record in another way, [`Format`] gets a function for it, as it was.
//!
//! - *Format 2* is today's.
//! - *Format 1* (up to 23 November 2026) knew no groups that stand aside and no hosts that are silent. None does or is, so all else means
//!   the same. Records behind such a snapshot are another matter: they are done by today's rules, which are other ones.
//!
//! Each was changed once, on its first day, while it kept its number. What was written before that is of the other length, and refused as
//! damaged.

use super::Table;
use super::records::{Group, Host, Lane, Presence, Standing};
use crate::event::Urgency;
use crate::shapes::NIL;
use crate::shapes::list::Links;
use crate::snapshot::{Loader, Saved, saved};
use base::codec::Malformed;

/// The records that have changed since some format that is known.
pub(super) trait Format {
    type Host: Saved + Into<Host>;
    type Group: Saved + Into<Group>;
    type Lane: Saved + Into<Lane>;
}

/// The format that is written.
pub(super) struct Today;

impl Format for Today {
    type Host = Host;
    type Group = Group;
    type Lane = Lane;
}

/// What reads the table after its version.
type Reader = fn(&mut Loader<'_>) -> Result<Table, Malformed>;

/// What reads an older format, if this one is known.
pub(super) fn reader(version: u32) -> Option<Reader> {
    match version {
        1 => Some(Table::load_from::<Format1>),
        _ => None,
    }
}

/// Which versions of gleaner wrote an older format.
pub fn written_by(format: u32) -> Option<&'static str> {
    match format {
        1 => Some("written by gleaner 0.1.0 up to 23 November 2026"),
        _ => None,
    }
}

struct Format1;

impl Format for Format1 {
    type Host = Host1;
    type Group = Group1;
    type Lane = Lane1;
}

struct Host1 {
    generation: u32,
    account: u32,
    reserved: u32,
    parked: Links,
    places: u128,
    kind: u16,
    cpus_free: i32,
    right: u16,
    wrong: u16,
    presence: Presence,
    is_attached: bool,
    is_backing_off: bool,
    park: u8,
    redundancy: u8,
}

saved!(Host1 {
    generation: u32,
    account: u32,
    reserved: u32,
    parked: Links,
    places: u128,
    kind: u16,
    cpus_free: i32,
    right: u16,
    wrong: u16,
    presence: Presence,
    is_attached: bool,
    is_backing_off: bool,
    park: u8,
    redundancy: u8,
});

impl From<Host1> for Host {
    fn from(host: Host1) -> Self {
        let Host1 { generation, account, reserved, parked, places, kind, cpus_free, right, wrong, .. } = host;
        let Host1 { presence, is_attached, is_backing_off, park, redundancy, .. } = host;
        Self {
            generation,
            account,
            reserved,
            parked,
            places,
            kind,
            cpus_free,
            right,
            wrong,
            presence,
            is_attached,
            is_backing_off,
            is_silent: false,
            park,
            redundancy,
        }
    }
}

struct Group1 {
    job: u32,
    lane: u32,
    queued: Links,
    siblings: Links,
    ready: u32,
    unfinished: u32,
    deadline_ms: u64,
    timer: Links,
    bucket: u32,
    cpus: u16,
    passes: u8,
    cold_passes: u8,
    standing: Standing,
    is_late: bool,
    demand: u8,
}

saved!(Group1 {
    job: u32,
    lane: u32,
    queued: Links,
    siblings: Links,
    ready: u32,
    unfinished: u32,
    deadline_ms: u64,
    timer: Links,
    bucket: u32,
    cpus: u16,
    passes: u8,
    cold_passes: u8,
    standing: Standing,
    is_late: bool,
    demand: u8,
});

impl From<Group1> for Group {
    fn from(group: Group1) -> Self {
        let Group1 { job, lane, queued, siblings, ready, unfinished, deadline_ms, timer, bucket, .. } = group;
        let Group1 { cpus, passes, cold_passes, standing, is_late, demand, .. } = group;
        Self {
            job,
            lane,
            queued,
            siblings,
            ready,
            unfinished,
            deadline_ms,
            timer,
            bucket,
            cpus,
            passes,
            cold_passes,
            standing,
            is_late,
            demand,
            misses: 0,
        }
    }
}

struct Lane1 {
    account: u32,
    turn: Links,
    next_free: u32,
    users: u32,
    standing: u32,
    late: u32,
    near: u32,
    far: u32,
    whenever: u32,
    credit_ms: i64,
    sibling: u32,
    need: u16,
    weight: u16,
    urgency: Urgency,
}

saved!(Lane1 {
    account: u32,
    turn: Links,
    next_free: u32,
    users: u32,
    standing: u32,
    late: u32,
    near: u32,
    far: u32,
    whenever: u32,
    credit_ms: i64,
    sibling: u32,
    need: u16,
    weight: u16,
    urgency: Urgency,
});

impl From<Lane1> for Lane {
    fn from(lane: Lane1) -> Self {
        let Lane1 { account, turn, next_free, users, standing, late, near, far, whenever, .. } = lane;
        let Lane1 { credit_ms, sibling, need, weight, urgency, .. } = lane;
        Self {
            account,
            turn,
            next_free,
            users,
            standing,
            late,
            near,
            far,
            whenever,
            credit_ms,
            sibling,
            need,
            weight,
            urgency,
            looks: 0,
            aside: NIL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::SNAPSHOT_VERSION;

    #[test]
    fn every_format_before_today_s_has_a_reader() {
        let known: Vec<u32> = (0..=SNAPSHOT_VERSION)
            .filter(|version| reader(*version).is_some() && written_by(*version).is_some())
            .collect();
        let want: Vec<u32> = (1..SNAPSHOT_VERSION).collect();
        assert_eq!(known, want, "who raises SNAPSHOT_VERSION adds the reader of the one before");
    }
}
