//! The interface in the text form: a function's parameters, and what is stated of them.
//!
//! ```text
//! abi(x: array<bf16, [?, ?], [?, 1], i32, align=16, disjoint>, y: array<bf16, [?, ?], [?, 1], i32, align=16, disjoint>, n: scalar<i32>) stated(y = x, n <= 5120)
//! ```

use smallvec::SmallVec;

use super::cursor::{Cursor, Parsed};
use super::parse::{extent, key};
use crate::abi::{Abi, AbiParam, IndexType, ParamKind, Stated};
use crate::diag::Diagnostic;

/// The interface behind `abi`.
pub(super) fn interface(cursor: &mut Cursor<'_>) -> Parsed<Abi> {
    let params = cursor.list("(", ")", abi_param)?;
    let mut stated = Vec::new();
    if cursor.eat_word("stated") {
        stated = cursor.list("(", ")", |cursor| a_stated(cursor, &params))?;
    }
    Ok(Abi { params, stated })
}

fn index_type(cursor: &mut Cursor<'_>) -> Parsed<IndexType> {
    if cursor.eat_word("i32") {
        Ok(IndexType::I32)
    } else if cursor.eat_word("i64") {
        Ok(IndexType::I64)
    } else {
        Err(cursor.unexpected("`i32` or `i64`"))
    }
}

/// What is assumed of parameters: `y = x` of two arrays, the earlier one last, or `x <= 5120`.
fn a_stated(cursor: &mut Cursor<'_>, params: &[AbiParam]) -> Parsed<Stated> {
    let array = |param: &AbiParam| matches!(param.kind, ParamKind::Array { .. });
    let named = |cursor: &mut Cursor<'_>| -> Parsed<usize> {
        let start = cursor.offset();
        let name = cursor.expect_word("a parameter")?.to_string();
        let found = params.iter().position(|param| param.name == name);
        let wrong =
            || Box::new(Diagnostic::error("ir-syntax", cursor.span_from(start), format!("there is no parameter `{name}`")));
        found.ok_or_else(wrong)
    };
    let param = named(cursor)?;
    let name = params[param].name.clone();
    if cursor.eat("<=") {
        return Ok(Stated::AtMost { param: name, most: cursor.integer()? });
    }
    cursor.expect("=")?;
    let other = named(cursor)?;
    if other >= param || !array(&params[param]) || !array(&params[other]) {
        return Err(cursor.unexpected("an array before this one"));
    }
    Ok(Stated::Alike { array: name, other: params[other].name.clone() })
}

fn abi_param(cursor: &mut Cursor<'_>) -> Parsed<AbiParam> {
    let name = cursor.expect_word("a parameter name")?.to_string();
    cursor.expect(":")?;
    let word = cursor.expect_word("`array`, `list`, `scalar` or `operand`")?;
    cursor.expect("<")?;
    let dtype = cursor.dtype()?;
    let kind = match word {
        "scalar" => ParamKind::Scalar { dtype },
        "list" => {
            cursor.expect(",")?;
            let rank = cursor.integer()?;
            cursor.expect(",")?;
            ParamKind::List { dtype, rank, index: index_type(cursor)? }
        }
        "operand" => {
            cursor.expect(",")?;
            ParamKind::Operand { dtype, axes: cursor.list("[", "]", |c| c.string())? }
        }
        "array" => {
            cursor.expect(",")?;
            let shape = cursor.list("[", "]", extent)?;
            cursor.expect(",")?;
            let strides = cursor.list("[", "]", extent)?;
            cursor.expect(",")?;
            let index = index_type(cursor)?;
            cursor.expect(",")?;
            key(cursor, "align")?;
            let align = cursor.integer()?;
            let mut more = cursor.eat(",");
            let mut lines = align;
            if more && cursor.eat_word("lines") {
                cursor.expect("=")?;
                lines = cursor.integer()?;
                more = cursor.eat(",");
            }
            let disjoint = more;
            if disjoint && !cursor.eat_word("disjoint") {
                return Err(cursor.unexpected("`disjoint`"));
            }
            if shape.len() != strides.len() {
                return Err(cursor.unexpected("as many strides as sizes"));
            }
            ParamKind::Array {
                dtype,
                shape: SmallVec::from_vec(shape),
                strides: SmallVec::from_vec(strides),
                index,
                align,
                lines,
                disjoint,
            }
        }
        _ => return Err(cursor.unexpected("`array`, `list`, `scalar` or `operand`")),
    };
    cursor.expect(">")?;
    Ok(AbiParam { name, kind })
}
