//! tessera-lang
