"""Rows of floats in vector registers: the part of LLVM's vector types that the CRBM needs, as intrinsics for Numba.

The compiler may unroll loops over short arrays into scalars, or keep the arrays in memory; a `Row` is one value from
its load to its store. Its type has the element and the number of used lanes. Lanes come in whole groups of `LANES`; the
unused ones are padding. Operators take two rows, or a row and a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 8
"""One AVX2 register of float32, two of float64; LLVM splits or joins rows for other widths."""


def _typed_intrinsic(**options: bool) -> Callable[[Callable[..., Any]], Any]:
    """Numba's `intrinsic`, typed for mypy: the function is called without the typing context of its definition."""
    return lambda definition: intrinsic(**options)(definition) if options else intrinsic(definition)


def group(n: int) -> int:
    """Lanes of the rows in which `n` columns are processed: few enough for several sums to stay in registers."""
    return LANES if n <= LANES else 2 * LANES


def padded(n: int) -> int:
    """`n` rounded up to whole groups."""
    return -(-n // group(n)) * group(n)


class Row(types.Type):
    """Numba type of a row."""

    def __init__(self, dtype: types.Float, used: int) -> None:
        self.dtype, self.used, self.lanes = dtype, used, padded(used)
        super().__init__(f"Row({dtype}, {used})")


@register_model(Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, row: Row) -> None:
        super().__init__(manager, row, ir.VectorType(manager.lookup(row.dtype).get_value_type(), row.lanes))


def _broadcast(context: Any, builder: Any, value: Any, kind: types.Type, result: types.Type) -> Any:
    """A row unchanged; a number cast to `result`, in all lanes if that is a row."""
    if isinstance(kind, Row):
        return value
    number = context.cast(builder, value, kind, getattr(result, "dtype", result))
    if not isinstance(result, Row):
        return number
    vector = context.get_value_type(result)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), result.lanes), None))


def _common(kinds: tuple[types.Type, ...]) -> Any:
    """The row type among these, or else the widest number type."""
    rows = [kind for kind in kinds if isinstance(kind, Row)]
    return rows[0] if rows else max(kinds, key=lambda kind: getattr(kind, "bitwidth", 0))


class _Elementwise(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 2 and any(isinstance(kind, Row) for kind in args):
            return signature(_common(args), *args)
        return None


def _register_operator(plain: Any, in_place: Any, instruction: str) -> None:
    for name in (plain, in_place):
        infer_global(name)(_Elementwise)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pairs = zip(args, sig.args, strict=True)
        left, right = (_broadcast(context, builder, value, kind, sig.return_type) for value, kind in pairs)
        return getattr(builder, instruction)(left, right)

    for kinds in ((Row, Row), (Row, types.Float), (types.Float, Row)):
        lower_builtin(plain, *kinds)(lower)


_register_operator(operator.add, operator.iadd, "fadd")
_register_operator(operator.sub, operator.isub, "fsub")
_register_operator(operator.mul, operator.imul, "fmul")
_register_operator(operator.truediv, operator.itruediv, "fdiv")


def _address(context: Any, builder: Any, kind: types.Array, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [at], inbounds=True)


def _vector_at(context: Any, builder: Any, row: Row, count: int, address: Any) -> tuple[Any, int]:
    """The address cast to a vector of `count` elements, and the alignment of one element."""
    element = context.get_value_type(row.dtype)
    return builder.bitcast(address, ir.VectorType(element, count).as_pointer()), row.dtype.bitwidth // 8


def _lanes_mask(count: int, used: int) -> ir.Constant:
    """Shuffle mask: the first `used` lanes keep their index, the others take that of the first zero."""
    index = ir.IntType(32)
    return ir.Constant(ir.VectorType(index, count), [ir.Constant(index, min(lane, used)) for lane in range(count)])


@_typed_intrinsic(prefer_literal=True)
def zeros(typingctx: Any, array: Any, used: Any) -> Any:
    """A row of zeros with the array's element type and `used` lanes (a literal); template for other rows."""
    if not isinstance(used, types.IntegerLiteral):
        return None
    row = Row(array.dtype, used.literal_value)
    return row(array, used), lambda context, builder, sig, args: context.get_constant_null(row)


@_typed_intrinsic()
def zeros_like(typingctx: Any, row: Any) -> Any:
    """A row of zeros of the same type."""
    return row(row), lambda context, builder, sig, args: context.get_constant_null(row)


@_typed_intrinsic()
def row_at(typingctx: Any, like: Any, array: Any, at: Any) -> Any:
    """Load all lanes, padding included, from element `at` of a contiguous array on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, like, like.lanes, _address(context, builder, array, *args[1:]))
        return builder.load(address, align=align)

    return like(like, array, at), generate


@_typed_intrinsic()
def used_at(typingctx: Any, like: Any, array: Any, at: Any) -> Any:
    """Load the used lanes from element `at` of a contiguous array on; the padding is zero."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, like, like.used, _address(context, builder, array, *args[1:]))
        part = builder.load(address, align=align)
        return builder.shuffle_vector(part, ir.Constant(part.type, None), _lanes_mask(like.lanes, like.used))

    return like(like, array, at), generate


@_typed_intrinsic()
def put_row(typingctx: Any, array: Any, at: Any, row: Any) -> Any:
    """Store all lanes, padding included, from element `at` of a contiguous array (OUT) on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, row, row.lanes, _address(context, builder, array, *args[:2]))
        builder.store(args[2], address, align=align)
        return context.get_dummy_value()

    return types.void(array, at, row), generate


@_typed_intrinsic()
def put_used(typingctx: Any, array: Any, at: Any, row: Any) -> Any:
    """Store the used lanes from element `at` of a contiguous array (OUT) on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, row, row.used, _address(context, builder, array, *args[:2]))
        builder.store(builder.shuffle_vector(args[2], args[2], _lanes_mask(row.used, row.used)), address, align=align)
        return context.get_dummy_value()

    return types.void(array, at, row), generate


