"""What a pickle of torch.save describes, found without carrying out its instructions.

A pickle is a program. `ProgramReader` goes through its instructions and notes which tensors they describe; it calls,
imports and allocates nothing for them, and refuses whatever is not a tensor in containers. `pickled` finds the
program in the file, and compares what it describes with what the file holds.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn

import torch

from plainbert.checkpoints.safe import show
from plainbert.errors import CheckpointError

_STORAGES = {
    "torch DoubleStorage": torch.float64,
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
}
_CALLS = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"}


@dataclass(frozen=True)
class _Global:
    """A class or function that a pickle names, by "module name"."""

    name: str


@dataclass(frozen=True)
class StoredRun:
    """A run of numbers in the file: its key, dtype, and how many."""

    key: str
    dtype: torch.dtype
    numel: int


@dataclass(frozen=True, eq=False)
class StoredView:
    """A tensor as a pickle describes it: a window on a storage; offset and stride count elements."""

    storage: StoredRun
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Elements that the tensor has."""
        return _product(self.shape)

    @property
    def end(self) -> int:
        """Elements that the storage must have."""
        if 0 in self.shape:
            return self.offset
        return self.offset + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True)) + 1


@dataclass
class Described:
    """What the instructions described so far: every view and every storage, reachable or not."""

    views: list[StoredView] = field(default_factory=list)
    storages: dict[str, StoredRun] = field(default_factory=dict)


class ProgramReader:
    """Goes through a pickle's instructions and gives what it describes; calls, imports and allocates nothing.

    It knows the instructions that torch.load(weights_only=True) knows, and fewer names.

    Args:
        program: Where the pickle begins; `read` leaves it where the pickle ends.
        found: Gets every view and storage.
        refuse: Raises a CheckpointError that names the file, from `<rule>, got <value>`.
        plain: Whether the file is of the form before torch 1.6, which describes storages with one field more.
    """

    def __init__(self, program: BinaryIO, found: Described, refuse: Callable[[str], NoReturn], plain: bool) -> None:
        self.program = program
        self.found = found
        self.refuse = refuse
        self.plain = plain
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def read(self) -> Any:
        """Give the object that the next pickle of the program describes.

        Returns:
            Dictionaries, lists, tuples, strings and numbers, with a StoredView for each tensor. Parts may be shared.

        Raises:
            CheckpointError: It is not whole, or does anything but describe tensors in containers.
        """
        try:
            return self._read()
        except CheckpointError:
            raise
        except (ValueError, IndexError, KeyError, TypeError, DeprecationWarning) as error:
            # What pickletools and the stack below raise for an instruction that is cut off or has nothing to work on.
            self.refuse(f"hold a whole pickle, got {show(str(error))}")

    def _read(self) -> Any:
        for opcode, argument, _ in pickletools.genops(self.program):
            self._step(opcode.name, argument)
        if len(self.stack) != 1 or self.marks:
            self.refuse(f"describe one object, got {len(self.stack)}")
        return self.stack.pop()

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"):
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("NONE", "NEWTRUE", "NEWFALSE"):
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
        elif name == "MARK":
            self.marks.append(stack)
            self.stack = []
        elif name == "TUPLE":
            items = self._after_mark()
            self.stack.append(tuple(items))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            if len(stack) < count:
                self.refuse(f"make tuples of what is there, got {name} of {len(stack)}")
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._after_mark()
            self._container(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._after_mark()
            self._container(dict).update(zip(map(self._key, items[::2]), items[1::2], strict=True))
        elif name == "GLOBAL":
            if argument not in _CALLS and argument not in _STORAGES:
                self.refuse(f"hold tensors and nothing else, got a use of {show(argument.replace(' ', '.'))}")
            stack.append(_Global(argument))
        elif name == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(self._called(stack.pop(), arguments))
        elif name == "BUILD":
            # nn.Module.state_dict hangs version numbers on its OrderedDict.
            state = stack.pop()
            if not isinstance(state, dict) or set(state) != {"_metadata"} or not isinstance(stack[-1], dict):
                self.refuse(f"hold tensors and nothing else, got attributes set: {show(state)}")
        elif name != "STOP" and (name, argument) != ("PROTO", 2):
            self.refuse(f"use the instructions of pickle protocol 2 that torch.save uses, got {name}")

    def _after_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def _container(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            self.refuse(f"fill a {kind.__name__}, got {show(self.stack[-1])}")
        return self.stack[-1]

    def _key(self, key: Any) -> Any:
        if not isinstance(key, (str, int, float, type(None))):
            self.refuse(f"use strings and numbers as keys, got {show(key)}")
        return key

    def _storage(self, description: Any) -> StoredRun:
        match description:
            case ("storage", _Global(name), str(key), str(), int(numel), *view) if (
                name in _STORAGES and numel >= 0 and type(numel) is int and view == [None] * self.plain
            ):
                storage = StoredRun(key, _STORAGES[name], numel)
            case _:
                self.refuse(f"describe storages as torch.save does, got {show(description)}")
        if self.found.storages.setdefault(key, storage) != storage:
            self.refuse(f"describe storage {show(key)} in one way, got {show(storage)} as well")
        return storage

    def _called(self, function: Any, arguments: Any) -> Any:
        match function, arguments:
            case _Global("collections OrderedDict"), ():
                return {}
            case _Global("torch._utils _rebuild_parameter"), (StoredView() as view, bool(), {**hooks}) if not hooks:
                return view
            case _Global("torch._utils _rebuild_tensor_v2"), (
                StoredRun() as storage, int(offset), tuple(shape), tuple(stride), bool(), {**hooks}, *metadata
            ) if not hooks and metadata in ([], [None], [{}]) and len(shape) == len(stride):  # fmt: skip
                if not all(type(number) is int and number >= 0 for number in (offset, *shape, *stride)):
                    self.refuse(f"have no negative size, stride or offset, got {show((offset, shape, stride))}")
                view = StoredView(storage, offset, shape, stride)
                self.found.views.append(view)
                return view
        self.refuse(f"hold tensors and nothing else, got a call of {show(function)} with {show(arguments)}")


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        # Beyond any file already, and big integers of unbounded length would take time to multiply.
        total = min(total * size, 2**63)
    return total
