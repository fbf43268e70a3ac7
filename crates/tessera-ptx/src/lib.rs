//! tessera-ptx
