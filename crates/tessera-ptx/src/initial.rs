//! Initial values of variables: numbers, addresses, lists in braces, properties of textures and samplers.
//!
//! Lists nest as the array's extents do, a vector's elements innermost; what an inner list leaves out is zero.

use crate::constant::Constant;
use crate::lexer::Token;
use crate::model::{Initial, Name, Variable};
use crate::parser::{Parsed, Parser};
use crate::types::Type;

/// More initial values than this are refused.
const MOST_VALUES: u64 = 1 << 24;

impl Parser<'_> {
    /// What stands behind a variable's `=`.
    pub(crate) fn initial(&mut self, variable: &mut Variable) -> Parsed<()> {
        let handle = matches!(variable.ty, Type::Texref | Type::Samplerref | Type::Surfref);
        if handle && variable.extents.is_empty() {
            return self.properties(variable);
        }
        let lanes = (variable.lanes > 1).then_some(u64::from(variable.lanes));
        // Elements of a list at each depth; an open extent takes any number.
        let extents: Vec<Option<u64>> = variable.extents.iter().copied().chain(lanes.map(Some)).collect();
        if self.token == Token::Punct('{') && extents.is_empty() {
            return Err(self.error(format!("`{}` is no array and takes one initial value", variable.name)));
        }
        if !self.eat('{') {
            variable.initial.push(self.initial_value()?);
            return Ok(());
        }
        self.list(&extents, &mut variable.initial)
    }

    fn list(&mut self, extents: &[Option<u64>], out: &mut Vec<Initial>) -> Parsed<()> {
        let start = out.len() as u64;
        while !self.eat('}') {
            if self.token == Token::Punct('{') {
                let inner = &extents[1.min(extents.len())..];
                if inner.is_empty() {
                    return Err(self.expected("an initial value"));
                }
                self.advance();
                let before = out.len() as u64;
                self.list(inner, out)?;
                let whole = inner.iter().try_fold(1u64, |product, extent| product.checked_mul(extent.unwrap_or(0)));
                let whole = whole.and_then(|whole| before.checked_add(whole)).filter(|&end| end <= MOST_VALUES);
                let end = whole.ok_or_else(|| self.error("there are too many initial values"))?;
                if out.len() as u64 > end {
                    return Err(self.error("a list has more initial values than its array elements"));
                }
                out.resize(end as usize, Initial::Int(0));
            } else {
                out.push(self.initial_value()?);
            }
            if !self.eat(',') && self.token != Token::Punct('}') {
                return Err(self.expected("`,` or `}`"));
            }
        }
        let most = extents.iter().try_fold(1u64, |product, extent| product.checked_mul((*extent)?));
        if most.is_some_and(|most| out.len() as u64 - start > most) {
            return Err(self.error("a list has more initial values than its array elements"));
        }
        Ok(())
    }

    fn initial_value(&mut self) -> Parsed<Initial> {
        match self.token {
            Token::Ident("WARP_SZ") => {}
            Token::Ident(_) => return self.address_initial(),
            _ => {}
        }
        let value = self.constant("an initial value")?;
        // `0xFF00(name)`: one byte of an address.
        if let (Some(mask), Token::Punct('(')) = (value.bits(), self.token) {
            let byte = (0..8u8).find(|byte| mask.cast_unsigned() == 0xff << (8 * byte));
            let byte = byte.ok_or_else(|| self.error("a mask in front of an address names one byte of it"))?;
            self.advance();
            let inner = self.address_initial()?;
            self.expect(')')?;
            return match inner {
                Initial::Address(name, offset) => Ok(Initial::AddressByte(name, offset, byte)),
                other => Ok(other),
            };
        }
        Ok(match value {
            Constant::Int(value) => Initial::Int(value),
            Constant::Uint(value) => Initial::Int(value.cast_signed()),
            Constant::F32(bits) => Initial::F32(bits),
            Constant::F64(value) => Initial::F64(value.to_bits()),
        })
    }

    /// A variable's or function's address, perhaps some bytes further. Global addresses are generic ones.
    fn address_initial(&mut self) -> Parsed<Initial> {
        let name = self.ident("a name")?;
        let generic = name == "generic" && self.eat('(');
        let name = Name::from(if generic { self.ident("a name")? } else { name });
        let mut offset = if self.eat('+') { self.integer("an offset")? } else { 0 };
        if generic {
            self.expect(')')?;
            if self.eat('+') {
                offset = offset.wrapping_add(self.integer("an offset")?);
            }
        }
        Ok(Initial::Address(name, offset))
    }

    /// `{ addr_mode_0 = wrap, filter_mode = linear }`
    fn properties(&mut self, variable: &mut Variable) -> Parsed<()> {
        self.expect('{')?;
        while !self.eat('}') {
            let name = Name::from(self.ident("a property")?);
            self.expect('=')?;
            let value = match self.token {
                Token::Ident(value) => {
                    self.advance();
                    Name::from(value)
                }
                _ => Name::from(self.integer("a value")?.to_string().as_str()),
            };
            variable.initial.push(Initial::Property(name, value));
            if !self.eat(',') && self.token != Token::Punct('}') {
                return Err(self.expected("`,` or `}`"));
            }
        }
        Ok(())
    }
}
