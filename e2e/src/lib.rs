//! The end-to-end suite: the product as its user meets it, compared with the same commands run locally.
//!
//! A [`pool::Pool`] is a hub, workers whose root is empty ([`empty_root`]) and clients, all in one temporary folder. The
//! [`differential`] harness runs a [`case::Case`] once locally and once through `remrun`, at the same path, and compares
//! everything that can be seen; [`differ`] does so with programs drawn by chance. Beside the table of cases (`cases/*.case`) there are [`scenario`]s on pools of their own
//! ([`contract`], [`failure`], [`cut`]), some of them with [`hostile`] parts, a campaign of faults ([`chaos`]), scripts of what went wrong once ([`situations`]), tests on [`real`] input, suites of others ([`foreign`]), a [`demo`] and the [`bench`] of launches.

pub mod bench;
pub mod case;
pub mod chaos;
pub mod client;
pub mod contract;
pub mod cut;
pub mod demo;
pub(crate) mod dice;
pub mod differ;
pub mod differential;
pub mod empty_root;
pub mod error;
pub mod failure;
pub mod foreign;
pub mod hostile;
pub mod hubs;
pub mod internet;
pub mod leftovers;
pub mod machine;
pub mod pool;
pub mod process;
pub mod real;
pub mod relay;
pub mod report;
pub mod roam;
pub mod scenario;
pub mod scratch;
mod several;
pub mod situations;
pub mod slow;
pub mod source;
pub mod suite;
pub mod supervise;
pub mod swarm;
pub mod terminal;
pub mod tree;
