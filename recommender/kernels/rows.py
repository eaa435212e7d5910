"""Rows of floats that stay in vector registers: LLVM's vector types, as far as the CRBM needs them in Numba.

Loops over short arrays are unrolled into scalars, or kept in memory between steps, as the compiler pleases; a `Row` is
one value from its load to its store. It is typed by its element and by how many of its lanes are used; the lanes are
whole groups of `LANES`, and those beyond the used ones are padding. Operators take two rows or a row and a number.
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
"""One AVX2 register of float32, two of float64; other widths are LLVM's business."""


def _emitted(**options: bool) -> Callable[[Callable[..., Any]], Any]:
    """Numba's `intrinsic`, for type checkers: its functions lack the first argument of what makes them."""
    return lambda made_by: intrinsic(**options)(made_by) if options else intrinsic(made_by)


def group(n: int) -> int:
    """Lanes of the rows in which `n` columns are worked on: few enough for several sums to stay in registers."""
    return LANES if n <= LANES else 2 * LANES


def padded(n: int) -> int:
    """`n` rounded up to whole groups."""
    return -(-n // group(n)) * group(n)


class Row(types.Type):
    """Numba's type of a row."""

    def __init__(self, dtype: types.Float, used: int) -> None:
        self.dtype, self.used, self.lanes = dtype, used, padded(used)
        super().__init__(f"Row({dtype}, {used})")


@register_model(Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, row: Row) -> None:
        super().__init__(manager, row, ir.VectorType(manager.lookup(row.dtype).get_value_type(), row.lanes))


def _filled(context: Any, builder: Any, value: Any, kind: types.Type, result: types.Type) -> Any:
    """A row as it is; a number as `result`, which is a number too or a row of it in all lanes."""
    if isinstance(kind, Row):
        return value
    number = context.cast(builder, value, kind, getattr(result, "dtype", result))
    if not isinstance(result, Row):
        return number
    vector = context.get_value_type(result)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), result.lanes), None))


def _common(kinds: tuple[types.Type, ...]) -> Any:
    """The row among these types, or else the widest number."""
    rows = [kind for kind in kinds if isinstance(kind, Row)]
    return rows[0] if rows else max(kinds, key=lambda kind: getattr(kind, "bitwidth", 0))


