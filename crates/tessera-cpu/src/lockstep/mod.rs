//! Executes Tile IR in lock-step: each operation runs over all threads of its role before the next begins.
//!
//! This says what a Tile program means, before barriers matter, and runs SIMT kernels without a GPU. A pass over Tile IR is right
//! when lock-step before and after it agree.
//!
//! - **Arithmetic** is the Schedule executor's: each operation is handed to it as a program of its own (`micro`), a scalar
//!   operation for all threads at once. So results are equal bit for bit wherever that executor promises it.
//! - **Divergence.** Regions run with a mask of active threads; an `if` runs both sides in turn, a loop until the last thread has
//!   left it (`control`).
//! - **Tiles** are held once, whole (`value`). Scalars that a tile's operation takes must be the same in all active threads.
//! - **Asynchronous work** is done as late as the program allows: a copy when its arrival is waited for, a matrix product
//!   in flight at its wait (`copies`, `rings`). A program that reads too early or overwrites too early gets other numbers here too.
//! - **Roles** take turns, each until it waits for another (`rings`); if all wait, the launch ends with who waits for what.
//! - **Races** of per-thread programs are looked for in checked launches (`races`).
//! - What was never written in shared memory and registers is all ones; checked launches report the read instead.

mod cluster;
mod control;
mod copies;
mod divided;
mod machine;
mod mask;
mod memory;
mod micro;
mod program;
mod races;
mod rings;
mod schedule;
mod tile;
mod value;

pub use program::Program;
