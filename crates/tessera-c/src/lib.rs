//! The C interface of bundles: `include/tessera.h` describes it.
//!
//! Every function may be called from any thread. What fails gives a [`Status`] that is not `Ok` and leaves a message for the calling
//! thread; a panic becomes [`Status::Internal`] and does not leave this library. Handles are pointers whose contents are nobody's
//! business; a handle is closed once, when nobody uses it any more.
//!
//! Without the feature `emulator` the library has CUDA devices alone, and no part of the emulator.

mod arguments;
mod bundle;
mod device;
mod launch;
mod status;

pub use arguments::{Kind, TesseraArgument, TesseraItems, TesseraTensor, TesseraValue};
pub use bundle::{
    TesseraBundle, tessera_close, tessera_open, tessera_open_memory, tessera_variant_count, tessera_variant_describe,
};
pub use device::{
    TesseraDevice, tessera_alloc, tessera_copy_from, tessera_copy_to, tessera_device_close, tessera_device_open, tessera_free,
    tessera_synchronize,
};
pub use launch::{TesseraPrepared, tessera_launch, tessera_prepare, tessera_prepared_close, tessera_prepared_launch};
pub use status::{Status, tessera_last_error, tessera_version};
