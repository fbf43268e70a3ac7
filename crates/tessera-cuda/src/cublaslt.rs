//! `libcublasLt`: the vendor's matrix products, as a baseline.
//!
//! Matrices here are row-major. The library's are column-major: it is asked for the transposed product, whose operands are the
//! same memory in the other order.
//!
//! ```no_run
//! use tessera_cuda::{CublasLt, Product};
//! use tessera_types::DType;
//! let blas = CublasLt::load(None)?;
//! let (transpose_a, transpose_b, alpha, beta) = (false, false, 1.0, 0.0);
//! let (input, output) = (DType::BF16, DType::F32);
//! let product = Product { batch: 1, m: 4096, n: 4096, k: 4096, transpose_a, transpose_b, input, output, alpha, beta };
//! println!("{} algorithms", blas.algorithms(&product, 32 << 20, 8)?.len());
//! # Ok::<(), tessera_cuda::CublasLtError>(())
//! ```

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use libloading::Library;
use tessera_driver::{DevicePtr, StreamHandle};
use tessera_types::DType;

type Status = c_int;
type Handle = *mut c_void;

macro_rules! symbols {
    ($($field:ident = $symbol:literal : fn($($ty:ty),*);)*) => {
        struct Symbols {
            $($field: unsafe extern "C" fn($($ty),*) -> Status,)*
            version: Option<unsafe extern "C" fn() -> usize>,
            // Declared last: the pointers above are valid as long as the library is loaded.
            _library: Library,
        }

        impl Symbols {
            fn find(library: Library) -> Option<Symbols> {
                Some(Symbols {
                    // SAFETY: the signatures are those of the library's header.
                    $($field: unsafe { *library.get(concat!($symbol, "\0")).ok()? },)*
                    // SAFETY: as above.
                    version: unsafe { library.get("cublasLtGetVersion\0").ok().map(|symbol| *symbol) },
                    _library: library,
                })
            }
        }
    };
}

symbols! {
    create = "cublasLtCreate": fn(*mut Handle);
    destroy = "cublasLtDestroy": fn(Handle);
    desc_create = "cublasLtMatmulDescCreate": fn(*mut Handle, c_int, c_int);
    desc_destroy = "cublasLtMatmulDescDestroy": fn(Handle);
    desc_set = "cublasLtMatmulDescSetAttribute": fn(Handle, c_int, *const c_void, usize);
    layout_create = "cublasLtMatrixLayoutCreate": fn(*mut Handle, c_int, u64, u64, i64);
    layout_destroy = "cublasLtMatrixLayoutDestroy": fn(Handle);
    layout_set = "cublasLtMatrixLayoutSetAttribute": fn(Handle, c_int, *const c_void, usize);
    preference_create = "cublasLtMatmulPreferenceCreate": fn(*mut Handle);
    preference_destroy = "cublasLtMatmulPreferenceDestroy": fn(Handle);
    preference_set = "cublasLtMatmulPreferenceSetAttribute": fn(Handle, c_int, *const c_void, usize);
    heuristic = "cublasLtMatmulAlgoGetHeuristic": fn(
        Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Candidate, *mut c_int
    );
    matmul = "cublasLtMatmul": fn(
        Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void, Handle,
        *mut c_void, Handle, *const Algorithm, *mut c_void, usize, Handle
    );
}

type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Candidate {
    algorithm: Algorithm,
    workspace: usize,
    status: Status,
    waves: f32,
    reserved: [c_int; 4],
}

/// Why a product cannot be had from the library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CublasLtError {
    /// The library is not there.
    #[error("cublasLt cannot be loaded ({0})")]
    Library(String),
    /// The library has no such product.
    #[error("cublasLt has no product of `{input}` into `{output}` of this shape")]
    Unsupported {
        /// The operands' type.
        input: DType,
        /// The result's type.
        output: DType,
    },
    /// A call failed.
    #[error("`{call}` failed with status {status}")]
    Failed {
        /// The function.
        call: &'static str,
        /// Its status.
        status: i32,
    },
}

type Result<T> = std::result::Result<T, CublasLtError>;

fn check(call: &'static str, status: Status) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(CublasLtError::Failed { call, status }) }
}

/// The library with a handle in the context that was current when it was loaded.
#[derive(Clone)]
pub struct CublasLt {
    inner: Arc<Inner>,
}

struct Inner {
    symbols: Symbols,
    handle: Handle,
}

// SAFETY: the library's handle may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create` and is not used again.
        unsafe { (self.symbols.destroy)(self.handle) };
    }
}

/// `C[m, n] = alpha op(A) op(B) + beta C` for row-major matrices, `batch` times. With a beta of 0, C is not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Products, one after another in memory.
    pub batch: u64,
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Whether A is stored `[k, m]`.
    pub transpose_a: bool,
    /// Whether B is stored `[n, k]`.
    pub transpose_b: bool,
    /// Type of A and B; `TF32` is 32-bit storage with tensor-core products.
    pub input: DType,
    /// Type of C.
    pub output: DType,
    /// Multiplies the product; in the library of the type that its sums have.
    pub alpha: f64,
    /// Multiplies the old values of C.
    pub beta: f64,
}

