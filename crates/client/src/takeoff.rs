//! A launch, from the check of the files that its program uses until it is on its way to the hub.

use crate::ahead::{Ahead, Behind};
use crate::daemon::Daemon;
use crate::earlier::Outgoing;
use crate::link::Reach;
use crate::plan::Plan;
use crate::views::{Swept, View};
use base::{Binding, Bound, Content, Digest, TaskId, Version, ViewUpdate};
use bytes::Bytes;
use std::sync::Arc;
use wire::message::{Launch, Object, OpenKind, digest_bytes};
use wire::{Joined, Receiver, Sender, WireError, convert};

/// Contents of more bytes in all, before they are packed, do not go with a launch over a slow link, …
const WITH_LAUNCH_MAX: usize = 64 << 10;
/// … except for those that have no more than this.
const SMALL_MAX: usize = 4 << 10;
/// Most files that are to be fetched as a whole.
const WHOLE_MAX: usize = 16;

/// The files that a command uses, checked for a launch over one connection.
pub(crate) struct Checked {
    /// Its number.
    pub connection: u64,
    /// What had gone over the connection until then.
    pub bytes_before: (u64, u64),
    /// What the launch takes along, or why there can be none.
    pub ready: Result<Ready, String>,
}

/// What a launch takes along.
pub(crate) struct Ready {
    swept: Swept,
    parcel: Parcel,
    ahead: Option<Ahead>,
    whole: Vec<Bytes>,
    step: Step,
}

/// A step of a view that is taken for sent from the check on. Dropped before it is, the hub must not be expected to have it.
struct Step {
    view: Arc<View>,
    is_sent: bool,
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.is_sent {
            self.view.forget_sent();
        }
    }
}

/// Contents for a launch.
struct Parcel {
    /// With it.
    objects: Vec<Object>,
    /// Behind it.
    behind: Vec<Outgoing>,
}

impl Parcel {
    /// Over a slow link the task need not wait until all is there: much goes behind, but for what is small, as lists are that all
    /// tasks begin with.
    fn new(reach: Reach, outgoing: Vec<Outgoing>) -> Self {
        let is_much = reach.far && outgoing.iter().map(Outgoing::size).sum::<usize>() > WITH_LAUNCH_MAX;
        let (with, behind) = outgoing.into_iter().partition(|outgoing| !is_much || outgoing.size() <= SMALL_MAX);
        Self { objects: Outgoing::pack_all(with).collect(), behind }
    }
}

impl Checked {
    /// Checks them. Blocks.
    pub fn new(plan: &Plan, daemon: &Daemon, joined: &Joined, connection: u64) -> Self {
        let bytes_before = joined.connection.bytes();
        let reach = Reach::of(joined);
        let ahead = reach.near.then(|| Ahead::new(joined.connection.clone()));
        let ready = plan.sweep(daemon, (connection, reach), ahead.as_ref()).map(|mut swept| {
            let blobs = std::mem::take(&mut swept.blobs);
            let first = swept.copied.iter().flat_map(|copied| &copied.step.set);
            let outgoing = daemon.server.outgoing_with(reach, first.chain(&swept.update.set), blobs);
            let whole = if reach.near { whole(&swept.update, daemon) } else { Vec::new() };
            let step = Step { view: plan.view.clone(), is_sent: false };
            Ready { swept, parcel: Parcel::new(reach, outgoing), ahead, whole, step }
        });
        Self { connection, bytes_before, ready }
    }

    /// On the thread that planned, where the hub is connected: unless another command must end first.
    pub fn at_once(plan: &Plan, daemon: &Daemon) -> Option<Self> {
        let (joined, connection) = daemon.link()?.current().filter(|_| plan.alone_in.is_none())?;
        Some(Self::new(plan, daemon, &joined, connection))
    }
}

impl Ready {
    /// How many paths have changed since the launch before it.
    pub fn changed(&self) -> usize {
        self.swept.update.set.len()
    }

    /// The version of the view that its task sees.
    pub fn version(&self) -> Version {
        self.swept.update.version
    }

    /// How many objects go with it, before it and behind it.
    pub fn objects(&self) -> usize {
        self.parcel.objects.len() + self.parcel.behind.len() + self.swept.ahead
    }

