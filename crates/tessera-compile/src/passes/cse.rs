//! `cse`: what was computed already is not computed again. Pure operations with equal kinds, operands and result types are
//! one, and so are reductions whose regions say the same; two loads of one place are one when nothing between them may have written there. A value of an enclosing block
//! serves nested ones, save the regions of reductions, which stay closed.

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use tessera_ir::{Block, Changed, Effects, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Type, Value};

use tessera_analysis::memory::{Access, Root, access, accesses};

/// Common-subexpression elimination.
pub(super) const PASS: Pass = Pass { name: "cse", doc: "Computes equal things once.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let mut walk =
        Walk { func, map: FxHashMap::default(), scopes: Vec::new(), writes: IndexMap::default(), clock: 0, changed: false };
    walk.block(walk.func.body, false);
    Changed(walk.changed)
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    kind: OpKind,
    operands: SmallVec<[Value; 4]>,
    segments: SmallVec<[u16; 6]>,
    results: SmallVec<[Type; 2]>,
    /// When the memory that a load reads was last written.
    version: u32,
    regions: SmallVec<[Vec<Line>; 1]>,
}

/// An operation of a region, with the region's own values by number.
#[derive(PartialEq, Eq, Hash)]
struct Line {
    kind: OpKind,
    operands: SmallVec<[Named; 4]>,
    segments: SmallVec<[u16; 6]>,
    results: SmallVec<[Type; 2]>,
}

#[derive(PartialEq, Eq, Hash)]
enum Named {
    Own(usize),
    Outer(Value),
}

/// What a pure region without further regions says.
fn lines(func: &Func, region: Block) -> Option<Vec<Line>> {
    let mut own = func.blocks[region].args.to_vec();
    let mut lines = Vec::new();
    for &op in &func.blocks[region].ops {
        let data = &func.ops[op];
        if !data.regions.is_empty() || !matches!(data.row().effects, Effects::Pure | Effects::Terminator) {
            return None;
        }
        let named = |&value: &Value| own.iter().position(|&other| other == value).map_or(Named::Outer(value), Named::Own);
        lines.push(Line {
            kind: data.kind.clone(),
            operands: data.operands.iter().map(named).collect(),
            segments: data.segments.clone(),
            results: data.results.iter().map(|&result| func.ty(result).clone()).collect(),
        });
        own.extend(&data.results);
    }
    Some(lines)
}

struct Walk<'f> {
    func: &'f mut Func,
    map: FxHashMap<Value, Value>,
    /// What is available, innermost block last; a closed scope hides those before it.
    scopes: Vec<(FxHashMap<Key, Op>, bool)>,
    /// When each place was last written.
    writes: IndexMap<Root, u32, FxBuildHasher>,
    clock: u32,
    changed: bool,
}

impl Walk<'_> {
    fn block(&mut self, block: Block, closed: bool) {
        self.scopes.push((FxHashMap::default(), closed));
        let ops = std::mem::take(&mut self.func.blocks[block].ops);
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            if !self.op(op) {
                out.push(op);
            }
        }
        self.func.blocks[block].ops = out;
        self.scopes.pop();
    }

    /// True when an earlier operation takes its place.
    fn op(&mut self, op: Op) -> bool {
        for operand in &mut self.func.ops[op].operands {
            *operand = self.map.get(operand).copied().unwrap_or(*operand);
        }
        if let Some(earlier) = self.earlier(op) {
            let results = self.func.ops[op].results.clone();
            for (position, result) in results.into_iter().enumerate() {
                self.map.insert(result, self.func.ops[earlier].results[position]);
            }
            self.changed = true;
            return true;
        }
        let effects = self.func.ops[op].row().effects;
        if effects == Effects::Regions {
            let mut inside: SmallVec<[Access; 8]> = SmallVec::new();
            accesses(self.func, op, &mut inside);
            // A loop's later rounds come after its own writes, and so does what follows.
            self.wrote(&inside);
            for region in self.func.ops[op].regions.clone() {
                self.block(region, false);
                self.wrote(&inside);
            }
        } else {
            if let Some(access) = access(self.func, op) {
                self.wrote(&[access]);
            }
            for region in self.func.ops[op].regions.clone() {
                self.block(region, true);
            }
        }
        false
    }

    fn wrote(&mut self, accesses: &[Access]) {
        for access in accesses.iter().filter(|access| access.writes) {
            self.clock += 1;
            self.writes.insert(access.root, self.clock);
        }
    }

    fn earlier(&mut self, op: Op) -> Option<Op> {
        let data = &self.func.ops[op];
        let regions = data.regions.iter().map(|&region| lines(self.func, region)).collect::<Option<_>>()?;
        let version = match (data.row().effects, &data.kind) {
            // Each token names a place of its own in the order.
            (_, OpKind::Schedule(ScheduleOp::MakeToken {})) => return None,
            (Effects::Pure | Effects::MayTrap, _) => 0,
            (Effects::Read, OpKind::Schedule(load)) if load.is_weak_load() => {
                let root = access(self.func, op)?.root;
                // Nothing was written yet at time 0.
                self.writes.iter().filter(|(written, _)| written.meets(root)).map(|(_, &when)| when).max().unwrap_or(0)
            }
            _ => return None,
        };
        let key = Key {
            kind: data.kind.clone(),
            operands: data.operands.clone(),
            segments: data.segments.clone(),
            results: data.results.iter().map(|&result| self.func.ty(result).clone()).collect(),
            version,
            regions,
        };
        for (scope, closed) in self.scopes.iter().rev() {
            if let Some(&earlier) = scope.get(&key) {
                return Some(earlier);
            }
            if *closed {
                break;
            }
        }
        if let Some((scope, _)) = self.scopes.last_mut() {
            scope.insert(key, op);
        }
        None
    }
}
