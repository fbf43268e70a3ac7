//! tessera-bench