/// An opaque object of the library with its destructor.
struct Owned {
    object: Handle,
    destroy: unsafe extern "C" fn(Handle) -> Status,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the object came from the matching constructor and is not used again.
        unsafe { (self.destroy)(self.object) };
    }
}

struct Shape {
    desc: Owned,
    a: Owned,
    b: Owned,
    c: Owned,
}

/// One algorithm for one product, ready to be queued.
pub struct BlasLaunch {
    blas: CublasLt,
    shape: Rc<Shape>,
    algorithm: Algorithm,
    /// Workspace it needs, in bytes.
    pub workspace_bytes: usize,
    scale: Scale,
}

/// alpha and beta in the type that a product takes them in.
#[derive(Clone, Copy)]
enum Scale {
    F32([f32; 2]),
    F64([f64; 2]),
    I32([i32; 2]),
}

/// The library's numbers: element type, compute type, scale type.
fn numbers(product: &Product) -> Option<(c_int, c_int, c_int, Scale)> {
    const COMPUTE_32F: c_int = 68;
    const COMPUTE_32F_TF32: c_int = 77;
    const COMPUTE_64F: c_int = 70;
    const COMPUTE_32I: c_int = 72;
    let input = element(product.input)?;
    let scales = [product.alpha, product.beta];
    let single = Scale::F32(scales.map(|scale| scale as f32));
    Some(match product.input {
        DType::F64 => (input, COMPUTE_64F, element(DType::F64)?, Scale::F64(scales)),
        DType::TF32 => (input, COMPUTE_32F_TF32, element(DType::F32)?, single),
        DType::I8 if scales.iter().any(|scale| scale.fract() != 0.0) => return None,
        DType::I8 => (input, COMPUTE_32I, element(DType::I32)?, Scale::I32(scales.map(|scale| scale as i32))),
        _ => (input, COMPUTE_32F, element(DType::F32)?, single),
    })
}

fn element(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::F32 | DType::TF32 => 0,
        DType::F64 => 1,
        DType::F16 => 2,
        DType::I8 => 3,
        DType::I32 => 10,
        DType::BF16 => 14,
        DType::F8E4M3 => 28,
        DType::F8E5M2 => 29,
        _ => return None,
    })
}

