//! Loops, conditions, and operations that are seen from outside. How their regions end is a matter of structure.

use tessera_types::DType;

use crate::schedule::ScheduleOp;
use crate::types::{Elem, Type};
use crate::verify::{Rule, Site, ensure};

pub(super) fn check(site: &Site<'_>, kind: &ScheduleOp) -> Rule {
    match kind {
        ScheduleOp::For { unroll, .. } => {
            let counter = site.operand(0);
            let counts = counter.is_scalar() && counter.num().is_some_and(|dtype| dtype.is_integer() && dtype.bits() >= 8);
            ensure!(counts, "ir-operand-type", "counts with a scalar integer, not `{counter}`");
            let one_type = counter == site.operand(1) && counter == site.operand(2);
            ensure!(one_type, "ir-operand-type", "bounds and step must have one type");
            let carried = site.op.group(3).iter().map(|&value| site.ty(value));
            region(site, std::iter::once(counter).chain(carried))?;
            let results = site.op.results.iter().map(|&value| site.ty(value));
            ensure!(
                results.eq(site.op.group(3).iter().map(|&value| site.ty(value))),
                "ir-results",
                "results must have the types of the carried values"
            );
            if let Some(copies) = unroll {
                let rounds = site.func.known_rounds(site.op);
                let divides = *copies > 0 && rounds.is_some_and(|rounds| rounds.is_multiple_of(u64::from(*copies)));
                let found = rounds.map_or("an unknown number of".to_string(), |rounds| rounds.to_string());
                ensure!(divides, "ir-attribute", "{copies} copies of the body do not divide {found} rounds");
            }
            Ok(())
        }
        ScheduleOp::Loop {} => region(site, site.op.group(0).iter().map(|&value| site.ty(value))),
        ScheduleOp::If {} => {
            let condition = site.operand(0);
            ensure!(
                *condition == Type::scalar(DType::B1),
                "ir-operand-type",
                "the condition is `{condition}`, not one truth value"
            );
            for &region in &site.op.regions {
                ensure!(site.func.blocks[region].args.is_empty(), "ir-region", "its regions take no arguments");
            }
            Ok(())
        }
        ScheduleOp::Assert { .. } => {
            let condition = site.tile(0)?;
            ensure!(condition.elem == Elem::Num(DType::B1), "ir-element-type", "asserts truth values, not `{condition}`");
            Ok(())
        }
        ScheduleOp::PrintTko { format } => {
            for &value in site.op.group(0) {
                let ty = site.ty(value);
                ensure!(ty.num().is_some(), "ir-operand-type", "prints numbers, not `{ty}`");
            }
            let (wanted, given) = (conversions(format), site.op.group(0).len());
            ensure!(wanted == given, "ir-attribute", "the format has {wanted} conversions, but {given} values are given");
            site.token(1)?;
            site.result_is(0, &Type::Token)
        }
        ScheduleOp::GdcWaitTko {} | ScheduleOp::GdcLaunchDependentsTko {} => {
            site.token(0)?;
            site.result_is(0, &Type::Token)
        }
        _ => Ok(()),
    }
}

fn region<'t>(site: &Site<'_>, wanted: impl Iterator<Item = &'t Type>) -> Rule {
    let args = site.func.blocks[site.op.regions[0]].args.iter().map(|&arg| site.ty(arg));
    ensure!(args.eq(wanted), "ir-region", "the region's arguments do not have the types of what is passed to them");
    Ok(())
}

/// How many values a C format string takes.
fn conversions(format: &str) -> usize {
    format.replace("%%", "").matches('%').count()
}