@_typed_intrinsic()
def number_at(typingctx: Any, array: Any, at: Any) -> Any:
    """Element `at` of a contiguous array, without support for negative indices."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, array, *args))

    return array.dtype(array, at), generate


@_typed_intrinsic()
def where_less(typingctx: Any, a: Any, b: Any, then: Any, other: Any) -> Any:
    """`then` where a < b, else `other`, also where one is NaN; rows and numbers in any mixture."""
    kinds = (a, b, then, other)
    result = _common(kinds)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pairs = zip(args, kinds, strict=True)
        left, right, yes, no = (_broadcast(context, builder, value, kind, result) for value, kind in pairs)
        return builder.select(builder.fcmp_ordered("<", left, right), yes, no)

    return result(*kinds), generate


def _call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call the LLVM intrinsic `name` for the type of the last argument."""
    kind = args[-1].type
    vector = isinstance(kind, ir.VectorType)
    element = kind.element if vector else kind
    suffix = f"{f'v{kind.count}' if vector else ''}{'f32' if isinstance(element, ir.FloatType) else 'f64'}"
    wanted = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, wanted, f"llvm.{name}.{suffix}"), args)


@_typed_intrinsic()
def exponential(typingctx: Any, x: Any) -> Any:
    """Exponential of a number, or of each lane."""
    return x(x), lambda context, builder, sig, args: _call(builder, "exp", args[0].type, args[0])


@_typed_intrinsic()
def total(typingctx: Any, row: Any) -> Any:
    """Sum of all lanes, in order."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = args[0].type.element
        return _call(builder, "vector.reduce.fadd", element, ir.Constant(element, 0.0), args[0])

    return row.dtype(row), generate


@_typed_intrinsic()
def prefetch(typingctx: Any, array: Any, at: Any) -> Any:
    """Prefetch the cache line of element `at` of a contiguous array for reading."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, kind = _address(context, builder, array, *args), ir.IntType(32)
        to_read, keep, data = kind(0), kind(3), kind(1)
        wanted = ir.FunctionType(ir.VoidType(), [address.type, kind, kind, kind])
        function = cgutils.get_or_insert_function(builder.module, wanted, "llvm.prefetch.p0")
        builder.call(function, [address, to_read, keep, data])
        return context.get_dummy_value()

    return types.void(array, at), generate
