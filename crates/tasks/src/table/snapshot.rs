//! The whole table as bytes, and made again from them: what does exactly the same with every later event.
//!
//! Everything is saved that has a say in what is done: also records that are free (they have generations, and their order), the
//! salt of names, the time, and what is left of budgets. What is only counted ([`Table::count`]) is not.

use super::admission::Demands;
use super::hosts::{HUNGRY, PARKS};
use super::older::{Format, Today};
use super::records::{
    Account, Group, Host, HostMore, Instance, Job, JobStage, Lane, NO_PARK, NO_SERVER, Presence, Ring, Tags, Task,
};
use super::servers::Servers;
use super::speeds::Speeds;
use super::{Capacity, Gauges, RINGS, Table, older};
use crate::event::{INSTANCES_MAX, RESERVED_MAX, RUNNING_MAX};
use crate::kinds::{KINDS_MAX, Kinds};
use crate::shapes::NIL;
use crate::shapes::keys::Keys;
use crate::shapes::sets::Sets;
use crate::shapes::slab::{Column, Slab};
use crate::shapes::trie::{Node, Tries};
use crate::shapes::wheel::Wheel;
use crate::snapshot::{
    LoadError, Loader, MAGIC, SNAPSHOT_VERSION, Saved, Saver, Stopped, Write, are_below, below, saved,
};
use base::Digest;
use base::codec::Malformed;

/// Most records of one kind in a table that is loaded.
const RECORDS_MAX: usize = 64 << 20;
/// Most bytes of memory that all its records may take.
const BYTES_MAX: u128 = 64 << 30;

saved!(Capacity {
    accounts: usize,
    hosts: usize,
    jobs: usize,
    groups: usize,
    tasks: usize,
    instances: usize,
    nodes: usize,
});

impl Capacity {
    /// Nothing is set aside for a table before this was looked at.
    fn is_sane(&self) -> bool {
        let Self { accounts, hosts, jobs, groups, tasks, instances, nodes } = *self;
        if [accounts, hosts, jobs, groups, tasks, instances, nodes].iter().any(|count| *count > RECORDS_MAX) {
            return false;
        }
        let of = |count: usize, bytes: usize| count as u128 * bytes as u128;
        let bytes = of(accounts, size_of::<Account>())
            + of(hosts, size_of::<Host>() + size_of::<HostMore>())
            + of(jobs, size_of::<Job>())
            + of(groups, size_of::<Group>())
            + of(self.lanes(), size_of::<Lane>())
            + of(tasks, size_of::<Task>() + size_of::<Tags>())
            + of(instances, size_of::<Instance>())
            + of(nodes, size_of::<Node>());
        bytes <= BYTES_MAX
    }

    /// A digest of it: so that damage is not taken for a capacity, and gigabytes for it.
    fn check(&self) -> [u8; 8] {
        let mut bytes = [0; Self::BYTES];
        self.put(&mut bytes);
        let digest = Digest::of(&bytes).0;
        std::array::from_fn(|at| digest[at])
    }
}

impl Table {
    /// How much it can hold.
    pub fn capacity(&self) -> Capacity {
        Capacity {
            accounts: self.accounts.column.capacity(),
            hosts: self.hosts.column.capacity(),
            jobs: self.jobs.column.capacity(),
            groups: self.groups.column.capacity(),
            tasks: self.tasks.column.capacity(),
            instances: self.instances.column.capacity(),
            nodes: self.tries.nodes.column.capacity(),
        }
    }

    /// Writes the whole table to `out`, in pieces of a MiB at most, one behind the other: into a file for instance, by
    /// `table.save(|piece| file.write_all(piece))`. So long as nothing happened, the bytes are the same. They have no checksum.
    ///
    /// # Errors
    /// The first one of `out`, after which it is called no more.
    pub fn save<E>(&self, mut out: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut failure = None;
        let mut write = |piece: &[u8]| out(piece).map_err(|error| failure = Some(error)).map_err(|()| Stopped);
        let saved = self.save_to(&mut write);
        debug_assert_eq!(saved.is_err(), failure.is_some(), "only `out` can fail");
        failure.map_or(Ok(()), Err)
    }

    /// Makes a table again from what [`Table::save`] wrote. `from` puts the next bytes to the front of the room it is given, and says
    /// how many: 0 only at the end, as files do: `Table::load_saved(|room| file.read(room))`. It must try again by itself what was
    /// interrupted. All must be of the snapshot.
    ///
    /// Bytes are trusted as far as a table goes on with them: who stores them has a checksum. With others this gives an error or a
    /// table of no more than 64 GiB, and that table may panic later.
    ///
    /// # Errors
    /// If `from` fails, or if they are no bytes of a table of this format.
    pub fn load_saved<E>(from: impl FnMut(&mut [u8]) -> Result<usize, E>) -> Result<Self, LoadError<E>> {
        Self::load_formats(from, false).map(|(_, table)| table)
    }

