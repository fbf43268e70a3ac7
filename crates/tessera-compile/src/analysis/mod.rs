//! What passes ask about a function without changing it.

pub(crate) mod arrangement;
pub(crate) mod arrays;
pub(crate) mod barriers;
pub(crate) mod buffers;
pub(crate) mod exits;
pub mod facts;
pub(crate) mod linear;
pub(crate) mod lines;
pub(crate) mod masks;
pub(crate) mod memory;
pub(crate) mod neighbours;
pub(crate) mod room;
pub(crate) mod sent;
pub(crate) mod set;
pub(crate) mod sharing;
pub(crate) mod uses;
