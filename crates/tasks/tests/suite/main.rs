//! The table from outside: what it promises, one by one and in a simulated world.

mod copies;
mod deadlines;
mod kinds;
mod model;
mod older;
mod quorum;
mod scenarios;
mod simulation;
mod snapshot;
mod world;