    /// The same from what an older version wrote, too; with the format that it had.
    ///
    /// # Errors
    /// As [`Table::load_saved`], and never [`LoadError::Older`].
    pub fn load_any<E>(from: impl FnMut(&mut [u8]) -> Result<usize, E>) -> Result<(u32, Self), LoadError<E>> {
        Self::load_formats(from, true)
    }

    fn load_formats<E>(
        mut from: impl FnMut(&mut [u8]) -> Result<usize, E>,
        takes_older: bool,
    ) -> Result<(u32, Self), LoadError<E>> {
        let mut failure = None;
        let mut read = |room: &mut [u8]| from(room).map_err(|error| failure = Some(error)).map_err(|()| Stopped);
        let mut from = Loader::new(&mut read);
        let loaded = match begin(&mut from) {
            Ok(Some(SNAPSHOT_VERSION)) => Self::load_from::<Today>(&mut from).map(|table| (SNAPSHOT_VERSION, table)),
            Ok(Some(version)) => match older::reader(version) {
                Some(load) if takes_older => load(&mut from).map(|table| (version, table)),
                Some(_) => return Err(LoadError::Older(version)),
                None => return Err(LoadError::Version(version)),
            },
            Ok(None) => return Err(LoadError::Foreign),
            Err(malformed) => Err(malformed),
        };
        loaded.map_err(|Malformed(what)| failure.map_or(LoadError::Damaged(what), LoadError::Read))
    }

    fn save_to(&self, write: &mut Write<'_>) -> Result<(), Stopped> {
        let mut saver = Saver::new(write);
        let out = &mut saver;
        out.put(&MAGIC)?;
        out.put(&SNAPSHOT_VERSION)?;
        out.put(&self.capacity())?;
        out.put(&self.capacity().check())?;
        self.save_records(out)?;
        self.save_indices(out)?;
        self.save_rest(out)?;
        out.end()
    }

    fn save_records(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        self.accounts.save(out)?;
        self.hosts.save(out)?;
        self.host_more.save(self.hosts.fresh(), out)?;
        self.jobs.save(out)?;
        self.groups.save(out)?;
        self.lanes.save(out)?;
        self.tasks.save(out)?;
        self.tags.save(self.tasks.fresh(), out)?;
        self.instances.save(out)
    }

    fn save_indices(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        self.account_keys.save(out)?;
        self.host_keys.save(out)?;
        self.job_keys.save(out)?;
        self.kinds.save(out)?;
        self.tries.save(out)?;
        self.rings.save_runs(&Ring::default(), out)?;
        self.waiting.save(out)?;
        self.parks.save_runs(&NIL, out)?;
        self.parked.save(out)?;
        self.instances_due.save(out)?;
        self.groups_due.save(out)?;
        self.hosts_due.save(out)
    }

    /// In the order of [`Table::load_from`].
    fn save_rest(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        out.put(&self.servers)?;
        self.demands.save(out)?;
        self.supply.save_runs(&0, out)?;
        self.present.save(out)?;
        out.put(&self.given)?;
        out.put(&[self.hungry, self.gone, self.reaped, self.cleaning])?;
        out.put(&self.supply_total)?;
        out.put(&self.set_aside)?;
        out.put(&self.try_again_ms)?;
        out.put(&self.tries_made)?;
        out.put(&self.totals)?;
        out.put(&self.looks)?;
        out.put(&self.now)
    }

