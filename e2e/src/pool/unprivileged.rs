//! A worker of an ordinary user.

use super::{Pool, make};
use crate::error::{Context, Error, Result};
use crate::process::Daemon;
use crate::scratch::MARK;
use std::path::Path;
use std::process::Command;

/// Whose it is: a system's account that has no files.
const USER: u32 = 1;
/// Gives this process's view of the machine what such a user needs, subordinate ids and FUSE, and becomes `gleaner` as that user.
const BEGIN: &str = "mount --make-rprivate / && mount --bind $DIR/ids /etc/subuid && mount --bind $DIR/ids /etc/subgid && \
    mknod -m 666 $DIR/fuse c 10 229 && mount --bind $DIR/fuse /dev/fuse && rm $DIR/fuse && \
    exec setpriv --reuid=1 --regid=1 --clear-groups $GLEANER join $TOKEN --state $DIR/state --name user --cpus 2";

impl Pool {
    /// Starts a worker of an ordinary user, with this token. Returns its number.
    pub fn add_unprivileged_worker(&mut self, token: &str) -> Result<usize> {
        for needed in ["/etc/subuid", "/etc/subgid", "/usr/bin/newuidmap", "/usr/bin/setpriv"] {
            if !Path::new(needed).exists() {
                return Err(Error::Missing(format!(
                    "a worker without root needs {needed} (packages uidmap, util-linux)"
                )));
            }
        }
        let root = self.scratch.path().to_path_buf();
        let folder = make(&root, "user", 0o755, 0)?;
        make(&root, "user/state", 0o700, USER)?;
        let ids = folder.join("ids");
        std::fs::write(&ids, format!("{USER}:{}:65536\n", 0x5000_0000)).at("write", &ids)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", BEGIN]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("DIR", &folder).env("TOKEN", token).env("GLEANER", root.join("bin/gleaner")).env(MARK, &root);
        command.env("HOME", folder.join("state")).env("GLEANER_CONFIG_DIR", folder.join("state/config"));
        let worker = Daemon::start("user", command, &root.join("log/user.log"))?;
        self.workers.push(worker);
        Ok(self.workers.len() - 1)
    }
}
