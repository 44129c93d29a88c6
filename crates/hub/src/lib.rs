//! The hub: a site's distributor. To clients it looks like one big worker; to workers, like a client.
//!
//! * [`placement`]: which task runs where (pure).
//! * [`desk`]: the ledger of all work, and the journal under it.
//! * [`work`]: workunits: hosts that ask for them, and those who submit them and take what came of them.
//! * [`registry`]: who has joined, and as what.
//! * [`server`]: accepting, and what each role's streams do; `greet`: letting machines in.
//! * `accounts`: limits and use of accounts, and the jobs of all.
//! * `questions`: what members ask; [`figures`]: what is counted and measured; `metrics`: the same for Prometheus.
//! * [`shared`]: what hubs that replace one another have in common beside the journal.
//! * `state`: who is connected, and which launches wait.
//! * [`session`]: a connected client: its views and what is fetched from it; a connected worker.
//! * [`held`]: what a client has told, kept while it may come back.
//! * [`workers`]: connected workers, and what they ask.
//! * `asking`: what a worker may ask for its tasks; `unread`: what is held for a machine; `audit`: who did what.
//! * [`above`]: working for another hub.
//! * [`relay`]: one task, from its client to its worker and back; `half_told`: those of which a client has a part when the hub is to end.
//!
//! The hub keeps no file of a client but blocks named by their hash, visible only to the tenant that has shown them.

pub mod above;
mod accounts;
mod asking;
mod audit;
mod budget;
pub mod desk;
pub mod differences;
pub mod figures;
mod greet;
mod half_told;
pub mod held;
mod metrics;
pub mod needs;
pub mod placement;
mod questions;
pub mod registry;
pub mod relay;
pub mod server;
pub mod session;
pub mod shared;
mod state;
#[cfg(test)]
mod testing;
mod twins;
mod unread;
pub mod views;
pub mod work;
pub mod workers;

pub use server::{Config, Hub, HubError};