    /// In the order of [`Table::save_records`], [`Table::save_indices`] and [`Table::save_rest`].
    pub(super) fn load_from<F: Format>(from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let capacity = from.get::<Capacity>()?;
        if from.get::<[u8; 8]>()? != capacity.check() || !capacity.is_sane() {
            return Err(Malformed("no table has this capacity"));
        }
        let (accounts, hosts) =
            (Slab::<Account>::load(capacity.accounts, from)?, Slab::load_as::<F::Host>(capacity.hosts, from)?);
        let host_more = Column::load(capacity.hosts, hosts.fresh(), from)?;
        let (jobs, groups) =
            (Slab::<Job>::load(capacity.jobs, from)?, Slab::load_as::<F::Group>(capacity.groups, from)?);
        let (lanes, tasks) =
            (Slab::load_as::<F::Lane>(capacity.lanes(), from)?, Slab::<Task>::load(capacity.tasks, from)?);
        let tags = Column::load(capacity.tasks, tasks.fresh(), from)?;
        let instances = Slab::<Instance>::load(capacity.instances, from)?;
        let mut table = Self {
            account_keys: Keys::load(capacity.accounts, accounts.fresh(), from)?,
            host_keys: Keys::load(capacity.hosts, hosts.fresh(), from)?,
            job_keys: Keys::load(capacity.jobs, jobs.fresh(), from)?,
            kinds: Kinds::load(from)?,
            tries: Tries::load(capacity.nodes, groups.fresh(), from)?,
            rings: Column::load_runs(RINGS, &Ring::default(), |at, ring| below(lanes.fresh())(at, &ring.first), from)?,
            waiting: Sets::load(from)?,
            parks: Column::load_runs(PARKS * KINDS_MAX, &NIL, below(hosts.fresh()), from)?,
            parked: Sets::load(from)?,
            instances_due: Wheel::load(instances.fresh(), from)?,
            groups_due: Wheel::load(groups.fresh(), from)?,
            hosts_due: Wheel::load(hosts.fresh(), from)?,
            servers: from.get::<Servers>()?,
            demands: Demands::load(from)?,
            supply: Column::load_runs(KINDS_MAX, &0, |_, _| Ok(()), from)?,
            present: Sets::load(from)?,
            given: from.get()?,
            hungry: from.get()?,
            gone: from.get()?,
            reaped: from.get()?,
            cleaning: from.get()?,
            supply_total: from.get()?,
            speeds: Speeds::default(),
            set_aside: from.get()?,
            try_again_ms: from.get()?,
            tries_made: from.get()?,
            totals: from.get()?,
            gauges: Gauges::default(),
            looks: from.get()?,
            now: from.get()?,
            accounts,
            hosts,
            host_more,
            jobs,
            groups,
            lanes,
            tasks,
            tags,
            instances,
        };
        from.end()?;
        let is_whole = table.have_sane_owners() && table.have_sane_queues() && table.have_sane_tasks();
        if !is_whole {
            return Err(Malformed("a record names one that was never used"));
        }
        table.count_users_of_kinds();
        table.gauges = table.counted();
        table.speeds = table.speeds_counted();
        Ok(table)
    }

    /// Who uses which kinds is not saved: it follows from the hosts and jobs.
    fn count_users_of_kinds(&mut self) {
        let (hosts, jobs) = self.users_of_kinds();
        hosts.into_iter().for_each(|kind| self.kinds.host_came(kind));
        jobs.into_iter().for_each(|kind| self.kinds.job_came(kind));
    }

    /// The kind of each host that is there, and of what each job needs that is.
    pub(super) fn users_of_kinds(&self) -> (Vec<u16>, Vec<u16>) {
        let hosts = self.hosts.all().filter(|(_, host)| host.presence != Presence::Free).map(|(_, host)| host.kind);
        let jobs = self.jobs.all().filter(|(_, job)| job.stage != JobStage::Free).map(|(_, job)| job.need);
        (hosts.collect(), jobs.collect())
    }

    /// Whether what accounts, hosts and jobs name was ever used; also those that are free, which keep what they named last.
    fn have_sane_owners(&self) -> bool {
        let (shapes, needs) = self.kinds.counts();
        let are_kinds = |more: &HostMore, host: &Host| {
            usize::from(host.kind) < shapes
                && (host.park == NO_PARK || host.park == HUNGRY || usize::from(host.park) < PARKS)
                && Wheel::are_buckets([more.bucket])
                && are_below(self.hosts.fresh(), more.timer.both())
                && are_below(self.instances.fresh(), more.running)
        };
        self.accounts.all().all(|(_, account)| {
            are_below(self.accounts.fresh(), [account.next_free])
                && are_below(self.lanes.fresh(), [account.lanes])
                && (account.server == NO_SERVER || usize::from(account.server) < RESERVED_MAX)
        }) && self.hosts.all().all(|(at, host)| {
            are_kinds(self.host_more.peek(at), host)
                && are_below(self.accounts.fresh(), [host.account])
                && are_below(self.groups.fresh(), [host.reserved])
                && are_below(self.hosts.fresh(), host.parked.both())
        }) && self.jobs.all().all(|(_, job)| {
            usize::from(job.need) < needs
                && are_below(self.accounts.fresh(), [job.account])
                && are_below(self.tasks.fresh(), [job.tasks])
                && are_below(self.groups.fresh(), [job.groups])
                && are_below(self.jobs.fresh(), job.reaped.both())
        })
    }

