# ruff: noqa: E501
"""The API of ``cuda.tile`` 1.7: ``import tessera.tile as ct``. Written by ``make_stubs.py``."""

import contextlib
import enum
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from .._kernel import BlockKernel
from .._kernel import launch as launch
from ..dtypes import DType as DType
from ..errors import StaticException as StaticException
from ..errors import TileCompilerExecutionError as TileCompilerExecutionError
from ..errors import TileCompilerTimeoutError as TileCompilerTimeoutError
from ..errors import TileError as TileError
from ..errors import TileInternalError as TileInternalError
from ..errors import TileRecursionError as TileRecursionError
from ..errors import TileStaticAssertionError as TileStaticAssertionError
from ..errors import TileStaticEvalError as TileStaticEvalError
from ..errors import TileSyntaxError as TileSyntaxError
from ..errors import TileTypeError as TileTypeError
from ..errors import TileUnsupportedFeatureError as TileUnsupportedFeatureError
from ..errors import TileValueError as TileValueError
from . import compilation as compilation
from . import tune as tune

bool_: DType
uint8: DType
uint16: DType
uint32: DType
uint64: DType
int8: DType
int16: DType
int32: DType
int64: DType
float16: DType
float32: DType
float64: DType
bfloat16: DType
tfloat32: DType
float8_e4m3fn: DType
float8_e5m2: DType
float8_e8m0fnu: DType
float8_e5m3fnu: DType
float4_e2m1fn: DType

class PaddingMode(enum.Enum):
    """What elements outside an array are."""

    UNDETERMINED = 'undetermined'
    ZERO = 'zero'
    NEG_ZERO = 'neg_zero'
    NAN = 'nan'
    POS_INF = 'pos_inf'
    NEG_INF = 'neg_inf'

class RoundingMode(enum.Enum):
    """How results are rounded."""

    RN = 'nearest_even'
    RZ = 'zero'
    RM = 'negative_inf'
    RP = 'positive_inf'
    RA = 'nearest_away'
    FULL = 'full'
    APPROX = 'approx'
    RZI = 'nearest_int_to_zero'

class MemoryOrder(enum.Enum):
    """What an atomic access orders."""

    WEAK = 'weak'
    RELAXED = 'relaxed'
    ACQUIRE = 'acquire'
    RELEASE = 'release'
    ACQ_REL = 'acq_rel'

class MemoryScope(enum.Enum):
    """Among whom it does."""

    NONE = 'none'
    BLOCK = 'block'
    CLUSTER = 'cluster'
    DEVICE = 'device'
    SYS = 'sys'

class ConstantAnnotation:
    """Marks a parameter whose value is known when the kernel is compiled."""


class ArrayAnnotation:
    """Marks an array parameter."""

    index_dtype: DType
    static_shape_dims: tuple[int, ...]
    static_stride_dims: tuple[int, ...]
    def __init__(self, *, index_dtype: Any = ..., static_shape_dims: Any = ..., static_stride_dims: Any = ...) -> None: ...

class ListAnnotation:
    """Marks a parameter that is a list of arrays."""

    element: Any
    def __init__(self, *, element: Any = ...) -> None: ...

class ByTarget:
    """A hint that depends on the target."""

    def __init__(self, *, default: Any = None, **value_by_target: Any) -> None: ...

class Array:
    """An array as a kernel sees it."""

    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> Any: ...
    @property
    def shape(self) -> Any: ...
    @property
    def strides(self) -> Any: ...
    @property
    def foreign_pointer(self) -> Any: ...
    def slice(self, axis, start, stop) -> Array:
        """A part of the array along an axis."""
    def tiled_view(self, tile_shape, *, padding_mode=PaddingMode.UNDETERMINED, traversal_steps=None) -> TiledView:
        """The array as tiles of one shape."""
    def get_raw_memory(self) -> RawArrayMemory:
        """The array's memory by element offset."""

