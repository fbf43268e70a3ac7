//! tessera-ops
