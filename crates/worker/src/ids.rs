//! The user and group ids of a client, and by which ids of this machine its tasks have them.
//!
//! A client has [`IDS`] ids of this machine. Its low ids have theirs in order. Accounts of a directory have ids far above
//! these: each gets a *place* among the last of the client's ids when a command or a file of such an owner first comes up,
//! and keeps it. What has none is shown as [`NOBODY`].
//!
//! The kernel takes the map of a user namespace once. So a task knows the places that there were at its launch. Where
//! a file of another owner comes up, an ordinary user's task sees nobody. One of root's, which may change that file or give its
//! owner to another, begins again.

use base::codec::{Encode, Malformed, Reader, Writer};
use base::{Bound, Command, ViewId};
use std::collections::HashMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Ids of this machine that a client has.
pub const IDS: u32 = 65_536;
/// What stands for ids without a place.
pub const NOBODY: u32 = 65_534;
/// Places of each kind. A map has at most one page: 4096 bytes of lines of up to 24.
pub const PLACES_MAX: usize = 160;
/// The lowest id that needs a place.
pub const WIDE_MIN: u32 = NOBODY - PLACES_MAX as u32;
/// Places that owners of files may take; the rest is for those who run commands.
const OWNERS_MAX: usize = 96;
/// How often in a row tasks of a view begin again for new owners; then one runs at its client.
const RESTARTS_MAX: u32 = 3;

/// Whether an id has no fixed place. The highest number is no id.
fn is_wide(id: u32) -> bool {
    id >= WIDE_MIN && id != NOBODY && id != u32::MAX
}

/// The ids of one kind, users or groups, that have a place, in the order of their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    ids: Vec<u32>,
    /// There was no place for an id that came up.
    has_overflowed: bool,
}

impl Places {
    /// Where this id is among those of its client, if it has a place.
    pub fn offset_of(&self, id: u32) -> Option<u32> {
        match is_wide(id) {
            false => (id != u32::MAX).then_some(id),
            true => self.ids.iter().position(|placed| *placed == id).map(|at| WIDE_MIN + at as u32),
        }
    }

    /// This id as its tasks see it.
    pub fn shown(&self, id: u32) -> u32 {
        self.offset_of(id).map_or(NOBODY, |_| id)
    }

    /// The id that is there.
    pub fn id_at(&self, offset: u32) -> u32 {
        match offset {
            _ if offset < WIDE_MIN => offset,
            _ => self.ids.get((offset - WIDE_MIN) as usize).copied().unwrap_or(NOBODY),
        }
    }

    /// Whether all of this id's kind that came up have a place.
    pub fn is_complete(&self) -> bool {
        !self.has_overflowed
    }

    /// Gives an id a place; `false` if there are so many others.
    fn add(&mut self, id: u32, places_max: usize) -> bool {
        if !is_wide(id) || self.ids.contains(&id) {
            return true;
        }
        let has_room = self.ids.len() < places_max;
        match has_room {
            true => self.ids.push(id),
            false => self.has_overflowed = true,
        }
        has_room
    }

    /// The lines of a user namespace's map, where its id 0 is `base` outside.
    pub fn map(&self, base: u32) -> String {
        let lines = (WIDE_MIN..).zip(&self.ids).map(|(offset, id)| format!("{id} {} 1\n", base + offset));
        [format!("0 {base} {WIDE_MIN}\n{NOBODY} {} 1\n", base + NOBODY)].into_iter().chain(lines).collect()
    }

    fn encode(&self, out: &mut Writer) {
        out.list(&self.ids, |out, id| out.u32(*id));
        out.bool(self.has_overflowed);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let ids = from.list(|from| from.u32())?;
        let mut places = Self::default();
        match ids.iter().all(|id| is_wide(*id) && places.add(*id, PLACES_MAX)) && places.ids == ids {
            true => Ok(Self { has_overflowed: from.bool()?, ..places }),
            false => Err(Malformed("ids that cannot have places")),
        }
    }
}

/// The places of a client's ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Of users.
    pub users: Places,
    /// Of groups.
    pub groups: Places,
}

