//! What this user may do with files of others: a commit must not need more rights than the program itself needed.

use super::tree::Node;
use base::Attr;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};

/// Whether this process may give `node` other attributes and times: it owns it, or acts for all owners.
pub(crate) fn owns(node: &Node) -> bool {
    node.uid == geteuid().as_raw() || has(CapabilitySet::FOWNER)
}

/// Whether this process may make a file with this owner and group, where `inherited` is the group that files get.
pub(crate) fn may_own(attr: &Attr, inherited: Option<u32>) -> bool {
    let group = inherited == Some(attr.gid) || is_in_group(attr.gid);
    has(CapabilitySet::CHOWN) || (attr.uid == geteuid().as_raw() && group)
}

/// Whether this process may give files of its own to the group `gid`.
pub(crate) fn may_give_group(gid: u32) -> bool {
    has(CapabilitySet::CHOWN) || is_in_group(gid)
}

fn is_in_group(gid: u32) -> bool {
    getegid().as_raw() == gid || getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == gid))
}

fn has(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}