class _Elementwise(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 2 and any(isinstance(kind, Row) for kind in args):
            return signature(_common(args), *args)
        return None


def _provide(plain: Any, in_place: Any, instruction: str) -> None:
    for name in (plain, in_place):
        infer_global(name)(_Elementwise)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pairs = zip(args, sig.args, strict=True)
        left, right = (_filled(context, builder, value, kind, sig.return_type) for value, kind in pairs)
        return getattr(builder, instruction)(left, right)

    for kinds in ((Row, Row), (Row, types.Float), (types.Float, Row)):
        lower_builtin(plain, *kinds)(lower)


_provide(operator.add, operator.iadd, "fadd")
_provide(operator.sub, operator.isub, "fsub")
_provide(operator.mul, operator.imul, "fmul")
_provide(operator.truediv, operator.itruediv, "fdiv")


def _address(context: Any, builder: Any, kind: types.Array, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [at], inbounds=True)


def _vector_at(context: Any, builder: Any, row: Row, count: int, address: Any) -> tuple[Any, int]:
    """The address as that of a vector of `count` elements, and the alignment that every element has."""
    element = context.get_value_type(row.dtype)
    return builder.bitcast(address, ir.VectorType(element, count).as_pointer()), row.dtype.bitwidth // 8


def _lanes_mask(count: int, used: int) -> ir.Constant:
    """Lane by lane of the result: itself among the first `used`, else the zero behind them."""
    index = ir.IntType(32)
    return ir.Constant(ir.VectorType(index, count), [ir.Constant(index, min(lane, used)) for lane in range(count)])


@_emitted(prefer_literal=True)
def zeros(typingctx: Any, array: Any, used: Any) -> Any:
    """A row of zeros of the array's element and of `used` lanes (a constant); the pattern of other rows."""
    if not isinstance(used, types.IntegerLiteral):
        return None
    row = Row(array.dtype, used.literal_value)
    return row(array, used), lambda context, builder, sig, args: context.get_constant_null(row)


@_emitted()
def zeros_like(typingctx: Any, row: Any) -> Any:
    """A row of zeros of another row's type."""
    return row(row), lambda context, builder, sig, args: context.get_constant_null(row)


@_emitted()
def row_at(typingctx: Any, like: Any, array: Any, at: Any) -> Any:
    """The row of all lanes, padding included, that begins at element `at` of a contiguous array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, like, like.lanes, _address(context, builder, array, *args[1:]))
        return builder.load(address, align=align)

    return like(like, array, at), generate


@_emitted()
def used_at(typingctx: Any, like: Any, array: Any, at: Any) -> Any:
    """The row whose used lanes begin at element `at` of a contiguous array; the padding is zero."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, like, like.used, _address(context, builder, array, *args[1:]))
        part = builder.load(address, align=align)
        return builder.shuffle_vector(part, ir.Constant(part.type, None), _lanes_mask(like.lanes, like.used))

    return like(like, array, at), generate


@_emitted()
def put_row(typingctx: Any, array: Any, at: Any, row: Any) -> Any:
    """Store all lanes, padding included, from element `at` of a contiguous array (OUT) on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, row, row.lanes, _address(context, builder, array, *args[:2]))
        builder.store(args[2], address, align=align)
        return context.get_dummy_value()

    return types.void(array, at, row), generate


@_emitted()
def put_used(typingctx: Any, array: Any, at: Any, row: Any) -> Any:
    """Store the used lanes from element `at` of a contiguous array (OUT) on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, align = _vector_at(context, builder, row, row.used, _address(context, builder, array, *args[:2]))
        builder.store(builder.shuffle_vector(args[2], args[2], _lanes_mask(row.used, row.used)), address, align=align)
        return context.get_dummy_value()

    return types.void(array, at, row), generate


@_emitted()
def number_at(typingctx: Any, array: Any, at: Any) -> Any:
    """Element `at`, not below zero, of a contiguous array: no test for counting from the end."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, array, *args))

    return array.dtype(array, at), generate


@_emitted()
def where_less(typingctx: Any, a: Any, b: Any, then: Any, other: Any) -> Any:
    """`then` where a < b, else `other`, also where one is no number; rows and numbers, in any mixture."""
    kinds = (a, b, then, other)
    result = _common(kinds)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pairs = zip(args, kinds, strict=True)
        left, right, yes, no = (_filled(context, builder, value, kind, result) for value, kind in pairs)
        return builder.select(builder.fcmp_ordered("<", left, right), yes, no)

    return result(*kinds), generate


def _call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call LLVM's own function `name` for the last argument's type."""
    kind = args[-1].type
    vector = isinstance(kind, ir.VectorType)
    element = kind.element if vector else kind
    suffix = f"{f'v{kind.count}' if vector else ''}{'f32' if isinstance(element, ir.FloatType) else 'f64'}"
    wanted = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, wanted, f"llvm.{name}.{suffix}"), args)


@_emitted()
def exponential(typingctx: Any, x: Any) -> Any:
    """e to the power of a number or of each lane."""
    return x(x), lambda context, builder, sig, args: _call(builder, "exp", args[0].type, args[0])


@_emitted()
def total(typingctx: Any, row: Any) -> Any:
    """The sum of all lanes, in their order."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = args[0].type.element
        return _call(builder, "vector.reduce.fadd", element, ir.Constant(element, 0.0), args[0])

    return row.dtype(row), generate


@_emitted()
def prefetch(typingctx: Any, array: Any, at: Any) -> Any:
    """Ask for the cache line of element `at` of a contiguous array, which will soon be read."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, kind = _address(context, builder, array, *args), ir.IntType(32)
        to_read, keep, data = kind(0), kind(3), kind(1)
        wanted = ir.FunctionType(ir.VoidType(), [address.type, kind, kind, kind])
        function = cgutils.get_or_insert_function(builder.module, wanted, "llvm.prefetch.p0")
        builder.call(function, [address, to_read, keep, data])
        return context.get_dummy_value()

    return types.void(array, at), generate