    /// Whether what groups, lanes and the first places of lists name was ever used.
    fn have_sane_queues(&self) -> bool {
        let groups = self.groups.fresh();
        let lists = are_below(self.hosts.fresh(), [self.hungry, self.gone])
            && are_below(self.jobs.fresh(), [self.reaped])
            && are_below(self.tasks.fresh(), [self.cleaning]);
        lists
            && self.groups.all().all(|(_, group)| {
                are_below(self.jobs.fresh(), [group.job])
                    && are_below(self.lanes.fresh(), [group.lane])
                    && are_below(groups, group.queued.both().into_iter().chain(group.siblings.both()))
                    && are_below(groups, group.timer.both())
                    // While it is free, the next free group.
                    && are_below(self.tasks.fresh().max(groups), [group.ready])
                    && Wheel::are_buckets([group.bucket])
                    && Demands::is_demand(group.demand)
            })
            && self.lanes.all().all(|(_, lane)| {
                are_below(self.accounts.fresh(), [lane.account])
                    && usize::from(lane.need) < self.kinds.counts().1
                    && are_below(self.lanes.fresh(), lane.turn.both().into_iter().chain([lane.next_free, lane.sibling]))
                    && are_below(groups, [lane.late, lane.whenever, lane.aside])
                    && are_below(self.tries.nodes.fresh(), [lane.near, lane.far])
            })
    }

    /// Whether what tasks and instances name was ever used.
    fn have_sane_tasks(&self) -> bool {
        let instances = self.instances.fresh();
        self.tasks.all().all(|(_, task)| {
            are_below(self.jobs.fresh(), [task.job])
                && are_below(self.groups.fresh(), [task.group])
                && are_below(self.tasks.fresh(), task.ready.both().into_iter().chain(task.siblings.both()))
                && are_below(instances, [task.newest])
        }) && self.instances.all().all(|(_, instance)| {
            are_below(self.tasks.fresh(), [instance.task])
                && are_below(instances, instance.timer.both().into_iter().chain([instance.before]))
                && are_below(self.hosts.fresh(), [instance.host])
                && are_below(self.accounts.fresh(), [instance.account])
                && usize::from(instance.place) < RUNNING_MAX
                && instance.number < INSTANCES_MAX
                && Wheel::are_buckets([instance.bucket])
        })
    }
}

/// Reads what every snapshot begins with: its version, if it is one.
fn begin(from: &mut Loader<'_>) -> Result<Option<u32>, Malformed> {
    if from.get::<[u8; MAGIC.len()]>()? == MAGIC { from.get().map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Totals;

    /// The digest of all that is listed anywhere with `saved!` and `saved_choice!`.
    const LAYOUT: &str = "b56beff7eecce21f";

    #[test]
    fn whoever_changes_a_record_raises_the_version() {
        use crate::event::{Failure, Policy, Urgency, Validation};
        use crate::kinds::{Need, Shape};
        use crate::shapes::list::Links;
        use crate::table::records::{Fate, Stage, Standing};
        let mut text = String::new();
        macro_rules! add {
            ($($type:ty),*) => { $( text += &format!("{} in {}\n", <$type>::LAYOUT, <$type>::BYTES); )* };
        }
        add!(Capacity, Account, Host, HostMore, Job, Group, Lane, Task, Tags, Instance, Node, Ring, Servers, Totals);
        add!(Shape, Need, Policy, Links, Failure, Urgency, Validation, Fate, JobStage, Presence, Stage, Standing);
        text += crate::table::servers::LAYOUT;
        assert_eq!(
            (SNAPSHOT_VERSION, &Digest::of(text.as_bytes()).to_hex()[..16]),
            (2, LAYOUT),
            "a record of snapshots has changed: raise SNAPSHOT_VERSION, and put the new pair here. Now it is\n{text}"
        );
    }

    #[test]
    fn no_capacity_beyond_what_is_sane() {
        assert!(Capacity::of(10_000, 1_000_000).is_sane());
        assert!(Capacity::of(1_000_000, RECORDS_MAX / 2).is_sane());
        assert!(!Capacity::of(10, RECORDS_MAX + 1).is_sane());
        assert!(!Capacity::of(RECORDS_MAX, RECORDS_MAX).is_sane(), "more than 64 GiB in all");
        assert!(!Capacity { nodes: usize::MAX, ..Capacity::of(10, 10) }.is_sane());
    }
}