impl Ids {
    /// The places of this owner's kind, and its number.
    pub fn of(&self, owner: Owner) -> (&Places, u32) {
        match owner {
            Owner::User(id) => (&self.users, id),
            Owner::Group(id) => (&self.groups, id),
        }
    }

    /// Whether something is missing that the other has. Places are only ever added.
    fn lacks(&self, other: &Self) -> bool {
        self.users.ids.len() < other.users.ids.len() || self.groups.ids.len() < other.groups.ids.len()
    }
}

impl Encode for Ids {
    fn encode(&self, out: &mut Writer) {
        self.users.encode(out);
        self.groups.encode(out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { users: Places::decode(from)?, groups: Places::decode(from)? })
    }
}

/// A user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This user.
    User(u32),
    /// This group.
    Group(u32),
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(id) => write!(f, "the user {id}"),
            Self::Group(id) => write!(f, "the group {id}"),
        }
    }
}

impl Encode for Owner {
    fn encode(&self, out: &mut Writer) {
        let (is_group, id) = match self {
            Self::User(id) => (false, id),
            Self::Group(id) => (true, id),
        };
        out.bool(is_group);
        out.u32(*id);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(if from.bool()? { Self::Group(from.u32()?) } else { Self::User(from.u32()?) })
    }
}

/// The tasks of a view that know the places of their launch.
#[derive(Default)]
struct Uses {
    /// Goes up when they have to begin again.
    generation: u64,
    known: Vec<Ids>,
    /// How often they have in a row.
    restarts: u32,
    /// It has files of owners without a place.
    has_others: bool,
    /// Tasks that go on, whatever comes up.
    going_on: usize,
}

