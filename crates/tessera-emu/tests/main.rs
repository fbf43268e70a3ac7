//! The tests of `tessera-emu` in one program, which is linked once: a module a subject.

mod anchors;
mod arithmetic;
mod cluster_addresses;
mod copies;
mod corpus;
mod coverage;
mod devices;
mod ended_lanes;
mod flow;
mod forms;
mod generated;
mod im2col;
mod keep_going;
mod kernels;
mod made_maps;
mod matrix;
mod mutants;
mod planted;
mod robust;
mod sanitizers;
mod sparse;
mod speed;
mod systematic;
mod textures;
mod tiles;
mod undefined;
