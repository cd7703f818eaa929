"""Proxies in the tester for objects of the solution. They ask the solver, and the tester trusts no answer.

A `Remote` stands for an object that is not plain data. A value whose class extends a plain one, as `list` or a named
tuple, is that plain data here, of a class of its own that asks the solver for the members that the solution adds.

An object may imitate a number or a text: `abs(f(2) - 4) < 1e-9` holds for an object whose differences are all 0. So
an object never equals plain data, and the result of an operator on an object and plain data is opaque: it must be an
object again, which may take part in further operators and in == with other objects, and in nothing else
(`OPAQUE_MAY`, which the link to the solver enforces).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from code_sandbox.inside import protocol


class Asks(Protocol):
    """The link to the solver, as a proxy needs it."""

    def ask(self, operation: str, *operands: Any) -> Any:
        """Returns the value of an operation in the solver."""


BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"),
    "divmod",
)
IN_PLACE = tuple(f"i{name}" for name in BINARY if name != "divmod")
ORDER = ("lt", "le", "gt", "ge")
_OBJECTS = ("neg", "pos", "invert")  # the result may be an object again
OPAQUE_MAY = frozenset({*BINARY, *IN_PLACE, *_OBJECTS, "eq", "ne", "returned"})
"""The messages to the solver that may hold an opaque object; "returned" answers the solution's own call."""

_READABLE = {"__name__", "__qualname__", "__wrapped__", "__module__"}


