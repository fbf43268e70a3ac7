//! Layouts of the Schedule dialect's operations in Tile functions. Operations whose row states the type rule compare types, and
//! so layouts, already. Here: operations of their own that work element by element, or leave elements where they are, take
//! and give one layout. Operations that change the shape, load or store views, or multiply take any.

use crate::func::Value;
use crate::schedule::ScheduleOp;
use crate::verify::{Rule, Site, ensure};

pub(super) fn check(site: &Site<'_>, kind: &ScheduleOp) -> Rule {
    let operands = &site.op.operands;
    match kind {
        ScheduleOp::Offset {}
        | ScheduleOp::LoadPtrTko { .. }
        | ScheduleOp::StorePtrTko { .. }
        | ScheduleOp::AtomicRmwTko { .. }
        | ScheduleOp::AtomicCasTko { .. }
        | ScheduleOp::Scan { .. } => agree(site, operands.iter().chain(&site.op.results)),
        ScheduleOp::Reduce { .. } => {
            agree(site, operands.iter())?;
            agree(site, site.op.results.iter())
        }
        _ => Ok(()),
    }
}

/// All of these that have a layout have the same; scalars stand aside.
fn agree<'v>(site: &Site<'_>, values: impl Iterator<Item = &'v Value>) -> Rule {
    let mut first = None;
    for &value in values {
        let Some(layout) = site.ty(value).layout() else { continue };
        let first = *first.get_or_insert(layout);
        ensure!(first == layout, "ir-layout", "the layouts `{first}` and `{layout}` must be one");
    }
    Ok(())
}