impl CublasLt {
    /// Loads the library, from `path` where given, and opens it in the current context.
    pub fn load(path: Option<&Path>) -> Result<CublasLt> {
        const NAMES: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];
        let mut reason = String::new();
        let names: Vec<&Path> = path.map_or_else(|| NAMES.iter().map(Path::new).collect(), |path| vec![path]);
        for name in names {
            // SAFETY: loading the vendor's library runs its initialisers.
            let library = match unsafe { Library::new(name) } {
                Ok(library) => library,
                Err(error) => {
                    reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    continue;
                }
            };
            let Some(symbols) = Symbols::find(library) else {
                reason = format!("`{}` lacks functions", name.display());
                continue;
            };
            let mut handle = ptr::null_mut();
            // SAFETY: writes one handle.
            check("cublasLtCreate", unsafe { (symbols.create)(&mut handle) })?;
            return Ok(CublasLt { inner: Arc::new(Inner { symbols, handle }) });
        }
        Err(CublasLtError::Library(reason))
    }

    /// The library's version, such as 130100.
    pub fn version(&self) -> Option<usize> {
        // SAFETY: no arguments.
        self.inner.symbols.version.map(|version| unsafe { version() })
    }

    /// The library's own choice of algorithms for a product, best guess first.
    pub fn algorithms(&self, product: &Product, workspace_bytes: u64, most: usize) -> Result<Vec<BlasLaunch>> {
        let unsupported = CublasLtError::Unsupported { input: product.input, output: product.output };
        let (input, compute, scale_type, scale) = numbers(product).ok_or_else(|| unsupported.clone())?;
        let output = element(product.output).ok_or_else(|| unsupported.clone())?;
        let shape = self.shape(product, input, output, (compute, scale_type))?;
        let s = &self.inner.symbols;
        let preference = self.object(s.preference_destroy, "cublasLtMatmulPreferenceCreate", |out| {
            // SAFETY: writes one handle.
            unsafe { (s.preference_create)(out) }
        })?;
        const MOST_WORKSPACE: c_int = 1;
        set(s.preference_set, &preference, MOST_WORKSPACE, &workspace_bytes)?;
        let empty = Candidate { algorithm: [0; 8], workspace: 0, status: -1, waves: 0.0, reserved: [0; 4] };
        let (mut found, mut count) = (vec![empty; most], 0);
        // SAFETY: all objects live; at most `most` candidates are written.
        let status = unsafe {
            (s.heuristic)(
                self.inner.handle,
                shape.desc.object,
                shape.b.object,
                shape.a.object,
                shape.c.object,
                shape.c.object,
                preference.object,
                most as c_int,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        let shape = Rc::new(shape);
        let usable = found.into_iter().take(count.max(0) as usize).filter(|candidate| status == 0 && candidate.status == 0);
        let launches: Vec<BlasLaunch> = usable
            .map(|candidate| BlasLaunch {
                blas: self.clone(),
                shape: Rc::clone(&shape),
                algorithm: candidate.algorithm,
                workspace_bytes: candidate.workspace,
                scale,
            })
            .collect();
        if launches.is_empty() { Err(unsupported) } else { Ok(launches) }
    }

    fn object(
        &self,
        destroy: unsafe extern "C" fn(Handle) -> Status,
        call: &'static str,
        make: impl FnOnce(*mut Handle) -> Status,
    ) -> Result<Owned> {
        let mut object = ptr::null_mut();
        check(call, make(&mut object))?;
        Ok(Owned { object, destroy })
    }

    fn layout(&self, ty: c_int, rows: u64, columns: u64, batch: u64) -> Result<Owned> {
        let s = &self.inner.symbols;
        let layout = self.object(s.layout_destroy, "cublasLtMatrixLayoutCreate", |out| {
            // SAFETY: writes one handle.
            unsafe { (s.layout_create)(out, ty, rows, columns, rows as i64) }
        })?;
        if batch > 1 {
            const BATCH: c_int = 5;
            const BATCH_STRIDE: c_int = 6;
            set(s.layout_set, &layout, BATCH, &(batch as i32))?;
            set(s.layout_set, &layout, BATCH_STRIDE, &((rows * columns) as i64))?;
        }
        Ok(layout)
    }

    fn shape(&self, product: &Product, input: c_int, output: c_int, (compute, scale): (c_int, c_int)) -> Result<Shape> {
        let s = &self.inner.symbols;
        let Product { batch, m, n, k, .. } = *product;
        let desc = self.object(s.desc_destroy, "cublasLtMatmulDescCreate", |out| {
            // SAFETY: writes one handle.
            unsafe { (s.desc_create)(out, compute, scale) }
        })?;
        const TRANSPOSE_FIRST: c_int = 3;
        const TRANSPOSE_SECOND: c_int = 4;
        // The first operand of the transposed product is B.
        set(s.desc_set, &desc, TRANSPOSE_FIRST, &c_int::from(product.transpose_b))?;
        set(s.desc_set, &desc, TRANSPOSE_SECOND, &c_int::from(product.transpose_a))?;
        let (b_rows, b_columns) = if product.transpose_b { (k, n) } else { (n, k) };
        let (a_rows, a_columns) = if product.transpose_a { (m, k) } else { (k, m) };
        let b = self.layout(input, b_rows, b_columns, batch)?;
        let a = self.layout(input, a_rows, a_columns, batch)?;
        let c = self.layout(output, n, m, batch)?;
        Ok(Shape { desc, a, b, c })
    }
}

fn set<T>(
    call: unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status,
    object: &Owned,
    attribute: c_int,
    value: &T,
) -> Result<()> {
    // SAFETY: reads the value's bytes.
    let status = unsafe { call(object.object, attribute, ptr::from_ref(value).cast(), size_of::<T>()) };
    check("cublasLt...SetAttribute", status)
}

impl BlasLaunch {
    /// Queues the product. `workspace` has at least [`workspace_bytes`](BlasLaunch::workspace_bytes).
    pub fn enqueue(&self, a: DevicePtr, b: DevicePtr, c: DevicePtr, workspace: DevicePtr, stream: StreamHandle) -> Result<()> {
        let address = |pointer: DevicePtr| pointer.0 as usize as *mut c_void;
        let [alpha, beta]: [*const c_void; 2] = match &self.scale {
            Scale::F32(scales) => scales.each_ref().map(|scale| ptr::from_ref(scale).cast()),
            Scale::F64(scales) => scales.each_ref().map(|scale| ptr::from_ref(scale).cast()),
            Scale::I32(scales) => scales.each_ref().map(|scale| ptr::from_ref(scale).cast()),
        };
        let (inner, shape) = (&self.blas.inner, &self.shape);
        // SAFETY: all objects live; scales are read before the call returns; device addresses are the caller's to keep.
        let status = unsafe {
            (inner.symbols.matmul)(
                inner.handle,
                shape.desc.object,
                alpha,
                address(b),
                shape.b.object,
                address(a),
                shape.a.object,
                beta,
                address(c),
                shape.c.object,
                address(c),
                shape.c.object,
                &self.algorithm,
                address(workspace),
                self.workspace_bytes,
                stream.0 as usize as Handle,
            )
        };
        check("cublasLtMatmul", status)
    }

    /// The algorithm's number in the library, for records.
    pub fn id(&self) -> String {
        format!("{:016x}", self.algorithm.iter().fold(0u64, |hash, &word| hash.rotate_left(9) ^ word))
    }
}
