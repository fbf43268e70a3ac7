//! Bulk tensor copies.