class Remote:
    """An object of the solution that is not plain data and stays in the solver.

    Args:
        link: to the solver.
        number: of the object.
        kind: the name of its class.
        code: its hash, `None` if its class defines none.
        by_identity: whether it equals only itself, whatever its class defines.
    """

    __slots__ = ("__by_identity", "__code", "__kind", "__link", "__number", "__opaque", "__weakref__")

    def __init__(self, link: Asks, number: int, kind: str, code: int | None = None, by_identity: bool = False) -> None:
        values = {"link": link, "number": number, "kind": kind, "code": code, "by_identity": by_identity}
        for name, value in (values | {"opaque": False}).items():
            object.__setattr__(self, f"_Remote__{name}", value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.__link.ask("call", self, arguments, tuple(keywords.items()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _READABLE:
            raise AttributeError(name)
        return self.__link.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__link.ask("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        self.__link.ask("delete", self, name)

    def __eq__(self, other: object) -> bool:
        return self.__compared("eq", other, True)

    def __ne__(self, other: object) -> bool:
        return self.__compared("ne", other, False)

    def __hash__(self) -> int:
        if self.__opaque:
            raise _taken("hash")
        return hash(self.__number) if self.__code is None else self.__code

    def __instancecheck__(self, value: Any) -> bool:
        return is_proxy(value) and bool(self.__link.ask("instance", value, self))

    def __subclasscheck__(self, value: Any) -> bool:
        return is_proxy(value) and bool(self.__link.ask("subclass", value, self))

    def __compared(self, operation: str, other: object, same: bool) -> bool:
        if not isinstance(other, Remote):
            if self.__opaque:
                raise _taken(operation)
            return not same
        if other.__number == self.__number:
            return same
        if self.__by_identity or other.__by_identity:
            return not same
        return bool(self.__link.ask(operation, self, other))

    def __operate(self, operation: str, *operands: Any) -> Any:
        opaque = any(not is_proxy(one) or is_opaque(one) for one in operands)
        result = self.__link.ask(operation, *operands)
        if opaque:
            if not isinstance(result, Remote):
                raise TypeError(f"{operation} of the solution's object and plain data must give an object again")
            object.__setattr__(result, "_Remote__opaque", True)
        return result


def is_opaque(value: Any) -> bool:
    """Returns whether a value is the result of an operator on an object of the solution and plain data."""
    return isinstance(value, Remote) and bool(object.__getattribute__(value, "_Remote__opaque"))


def _taken(operation: str) -> TypeError:
    return TypeError(f"{operation} of the result of an operator on the solution's object and plain data")


def require_allowed(operation: str, value: Any) -> None:
    """Rejects an opaque object in a message to the solver.

    Raises:
        TypeError: the object is opaque, and the message is no operator.
    """
    if operation not in OPAQUE_MAY and is_opaque(value):
        raise _taken(operation)


def _operator(name: str, reflected: bool = False) -> Callable[..., Any]:
    if reflected:
        return lambda self, other: self._Remote__operate(name, other, self)
    return lambda self, *others: self._Remote__operate(name, self, *others)


def _ordered(name: str) -> Callable[..., Any]:
    def compare(self: Any, other: Any) -> Any:
        if not isinstance(other, Remote):
            raise TypeError(f"{name} of the solution's object and plain data")
        return bool(self._Remote__link.ask(name, self, other))

    return compare


def _asked_for(name: str, read: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda self, *operands: read(self._Remote__link.ask(name, self, *operands))


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("iter", "reversed"), lambda answer: answer if isinstance(answer, Remote) else iter(answer)),
    **dict.fromkeys(("contains", "bool"), bool),
    **dict.fromkeys(("str", "repr"), str),
    **dict.fromkeys(("len",), int),
    **dict.fromkeys(("next", "getitem", "setitem", "delitem"), lambda answer: answer),
    **dict.fromkeys(("abs", "round", "int", "float", "trunc", "floor", "ceil"), lambda answer: answer),
}
"""By special method: the conversion of the solver's answer."""

for _name, _read in _READ.items():
    setattr(Remote, f"__{_name}__", _asked_for(_name, _read))
for _name in (*_OBJECTS, *BINARY, *IN_PLACE):
    setattr(Remote, f"__{_name}__", _operator(_name))
for _name in BINARY:
    setattr(Remote, f"__r{_name}__", _operator(_name, True))
for _name in ORDER:
    setattr(Remote, f"__{_name}__", _ordered(_name))


ADDED = frozenset({"__getitem__", "__setitem__", "__delitem__", "__call__", "__str__", "__repr__", "__missing__"})
"""The special methods that a class of the solution may redefine of the plain class that it extends. Its equality,
order, length, truth and items are those of the plain data."""
_IMMUTABLE = (str, bytes, int, float, complex, frozenset)  # whose own methods would see a test's arguments
_OPERATIONS = {f"__{name}__": name for name in ("getitem", "setitem", "delitem", "str", "repr")}
_ADDED_OPERATORS = frozenset(f"__{name}__" for name in (*BINARY, *IN_PLACE))


def names_added(kind: type, base: type) -> list[str]:
    """Returns the members that a class redefines of its plain base class, as far as a proxy asks for them."""
    defined: set[str] = set()
    for ancestor in kind.__mro__[: kind.__mro__.index(base)]:
        defined |= {name for name in vars(ancestor) if type(name) is str}
    special = ADDED | _ADDED_OPERATORS
    return sorted(name for name in defined if name in special or (hasattr(base, name) and not name.startswith("__")))


@functools.lru_cache(maxsize=256)
def _kin(link: Any, base: type, name: str, names: tuple[str, ...]) -> type:
    members: dict[str, Any] = {
        "__hash__": base.__hash__,
        "__getattr__": _got,
        "__setattr__": functools.partialmethod(_asked, "set"),
        "_code_sandbox_link": link,
    }
    for member in names:
        if member in _ADDED_OPERATORS:
            members[member] = _operator_of_kin(base, member)
        elif member in _OPERATIONS:
            members[member] = functools.partialmethod(_asked, _OPERATIONS[member])
        elif member in ADDED:
            members[member] = functools.partialmethod(_called, member)
        else:
            members[member] = property(functools.partial(_got, name=member))
    return type(name, (base,), members)


def _asked(self: Any, operation: str, *operands: Any) -> Any:
    return self._code_sandbox_link.ask(operation, self, *operands)


def _called(self: Any, name: str, *arguments: Any) -> Any:
    return self._code_sandbox_link.ask("method", self, name, arguments)


def _got(self: Any, name: str) -> Any:
    if name.startswith("__") and name not in _READABLE:
        raise AttributeError(name)
    return self._code_sandbox_link.ask("get", self, name)


def _operator_of_kin(base: type, member: str) -> Callable[..., Any]:
    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, Remote):
            return other._Remote__operate(member.strip("_"), self, other)  # type: ignore[attr-defined]
        if is_proxy(other):
            return self._code_sandbox_link.ask(member.strip("_"), self, other)
        inherited = getattr(base, member, None)
        return NotImplemented if inherited is None else inherited(self, other)

    return operate


def kin(link: Any, base: type, described: Any) -> type:
    """Returns the proxy class for a class of the solution that extends a plain class.

    Args:
        link: to the solver.
        base: the plain class.
        described: the name of the class and its redefined members, from the solver.

    Raises:
        protocol.ProtocolError: the description is malformed, or nothing can extend the class.
    """
    name, names = protocol.shaped(described, [str, [str, ...]])
    special = ADDED | _ADDED_OPERATORS
    own = not issubclass(base, _IMMUTABLE)
    allowed = tuple(member for member in names if member in special or (own and not member.startswith("_")))
    try:
        return _kin(link, base, name[:100], allowed)
    except (TypeError, ValueError) as error:
        raise protocol.ProtocolError(f"the answer is no plain data ({type(error).__name__})") from None


def is_kin(value: Any) -> bool:
    """Returns whether a value is plain data of a class of the solution."""
    return getattr(type(value), "_code_sandbox_link", None) is not None


def is_proxy(value: Any) -> bool:
    """Returns whether a value stands for an object of the solution."""
    return isinstance(value, Remote) or is_kin(value)
