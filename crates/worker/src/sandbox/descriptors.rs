//! Which descriptors the init of a task has, step by step from its fork to its program's.
//!
//! A path that a client names can lead to whatever the process that resolves it has open. So what the zygote has open for itself and
//! for other tasks is closed first, what the start alone needs before the first path, and the program's process closes the rest.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::OFlags;
use rustix::thread::{Gid, Uid};

use super::init::Setup;
use super::order::{Input, Order, Sink};
use super::{stand_ins, sys};

/// Closes what the zygote has open for itself and for other tasks, before anything of the client's is used.
pub fn close_the_zygotes(setup: &Setup<'_>) {
    let mut keep = vec![setup.zygote.as_raw_fd(), setup.users.as_raw_fd(), setup.network.as_raw_fd()];
    keep.extend(setup.tasks.iter().map(OwnedFd::as_raw_fd));
    keep.extend(kept(setup));
    sys::close_all_but(&mut keep);
}

/// What is needed as long as the task is being started.
pub fn kept(setup: &Setup<'_>) -> Vec<RawFd> {
    let own = [Some(setup.status), setup.idle, setup.events].into_iter().flatten();
    own.chain(streams(&setup.order)).map(AsRawFd::as_raw_fd).collect()
}

/// The standard streams that came with the order.
fn streams(order: &Order) -> impl Iterator<Item = &OwnedFd> {
    let stdin = if let Input::Stream(stream) = &order.stdin { Some(stream) } else { None };
    let sinks = [&order.stdout, &order.stderr].into_iter();
    stdin.into_iter().chain(sinks.filter_map(|sink| if let Sink::Stream(stream) = sink { Some(stream) } else { None }))
}

/// Moves what is needed as long as the task lives out of the way of stand-ins. What cannot be moved fails when it is used.
pub fn make_room(setup: &mut Setup<'_>) {
    // It must live as long as the process, so nothing is dropped.
    let moved = |own: &OwnedFd| stand_ins::out_of_the_way(own).ok().map(|moved| &*Box::leak(Box::new(moved)));
    setup.status = moved(setup.status).unwrap_or(setup.status);
    setup.idle = setup.idle.and_then(|idle| moved(idle).or(Some(idle)));
    let Order { stdin, stdout, stderr, .. } = &mut setup.order;
    let mut streams = Vec::new();
    streams.extend(if let Input::Stream(stream) = stdin { Some(stream) } else { None });
    for sink in [stdout, stderr] {
        streams.extend(if let Sink::Stream(stream) = sink { Some(stream) } else { None });
    }
    for stream in streams {
        if let Ok(moved) = stand_ins::out_of_the_way(&*stream) {
            *stream = moved;
        }
    }
}

/// The guest may open its pipes again by name (`/dev/stderr`), as it may at home.
pub fn own_pipes(order: &Order, uid: u32, gid: u32) {
    for stream in streams(order) {
        let is_pipe = rustix::fs::fstat(stream)
            .is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo);
        if is_pipe {
            // A convenience: without it only opening by name fails.
            let _ = rustix::fs::fchown(stream, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        }
    }
}

/// Device and inode of the pipes to which output and errors go. A pipe that is a file at the client which is added to looks like that.
pub fn outputs(order: &Order, watch: &base::Watch) -> [Option<(u64, u64)>; 2] {
    let sinks = [&order.stdout, &order.stderr];
    for (sink, file) in sinks.into_iter().zip(&watch.outputs) {
        if let (Sink::Stream(pipe), Some(true)) = (sink, file.as_ref().map(|file| file.appends)) {
            // Without it only that is told otherwise.
            let _ = rustix::fs::fcntl_setfl(pipe, OFlags::WRONLY | OFlags::APPEND);
        }
    }
    sinks.map(pipe_of)
}

/// Device and inode of the pipe to which output goes.
fn pipe_of(sink: &Sink) -> Option<(u64, u64)> {
    let Sink::Stream(pipe) = sink else { return None };
    rustix::fs::fstat(pipe).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
