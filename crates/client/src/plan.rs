//! How a command is to run elsewhere: which program it is, which view it needs, what it may read and write, what its
//! standard streams are. Made before anything is launched; what cannot run elsewhere is found here.

use crate::daemon::Daemon;
use crate::policy::Gate;
use crate::stdio;
use crate::views::{Launch, Swept, TRAVEL_BYTES, View};
use base::{Command, Output, Stdin, Time, TreePath, WindowSize};
use rustix::fd::OwnedFd;
use std::sync::Arc;
