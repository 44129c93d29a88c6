//! What a daemon has from its first caller and cannot change: a daemon that has less of it than a later caller makes way for one
//! that this caller starts.

mod group;

use crate::caller::Replies;
use crate::daemon::Daemon;
use crate::run::CODE_FAILED;
use base::door::Reply;
use base::{Command, Limit};
use group::Bounded;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Hard limits that bind the daemon's work, each with what is enough for it: CPU seconds, sizes of files, of data and of address
/// space, numbers of processes and of descriptors.
const BINDING: [(u32, u64, &str); 6] = [
    (0, 1 << 30, "processor time"),
    (1, 1 << 50, "file size"),
    (2, 1 << 40, "memory"),
    (6, 4096, "processes"),
    (7, 4096, "open files"),
    (9, 1 << 47, "memory"),
];

/// What this process has for its life.
#[derive(Debug)]
pub(crate) struct Standing {
    hard: Vec<Limit>,
    nice: i32,
    groups: Vec<Bounded>,
    /// Its user's groups, the first of which is that of what it makes.
    of_user: Vec<u32>,
}

impl Standing {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        let hard = BINDING.iter().filter_map(|(resource, ..)| limit(*resource)).collect();
        let own = rustix::process::getgroups().unwrap_or_default();
        let of_user = std::iter::once(rustix::process::getegid()).chain(own).map(|group| group.as_raw()).collect();
        Self { hard, nice: nice_of(0), groups: Bounded::of("self"), of_user }
    }

    /// Which of its bounds binds this process and not a caller with these limits, which is `process` if that is known.
    pub(crate) fn binds_beyond(&self, limits: &[Limit], process: Option<i32>) -> Option<&'static str> {
        let of_group = || self.groups.iter().find_map(|group| group.beyond(process?));
        self.lower_limit(limits).or_else(of_group)
    }

    /// Which of its limits is lower than that of a caller with these limits.
    fn lower_limit(&self, limits: &[Limit]) -> Option<&'static str> {
        BINDING.iter().find_map(|(resource, enough, name)| {
            let hard =
                |limits: &[Limit]| limits.iter().find(|limit| limit.resource == *resource).map(|limit| limit.hard);
            let own = hard(&self.hard)?;
            (own < *enough && own < hard(limits)?).then_some(*name)
        })
    }

    /// A group in which the caller is and this process is not: the user has become a member since, or the caller's shell is in another group.
    /// Root may do without.
    pub(crate) fn lacks_group_of(&self, command: &Command) -> Option<u32> {
        let mut groups = std::iter::once(command.gid).chain(command.groups.iter().copied());
        groups.find(|group| command.uid != 0 && !self.of_user.contains(group))
    }

    /// Whether it has a lower priority than that process, and than the ordinary one, which is enough for it.
    pub(crate) fn is_nicer_than(&self, process: i32) -> bool {
        self.nice > nice_of(process).max(0)
    }
}

/// Whether this daemon may serve a command of that process: what binds it would not bind its caller, or it lacks what its caller has. Then it
/// makes way for another, or says what the caller is to do while it has others to serve.
pub(crate) async fn may_serve(
    daemon: &Daemon,
    (command, process): (&Command, Option<i32>),
    no_local: bool,
    replies: &mut Replies,
) -> bool {
    let limit = daemon.standing.binds_beyond(&command.limits, process);
    let group = daemon.standing.lacks_group_of(command);
    let what = group.map(|group| format!("without the group {group}"));
    let Some(what) = what.or_else(|| limit.map(|what| format!("under a lower limit of {what}"))) else { return true };
    if daemon.make_way() {
        return false;
    }
    let why = format!("the client daemon was started {what}, and has others to serve");
    let answer = match no_local {
        false => Reply::RunHere { why },
        // It would be told of other rights than its caller's.
        true if group.is_some() => Reply::Failed { message: why, code: CODE_FAILED },
        true => return true,
    };
    let _ = replies.send(&answer).await;
    false
}

fn limit(resource: u32) -> Option<Limit> {
    let mut value = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one structure.
    let done = unsafe { libc::getrlimit64(resource as _, &mut value) };
    (done == 0).then_some(Limit { resource, soft: value.rlim_cur, hard: value.rlim_max })
}

/// The nice value of a process; the highest if it cannot be seen.
fn nice_of(process: i32) -> i32 {
    const HIGHEST: i32 = 19;
    let found = u32::try_from(process).ok().and_then(|process| {
        // SAFETY: plain numbers. The C library tells an error by errno alone, which is cleared before.
        unsafe {
            *libc::__errno_location() = 0;
            let nice = libc::getpriority(libc::PRIO_PROCESS, process);
            (*libc::__errno_location() == 0).then_some(nice)
        }
    });
    found.unwrap_or(HIGHEST)
}

/// Callers that are served, and whether the daemon ends when there are none.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    served: AtomicUsize,
    makes_way: AtomicBool,
}

impl Callers {
    /// One more.
    pub(crate) fn enter(&self) {
        self.served.fetch_add(1, Ordering::SeqCst);
    }

    /// One less; whether the daemon is to end now.
    pub(crate) fn leave(&self) -> bool {
        let was_last = self.served.fetch_sub(1, Ordering::SeqCst) == 1;
        was_last && self.makes_way.load(Ordering::SeqCst)
    }

    /// Whether nobody is served.
    pub(crate) fn is_idle(&self) -> bool {
        self.served.load(Ordering::SeqCst) == 0
    }

    /// Has the daemon make way once nobody is served; whether that is so now.
    pub(crate) fn make_way(&self) -> bool {
        self.makes_way.store(true, Ordering::SeqCst);
        self.served.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_with_lower_limits_is_found_out() {
        let of = |hard| vec![Limit { resource: 1, soft: 0, hard }];
        let standing = |hard| Standing { hard: of(hard), nice: 0, groups: Vec::new(), of_user: Vec::new() };
        assert_eq!(standing(1000).lower_limit(&of(u64::MAX)), Some("file size"));
        assert_eq!(standing(1000).lower_limit(&of(1000)), None);
        assert_eq!(standing(u64::MAX).lower_limit(&of(1000)), None);
        assert_eq!(standing(1 << 51).lower_limit(&of(u64::MAX)), None, "it is enough");
        assert!(Standing::of_process().lower_limit(&[]).is_none());
        let own = std::process::id() as i32;
        assert!(Standing { nice: 20, ..standing(0) }.is_nicer_than(own));
        assert!(!Standing::of_process().is_nicer_than(own));
    }

    #[test]
    fn a_daemon_without_its_callers_groups_is_found_out() {
        let standing = Standing { hard: Vec::new(), nice: 0, groups: Vec::new(), of_user: vec![1000, 27] };
        let caller = |uid, gid, groups: &[u32]| Command { uid, gid, groups: groups.to_vec(), ..Command::default() };
        assert_eq!(standing.lacks_group_of(&caller(1000, 1000, &[27])), None);
        assert_eq!(standing.lacks_group_of(&caller(1000, 27, &[])), None, "it has more");
        assert_eq!(standing.lacks_group_of(&caller(1000, 1000, &[27, 3000])), Some(3000));
        assert_eq!(standing.lacks_group_of(&caller(1000, 3000, &[1000])), Some(3000), "newgrp");
        assert_eq!(standing.lacks_group_of(&caller(0, 3000, &[])), None, "root needs none");
    }

    #[test]
    fn it_makes_way_when_the_last_caller_goes() {
        let callers = Callers::default();
        callers.enter();
        callers.enter();
        assert!(!callers.leave() && !callers.make_way());
        assert!(callers.leave() && callers.make_way());
    }
}
