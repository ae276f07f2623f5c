"""
The scan's one way in, for callers without Numba: addresses and numbers in, a number out.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.scan import arguments as a
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.scan.line import scan
from headgate.pipeline.logs.scan.names import MOST_NAMES, SLOTS
from headgate.pipeline.logs.scan.totals import add_up, settle


def _view(dtype: Any, dimensions: int) -> Any:
    """Return what makes an array of an address and lengths (the last is left out for one)."""
    kind = types.Array(dtype, dimensions, "C")

    @intrinsic
    def view(_typing, address, rows, columns):
        def code(context, builder, _signature, arguments):
            item = context.get_data_type(dtype)
            size = context.get_constant(types.intp, context.get_abi_sizeof(item))
            shape = arguments[1 : 1 + dimensions]
            strides = [size] if dimensions == 1 else [builder.mul(size, shape[1]), size]
            array = context.make_array(kind)(context, builder)
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(arguments[0], item.as_pointer()),
                shape=shape,
                strides=strides,
                itemsize=size,
                meminfo=None,
            )
            return array._getvalue()

        return kind(types.int64, types.int64, types.int64), code

    return view


_bytes = _view(types.uint8, 1)
_shorts = _view(types.int32, 1)
_ints = _view(types.int64, 1)
_doubles = _view(types.float64, 1)
_int_table = _view(types.int64, 2)
_double_table = _view(types.float64, 2)


@compiled
def enter(address):
    """
    Do one step.

    Args:
        address: of ``arguments.ALL`` numbers.

    Returns:
        add_up: how many groups there are now; others: 0.
    """
    given = _ints(address, a.ALL, 0)
    room = given[a.ROOM]
    ints = _int_table(given[a.INTS], columns.INTS, room)
    doubles = _double_table(given[a.DOUBLES], columns.DOUBLES, room)
    if given[a.STEP] == a.ADD_UP:
        groups = given[a.MOST_GROUPS]
        return add_up(
            given[a.LINES],
            ints,
            doubles,
            given[a.BROKER],
            _shorts(given[a.GROUP_SLOTS], given[a.GROUP_SLOTS_LENGTH], 0),
            _int_table(given[a.KEYS], groups, columns.KEYS),
            _int_table(given[a.SUMS], groups, columns.SUMS),
            _doubles(given[a.AMOUNTS], groups, 0),
            given[a.COUNT],
        )
    back = _int_table(given[a.GIVEN], given[a.GIVEN_ROOM], 2)
    found = _ints(given[a.FOUND], columns.ALL_FOUND, 0)
    if given[a.STEP] == a.SETTLE:
        values = _doubles(given[a.VALUES], MOST_NAMES, 0)
        shifts_ms = (given[a.LEAST_SHIFT_MS], given[a.MOST_SHIFT_MS])
        settle(given[a.TEXT], ints, doubles, values, shifts_ms, back, found)
        return 0
    names = (
        _shorts(given[a.SLOTS], SLOTS, 0),
        _int_table(given[a.ENTRIES], given[a.MOST], 3),
        _bytes(given[a.ARENA], given[a.ARENA_BYTES], 0),
        _ints(given[a.STATE], 2, 0),
    )
    how = (
        given[a.NANOS] != 0,
        given[a.CONNECTIONS] != 0,
        given[a.FRAME],
        given[a.TEXT_ROOM],
        given[a.FRAMES_BELOW],
    )
    scan(
        given[a.TEXT],
        given[a.BEGIN],
        given[a.END],
        how,
        names,
        ints,
        doubles,
        back,
        found,
    )
    return 0
