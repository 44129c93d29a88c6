//! A worker without root: a user namespace in which it is root over subordinate ids, made before anything else.
//!
//! Inside, 0 is the worker's own user and 1 to 65536 are its subordinate ids, so that guests (whose ids start at
//! [`ID_BASE`]) never have the worker's own id, and the worker still owns its files.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::thread::UnshareFlags;

use super::Error;
use super::sys::{self, Fork};
use crate::ids::IDS;

/// Where the guests' ids start inside the worker's namespace.
pub const ID_BASE: u32 = 1;

/// Enters a user namespace and a mount namespace of its own. The process must have one thread only.
pub fn enter() -> Result<(), Error> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let name = user_name(uid);
    let uids = subordinate("/etc/subuid", uid, name.as_deref())?;
    let gids = subordinate("/etc/subgid", uid, name.as_deref())?;
    let unready = |step: &str, errno: rustix::io::Errno| Error::prepare(step, errno.into());
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| unready("pipe", e))?;
    let worker = std::process::id();
    // SAFETY: the worker has no threads yet (the caller's duty), and the child ends in exit_now.
    let helper = match unsafe { sys::fork_into(0, None) }.map_err(|e| unready("fork", e))? {
        Fork::Child => {
            drop(go);
            sys::exit_now(write_maps(wait, worker, [uid, uids], [gid, gids]));
        }
        Fork::Parent(helper, _) => helper,
    };
    // SAFETY: descriptors are not unshared.
    let entered = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) };
    if entered.is_ok() {
        let _ = rustix::io::write(&go, b"g");
    }
    drop(go);
    let ended = sys::wait_for(helper, 0);
    entered.map_err(|errno| Error::NoUserNamespaces(errno.into()))?;
    match ended {
        Ok(Some((_, 0))) => Ok(()),
        _ => Err(Error::NoSubordinateIds(
            "newuidmap or newgidmap failed: install them (package uidmap) and see that they are set-user-id".into(),
        )),
    }
}

/// In the helper, outside the new namespace: once told to, has the maps of `worker` written. `[own, subordinate]`.
fn write_maps(wait: OwnedFd, worker: u32, uids: [u32; 2], gids: [u32; 2]) -> i32 {
    let mut told = [0];
    if rustix::io::read(&wait, &mut told) != Ok(1) {
        return 1;
    }
    for (program, [own, subordinate]) in [("newuidmap", uids), ("newgidmap", gids)] {
        let numbers = [worker, 0, own, 1, ID_BASE, subordinate, IDS].map(|number| number.to_string());
        match std::process::Command::new(program).args(numbers).status() {
            Ok(status) if status.success() => {}
            _ => return 1,
        }
    }
    0
}

/// The first id of the user's range in this file of `name:first:count` lines.
fn subordinate(file: &str, uid: u32, name: Option<&str>) -> Result<u32, Error> {
    let text = fs::read_to_string(Path::new(file)).unwrap_or_default();
    find_range(&text, uid, name).ok_or_else(|| {
        let user = name.map_or_else(|| uid.to_string(), str::to_owned);
        Error::NoSubordinateIds(format!(
            "{file} grants {user} no {IDS} subordinate ids: as root, usermod --add-subuids 100000-165535 \
             --add-subgids 100000-165535 {user}"
        ))
    })
}

fn find_range(text: &str, uid: u32, name: Option<&str>) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        if Some(owner) != name && owner != uid.to_string() {
            return None;
        }
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.trim().parse::<u32>().ok()?);
        (count >= IDS).then_some(first)
    })
}

fn user_name(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_or_number() {
        let text = "a:100000:1000\na:200000:65536\n1001:300000:65536\n";
        assert_eq!(find_range(text, 1000, Some("a")), Some(200_000), "a range that is too short is passed over");
        assert_eq!(find_range(text, 1001, None), Some(300_000));
        assert_eq!(find_range(text, 1002, Some("c")), None);
    }
}
