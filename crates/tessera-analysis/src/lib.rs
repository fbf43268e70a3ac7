//! What passes, and the lowering to the target, ask about a function without changing it.
//!
//! | question | modules |
//! |---|---|
//! | which numbers a value can be | [`facts`], [`linear`], [`modulo`], [`masks`] |
//! | which memory an operation touches, and who uses a value | [`memory`], [`buffers`], [`arrays`], [`uses`], [`set`] |
//! | how elements lie in memory, and which are neighbours | [`arrangement`], [`neighbours`], [`lines`], [`room`] |
//! | how warps and threads share a product and send its sums | [`sharing`], [`outer`], [`sent`] |
//! | which buffers share bytes | [`packing`] |
//! | how the ranks of a mesh share a value | [`placement`] |
//! | where control leaves, and which barriers are free | [`exits`], [`barriers`] |
//!
//! Nothing here changes a function, and nothing here knows a pass.

pub mod arrangement;
pub mod arrays;
pub mod barriers;
pub mod buffers;
pub mod exits;
pub mod facts;
pub mod linear;
pub mod lines;
pub mod masks;
pub mod memory;
pub mod modulo;
pub mod neighbours;
pub mod outer;
pub mod packing;
pub mod placement;
pub mod room;
pub mod sent;
pub mod set;
pub mod sharing;
pub mod uses;
pub mod views;
