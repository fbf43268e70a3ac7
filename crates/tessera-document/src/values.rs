//! `arith` and `math`: numbers, and register memrefs element by element.

use tessera_ir::attrs::{NanOrder, Overflow, Predicate, Rounding, Signedness};
use tessera_ir::text::cursor::{Cursor, Parsed};
use tessera_ir::text::parse_element;
use tessera_ir::{Const, Diagnostic, Elem, ScheduleOp, TileType, Type, Value};
use tessera_types::DType;

use crate::emit::{Bound, Emit, WithHelp};
use crate::memref::{Space, Ty, register};
use crate::syntax::{Operand, Statement};

/// Elements that an operation takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Ints,
    Floats,
}

const NEAREST: Rounding = Rounding::NearestEven;
const SIGNED: Signedness = Signedness::Signed;
const UNSIGNED: Signedness = Signedness::Unsigned;

/// Operations whose operands and result have one type.
fn elementwise(name: &str) -> Option<(ScheduleOp, usize, Takes)> {
    use ScheduleOp as S;
    let (flush_to_zero, overflow, rounding) = (false, Overflow::Wraps, NEAREST);
    let division = |signedness, rounding| S::DivI { signedness, rounding };
    let kind = match name {
        "arith.addi" => S::AddI { overflow },
        "arith.subi" => S::SubI { overflow },
        "arith.muli" => S::MulI { overflow },
        "arith.divui" => division(UNSIGNED, Rounding::Zero),
        "arith.divsi" => division(SIGNED, Rounding::Zero),
        "arith.floordivsi" => division(SIGNED, Rounding::NegativeInf),
        "arith.ceildivui" => division(UNSIGNED, Rounding::PositiveInf),
        "arith.ceildivsi" => division(SIGNED, Rounding::PositiveInf),
        "arith.remui" => S::RemI { signedness: UNSIGNED },
        "arith.remsi" => S::RemI { signedness: SIGNED },
        "arith.minsi" => S::MinI { signedness: SIGNED },
        "arith.minui" => S::MinI { signedness: UNSIGNED },
        "arith.maxsi" => S::MaxI { signedness: SIGNED },
        "arith.maxui" => S::MaxI { signedness: UNSIGNED },
        "arith.andi" => S::AndI {},
        "arith.ori" => S::OrI {},
        "arith.xori" => S::XorI {},
        "arith.shli" => S::ShlI { overflow },
        "arith.shrsi" => S::ShrI { signedness: SIGNED },
        "arith.shrui" => S::ShrI { signedness: UNSIGNED },
        "arith.addf" => S::AddF { rounding, flush_to_zero },
        "arith.subf" => S::SubF { rounding, flush_to_zero },
        "arith.mulf" => S::MulF { rounding, flush_to_zero },
        "arith.divf" => S::DivF { rounding, flush_to_zero },
        "arith.maximumf" => S::MaxF { propagate_nan: true, flush_to_zero },
        "arith.maxnumf" => S::MaxF { propagate_nan: false, flush_to_zero },
        "arith.minimumf" => S::MinF { propagate_nan: true, flush_to_zero },
        "arith.minnumf" => S::MinF { propagate_nan: false, flush_to_zero },
        "arith.negf" => S::NegF {},
        "math.absf" => S::AbsF {},
        "math.exp" => S::Exp { rounding, flush_to_zero },
        "math.exp2" => S::Exp2 { flush_to_zero },
        "math.log" => S::Log {},
        "math.log2" => S::Log2 {},
        "math.sqrt" => S::Sqrt { rounding, flush_to_zero },
        "math.rsqrt" => S::Rsqrt { flush_to_zero },
        "math.tanh" => S::TanH { rounding },
        "math.fma" => S::Fma { rounding, flush_to_zero },
        _ => return None,
    };
    let floats = name.starts_with("math.") || name.ends_with('f');
    let operands = kind.row().operands.len();
    Some((kind, operands, if floats { Takes::Floats } else { Takes::Ints }))
}

fn integer_predicate(word: &str) -> Option<(Predicate, Signedness)> {
    use Predicate::{Eq, Ge, Gt, Le, Lt, Ne};
    Some(match word {
        "eq" => (Eq, SIGNED),
        "ne" => (Ne, SIGNED),
        "slt" => (Lt, SIGNED),
        "sle" => (Le, SIGNED),
        "sgt" => (Gt, SIGNED),
        "sge" => (Ge, SIGNED),
        "ult" => (Lt, UNSIGNED),
        "ule" => (Le, UNSIGNED),
        "ugt" => (Gt, UNSIGNED),
        "uge" => (Ge, UNSIGNED),
        _ => return None,
    })
}

