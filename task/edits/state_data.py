"""State ↔ the plain data of a state file: which keys there are, what may stand below them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from task.edits.yaml_tree import Node, Tree, pairs, walk
from task.errors import Malformed, TargetError
from task.model import Build, Hold, Memory, State, Written
from task.moment import utc
from task.pattern import pattern

T = TypeVar("T")
STATE = ("hold", "images")
MEMORY = ("written", "replaced", "hold", "deferred")
HOLD = ("reason", "by", "at", "until")
WRITTEN = ("tag", "digest", "sequence", "counter", "commit", "repository", "created")
_TIMES = ("at", "until", "created")
_SEQUENCE = pattern(r"[0-9]{1,20}")
_TAGS = ("", "!", "tag:yaml.org,2002:str")
_SURROGATES = pattern("[\ud800-\udfff]")  # bytes of an argument that were no text
Data = Mapping[str, object]


def state_of(tree: Tree) -> State:
    """What a state file says. TargetError: line, what is wrong, how to mend it."""
    if len(tree.documents) > 1:
        node = tree.documents[1].root
        raise _wrong(
            tree, node, "a second YAML document", "a state file is a single one: remove `---` and what follows"
        )
    if not tree.documents or tree.documents[0].root.null:
        return State()
    _refuse_references(tree)
    fields = _fields(tree, tree.documents[0].root, "the file", STATE)
    images = _children(tree, fields["images"], "images") if "images" in fields else {}
    return State(
        _hold(tree, fields["hold"]) if "hold" in fields else None,
        {alias: memory for alias, node in images.items() if (memory := _memory(tree, node, alias)) != Memory()},
    )


def _memory(tree: Tree, node: Node, alias: str) -> Memory:
    fields = _fields(tree, node, alias, MEMORY)
    return Memory(
        written=_written(tree, fields["written"], "written") if "written" in fields else None,
        replaced=_list(tree, fields["replaced"], "replaced") if "replaced" in fields else (),
        hold=_hold(tree, fields["hold"]) if "hold" in fields else None,
        deferred=_written(tree, fields["deferred"], "deferred") if "deferred" in fields else None,
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
    """The values of a mapping by their keys, all of which are known."""
    found = _children(tree, node, what)
    for key, _ in pairs(node) if found else ():
        if key.value not in known:
            raise _wrong(tree, key, f"{what} has an unknown key {key.value[:50]!r}", f"known are {', '.join(known)}")
    return found


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


def remembered(state: State) -> State:
    """The state as a file gives it back: times in normal form, without images of which nothing is known.

    TargetError for what is no time, or no sequence that a file may hold.
    """
    images = {stripped(alias): _full(memory) for alias, memory in state.images.items()}
    return State(_plain_hold(state.hold), {alias: one for alias, one in sorted(images.items()) if one != Memory()})


def _full(memory: Memory) -> Memory:
    replaced = tuple(map(stripped, memory.replaced))
    return Memory(_plain(memory.written), replaced, _plain_hold(memory.hold), _plain(memory.deferred))


def _plain_hold(hold: Hold | None) -> Hold | None:
    if hold is None:
        return None
    return Hold(stripped(hold.reason), stripped(hold.by), _instant("at", hold.at), _instant("until", hold.until))


def _plain(written: Written | None) -> Written | None:
    if written is None or written == Written():
        return None
    sequence, counter, commit, repository, created = written.build
    if sequence is not None and not _SEQUENCE.fullmatch(str(sequence)):
        raise TargetError(f"the sequence {sequence} cannot be remembered", hint="use up to 20 digits")
    build = Build(sequence, stripped(counter), stripped(commit), stripped(repository), _instant("created", created))
    return Written(stripped(written.tag), stripped(written.digest), build)


def _instant(name: str, text: str) -> str:
    try:
        return utc(text) if text else ""
    except Malformed as error:
        raise TargetError(f"{name}: {error.message}", hint=error.hint) from error


def stripped(text: str) -> str:
    """The text without what is no character and could be in no file."""
    return _SURROGATES.sub("\ufffd", text)


def data_of(state: State) -> dict[str, object]:
    """The state as nested mappings, lists and texts, in the order of the file; what is not known is left out."""
    images = {alias: _memory_data(memory) for alias, memory in sorted(state.images.items())}
    return _known({"hold": _optional(state.hold, _hold_data), "images": images})


def _memory_data(memory: Memory) -> Data:
    parts = (
        _optional(memory.written, _written_data),
        list(memory.replaced),
        _optional(memory.hold, _hold_data),
        _optional(memory.deferred, _written_data),
    )
    return _known(dict(zip(MEMORY, parts, strict=True)))


def _hold_data(hold: Hold) -> Data:
    return {"reason": hold.reason, **_known(dict(zip(HOLD[1:], hold[1:], strict=True)))}


def _written_data(written: Written) -> Data:
    sequence, *rest = written.build
    number = "" if sequence is None else str(sequence)
    return _known(dict(zip(WRITTEN, (written.tag, written.digest, number, *rest), strict=True)))


def _optional(value: T | None, data: Callable[[T], Data]) -> Data:
    return {} if value is None else data(value)


def _known(data: Data) -> dict[str, object]:
    return {key: value for key, value in data.items() if value}
