//! What every command needs, looked at before the first one comes: the loader, the C library, the folders in which programs and libraries
//! are looked for. The first command then finds it hashed here and, where the hub is near, at the hub.
//!
//! Half of what a first command took went into that. It is done once for a start of the daemon, in a thread that gives way, and no
//! further once a command is there, which does the rest itself. What a change would make different is looked at again by each launch.

use crate::ahead::Ahead;
use crate::daemon::Daemon;
use crate::link::{Link, Reach};
use crate::plan::searched;
use crate::policy::{Gate, ReadPolicy, Scope, ScopeInput, Trust};
use crate::snapshot::Disk;
use crate::views::{TRAVEL_BYTES_NEAR, closure};
use base::TreePath;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wire::without::{Part, is_left_out};

/// Needs what all programs need, and is everywhere.
const PROGRAM: &[u8] = b"/bin/sh";
/// How long the hub may take to be there: blocks are kept for it until then.
const LINK_LIMIT: Duration = Duration::from_secs(30);
/// How much this gives way to whatever else runs here.
const NICE: i32 = 10;

/// What is looked at, and what of it may be seen.
struct Common {
    paths: Vec<TreePath>,
    gate: ReadPolicy,
}

/// Begins to look, if there is a pool.
pub(crate) fn begin(daemon: &Arc<Daemon>) {
    let Some(link) = daemon.link().cloned().filter(|_| !is_left_out(Part::Prethrow)) else { return };
    let daemon = daemon.clone();
    tokio::spawn(async move {
        let looked = daemon.clone();
        let common = apart(move || {
            let common = Common::new(looked.trust())?;
            common.look(&looked, None).then_some(common)
        });
        if let Some(common) = common.await.flatten() {
            let _ = tokio::time::timeout(LINK_LIMIT, common.send(&daemon, &link)).await;
        }
        daemon.server.let_go_if_idle();
    });
}

impl Common {
    /// What a shell needs that is started here. `None` if there is none.
    fn new(trust: Trust) -> Option<Self> {
        let (program, root) = (TreePath::parse(PROGRAM)?, TreePath::root());
        let env: Vec<Vec<u8>> = std::env::vars_os()
            .filter(|(name, _)| name == "PATH" || name == "LANG" || name.as_encoded_bytes().starts_with(b"LC_"))
            .map(|(name, value)| [&name.into_vec()[..], b"=", &value.into_vec()].concat())
            .collect();
        let home = std::env::var_os("HOME").and_then(|home| TreePath::parse(home.as_encoded_bytes()));
        let input = ScopeInput {
            home: home.as_ref(),
            uid: rustix::process::geteuid().as_raw(),
            cwd: &root,
            argv: &[PROGRAM.to_vec()],
            env: &env,
            program: std::slice::from_ref(&program),
            trust,
        };
        let gate = ReadPolicy::new(Scope::new(&input, &Disk::default()));
        let mut paths = closure::closure(&program, &root, &env);
        paths.extend(searched(&env, &root));
        Some(Self { paths, gate })
    }

    /// Binds all, and hands what would travel with it to `ahead`. False if a command has come meanwhile.
    fn look(&self, daemon: &Daemon, ahead: Option<&Ahead>) -> bool {
        let (server, gate): (_, &dyn Gate) = (&daemon.server, &self.gate);
        let mut room = TRAVEL_BYTES_NEAR;
        for path in &self.paths {
            if !daemon.is_idle() {
                return false;
            }
            let Ok(observed) = server.views().snapshot().bind(path, gate) else { continue };
            // No command has asked for it: only what the distribution has goes.
            let Some(ahead) = ahead.filter(|_| path.is_in_system_folder()) else { continue };
            for (digest, bytes) in server.views().blobs_of([&observed.binding], &|digest| server.hub_has(digest), room)
            {
                room -= bytes.len();
                if !ahead.send(digest, bytes.clone()) {
                    return true;
                }
                server.keep_earlier(digest, &bytes);
                server.note_sent([digest]);
            }
        }
        true
    }

    /// Sends it to the hub, once that is there and if it is near.
    async fn send(self, daemon: &Arc<Daemon>, link: &Link) {
        let joined = link.connected().await;
        if !Reach::of(&joined).near {
            return;
        }
        let (ahead, looked, runtime) = (Ahead::new(joined.connection.clone()), daemon.clone(), Handle::current());
        let sent = apart(move || {
            let _within = runtime.enter();
            self.look(&looked, Some(&ahead));
            ahead
        });
        if let Some(ahead) = sent.await
            && let Some((mut sender, _)) = ahead.finish().await
        {
            sender.finish();
            sender.stopped().await;
        }
        if joined.connection.is_closed() {
            daemon.server.forget_sent();
        }
    }
}

/// Does work in a thread of its own, which gives way; `None` if there is none to be had, or it panicked.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    let body = move || {
        // SAFETY: a plain call about this thread. Should it be refused, the work is done all the same.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        let _ = done.send(work());
    };
    std::thread::Builder::new().name("warm".into()).spawn(body).ok()?;
    result.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Access, FileFacts};

    #[test]
    fn what_is_looked_at_is_what_all_programs_need() {
        let common = Common::new(Trust::Others).expect("a shell");
        let has = |start: &[u8]| common.paths.iter().any(|path| path.name().starts_with(start));
        assert!(has(b"ld-") && has(b"libc.") && has(b"ld.so.cache"), "{:?}", common.paths);
        let facts = FileFacts { uid: 0, mode: 0o600, directory: false };
        let secret = TreePath::parse(b"/root/.ssh/id_ed25519").expect("a path");
        assert_ne!(common.gate.access(&secret, &facts), Access::Allow, "the policy of any command");
    }

    #[tokio::test]
    async fn work_is_done_apart_and_its_panic_is_no_result() {
        assert_eq!(apart(|| std::thread::current().name().map(str::to_owned)).await, Some(Some("warm".into())));
        assert_eq!(
            apart(|| if std::thread::current().name().is_some() {
                panic!("of the test")
            })
            .await,
            None
        );
    }
}
