//! Warpgroup products.
use crate::program::Wgmma;

pub(crate) fn supported(_wgmma: &Wgmma) -> Result<(), String> {
    Ok(())
}
