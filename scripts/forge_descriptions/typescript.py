"""Convert TypeScript type declarations to JSON Schema, to the extent that generated API
declarations require it.
"""

from __future__ import annotations

import re
from typing import Any

Schema = dict[str, Any]
_TOKEN = re.compile(
    r"""\s+|/\*.*?\*/|//[^\n]*|(?P<word>"[^"]*"|'[^']*'|[\w$.*]+|[{}\[\]()<>|&;:?,=])""", re.DOTALL
)
_PLAIN = {
    "string": {"type": "string"}, "number": {"type": "number"}, "boolean": {"type": "boolean"},
    "Date": {"type": "string"}, "null": {"type": "null"},
}  # fmt: skip
_DEPTH = 5  # levels of nesting in a body; we never send anything deeper


class Declarations:
    """A file of interface declarations, which are parsed on demand."""

    def __init__(self, text: str) -> None:
        self._text = text

    def interface(self, name: str) -> Schema:
        """Return the type in `interface NAME`, or an empty schema if it is missing or is an
        enumeration.
        """
        match = re.search(
            rf"^export interface {re.escape(name)}\b[^{{]*(?=\{{)", self._text, re.MULTILINE
        )
        return _Reader(self._text, match.end()).type() if match else {}

    def member(self, section: str, name: str) -> Schema:
        """Return a single member of an interface, `    readonly NAME: TYPE;`, without parsing the
        others.
        """
        start = re.search(rf"^export interface {section} \{{", self._text, re.MULTILINE)
        at = start.end() if start else 0
        match = re.compile(rf'^ {{4,8}}readonly "?{re.escape(name)}"?: ', re.MULTILINE).search(
            self._text, at
        )
        if match is None:
            raise KeyError(name)
        return _Reader(self._text, match.end()).type()


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self._text, self._at = text, at
        self._next()

    def _next(self) -> str:
        word = getattr(self, "_word", "")
        while match := _TOKEN.match(self._text, self._at):
            self._at = match.end()
            if match["word"]:
                self._word = match["word"]
                return word
        raise ValueError(f"cannot parse: {self._text[self._at : self._at + 60]!r}")

    def _expect(self, word: str) -> None:
        if self._word != word:
            raise ValueError(
                f"expected {word} before {self._text[self._at - 20 : self._at + 60]!r}"
            )
        self._next()

    def type(self) -> Schema:
        """Parse a type. A union becomes `anyOf`, or `enum` if all its members are constants."""
        if self._word == "|":
            self._next()
        sides = [self._intersection()]
        while self._word == "|":
            self._next()
            sides.append(self._intersection())
        consts = [one["const"] for one in sides if "const" in one]
        if len(consts) == len(sides) > 1:
            return {"enum": consts}
        return sides[0] if len(sides) == 1 else {"anyOf": sides}

    def _intersection(self) -> Schema:
        sides = [self._postfix()]
        while self._word == "&":
            self._next()
            sides.append(self._postfix())
        sides = [one for one in sides if one]
        return sides[0] if len(sides) == 1 else {"allOf": sides} if sides else {}

    def _postfix(self) -> Schema:
        if self._word == "readonly":
            self._next()
        found = self._primary()
        while self._word == "[":
            self._next()
            if self._word == "]":
                found = {"type": "array", "items": found}
            else:  # components["schemas"]["NAME"]
                found = {"$ref": self._word.strip("\"'")}
                self._next()
            self._expect("]")
        return found

    def _primary(self) -> Schema:
        if self._word == "{":
            return self._object()
        if self._word == "(":
            self._next()
            found = self.type()
            self._expect(")")
            return found
        word = self._next()
        if word[0] in "\"'":
            return {"const": word[1:-1]}
        arguments: list[Schema] = []
        if self._word == "<":
            self._next()
            arguments.append(self.type())
            while self._word == ",":
                self._next()
                arguments.append(self.type())
            self._expect(">")
        if word in ("Omit", "Readonly", "WithRequired"):
            return arguments[0]
        if word in ("true", "false"):
            return {"const": word == "true"}
        if word in _PLAIN:
            return dict(_PLAIN[word])
        return {"$ref": word.rpartition(".")[2]} if word[0].isupper() and word != "Record" else {}

    def _object(self) -> Schema:
        self._expect("{")
        properties = {}
        while self._word != "}":
            if self._word == "readonly":
                self._next()
            if self._word == "[":
                while self._next() != "]":
                    pass
                name = ""
            else:
                name = self._next().strip("\"'")
            if self._word == "?":
                self._next()
            self._expect(":")
            found = self.type()
            if name:
                properties[name] = found
            if self._word in (";", ","):
                self._next()
        self._expect("}") if self._at < len(self._text) else None
        return {"properties": properties}


def closed(schema: Schema, named: Any, depth: int = _DEPTH, seen: tuple[str, ...] = ()) -> Schema:
    """Return the schema with all references expanded. `named` looks up a schema by name."""
    if ref := schema.get("$ref"):
        return {} if ref in seen or not depth else closed(named(ref), named, depth, (*seen, ref))
    if not depth:
        return {}
    if sides := schema.get("allOf"):
        all_of = [closed(one, named, depth, seen) for one in sides]
        properties = {
            name: one for side in all_of for name, one in side.get("properties", {}).items()
        }
        return {"type": "object", "properties": properties} if properties else {}
    if sides := schema.get("anyOf"):
        return {"anyOf": [closed(one, named, depth, seen) for one in sides]}
    if "properties" in schema:
        inner = {
            name: closed(one, named, depth - 1, seen) for name, one in schema["properties"].items()
        }
        return {"type": "object", "properties": inner} if inner else {"type": "object"}
    if schema.get("type") == "array":
        return {"type": "array", "items": closed(schema["items"], named, depth, seen)}
    return schema
