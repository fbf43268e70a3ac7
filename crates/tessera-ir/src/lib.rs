//! tessera-ir
