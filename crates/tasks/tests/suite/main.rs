//! The table from outside: what it promises, one by one and in a simulated world.

mod scenarios;
mod simulation;
mod world;
