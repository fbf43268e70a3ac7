//! Textures and surfaces.

use smallvec::SmallVec;
use tessera_ptx::{Address, Base, Operand, Type, Word};

use super::memory::change;
use super::modifiers::Mods;
use super::{Builder, Result};
use crate::program::{Addr, Beyond, Op, Reg, Sample, Space, Surface, SurfaceOp};
use crate::texture::Geometry;

/// The geometry that an instruction names.
fn geometry(mods: Mods<'_>) -> Option<Geometry> {
    mods.pick(|word| match word {
        Word::D1 => Some(Geometry::Axes { count: 1, layered: false }),
        Word::D2 => Some(Geometry::Axes { count: 2, layered: false }),
        Word::D3 => Some(Geometry::Axes { count: 3, layered: false }),
        Word::A1d => Some(Geometry::Axes { count: 1, layered: true }),
        Word::A2d => Some(Geometry::Axes { count: 2, layered: true }),
        Word::Cube => Some(Geometry::Cube { layered: false }),
        Word::Acube => Some(Geometry::Cube { layered: true }),
        _ => None,
    })
}

impl Builder<'_> {
    pub(super) fn texture(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        match mnemonic {
            "tex" | "tld4" => self.sample(mnemonic == "tld4", mods, operands),
            "txq" | "suq" => self.query(mnemonic == "txq", mods, operands),
            "istypep" => {
                let kind = mods.ty()?;
                let from = self.value(&operands[1], true)?;
                if let Some(to) = self.flag(&operands[0])? {
                    self.emit(Op::IsHandle { to, from, kind });
                }
                Ok(true)
            }
            _ => self.surface(mnemonic, mods, operands),
        }
    }

    /// The image that an address names, and the coordinates in it.
    fn image(&mut self, operand: &Operand) -> Result<(Addr, Option<Addr>, SmallVec<[Reg; 4]>)> {
        let Operand::Address(address) = operand else { return Err("an address is needed".to_owned()) };
        let at = |base: &Base, offset: i64| Address { base: base.clone(), offset, coordinates: None, sampler: None };
        let image = self.address_of(&at(&address.base, address.offset), Space::Generic)?;
        let sampler = address.sampler.as_ref().map(|base| self.address_of(&at(base, 0), Space::Generic)).transpose()?;
        let list = address.coordinates.iter().flatten();
        let coordinates = list.map(|operand| self.value(operand, false)).collect::<Result<_>>()?;
        Ok((image, sampler, coordinates))
    }

    fn sample(&mut self, gathers: bool, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let (Some(geometry), types) = (geometry(mods), mods.types().collect::<SmallVec<[Type; 2]>>()) else {
            return Ok(false);
        };
        let &[ty, coordinate] = &types[..] else { return Ok(false) };
        let gather = mods.pick(|word| match word {
            Word::R => Some(0),
            Word::Green => Some(1),
            Word::MatrixB => Some(2),
            Word::MatrixA => Some(3),
            _ => None,
        });
        // An image has one level: which is asked for, by number or by gradients, changes nothing.
        let levels = match mods.any(&[Word::Base, Word::Level, Word::Grad]) {
            Some(Word::Level) => 1,
            Some(Word::Grad) => 2,
            _ => 0,
        };
        let [to, address, rest @ ..] = operands else { return Ok(false) };
        let (image, sampler, at) = self.image(address)?;
        let Some((levels, rest)) = rest.split_at_checked(levels) else { return Ok(false) };
        for part in levels.iter().flat_map(Self::parts) {
            self.value(part, false)?;
        }
        let mut offsets = SmallVec::new();
        for operand in rest {
            if self.is_depth(operand) {
                return Err(format!("`{}` is not executed: images of depths are not compared with", self.current.mnemonic));
            }
            offsets = self.sources(operand, false)?;
        }
        let (to, resident) = match to {
            Operand::Pair(both) => (&both.0, self.flag(&both.1)?),
            other => (other, None),
        };
        let to = Self::parts(to).iter().map(|part| self.target(part)).collect::<Result<_>>()?;
        let gather = if gathers { gather } else { None };
        let fetches = coordinate == Type::S32;
        self.emit(Op::Sample(Box::new(Sample { geometry, gather, fetches, ty, to, resident, image, sampler, at, offsets })));
        Ok(true)
    }

    /// Whether an operand behind the coordinates is a depth to compare with, rather than offsets.
    fn is_depth(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Register(id) => self.frame.registers.get(id.0 as usize).is_some_and(|found| found.ty == Type::F32),
            Operand::F32(_) | Operand::F64(_) => true,
            _ => false,
        }
    }

    fn query(&mut self, texture: bool, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let what = mods.pick(|word| match word {
            Word::Level => None,
            other => Some(other),
        });
        let (Some(what), [to, address, level @ ..]) = (what, operands) else { return Ok(false) };
        if mods.has(Word::Level) {
            self.value(&level[0], false)?;
        }
        let (image, ..) = self.image(address)?;
        let to = self.destination(to, false)?;
        self.emit(Op::Query { to, image, what, texture });
        Ok(true)
    }

    fn surface(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let Some(geometry) = geometry(mods) else { return Ok(false) };
        let ty = mods.ty()?;
        let beyond = match mods.any(&[Word::Trap, Word::Clamp, Word::Zero]) {
            Some(Word::Clamp) => Beyond::Nearest,
            Some(Word::Zero) => Beyond::Nothing,
            _ => Beyond::Trap,
        };
        let formatted = mods.any(&[Word::Formatted, Word::MatrixB]) == Some(Word::Formatted);
        let (bytes, wide) = (ty.bits() / 8, ty.bits() == 64);
        let (address, op) = match mnemonic {
            "suld" => {
                let to = Self::parts(&operands[0]).iter().map(|part| self.target(part)).collect::<Result<_>>()?;
                (&operands[1], SurfaceOp::Load { to, bytes })
            }
            "sust" => {
                let from = self.sources(&operands[1], wide)?;
                (&operands[0], if formatted { SurfaceOp::StoreTexel { from } } else { SurfaceOp::Store { from, bytes } })
            }
            _ => {
                let Some(how) = change(mods) else { return Ok(false) };
                let value = Reg { slot: self.source(&operands[1], wide)?, wide };
                (&operands[0], SurfaceOp::Reduce { how, ty, formatted, value })
            }
        };
        let (image, _, at) = self.image(address)?;
        self.emit(Op::Surface(Box::new(Surface { geometry, op, image, at, beyond })));
        Ok(true)
    }
}
