//! The bytes of a bundle. Numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 15 | `tessera bundle` and CR LF, which a transfer as text would change |
//! | 16 to 19 | the version of the format |
//! | 20 to 23 | zero |
//! | 24 to 31 | bytes of the index |
//! | 32 to 39 | bytes of the code behind it |
//! | 40 to 63 | zero |
//! | 64 to 95 | BLAKE3 of everything but these bytes |
//! | from 96 | the index, as JSON; then the code of all variants, one behind the other |
//!
//! The index has for each variant what a launch needs beside the code, where its code lies (from the first byte behind the
//! index), and a BLAKE3 of that code, PTX before machine code: of a damaged file it says which variant is.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::BundleError;
use crate::variant::{Code, Variant};

/// The version that this program writes and reads.
pub const VERSION: u32 = 3;

const MAGIC: &[u8; 16] = b"tessera bundle\r\n";
const CHECKSUM: Range<usize> = 64..96;

#[derive(Serialize, Deserialize)]
struct Index {
    /// The program that wrote it.
    made_by: String,
    variants: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    variant: Variant,
    ptx: Part,
    cubin: Option<Part>,
    checksum: String,
}

/// A part of the code.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Part {
    start: usize,
    bytes: usize,
}

impl Part {
    /// Puts bytes behind those that are there.
    fn append(code: &mut Vec<u8>, bytes: &[u8]) -> Part {
        let part = Part { start: code.len(), bytes: bytes.len() };
        code.extend_from_slice(bytes);
        part
    }

    fn of(self, code: &[u8]) -> Option<&[u8]> {
        code.get(self.start..self.start.checked_add(self.bytes)?)
    }
}

fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The bytes of a file with these variants.
pub(crate) fn write(variants: &[Variant]) -> Vec<u8> {
    let mut code = Vec::new();
    let row = |variant: &Variant| {
        let Code { ptx, cubin } = &variant.code;
        let checksum = checksum([ptx.as_bytes(), cubin.as_deref().unwrap_or_default()]).to_hex().to_string();
        let ptx = Part::append(&mut code, ptx.as_bytes());
        let cubin = cubin.as_ref().map(|bytes| Part::append(&mut code, bytes));
        Row { variant: variant.clone(), ptx, cubin, checksum }
    };
    let variants = variants.iter().map(row).collect();
    let index = Index { made_by: format!("tessera {}", env!("CARGO_PKG_VERSION")), variants };
    let Ok(index) = serde_json::to_vec(&index) else { tessera_ir::bug!("a variant that cannot be written down") };
    let mut bytes = Vec::with_capacity(CHECKSUM.end + index.len() + code.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(index.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(code.len() as u64).to_le_bytes());
    bytes.resize(CHECKSUM.start, 0);
    let sum = checksum([&bytes[..], &index[..], &code[..]]);
    bytes.extend_from_slice(sum.as_bytes());
    bytes.extend_from_slice(&index);
    bytes.extend_from_slice(&code);
    bytes
}

/// The variants of a file.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Variant>, BundleError> {
    // Of a beginning that is cut off it can be told what it was.
    let known = bytes.len().min(MAGIC.len());
    if known == 0 || bytes[..known] != MAGIC[..known] {
        return Err(BundleError::NotABundle { bytes: bytes.len() });
    }
    let short = |expected: u64| BundleError::Truncated { expected, found: bytes.len() as u64 };
    let Some((version, _)) = bytes[known..].split_first_chunk::<4>() else { return Err(short(CHECKSUM.end as u64)) };
    // A later version may look different from here on.
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(BundleError::Version { found: version, known: VERSION });
    }
    let Some((header, rest)) = bytes.split_at_checked(CHECKSUM.end) else { return Err(short(CHECKSUM.end as u64)) };
    let number = |at: usize| header[at..at + 8].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
    let (index_bytes, code_bytes) = (number(24), number(32));
    let expected = (CHECKSUM.end as u64).saturating_add(index_bytes).saturating_add(code_bytes);
    if expected != bytes.len() as u64 {
        return Err(short(expected));
    }
    let (index, code) = rest.split_at(index_bytes as usize);
    let is_whole = checksum([&header[..CHECKSUM.start], index, code]).as_bytes()[..] == header[CHECKSUM];
    let parsed = serde_json::from_slice::<Index>(index);
    if !is_whole {
        return Err(BundleError::Damaged { part: damaged(parsed.ok(), code) });
    }
    let invalid = |why: String| BundleError::Invalid { why };
    let index = parsed.map_err(|error| invalid(format!("its index: {error}")))?;
    index.variants.into_iter().map(|row| with_code(row, code).map_err(invalid)).collect()
}

/// What of a file with a wrong checksum is damaged.
fn damaged(index: Option<Index>, code: &[u8]) -> String {
    let rows = index.iter().flat_map(|index| &index.variants);
    let is_whole = |row: &Row| {
        let cubin = row.cubin.map_or(Some(&[][..]), |part| part.of(code));
        let parts = row.ptx.of(code).zip(cubin);
        parts.is_some_and(|(ptx, cubin)| checksum([ptx, cubin]).to_hex().as_str() == row.checksum)
    };
    match rows.enumerate().find(|(_, row)| !is_whole(row)) {
        Some((position, row)) => format!("variant {position} (`{}` for {})", row.variant.kernel, row.variant.target),
        None => "its header or index".to_owned(),
    }
}

fn with_code(row: Row, code: &[u8]) -> Result<Variant, String> {
    let outside = || format!("the code of `{}` lies outside of the file", row.variant.kernel);
    let ptx = row.ptx.of(code).ok_or_else(outside)?;
    let ptx = std::str::from_utf8(ptx).map_err(|_| format!("the PTX of `{}` is no text", row.variant.kernel))?;
    let cubin = row.cubin.map(|part| part.of(code).ok_or_else(outside)).transpose()?;
    let code = Code { ptx: ptx.into(), cubin: cubin.map(Into::into) };
    Ok(Variant { code, ..row.variant })
}