class Tile:
    """A tile of elements."""

    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> Any: ...
    @property
    def shape(self) -> Any: ...
    def __add__(self, other: Any) -> Tile: ...
    def __radd__(self, other: Any) -> Tile: ...
    def __sub__(self, other: Any) -> Tile: ...
    def __rsub__(self, other: Any) -> Tile: ...
    def __mul__(self, other: Any) -> Tile: ...
    def __rmul__(self, other: Any) -> Tile: ...
    def __truediv__(self, other: Any) -> Tile: ...
    def __rtruediv__(self, other: Any) -> Tile: ...
    def __floordiv__(self, other: Any) -> Tile: ...
    def __rfloordiv__(self, other: Any) -> Tile: ...
    def __mod__(self, other: Any) -> Tile: ...
    def __rmod__(self, other: Any) -> Tile: ...
    def __pow__(self, other: Any) -> Tile: ...
    def __rpow__(self, other: Any) -> Tile: ...
    def __matmul__(self, other: Any) -> Tile: ...
    def __rmatmul__(self, other: Any) -> Tile: ...
    def __and__(self, other: Any) -> Tile: ...
    def __rand__(self, other: Any) -> Tile: ...
    def __or__(self, other: Any) -> Tile: ...
    def __ror__(self, other: Any) -> Tile: ...
    def __xor__(self, other: Any) -> Tile: ...
    def __rxor__(self, other: Any) -> Tile: ...
    def __lshift__(self, other: Any) -> Tile: ...
    def __rlshift__(self, other: Any) -> Tile: ...
    def __rshift__(self, other: Any) -> Tile: ...
    def __rrshift__(self, other: Any) -> Tile: ...
    def __lt__(self, other: Any) -> Tile: ...
    def __le__(self, other: Any) -> Tile: ...
    def __gt__(self, other: Any) -> Tile: ...
    def __ge__(self, other: Any) -> Tile: ...
    def __neg__(self) -> Tile: ...
    def __pos__(self) -> Tile: ...
    def __invert__(self) -> Tile: ...
    def __getitem__(self, index: Any) -> Tile: ...
    def item(self) -> Any:
        """The only element."""
    def reshape(self, shape) -> Tile:
        """The same elements under another shape."""
    def permute(self, axes) -> Tile:
        """Reorders axes."""
    def transpose(self, axis0=None, axis1=None) -> Tile:
        """Swaps two axes."""
    def astype(self, dtype, *, rounding_mode=None) -> Tile:
        """Converts elements."""
    def extract(self, index, shape) -> Tile:
        """A subtile."""
    def insert(self, index, value) -> Tile:
        """A tile with a subtile replaced."""

class TiledView:
    """An array cut into tiles of one shape."""

    @property
    def dtype(self) -> Any: ...
    @property
    def tile_shape(self) -> Any: ...
    @property
    def traversal_steps(self) -> Any: ...
    def num_tiles(self, axis) -> int:
        """Number of tiles along an axis."""
    def load(self, index, *, check_bounds=True, latency=None, allow_tma=None) -> Tile:
        """Loads a tile."""
    def store(self, index, tile, *, check_bounds=True, latency=None, allow_tma=None) -> None:
        """Stores a tile."""
    def atomic_store_add(self, index, update, /) -> None:
        """Adds to a tile of memory."""
    def atomic_store_max(self, index, update, /) -> None:
        """Maximum with a tile of memory."""
    def atomic_store_min(self, index, update, /) -> None:
        """Minimum with a tile of memory."""
    def atomic_store_and(self, index, update, /) -> None:
        """Bitwise and with a tile of memory."""
    def atomic_store_or(self, index, update, /) -> None:
        """Bitwise or with a tile of memory."""
    def atomic_store_xor(self, index, update, /) -> None:
        """Bitwise exclusive or with a tile of memory."""

