"""States ↔ the plain data of a state file: which keys there are, what may stand below them.

A key that is not known here belongs to a newer version: it is ignored, and stays when the file is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TypeVar

from task.editors.yaml.tree import Node, Tree, pairs, walk
from task.errors import Malformed, TargetError
from task.model import Build, Hold, Meant, Memory, State, Written
from task.timestamps import utc

T = TypeVar("T")
_Shape = Mapping[str, "_Shape | None"]
ANY = ""  # in a shape: the keys are names
FILE = ("files",)
STATE = ("hold", "images")
MEMORY = ("written", "replaced", "hold", "deferred", "rollback")
HOLD = ("reason", "by", "at", "until")
MEANT = ("to", "tag", "digest")
WRITTEN = ("tag", "digest", "sequence", "counter", "commit", "repository", "created")
_STRUCTURE = (*FILE, *STATE, *MEMORY)
_HOLD: _Shape = dict.fromkeys(HOLD)
_WRITTEN: _Shape = dict.fromkeys(WRITTEN)
_MEANT: _Shape = dict.fromkeys(MEANT)
_MEMORY: _Shape = {"written": _WRITTEN, "replaced": None, "hold": _HOLD, "deferred": _WRITTEN, "rollback": _MEANT}
_SHAPE: _Shape = {"files": {ANY: {"hold": _HOLD, "images": {ANY: _MEMORY}}}}
_STEMS = {word.rstrip("s") for word in _STRUCTURE}
_MISPLACED = "known there are {}; memory stands below files: <file>: images: <alias>, a hold below its file or alias"
_TIMES = ("at", "until", "created")
_SEQUENCE = re.compile(r"[0-9]{1,20}")
_TAGS = ("", "!", "tag:yaml.org,2002:str")
_SURROGATES = re.compile("[\ud800-\udfff]")  # bytes of an argument that were no text
Data = Mapping[str, object]


def states_of(tree: Tree) -> dict[str, State]:
    """What a state file says, by write-back file. TargetError: line, what is wrong, how to mend it."""
    if len(tree.documents) > 1:
        node = tree.documents[1].root
        raise _wrong(
            tree, node, "a second YAML document", "a state file is a single one: remove `---` and what follows"
        )
    if not tree.documents or tree.documents[0].root.null:
        return {}
    _refuse_references(tree)
    fields = _fields(tree, tree.documents[0].root, "the file", FILE)
    files = _children(tree, fields["files"], "files") if "files" in fields else {}
    return {path: state for path, node in files.items() if (state := _state(tree, node, path)) != State()}


def _state(tree: Tree, node: Node, path: str) -> State:
    fields = _fields(tree, node, path, STATE)
    images = _children(tree, fields["images"], "images") if "images" in fields else {}
    return State(
        _hold(tree, fields["hold"]) if "hold" in fields else None,
        {alias: memory for alias, one in images.items() if (memory := _memory(tree, one, alias)) != Memory()},
    )


def _memory(tree: Tree, node: Node, alias: str) -> Memory:
    fields = _fields(tree, node, alias, MEMORY)
    return Memory(
        written=_written(tree, fields["written"], "written") if "written" in fields else None,
        replaced=_list(tree, fields["replaced"], "replaced") if "replaced" in fields else (),
        hold=_hold(tree, fields["hold"]) if "hold" in fields else None,
        deferred=_written(tree, fields["deferred"], "deferred") if "deferred" in fields else None,
        rollback=_meant(tree, fields["rollback"]) if "rollback" in fields else None,
    )


def _hold(tree: Tree, node: Node) -> Hold:
    """A hold that cannot be read is an error, never none: what it covers must not move."""
    mend = "write `reason: …` on a line of its own below it, or remove the hold"
    if node.null or (node.kind == "mapping" and not node.children):
        raise _wrong(tree, node, "hold says nothing", mend)
    fields = _fields(tree, node, "hold", HOLD)
    if "reason" not in fields:
        raise _wrong(tree, node, "hold has no reason", mend)
    said = _words(tree, fields)
    return Hold(said["reason"], said.get("by", ""), said.get("at", ""), said.get("until", ""))


def _written(tree: Tree, node: Node, what: str) -> Written | None:
    said = _words(tree, fields := _fields(tree, node, what, WRITTEN))
    number = said.get("sequence", "")
    if number and not _SEQUENCE.fullmatch(number):
        raise _wrong(tree, fields["sequence"], f"sequence: {number[:50]!r} is no number", "write up to 20 digits")
    names = ("counter", "commit", "repository", "created")
    build = Build(int(number) if number else None, *(said.get(name, "") for name in names))
    found = Written(said.get("tag", ""), said.get("digest", ""), build)
    return found if found != Written() else None


def _meant(tree: Tree, node: Node) -> Meant | None:
    said = _words(tree, _fields(tree, node, "rollback", MEANT))
    return Meant(said["to"], said.get("tag", ""), said.get("digest", "")) if said.get("to") else None


def _words(tree: Tree, fields: Mapping[str, Node]) -> dict[str, str]:
    """The texts of some keys, times in normal form."""
    return {
        name: _time(tree, node, name) if name in _TIMES else _word(tree, node, name) for name, node in fields.items()
    }


def _time(tree: Tree, node: Node, name: str) -> str:
    text = _word(tree, node, name)
    try:
        return utc(text) if text else ""
    except Malformed as error:
        raise _wrong(tree, node, f"{name}: {error.message}", error.hint) from error


def _word(tree: Tree, node: Node, name: str) -> str:
    if node.kind != "scalar" or node.tag not in _TAGS:
        raise _wrong(tree, node, f"{name} is {_kind(node)}, not a text", f'write `{name}: "…"`')
    return "" if node.null else node.value


def _list(tree: Tree, node: Node, name: str) -> tuple[str, ...]:
    mend = f'write each on a line of its own below {name}: - "…"'
    if node.null:
        return ()
    if node.kind != "sequence" or node.tag:
        raise _wrong(tree, node, f"{name} is {_kind(node)}, not a list", mend)
    if empty := next((item for item in node.children if item.null), None):
        raise _wrong(tree, empty, f"{name} has an item that says nothing", mend)
    return tuple(_word(tree, item, f"an item of {name}") for item in node.children)


def _fields(tree: Tree, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
    """The values of a mapping by the keys that are known.

    One that is nearly known, or known elsewhere, is a slip of the pen: a misspelt hold would hold nothing.
    """
    found = _children(tree, node, what)
    for key, _ in pairs(node) if found else ():
        if key.value not in known and key.value.lower().rstrip("s") in _STEMS | {word.rstrip("s") for word in known}:
            raise _wrong(tree, key, f"{what[:50]} has a key {key.value!r}", _MISPLACED.format(", ".join(known)))
    return {key: value for key, value in found.items() if key in known}


def _children(tree: Tree, node: Node, what: str) -> dict[str, Node]:
    if node.null:
        return {}
    if node.kind != "mapping" or node.tag:
        mend = "write `key: value` lines" + (" below it" if node is not tree.documents[0].root else "")
        raise _wrong(tree, node, f"{what[:50]} is {_kind(node)}, not a mapping", mend)
    found: dict[str, Node] = {}
    for key, value in pairs(node):
        if key.kind != "scalar" or key.tag not in _TAGS:
            raise _wrong(tree, key, f"a key of {what[:50]} is {_kind(key)}", "write a plain word, or put it in quotes")
        if key.value in found:
            raise _wrong(tree, key, f"{key.value[:50]!r} stands twice in {what[:50]}", "keep one of them")
        found[key.value] = value
    return found


def _refuse_references(tree: Tree) -> None:
    """Anchors would tie lines together that change apart."""
    for node in walk(tree.documents[0].root):
        if node.kind == "alias" or node.anchor:
            name = f"the alias *{node.value}" if node.kind == "alias" else f"the anchor &{node.anchor}"
            raise _wrong(tree, node, f"{name[:50]} is not for a state file", "write the value itself out")


def _kind(node: Node) -> str:
    if node.tag and node.kind == "scalar":
        return f"tagged {node.tag}"
    return {"mapping": "a mapping", "sequence": "a list", "alias": "an alias"}.get(node.kind, "a single value")


def _wrong(tree: Tree, node: Node, what: str, mend: str) -> TargetError:
    return TargetError(f"line {tree.line(node)}: {what}", hint=mend)


def with_unknown(tree: Tree, data: Data) -> Data:
    """The data, with the keys of newer versions as the file has them.

    A hold or a build that is removed takes the unknown keys in it along.
    """
    return _kept(tree.documents[0].root, data, _SHAPE) if tree.documents else data


def _kept(node: Node, data: Data, shape: _Shape) -> Data:
    found = dict(data)
    for key, value in pairs(node) if node.kind == "mapping" else ():
        name = key.value
        if name not in shape and ANY not in shape:
            found[name] = value
            continue
        inner, there = shape.get(name, shape.get(ANY)), data.get(name)
        if inner is None or (there is None and ANY not in inner and ANY not in shape):
            continue
        if below := _kept(value, there if isinstance(there, Mapping) else {}, inner):
            found[name] = below
    return found


def remembered(states: Mapping[str, State]) -> dict[str, State]:
    """The states as a file gives them back: times in normal form, without what nothing is known of.

    TargetError for what is no time, or no sequence that a file may hold.
    """
    found = {stripped(path): _whole(state) for path, state in states.items()}
    return {path: state for path, state in sorted(found.items()) if state != State()}


def _whole(state: State) -> State:
    images = {stripped(alias): _full(memory) for alias, memory in state.images.items()}
    return State(_plain_hold(state.hold), {alias: one for alias, one in sorted(images.items()) if one != Memory()})


def _full(memory: Memory) -> Memory:
    replaced = tuple(map(stripped, memory.replaced))
    asked = memory.rollback
    meant = Meant(stripped(asked.to), stripped(asked.tag), stripped(asked.digest)) if asked and asked.to else None
    return Memory(_plain(memory.written), replaced, _plain_hold(memory.hold), _plain(memory.deferred), meant)


def _plain_hold(hold: Hold | None) -> Hold | None:
    if hold is None:
        return None
    return Hold(stripped(hold.reason), stripped(hold.by), _instant("at", hold.at), _instant("until", hold.until))


def _plain(written: Written | None) -> Written | None:
    if written is None or written == Written():
        return None
    given = written.build
    if given.sequence is not None and not _SEQUENCE.fullmatch(str(given.sequence)):
        raise TargetError(f"the sequence {given.sequence} cannot be remembered", hint="use up to 20 digits")
    build = Build(
        given.sequence,
        stripped(given.counter),
        stripped(given.commit),
        stripped(given.repository),
        _instant("created", given.created),
    )
    return Written(stripped(written.tag), stripped(written.digest), build)


def _instant(name: str, text: str) -> str:
    try:
        return utc(text) if text else ""
    except Malformed as error:
        raise TargetError(f"{name}: {error.message}", hint=error.hint) from error


def stripped(text: str) -> str:
    """The text without what is no character and could be in no file."""
    return _SURROGATES.sub("\ufffd", text)


def data_of(states: Mapping[str, State]) -> dict[str, object]:
    """The states as nested mappings, lists and texts, in the order of the file; what is not known is left out."""
    return _known({"files": {path: _state_data(state) for path, state in sorted(states.items())}})


def _state_data(state: State) -> Data:
    images = {alias: _memory_data(memory) for alias, memory in sorted(state.images.items())}
    return _known({"hold": _optional(state.hold, _hold_data), "images": images})


def _memory_data(memory: Memory) -> Data:
    parts = (
        _optional(memory.written, _written_data),
        list(memory.replaced),
        _optional(memory.hold, _hold_data),
        _optional(memory.deferred, _written_data),
        _optional(memory.rollback, lambda meant: _known(asdict(meant))),
    )
    return _known(dict(zip(MEMORY, parts, strict=True)))


def _hold_data(hold: Hold) -> Data:
    return {"reason": hold.reason, **_known(dict(zip(HOLD[1:], (hold.by, hold.at, hold.until), strict=True)))}


def _written_data(written: Written) -> Data:
    build = written.build
    number = "" if build.sequence is None else str(build.sequence)
    values = (written.tag, written.digest, number, build.counter, build.commit, build.repository, build.created)
    return _known(dict(zip(WRITTEN, values, strict=True)))


def _optional(value: T | None, data: Callable[[T], Data]) -> Data:
    return {} if value is None else data(value)


def _known(data: Data) -> dict[str, object]:
    return {key: value for key, value in data.items() if value}
