//! Builder methods: loads, stores, atomics.
//!
//! The first argument is what stands between the mnemonic and the type, such as `global`, `shared`, `global.nc`,
//! `global.L1::no_allocate`, `acquire.gpu.global`; the table decides whether it exists.

use super::builder::{Builder, Results};
use super::inst::{Address, Arg, Guard};
use super::kernel::{Class, Origin, Value};
use crate::types::{Kind, Type};

/// The type that a load or store names: formats that PTX does not move by name go as bits.
fn moved(ty: Type) -> Type {
    match (ty, ty.kind(), ty.bits()) {
        (Type::F32 | Type::F64, ..) => ty,
        (_, Kind::Float, 8) => Type::B8,
        (_, Kind::Float, 16) => Type::B16,
        (_, Kind::Float, _) | (Type::U16x2 | Type::S16x2, ..) => Type::B32,
        _ => ty,
    }
}

fn vector(space: &str, count: usize, ty: Type) -> String {
    let ty = moved(ty);
    if count == 1 { format!("{space}.{ty}") } else { format!("{space}.v{count}.{ty}") }
}

impl Builder {
    /// A load. Bytes are extended to 32 bits as the type says.
    pub fn ld(&mut self, space: &str, ty: Type, address: impl Into<Address>) -> Value {
        let address = address.into();
        let results = self.instruction(&format!("ld.{}", vector(space, 1, ty)), Results::One, &[address.into()]);
        results.first().copied().unwrap_or_else(|| self.undef(Class::of(ty)))
    }

    /// A load of 1, 2 or 4 neighbours; the address is a multiple of their bytes.
    pub fn ld_vector(&mut self, space: &str, ty: Type, count: usize, address: impl Into<Address>) -> Vec<Value> {
        let results = if count == 1 { Results::One } else { Results::Vector(Class::of(ty), count) };
        let address = address.into();
        self.instruction(&format!("ld.{}", vector(space, count, ty)), results, &[address.into()])
    }

    /// A load that runs where the predicate is true; elsewhere the value is `default`.
    pub fn ld_if(&mut self, predicate: Value, space: &str, ty: Type, address: impl Into<Address>, default: Value) -> Value {
        self.ld_vector_if(predicate, space, ty, address, &[default]).first().copied().unwrap_or(default)
    }

    /// A load of 1, 2 or 4 neighbours that runs where the predicate is true; elsewhere the values are the defaults.
    pub fn ld_vector_if(
        &mut self,
        predicate: Value,
        space: &str,
        ty: Type,
        address: impl Into<Address>,
        defaults: &[Value],
    ) -> Vec<Value> {
        let results = match defaults {
            [default] => Results::Tied(*default),
            _ => Results::TiedVector(defaults),
        };
        let address = address.into();
        let text = format!("ld.{}", vector(space, defaults.len(), ty));
        let guard = Guard { value: predicate, negated: false };
        self.under(guard, |b| b.instruction(&text, results, &[address.into()]))
    }

    /// Prints by the driver's function: a format of C's, and its values, each of 64 bits.
    pub fn print(&mut self, format: &str, values: &[Value]) {
        let text = [format.as_bytes(), &[0]].concat();
        let format = self.data("text", &text, 1);
        let format = self.value("cvta.global.u64", &[format.into()]);
        let frame = self.frame(8 * values.len().max(1) as u64);
        for (&value, position) in values.iter().zip(0..) {
            self.st("local", Type::B64, (frame, 8 * position), value);
        }
        let frame = self.value("cvta.local.u64", &[frame.into()]);
        let printed = self.kernel.new_value(Class::B32, Origin::Undef);
        let (result, sources) = (Arg::List(vec![Arg::Def(printed)]), Arg::List(vec![format.into(), frame.into()]));
        self.effect("call", &[result, Arg::Function("vprintf"), sources]);
    }

    /// A store.
    pub fn st(&mut self, space: &str, ty: Type, address: impl Into<Address>, value: Value) {
        let address = address.into();
        self.effect(&format!("st.{}", vector(space, 1, ty)), &[address.into(), value.into()]);
    }

    /// A store of 1, 2 or 4 neighbours; the address is a multiple of their bytes.
    pub fn st_vector(&mut self, space: &str, ty: Type, address: impl Into<Address>, values: &[Value]) {
        if let [value] = values {
            return self.st(space, ty, address, *value);
        }
        let address = address.into();
        self.effect(&format!("st.{}", vector(space, values.len(), ty)), &[address.into(), Arg::sources(values)]);
    }

    /// An atomic operation that gives back what was there: `atom("global.add", Type::F32, ...)`, `atom("global.exch", ...)`.
    pub fn atom(&mut self, operation: &str, ty: Type, address: impl Into<Address>, value: Value) -> Value {
        let address = address.into();
        self.value(&format!("atom.{operation}.{ty}"), &[address.into(), value.into()])
    }

    /// Compare and swap; gives back what was there.
    pub fn atom_cas(&mut self, space: &str, ty: Type, address: impl Into<Address>, expected: Value, new: Value) -> Value {
        let address = address.into();
        self.value(&format!("atom.{space}.cas.{ty}"), &[address.into(), expected.into(), new.into()])
    }

    /// An atomic operation without result: `red("global.add", Type::F32, ...)`.
    pub fn red(&mut self, operation: &str, ty: Type, address: impl Into<Address>, value: Value) {
        let address = address.into();
        self.effect(&format!("red.{operation}.{ty}"), &[address.into(), value.into()]);
    }

    /// The generic address of a 64-bit global address, or the reverse with `to.global`: `cvta("global", a)`.
    pub fn cvta(&mut self, space: &str, a: Value) -> Value {
        self.value(&format!("cvta.{space}.u64"), &[a.into()])
    }
}