class RawArrayMemory:
    """The memory of an array, by offsets in elements."""

    def load_offset(self, offset, /, *, mask=None, padding_value=0, latency=None) -> Tile:
        """Loads by element offset."""
    def store_offset(self, offset, value, /, *, mask=None, latency=None) -> None:
        """Stores by element offset."""
    def atomic_cas_offset(self, offset, expected, desired, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Compares and swaps by element offset."""
    def atomic_xchg_offset(self, offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Exchanges by element offset."""
    def atomic_add_offset(self, offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Adds by element offset."""
    def atomic_max_offset(self, offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Maximum by element offset."""
    def atomic_min_offset(self, offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Minimum by element offset."""
    def atomic_and_offset(self, offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Bitwise and by element offset."""
    def atomic_or_offset(self, offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Bitwise or by element offset."""
    def atomic_xor_offset(self, offset, update, /, *, mask=None, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
        """Bitwise exclusive or by element offset."""

def bid(axis) -> int:
    """Index of this block along a grid axis."""
def num_blocks(axis) -> int:
    """Number of blocks along a grid axis."""
def num_tiles(array, /, axis, shape, order='C') -> int:
    """Number of tiles of a shape along an axis of an array."""
def assume_divisible_by(x, divisor) -> int:
    """Promises that an integer scalar is a multiple."""
def load(array, /, index, shape, *, order='C', padding_mode=PaddingMode.UNDETERMINED, check_bounds=True, latency=None, allow_tma=None, memory_order=MemoryOrder.WEAK, memory_scope=MemoryScope.NONE) -> Tile:
    """Loads a tile of an array's tile space."""
def store(array, /, index, tile, *, order='C', check_bounds=True, latency=None, allow_tma=None, memory_order=MemoryOrder.WEAK, memory_scope=MemoryScope.NONE) -> None:
    """Stores a tile into an array's tile space."""
def load_advanced_indexing(array, indices, /, *, padding_mode=PaddingMode.UNDETERMINED, latency=None, allow_tma=None) -> Tile:
    """Loads rows chosen by an index tile."""
def store_advanced_indexing(array, indices, tile, /, *, latency=None, allow_tma=None) -> None:
    """Stores rows chosen by an index tile."""
def gather(array, indices, /, *, mask=None, padding_value=0, check_bounds=True, latency=None) -> Tile:
    """Loads elements by index tiles."""
def scatter(array, indices, value, /, *, mask=None, check_bounds=True, latency=None) -> None:
    """Stores elements by index tiles."""
def Slice(start, length, /) -> Any:
    """A range of an axis for advanced indexing."""
def atomic_cas(array, indices, expected, desired, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Compares and swaps elements, yields the old ones."""
def atomic_xchg(array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Exchanges elements, yields the old ones."""
def atomic_add(array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Adds to elements, yields the old ones."""
def atomic_max(array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Maximum with elements, yields the old ones."""
def atomic_min(array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Minimum with elements, yields the old ones."""
def atomic_and(array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Bitwise and with elements, yields the old ones."""
def atomic_or(array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Bitwise or with elements, yields the old ones."""
def atomic_xor(array, indices, update, /, *, check_bounds=True, memory_order=MemoryOrder.ACQ_REL, memory_scope=MemoryScope.DEVICE) -> Tile:
    """Bitwise exclusive or with elements, yields the old ones."""
def arange(size, /, *, dtype, start=0, step=1) -> Tile:
    """Numbers at equal distance."""
def full(shape, fill_value, dtype) -> Tile:
    """A tile of one value."""
def zeros(shape, dtype) -> Tile:
    """A tile of zeros."""
def ones(shape, dtype) -> Tile:
    """A tile of ones."""
def astile(value, /, *, dtype) -> Tile:
    """A tile from nested tuples of scalars."""
def reshape(x, /, shape) -> Tile:
    """The same elements under another shape."""
def permute(x, /, axes) -> Tile:
    """Reorders axes."""
def transpose(x, /, axis0=None, axis1=None) -> Tile:
    """Swaps two axes."""
def expand_dims(x, /, axis) -> Tile:
    """Inserts an axis of extent 1."""
def broadcast_to(x, /, shape) -> Tile:
    """Repeats axes of extent 1."""
def cat(tiles, /, axis) -> Tile:
    """Joins two tiles."""
def extract(x, /, index, shape) -> Tile:
    """A subtile."""
def insert(x, /, index, value) -> Tile:
    """A tile with a subtile replaced."""
def mma(x, y, /, acc, *, use_fast_acc=False) -> Tile:
    """Matrix product and sum."""
def mma_scaled(x, x_scale, y, y_scale, /, acc) -> Tile:
    """Matrix product of block-scaled operands and sum."""
def matmul(x, y, /) -> Tile:
    """Matrix product."""
def sum(x, /, axis=None, *, keepdims=False, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Sum along axes."""
def prod(x, /, axis=None, *, keepdims=False, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Product along axes."""
def max(x, /, axis=None, *, keepdims=False, flush_to_zero=False, propagate_nan=False) -> Tile:
    """Maximum along axes."""
def min(x, /, axis=None, *, keepdims=False, flush_to_zero=False, propagate_nan=False) -> Tile:
    """Minimum along axes."""
def argmax(x, /, axis=None, *, keepdims=False, propagate_nan=False) -> Tile:
    """Index of the maximum."""
def argmin(x, /, axis=None, *, keepdims=False, propagate_nan=False) -> Tile:
    """Index of the minimum."""
def reduce(x, /, axis, func, identity, *, keepdims=False) -> Any:
    """Combines along an axis with a function."""
def cumsum(x, /, axis=0, *, reverse=False, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Running sum."""
def cumprod(x, /, axis=0, *, reverse=False, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Running product."""
def scan(x, /, axis, func, identity, *, reverse=False) -> Any:
    """Running combination with a function."""
def add(x, y, /, *, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Sum."""
def sub(x, y, /, *, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Difference."""
def mul(x, y, /, *, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Product."""
def truediv(x, y, /, *, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Quotient as a float."""
def floordiv(x, y, /) -> Tile:
    """Quotient rounded down."""
def mod(x, y, /) -> Tile:
    """Remainder with the divisor's sign."""
def divmod(x, y, /) -> Any:
    """Quotient rounded down and remainder."""
def pow(x, y, /) -> Tile:
    """Power."""
def cdiv(x, y, /) -> int:
    """Quotient rounded up."""
def minimum(x, y, /, *, flush_to_zero=False, propagate_nan=False) -> Tile:
    """Smaller of two."""
def maximum(x, y, /, *, flush_to_zero=False, propagate_nan=False) -> Tile:
    """Larger of two."""
def atan2(x1, x2, /) -> Tile:
    """Angle of the point (x2, x1)."""
def bitwise_and(x, y, /) -> Tile:
    """Bitwise and."""
def bitwise_or(x, y, /) -> Tile:
    """Bitwise or."""
def bitwise_xor(x, y, /) -> Tile:
    """Bitwise exclusive or."""
def bitwise_lshift(x, y, /) -> Tile:
    """Shift left."""
def bitwise_rshift(x, y, /) -> Tile:
    """Shift right."""
def equal(x, y, /) -> Tile:
    """Elementwise `==`."""
def not_equal(x, y, /) -> Tile:
    """Elementwise `!=`."""
def less(x, y, /) -> Tile:
    """Elementwise `<`."""
def less_equal(x, y, /) -> Tile:
    """Elementwise `<=`."""
def greater(x, y, /) -> Tile:
    """Elementwise `>`."""
def greater_equal(x, y, /) -> Tile:
    """Elementwise `>=`."""
def where(cond, x, y, /) -> Tile:
    """Elements of one tile or the other."""
def negative(x, /) -> Tile:
    """Negation."""
def bitwise_not(x, /) -> Tile:
    """Bitwise complement."""
def abs(x, /) -> Tile:
    """Absolute value."""
def exp(x, /, *, rounding_mode=None) -> Tile:
    """E to a power."""
def exp2(x, /, *, flush_to_zero=False) -> Tile:
    """2 to a power."""
def log(x, /) -> Tile:
    """Natural logarithm."""
def log2(x, /) -> Tile:
    """Logarithm to base 2."""
def sqrt(x, /, *, rounding_mode=None, flush_to_zero=False) -> Tile:
    """Square root."""
def rsqrt(x, /, *, flush_to_zero=False) -> Tile:
    """Reciprocal square root."""
def sin(x, /) -> Tile:
    """Sine."""
def cos(x, /) -> Tile:
    """Cosine."""
def tan(x, /) -> Tile:
    """Tangent."""
def sinh(x, /) -> Tile:
    """Hyperbolic sine."""
def cosh(x, /) -> Tile:
    """Hyperbolic cosine."""
def tanh(x, /, *, rounding_mode=None) -> Tile:
    """Hyperbolic tangent."""
def floor(x, /) -> Tile:
    """Round down."""
def ceil(x, /) -> Tile:
    """Round up."""
def isnan(x, /) -> Tile:
    """True where not a number."""
def astype(x, dtype, /, *, rounding_mode=None) -> Tile:
    """Converts elements."""
def bitcast(x, /, dtype) -> Tile:
    """The same bits under another type."""
def pack_to_bytes(x, /) -> Tile:
    """Elements as bytes."""
def unpack_from_bytes(x, /, dtype) -> Tile:
    """Bytes as elements."""
def static_eval(expr, /) -> Any:
    """Evaluates when the kernel is compiled."""
def static_assert(condition, message=None, /) -> None:
    """Fails compilation unless the condition holds."""
def static_iter(iterable) -> Any:
    """Unrolls a loop."""
def static_exception(exc, /) -> Any:
    """Raises when the kernel is compiled."""
def ensure_constant(value, /) -> Any:
    """The value, which must be known when the kernel is compiled."""
def printf(format, /, *args) -> None:
    """Prints with a C format."""
def print(*args, sep=' ', end='\n') -> None:
    """Prints."""
def assert_(cond, /, message=None) -> None:
    """An error unless every element holds."""
def grid_dependency_control_wait() -> None:
    """Waits for the kernels launched before."""
def grid_dependency_control_launch_dependents() -> None:
    """Lets the kernels launched after begin."""

kernel = BlockKernel
T = TypeVar("T")
Constant = Annotated[T, ConstantAnnotation()]
IndexedWithInt64 = Annotated[T, ArrayAnnotation()]
ScalarInt64 = Annotated[T, None]
Scalar = int | float

def function(func: Callable | None = None, /, *, host: bool = False, tile: bool = True) -> Any: ...
def foreign_pointer_dtype(pointee_dtype: DType) -> DType: ...
def compiler_timeout(timeout_sec: float) -> contextlib.AbstractContextManager[None]: ...
