//! tessera-compile
