//! tessera-types