    /// Sends the launch on a stream of its own.
    pub async fn take_off(
        self,
        daemon: &Arc<Daemon>,
        joined: &Joined,
        launch: Launch,
    ) -> Result<(Sender, Receiver), WireError> {
        let Self { swept, parcel: Parcel { objects, behind }, ahead, whole, mut step } = self;
        let behind = Behind::announce(&joined.connection, behind).await;
        let launch = Launch {
            view: Some((&swept.update).into()),
            objects,
            copied: swept.copied.as_ref().map(Into::into),
            client_to_hub: joined.clock_offset_ns(),
            coming: behind.as_ref().map(|behind| behind.number),
            whole,
            ..launch
        };
        let opened = launch_on(joined, ahead, OpenKind::Launch(Box::new(launch))).await;
        step.is_sent = true;
        behind.into_iter().for_each(Behind::send);
        if daemon.server.earlier_lacks() {
            let server = daemon.server.clone();
            tokio::task::spawn_blocking(move || server.fill_earlier());
        }
        daemon.link().into_iter().for_each(|link| link.asked(joined));
        opened
    }
}

/// The distribution's files that are too large to be hashed and new to the hub: compilers and the like, of which a program's pages are read in
/// no order, and each would be waited for.
fn whole(update: &ViewUpdate, daemon: &Daemon) -> Vec<Bytes> {
    if update.base != Version(0) {
        return Vec::new();
    }
    let name = |bound: &Bound| match &bound.binding {
        Binding::File { attr, content: Content::Lazy(name), .. } if attr.is_of_system(&bound.path) => Some(*name),
        _ => None,
    };
    // Whoever asks for what is kept back counts as its reader.
    let is_open = |name: &Digest| daemon.server.views().snapshot().kept_back(name).is_empty();
    update.set.iter().filter_map(name).filter(is_open).take(WHOLE_MAX).map(|name| digest_bytes(&name)).collect()
}

/// What the launch of a planned task says, whoever launches it. `rank`: its rank in its job.
pub(crate) fn message(task: TaskId, plan: &Plan, rank: Option<u32>) -> Launch {
    Launch {
        task: convert::task_bytes(task),
        command: Some((&plan.command).into()),
        stdin: Some((&plan.stdin).into()),
        stdout: convert::output_number(plan.stdout),
        stderr: convert::output_number(plan.stderr),
        rank,
        owner_proof: owner_proof(task),
        watch: Some((&plan.watch).into()),
        first_process: plan.first_process,
        mounts: plan.mounts.iter().map(mount).collect(),
        trust: plan.trust.class().number(),
        ..Launch::default()
    }
}

/// What shows a worker of this machine and account that the task is its owner's; empty where there is no such worker.
fn owner_proof(task: TaskId) -> bytes::Bytes {
    wire::owner::Secret::read().map(|secret| bytes::Bytes::copy_from_slice(&secret.proof(task).0)).unwrap_or_default()
}

fn mount(mount: &base::Mount) -> wire::message::Mount {
    let at = mount.at.as_bytes().to_vec();
    wire::message::Mount { at, read_only: mount.read_only, no_exec: mount.no_exec }
}

/// Sends a launch on a stream of its own, or on the one on which contents went ahead of it.
async fn launch_on(joined: &Joined, ahead: Option<Ahead>, launch: OpenKind) -> Result<(Sender, Receiver), WireError> {
    let opened = match ahead {
        Some(ahead) => ahead.finish().await,
        None => None,
    };
    let (mut sender, mut receiver) = match opened {
        Some(opened) => opened,
        None => joined.connection.open_control().await?,
    };
    receiver.answers(sender.send_launch(launch.into()).await?);
    Ok((sender, receiver))
}

/// Ends the hub's right to ask for a task's files.
pub(crate) struct QuestionsEnd {
    /// Who answers.
    pub daemon: Arc<Daemon>,
    /// The task.
    pub task: TaskId,
}

impl Drop for QuestionsEnd {
    fn drop(&mut self) {
        self.daemon.server.end(self.task);
    }
}
