//! tessera-driver