fn float_predicate(word: &str) -> Option<(Predicate, NanOrder)> {
    use Predicate::{Eq, Ge, Gt, Le, Lt, Ne};
    let nan = match word.as_bytes().first()? {
        b'o' => NanOrder::Ordered,
        b'u' => NanOrder::Unordered,
        _ => return None,
    };
    let predicate = match &word[1..] {
        "eq" => Eq,
        "ne" => Ne,
        "lt" => Lt,
        "le" => Le,
        "gt" => Gt,
        "ge" => Ge,
        _ => return None,
    };
    Some((predicate, nan))
}

impl<'a> Emit<'a, '_> {
    /// An operation of `arith` or `math`; `None` if there is none of that name.
    pub(super) fn arith(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let name = statement.name.text;
        if !name.starts_with("arith.") && !name.starts_with("math.") {
            return Ok(None);
        }
        self.attributes(name, &statement.attributes, &["fastmath", "overflow"])?;
        if let Some((kind, count, takes)) = elementwise(name) {
            let (operands, tile) = self.alike(statement, 0, count)?;
            let floats = tile.elem.num().is_some_and(DType::is_float);
            if floats != (takes == Takes::Floats) {
                let wanted = if takes == Takes::Floats { "floats" } else { "integers" };
                return Err(self.error("document-type", format!("`{name}` takes {wanted}, not `{}`", tile.elem)));
            }
            let value = self.same(kind, &operands);
            return Ok(Some(self.yielded(value, tile)));
        }
        match name {
            "arith.constant" => self.number_constant(statement).map(Some),
            "arith.cmpi" | "arith.cmpf" => self.compare(statement).map(Some),
            "arith.select" => {
                let condition = self.operand(statement, 0)?.clone();
                let (condition, shape) = self.tile_of(&condition)?;
                let (operands, tile) = self.alike(statement, 1, 2)?;
                if shape.shape != tile.shape || shape.elem != Elem::Num(DType::B1) {
                    return Err(
                        self.error("document-type", format!("`{}` chooses among `{}`", register(&shape), register(&tile)))
                    );
                }
                let ty = self.tile_type(&tile)?;
                let groups: [&[Value]; 3] = [&[condition], &[operands[0]], &[operands[1]]];
                let value = self.value(ScheduleOp::Select {}, &groups, ty);
                Ok(Some(self.yielded(value, tile)))
            }
            "arith.index_cast" | "arith.index_castui" | "arith.extsi" | "arith.extui" | "arith.trunci" | "arith.sitofp"
            | "arith.uitofp" | "arith.fptosi" | "arith.fptoui" | "arith.extf" | "arith.truncf" => {
                let unsigned = name.ends_with("ui") || name == "arith.uitofp";
                self.convert(statement, if unsigned { UNSIGNED } else { SIGNED }).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What an operation yields: a number stays a number, a tile is held by a new register memref.
    pub(super) fn yielded(&mut self, value: Value, tile: TileType) -> Bound {
        if tile.shape.is_empty() { Bound::Scalar(value) } else { self.cell(tile, value) }
    }

    /// Operands of one type, from a position on.
    pub(super) fn alike(&mut self, statement: &Statement<'a>, first: usize, count: usize) -> Parsed<(Vec<Value>, TileType)> {
        self.at_most(statement, first + count)?;
        let mut values = Vec::new();
        let mut common: Option<TileType> = None;
        for position in first..first + count {
            let operand = self.operand(statement, position)?.clone();
            let (value, tile) = self.tile_of(&operand)?;
            match &common {
                Some(common) if *common != tile => {
                    let message = format!("operands are `{}` and `{}`", register(common), register(&tile));
                    let differ = common.shape.is_empty() != tile.shape.is_empty();
                    let found = self.error("document-type", message);
                    return Err(match differ {
                        true => found.help_boxed("repeat the number: `tile.broadcast %x : f32 -> memref<..., 5>`"),
                        false => found.help_boxed("operands of one type are needed"),
                    });
                }
                _ => common = Some(tile),
            }
            values.push(value);
        }
        match common {
            Some(tile) => Ok((values, tile)),
            None => Err(self.error("document-operands", "an operand is needed")),
        }
    }

    fn number_constant(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        let word = match self.operand(statement, 0)? {
            Operand::Number(word) | Operand::Word(word) => *word,
            _ => return Err(self.error("document-operands", "a literal is needed, such as `0.5` or `true`")),
        };
        let dtype = match statement.types.first() {
            Some((Ty::Scalar(dtype), _)) => *dtype,
            None if matches!(word.text, "true" | "false") => DType::B1,
            _ => {
                return Err(self
                    .error("document-type", "the type of the constant is needed")
                    .help_boxed("write `: f32`, `: index`, ..."));
            }
        };
        let signless = dtype.signless();
        let mut literal = Cursor::new(word.span.source, word.text);
        let bits = parse_element(&mut literal, signless).map_err(|_| {
            let message = format!("`{}` is no `{}`", word.text, Ty::Scalar(dtype));
            Box::new(Diagnostic::error("document-type", word.span, message))
        })?;
        let value = self.constant(Const::splat(signless, bits), &[])?;
        Ok(Bound::Scalar(value))
    }

    fn compare(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        let Operand::Word(word) = self.operand(statement, 0)?.clone() else {
            return Err(self.error("document-operands", "a comparison such as `slt` is needed first"));
        };
        let (operands, tile) = self.alike(statement, 1, 2)?;
        let floats = tile.elem.num().is_some_and(DType::is_float);
        let kind = match (statement.name.text, floats) {
            ("arith.cmpi", false) => {
                integer_predicate(word.text).map(|(predicate, signedness)| ScheduleOp::CmpI { predicate, signedness })
            }
            ("arith.cmpf", true) => float_predicate(word.text).map(|(predicate, nan)| ScheduleOp::CmpF { predicate, nan }),
            _ => return Err(self.error("document-type", format!("`{}` does not compare `{}`", statement.name.text, tile.elem))),
        };
        let Some(kind) = kind else {
            let found = Diagnostic::error("document-operands", word.span, format!("`{}` is no comparison", word.text));
            let help = if floats {
                "`oeq`, `one`, `olt`, `ole`, `ogt`, `oge`, and `u...` for those that hold for NaN"
            } else {
                "`eq`, `ne`, `slt`, `sle`, `sgt`, `sge`, `ult`, `ule`, `ugt`, `uge`"
            };
            return Err(Box::new(found.help(help)));
        };
        let result = tile.with_elem(Elem::Num(DType::B1));
        let ty = self.tile_type(&result)?;
        let value = self.value(kind, &[&[operands[0]], &[operands[1]]], ty);
        Ok(self.yielded(value, result))
    }

    /// The element type that a conversion states.
    fn conversion_target(&self, statement: &Statement<'a>) -> Parsed<DType> {
        match statement.result_types.first() {
            Some((Ty::Scalar(dtype), _)) => Ok(*dtype),
            Some((Ty::Memref(memref), _)) if memref.space == Space::Register => Ok(memref.elem),
            _ => Err(self
                .error("document-type", "the type that it becomes is needed")
                .help_boxed("write `: f32 to bf16`, or with memrefs")),
        }
    }

    /// A number or tile as another element type.
    pub(super) fn convert(&mut self, statement: &Statement<'a>, signedness: Signedness) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        let operand = self.operand(statement, 0)?.clone();
        let (value, tile) = self.tile_of(&operand)?;
        let to = self.conversion_target(statement)?;
        let to = to.signless();
        let Some(from) = tile.elem.num() else { return Err(self.error("document-type", "no number")) };
        let result = tile.with_elem(Elem::Num(to));
        if let Some(stated) = self.stated(statement)
            && stated.tile().as_ref() != Some(&result)
        {
            return Err(self.error("document-type", format!("`{}` cannot become `{stated}`", register(&tile))));
        }
        let kind = match (from.is_float(), to.is_float()) {
            _ if from == to => return Ok(self.yielded(value, tile)),
            (true, true) => ScheduleOp::FToF { rounding: NEAREST },
            (true, false) => ScheduleOp::FToI { signedness, rounding: Rounding::NearestIntToZero },
            (false, true) => ScheduleOp::IToF { signedness, rounding: NEAREST },
            (false, false) if from.bits() < to.bits() => ScheduleOp::ExtI { signedness },
            (false, false) => ScheduleOp::TruncI { overflow: Overflow::Wraps },
        };
        let ty = self.converted_type(value, &result)?;
        let value = self.value(kind, &[&[value]], ty);
        Ok(self.yielded(value, result))
    }

    /// The type of a value with other elements.
    fn converted_type(&self, value: Value, result: &TileType) -> Parsed<Type> {
        match self.func.ty(value) {
            Type::Tensor(tensor) => {
                let mut tensor = tensor.clone();
                tensor.elem = result.elem.num().unwrap_or(tensor.elem);
                Ok(Type::Tensor(tensor))
            }
            _ => self.tile_type(result),
        }
    }
}
