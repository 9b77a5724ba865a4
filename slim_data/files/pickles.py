"""Reads the values of a pickle as data, without calling anything.

A pickle is a program: loading runs it. This module reads its opcodes, follows those that build
plain values and uint8 arrays, and refuses all others. The pickle's size bounds time and memory:
opcodes are counted, and none can copy a value repeatedly. (A `pickle.Unpickler` limited to NumPy's
functions would call these with any sizes and states.)
"""

import io
import itertools
import pickletools
from typing import Any

import numpy as np

from slim_data.common.errors import DataError

# Names in pickles of NumPy arrays and, in protocol 2 of Python 3, of bytes.
_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_NDARRAY = "numpy ndarray"
_DTYPE = "numpy dtype"
_ENCODE = "_codecs encode"
_GLOBALS = (*_RECONSTRUCT, _NDARRAY, _DTYPE, _ENCODE)

MAX_OPCODES = 2**18  # CIFAR-10's have about 60,000


def read_pickle(data: bytes) -> Any:
    """Returns the value in a pickle of protocol 2, 3 or 4.

    Args:
        data: dictionaries, lists, tuples, strings, integers, booleans, None and contiguous uint8
            arrays of NumPy. Strings of Python 2 become bytes.

    Raises:
        DataError: the pickle holds or does anything else, or is damaged.

    Example:
        >>> read_pickle(pickle.dumps({"labels": [3, 1]}, protocol=2))
        {'labels': [3, 1]}
        >>> read_pickle(pickle.dumps(os.getcwd))
        Traceback (most recent call last):
        ...
        DataError: the pickle asks for 'posix getcwd', which is not a plain value
    """
    machine = _Machine(len(data))
    try:
        opcodes = pickletools.genops(io.BytesIO(data))
        for opcode, argument, _ in itertools.islice(opcodes, MAX_OPCODES):
            if opcode.name != "STOP":
                machine.step(opcode.name, argument)
        if next(opcodes, None) is not None:
            raise DataError(f"the pickle holds more than {MAX_OPCODES} opcodes")
        (value,) = machine.stack
        if value is _Mark:
            raise ValueError("a value is missing")
    except DataError:
        raise
    # NumPy raises many kinds of errors for damaged shapes and types.
    except Exception as error:
        raise DataError(f"the pickle is damaged ({str(error)[:60]})") from None
    return value


class _Mark:
    """Marks the start of a run of values on the stack."""


class _Global(str):
    """Name of a global that the pickle refers to."""

    __slots__ = ()


class _Call:
    """A call in the pickle: of a data type, or of an array until BUILD completes it."""

    __slots__ = ("arguments", "function", "state")

    def __init__(self, function, arguments):
        self.function, self.arguments, self.state = function, arguments, None


class _Machine:
    """Stack and memo of a pickle being read."""

    def __init__(self, size):
        self.stack = []
        self._memory = {}
        self._left_to_encode = size

    def step(self, name, argument):
        """Follows one opcode."""
        stack = self.stack
        match name:
            case "BININT" | "BININT1" | "BININT2" | "LONG1":
                stack.append(argument)
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BINBYTES" | "SHORT_BINBYTES":
                stack.append(argument)
            case "BINSTRING" | "SHORT_BINSTRING":  # str of Python 2: bytes
                stack.append(argument.encode("latin-1"))
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(name == "NEWTRUE")
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self._memory[len(self._memory) if argument is None else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memory[argument])
            case "MARK":
                stack.append(_Mark)
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(name[-1]))))
            case "TUPLE":
                stack.append(tuple(self._since_mark()))
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND":
                self._extend_list(self._pop(1))
            case "APPENDS":
                self._extend_list(self._since_mark())
            case "EMPTY_DICT":
                stack.append({})
            case "SETITEM":
                self._update_dict(self._pop(2))
            case "SETITEMS":
                self._update_dict(self._since_mark())
            case "GLOBAL" | "STACK_GLOBAL":
                stack.append(_global(argument or " ".join(self._pop(2))))
            case "REDUCE":
                stack.append(self._reduced(*self._pop(2)))
            case "BUILD":
                stack.append(_built(*self._pop(2)))
            case "PROTO" | "FRAME":
                pass
            case _:
                raise DataError(f"the pickle uses {name}, which no plain value needs")

    def _extend_list(self, values):
        self._top(list).extend(values)

    def _update_dict(self, values):
        keys, values = values[::2], values[1::2]
        if not all(isinstance(key, (str, bytes)) for key in keys):
            raise DataError("the pickle holds a dictionary with keys that are not strings")
        self._top(dict).update(zip(keys, values, strict=True))

    def _top(self, kind):
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"a {kind.__name__} is missing")
        return self.stack[-1]

    def _pop(self, number):
        values = self.stack[-number:]
        if len(values) < number or any(value is _Mark for value in values):
            raise ValueError("a value is missing")
        del self.stack[-number:]
        return values

    def _reduced(self, function, arguments):
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise DataError("the pickle calls a value")
        if function != _ENCODE:
            return _Call(function, arguments)
        text, encoding = arguments
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise DataError("the pickle encodes a value in another way than latin-1")
        self._left_to_encode -= len(text)
        if self._left_to_encode < 0:
            raise DataError("the pickle encodes a value more than once")
        return text.encode("latin-1")

    def _since_mark(self):
        values = []
        while self.stack[-1] is not _Mark:
            values.append(self.stack.pop())
        self.stack.pop()
        return values[::-1]


def _global(name):
    if name not in _GLOBALS:
        raise DataError(f"the pickle asks for {name[:60]!r}, which is not a plain value")
    return _Global(name)


def _built(call, state):
    """Returns the array of a call with its state; for a data type, the call itself."""
    if not isinstance(call, _Call):
        raise DataError("the pickle sets the state of a value")
    call.state = state
    return _array(call) if call.function in _RECONSTRUCT else call


def _array(call):
    """Returns a uint8 array from NumPy's pickled state, as a copy of the bytes."""
    _, shape, kind, is_fortran, data = call.state
    is_uint8 = (
        isinstance(kind, _Call)
        and kind.function == _DTYPE
        and kind.arguments[0] in (b"u1", "u1")
        and not is_fortran
        and isinstance(data, bytes)
    )
    if not is_uint8:
        raise DataError("the pickle holds an array that is not contiguous uint8")
    return np.frombuffer(data, np.uint8).reshape(shape)
