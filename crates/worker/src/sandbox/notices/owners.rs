//! Users and groups that a watched task names and its user namespace does not have.

use super::super::seccomp;
use super::{Decision, Listener, Notice, read_memory};
use crate::ids::{Ids, NOBODY, Owner};

/// Most groups of a process (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

impl Listener {
    /// Of a task that has these ids.
    pub fn of_ids(self, ids: Ids) -> Self {
        Self { ids, ..self }
    }

    /// A file is given to a user or group, or a process takes some on; `None` if the call is for something else.
    pub(super) fn on_owner(&self, notice: &Notice) -> Option<Decision> {
        let (number, args) = (libc::c_long::from(notice.data.nr), &notice.data.args);
        let named: Vec<Owner> = match seccomp::owners(number) {
            Some((first, names)) => args.iter().skip(first).zip(names).map(|(id, name)| name(*id as u32)).collect(),
            None if number == libc::SYS_setgroups => self.groups(notice).into_iter().map(Owner::Group).collect(),
            None => return None,
        };
        let mut decided = named.into_iter().map(|owner| self.on_named(owner));
        Some(decided.find(|decided| *decided != Decision::Go).unwrap_or(Decision::Go))
    }

    /// The groups that a process takes on.
    fn groups(&self, notice: &Notice) -> Vec<u32> {
        let (count, list) = (notice.data.args[0] as usize, notice.data.args[1]);
        // Of others the kernel refuses it.
        if !self.is_root || count == 0 || count > GROUPS_MAX {
            return Vec::new();
        }
        let list = read_memory(notice.process, list, 4 * count).unwrap_or_default();
        list.chunks_exact(4).map(|id| u32::from_ne_bytes([id[0], id[1], id[2], id[3]])).collect()
    }

    fn on_named(&self, owner: Owner) -> Decision {
        let (places, id) = self.ids.of(owner);
        match id {
            // As whom others are shown, too: it may be one of them that was seen.
            NOBODY if self.is_root && !places.is_complete() => {
                Decision::CallOff(format!("it names {owner}, as whom its worker shows others, too"))
            }
            // None.
            u32::MAX => Decision::Go,
            _ if places.offset_of(id).is_some() => Decision::Go,
            _ => Decision::Names(owner),
        }
    }
}
