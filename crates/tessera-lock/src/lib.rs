//! The lockfile of tuned choices (`tessera.lock`): what was asked, what was chosen, and the text that holds both.
//!
//! An entry is a table of its own, and its name is a hash of its [`Key`]: two people who tune different kernels change different lines, so
//! that a merge of texts is a merge of choices.
//!
//! ```text
//! [gemm.6f0c52d1a8e94b37]
//! version = 1
//! ir = "b0d6..."                                 the kernel without choices, for arguments of these types
//! shape = "M 4096/128, N 4096/128, K 4096/128"   sizes as classes: the power of two above, and what divides them
//! device = "sm_90a NVIDIA H200"
//! toolchain = "tessera 0.1.0, driver 12.8"
//! config = "BLOCK_M=128,BLOCK_N=256"             as `--config` takes it
//! plan = """..."""                               as `--plan` takes it
//! order = "mma 64"                               the class of the order of its sums
//! ```
//!
//! Nothing here reads a file, a clock or an environment.

mod entry;
mod text;

pub use entry::{Bits, Cost, Entry, Key, config_text, parse_config, size_class};
pub use text::{LockError, Lockfile};