/// The ids of one client.
pub struct Table {
    base: u32,
    ids: RwLock<Ids>,
    /// A task is root's: it and all others of a view begin again where one lacks an owner.
    has_root: AtomicBool,
    uses: watch::Sender<HashMap<ViewId, Uses>>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("base", &self.base).field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl Table {
    /// Of a client whose id 0 is `base` here.
    pub fn new(base: u32) -> Self {
        let (ids, has_root, uses) = Default::default();
        Self { base, ids, has_root, uses }
    }

    /// The client's id 0 here.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// The places as they are now.
    pub fn places(&self) -> Ids {
        self.read().clone()
    }

    /// How a file of this user and group is shown here.
    pub fn show(&self, uid: u32, gid: u32) -> [u32; 2] {
        let offsets = match is_wide(uid) || is_wide(gid) {
            false => [uid, gid].map(|id| if id == u32::MAX { NOBODY } else { id }),
            true => {
                let ids = self.read();
                [ids.users.offset_of(uid), ids.groups.offset_of(gid)].map(|offset| offset.unwrap_or(NOBODY))
            }
        };
        offsets.map(|offset| self.base.saturating_add(offset))
    }

    /// Gives the ids of who runs a command their places; else why they have none.
    pub fn place(&self, command: &Command) -> Result<(), String> {
        if command.uid == 0 {
            self.has_root.store(true, Ordering::Relaxed);
        }
        let ids = &mut *self.write();
        let groups = command.groups.iter().chain([&command.gid]);
        let left_out = groups.filter(|group| !ids.groups.add(**group, PLACES_MAX)).count();
        if !ids.users.add(command.uid, PLACES_MAX) {
            return Err(format!(
                "its user's number, {}, has no place on the worker: {PLACES_MAX} others do",
                command.uid
            ));
        }
        match left_out {
            0 => Ok(()),
            _ => Err(format!(
                "{left_out} groups of its user have no place on the worker, which has {PLACES_MAX} for those above {}",
                WIDE_MIN - 1
            )),
        }
    }

    /// Gives the owners of a view's files their places. Returns whether all have one.
    pub fn meet(&self, view: ViewId, bounds: &[Bound]) -> bool {
        let attrs = bounds.iter().filter_map(|bound| bound.binding.attr());
        let mut wide = attrs.filter(|attr| is_wide(attr.uid) || is_wide(attr.gid)).peekable();
        if wide.peek().is_none() {
            return true;
        }
        let have_places = {
            let ids = &mut *self.write();
            wide.fold(true, |all, attr| {
                // Both, whatever becomes of the first.
                ids.users.add(attr.uid, OWNERS_MAX) & ids.groups.add(attr.gid, OWNERS_MAX) & all
            })
        };
        if !have_places {
            self.uses.send_if_modified(|uses| {
                uses.entry(view).or_default().has_others = true;
                false
            });
        }
        have_places
    }

    /// The same where tasks of the view that run are about to see the files: whether they must not, until those that lack an owner have been
    /// ended to begin again. Where others of the view go on, who waits may be one of them: it is answered, and what the ended ones have seen
    /// does not count.
    pub fn meet_late(&self, view: ViewId, bounds: &[Bound]) -> bool {
        let have_places = self.meet(view, bounds);
        let met = match self.has_root.load(Ordering::Relaxed) {
            true => self.owners(bounds),
            false => return false,
        };
        let lacks = |uses: &Uses| uses.known.iter().any(|known| !have_places || known.lacks(&met));
        if !self.uses.borrow().get(&view).is_some_and(lacks) {
            return false;
        }
        let mut must_wait = false;
        self.uses.send_if_modified(|uses| {
            let Some(uses) = uses.get_mut(&view).filter(|uses| lacks(uses)) else { return false };
            uses.generation += 1;
            uses.restarts += 1;
            uses.known.clear();
            must_wait = uses.going_on == 0;
            true
        });
        must_wait
    }

    fn place_named(&self, owner: Owner) -> bool {
        let ids = &mut *self.write();
        match owner {
            Owner::User(id) => ids.users.add(id, OWNERS_MAX),
            Owner::Group(id) => ids.groups.add(id, OWNERS_MAX),
        }
    }

    /// The places up to the last one that is an owner's of these files.
    fn owners(&self, bounds: &[Bound]) -> Ids {
        let ids = self.read();
        let attrs = || bounds.iter().filter_map(|bound| bound.binding.attr());
        let up_to = |places: &Places, id: u32| match is_wide(id) {
            true => places.ids.iter().position(|placed| *placed == id).map_or(0, |at| at + 1),
            false => 0,
        };
        let users = attrs().map(|attr| up_to(&ids.users, attr.uid)).max().unwrap_or(0);
        let groups = attrs().map(|attr| up_to(&ids.groups, attr.gid)).max().unwrap_or(0);
        let first = |places: &Places, count: usize| Places { ids: places.ids[..count].to_vec(), has_overflowed: false };
        Ids { users: first(&ids.users, users), groups: first(&ids.groups, groups) }
    }

    /// A task of this view is launched, with the places as they are.
    pub fn begin(self: &std::sync::Arc<Self>, view: ViewId) -> Use {
        let mut begun = (0, Ids::default(), None);
        self.uses.send_if_modified(|all| {
            let uses = all.entry(view).or_default();
            let lacks = if uses.restarts > RESTARTS_MAX {
                uses.restarts = 0;
                Some("it has begun again for new ones again and again")
            } else {
                uses.has_others.then_some("so many others own what it uses")
            };
            // Under the lock: what is placed later is compared with this.
            begun = (uses.generation, self.places(), lacks);
            uses.known.push(begun.1.clone());
            false
        });
        let (generation, ids, lacks) = begun;
        Use { table: self.clone(), view, generation, ids, lacks, goes_on: AtomicBool::new(false) }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Ids> {
        self.ids.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Ids> {
        self.ids.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A task's use of the places of its launch.
#[derive(Debug)]
pub struct Use {
    table: std::sync::Arc<Table>,
    view: ViewId,
    generation: u64,
    ids: Ids,
    lacks: Option<&'static str>,
    goes_on: AtomicBool,
}

impl Use {
    /// Gives an owner that the task names a place; `false` if there are so many others.
    pub fn place_named(&self, owner: Owner) -> bool {
        self.table.place_named(owner)
    }

    /// Why a task of root's, which may change such files or give their owners to others, is to run at its client.
    pub fn lacks(&self) -> Option<&'static str> {
        self.lacks
    }

    /// The task does not begin again any more, unless it has to already: somebody has seen what it says. Owners that come up later are nobody
    /// to it, as to an ordinary user's.
    pub fn go_on(&self) {
        if !self.goes_on.load(Ordering::Relaxed) {
            self.forget(|uses| {
                uses.going_on += 1;
                self.goes_on.store(true, Ordering::Relaxed);
            });
        }
    }

    /// Whether it has gone on, and there are owners now that it does not know.
    pub fn is_outdated(&self) -> bool {
        self.goes_on.load(Ordering::Relaxed) && self.ids.lacks(&self.table.places())
    }

    /// The places that the task knows.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Whether the task has to begin again: it would have seen a file of an owner that it does not know.
    pub fn is_over(&self) -> bool {
        self.is_over_in(&self.table.uses.borrow())
    }

    fn is_over_in(&self, all: &HashMap<ViewId, Uses>) -> bool {
        let is_over = all.get(&self.view).is_none_or(|uses| uses.generation != self.generation);
        is_over && !self.goes_on.load(Ordering::Relaxed)
    }

    /// Returns when it has to.
    pub async fn over(&self) {
        let mut uses = self.table.uses.subscribe();
        if uses.wait_for(|all| self.is_over_in(all)).await.is_err() {
            std::future::pending().await
        }
    }

    /// Nothing is kept from the view's tasks for this one any more, which has not had to begin again: `then` is done under the lock.
    fn forget(&self, then: impl FnOnce(&mut Uses)) {
        self.table.uses.send_if_modified(|all| {
            let uses = all.get_mut(&self.view).filter(|uses| uses.generation == self.generation);
            if let Some(uses) = uses
                && let Some(at) = uses.known.iter().position(|known| *known == self.ids)
            {
                uses.known.swap_remove(at);
                uses.restarts = 0;
                then(uses);
            }
            false
        });
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !self.goes_on.load(Ordering::Relaxed) {
            return self.forget(|_| {});
        }
        self.table.uses.send_if_modified(|all| {
            all.get_mut(&self.view).into_iter().for_each(|uses| uses.going_on -= 1);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Attr, Binding, Seq, TreePath};
    use std::sync::Arc;

    fn of(uid: u32, gid: u32) -> Vec<Bound> {
        let attr = Attr { uid, gid, ..Attr::default() };
        vec![Bound { path: TreePath::root(), seq: Seq(1), binding: Binding::Special { attr } }]
    }

    #[test]
    fn ids_have_places_and_keep_them() {
        let table = Table::new(100_000);
        table.meet(ViewId(9), &of(70_000, 5));
        let command =
            Command { uid: 1_200_345_678, gid: 70_001, groups: vec![70_002, 70_001, 4], ..Command::default() };
        table.place(&command).expect("there is room");
        let first = 100_000 + WIDE_MIN;
        assert_eq!(table.show(70_000, 70_001), [first, first + 1]);
        assert_eq!(table.show(1_200_345_678, 70_002), [first + 1, first]);
        assert_eq!(table.show(7, NOBODY), [100_007, 165_534]);
        assert_eq!(table.show(70_001, u32::MAX), [165_534, 165_534], "nobody's");
        let Ids { users, groups } = table.places();
        for id in [0, WIDE_MIN - 1, NOBODY, 70_000, 1_200_345_678] {
            let offset = users.offset_of(id).expect("it has a place");
            assert_eq!((users.id_at(offset), users.shown(id)), (id, id));
            assert!(offset < IDS);
        }
        assert_eq!((users.offset_of(WIDE_MIN), users.offset_of(65_535), users.shown(65_535)), (None, None, NOBODY));
        assert_eq!(users.id_at(WIDE_MIN + 2), NOBODY);
        assert_eq!(
            groups.map(1),
            format!("0 1 {WIDE_MIN}\n65534 65535 1\n70002 {} 1\n70001 {} 1\n", WIDE_MIN + 1, WIDE_MIN + 2)
        );
        let ids = Ids { users, groups };
        assert_eq!(Ids::from_bytes(&ids.to_bytes()), Ok(ids));
        let twice = Ids { users: Places { ids: vec![70_000; 2], has_overflowed: false }, groups: Places::default() };
        assert!(Ids::from_bytes(&twice.to_bytes()).is_err());
    }

    #[test]
    fn places_are_bounded_and_fit_a_map() {
        let table = Table::new(u32::MAX - IDS);
        let placed = (0..1000).filter(|number| table.meet(ViewId(9), &of(u32::MAX - 1 - number, 5))).count();
        assert_eq!(placed, OWNERS_MAX);
        assert_eq!(table.places().users.ids.len(), OWNERS_MAX);
        assert!(!table.places().users.is_complete() && table.places().groups.is_complete());
        let mut command =
            Command { groups: (0..159).map(|number| u32::MAX - 1 - number).collect(), ..Command::default() };
        (command.uid, command.gid) = (4_000_000_000, 4_000_000_001);
        table.place(&command).expect("those who run commands find room");
        assert!(table.places().groups.map(u32::MAX - IDS).len() < 4096);
        command.groups.push(4_000_000_002);
        assert!(table.place(&command).is_err_and(|why| why.starts_with("1 groups")));
    }

    #[test]
    fn tasks_begin_again_where_root_meets_an_owner() {
        let table = Arc::new(Table::new(1));
        let (view, other) = (ViewId(1), ViewId(2));
        let early = table.begin(view);
        assert!(!table.meet_late(view, &of(70_000, 0)), "an ordinary user's goes on");
        table.place(&Command::default()).expect("root needs no place");
        assert!(!table.meet_late(other, &of(70_000, 0)) && !early.is_over());
        assert!(table.meet_late(view, &of(70_000, 0)) && early.is_over());
        let again = table.begin(view);
        assert!(!table.meet_late(view, &of(70_000, 0)) && !again.is_over(), "it knows that owner");
        drop(early);
        assert!(table.meet_late(view, &of(70_001, 0)) && again.is_over());
        table.meet(ViewId(9), &of(70_002, 0));
        let last = table.begin(view);
        assert!(!table.meet_late(view, &of(70_002, 0)) && !last.is_over());
        drop((last, again));
        assert!(!table.meet_late(view, &of(70_009, 0)), "no task is there");
    }

    #[test]
    fn roots_tasks_run_at_their_client_where_owners_cannot_be_shown() {
        let table = Arc::new(Table::new(1));
        table.place(&Command::default()).expect("root needs no place");
        let view = ViewId(1);
        for number in 0..RESTARTS_MAX + 1 {
            let task = table.begin(view);
            assert!(task.lacks().is_none() && table.meet_late(view, &of(70_000 + number, 0)) && task.is_over());
        }
        assert!(table.begin(view).lacks().is_some(), "again and again");
        assert!(table.begin(view).lacks().is_none(), "the next one tries anew");
        assert_eq!((0..OWNERS_MAX as u32).filter(|number| !table.meet(ViewId(2), &of(80_000 + number, 0))).count(), 4);
        assert!(table.begin(ViewId(2)).lacks().is_some() && table.begin(view).lacks().is_none(), "of its view");
        assert!(
            !table.begin(view).place_named(Owner::User(90_000)) && table.begin(view).place_named(Owner::Group(90_000))
        );
    }

    #[test]
    fn who_was_seen_goes_on_and_knows_others_as_nobody() {
        let table = Arc::new(Table::new(1));
        table.place(&Command::default()).expect("root needs no place");
        let (view, task) = (ViewId(1), table.begin(ViewId(1)));
        task.go_on();
        assert!(!task.is_outdated() && !table.meet_late(view, &of(70_000, 0)), "nothing is kept from it");
        assert!(task.is_outdated() && !task.is_over());
        let other = table.begin(view);
        assert!(!table.meet_late(view, &of(70_001, 0)), "it may be the one that waits for the answer");
        assert!(other.is_over() && !task.is_over());
        other.go_on();
        assert!(other.is_over(), "it has to begin again already, and may wait for an answer that is kept back");
        drop(task);
        let last = table.begin(view);
        assert!(table.meet_late(view, &of(70_002, 0)) && last.is_over(), "nobody goes on any more");
        for owner in [Owner::User(7), Owner::Group(8)] {
            assert_eq!(Owner::from_bytes(&owner.to_bytes()), Ok(owner));
        }
    }
}
