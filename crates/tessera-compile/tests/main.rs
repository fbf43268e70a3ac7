//! The tests of `tessera-compile` in one program, which is linked once: a module a subject.

mod devices;
mod library;
mod memory;
mod programs;
#[path = "../../tessera-lang/tests/support/mod.rs"]
mod support;
mod threads;

mod agreement;
mod assemble;
mod barriers;
mod chains;
mod cluster_split;
mod coalescing;
mod conflicts;
mod document;
mod epilogues;
mod execute;
mod extremes;
mod facts;
mod fragments;
mod gathers;
mod interface;
mod kernels;
mod knobs;
mod ladder;
mod lines;
mod lockstep;
mod loops;
mod memory_order;
mod parts;
mod persistent;
mod plans;
mod prints;
mod products;
mod properties;
mod python;
mod refusals;
mod rewrites;
mod row_split;
mod search;
mod stages;
mod sums;
mod target;
mod tile;
mod turns;
