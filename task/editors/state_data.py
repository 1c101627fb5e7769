"""Turns states into the plain data of a state file, and back. It defines the keys, and the values that each may have.

An unknown key belongs to a newer version: it is ignored, and stays when the file is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict

from task.editors.yaml.tree import Node, Tree, pairs, walk
from task.errors import Malformed, TargetError
from task.model import Build, Hold, Meant, Memory, State, Written
from task.timestamps import utc

_Shape = Mapping[str, "_Shape | None"]
ANY = ""  # in a shape: the keys are names
FILE = ("files",)
STATE = ("hold", "images", "released")
MEMORY = ("written", "replaced", "hold", "deferred", "rollback", "released")
HOLD = ("reason", "by", "at", "until")
MEANT = ("to", "tag", "digest", "was")
WRITTEN = ("tag", "digest", "sequence", "counter", "commit", "repository", "created", "image-digest")
_STRUCTURE = (*FILE, *STATE, *MEMORY)
_HOLD: _Shape = dict.fromkeys(HOLD)
_WRITTEN: _Shape = dict.fromkeys(WRITTEN)
_MEANT: _Shape = dict.fromkeys(MEANT)
_MEMORY: _Shape = {
    "written": _WRITTEN,
    "replaced": None,
    "hold": _HOLD,
    "deferred": _WRITTEN,
    "rollback": _MEANT,
    "released": None,
}
_SHAPE: _Shape = {"files": {ANY: {"hold": _HOLD, "images": {ANY: _MEMORY}, "released": None}}}
# Singular and plural are treated alike here, because people write `image:` instead of `images:`.
_STEMS = {word.rstrip("s") for word in _STRUCTURE}
_MISPLACED = (
    "the keys there are {}; what is remembered is below files: <file>: images: <alias>, a hold below its file or alias"
)
_TIMES = ("at", "until", "created", "released")
_SEQUENCE = re.compile(r"[0-9]{1,20}")  # a number of 64 bits
_TAGS = ("", "!", "tag:yaml.org,2002:str")  # the YAML tags of a string
# A lone surrogate is a byte of a command-line argument that was not UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")
Data = Mapping[str, object]


def states_of(tree: Tree) -> dict[str, State]:
    """Return the states in a state file, by write-back file.

    Raises TargetError, which names the line, the mistake and the correction.
    """
    if len(tree.documents) > 1:
        node = tree.documents[1].root
        raise _wrong(
            tree, node, "a second YAML document", "a state file has one document: remove `---` and what follows"
        )
    if not tree.documents or tree.documents[0].root.null:
        return {}
    for node in walk(tree.documents[0].root):
        if node.kind == "alias" or node.anchor:  # an anchor would connect lines that must change separately
            name = f"the alias *{node.value}" if node.kind == "alias" else f"the anchor &{node.anchor}"
            raise _wrong(tree, node, f"{name[:50]} is not allowed in a state file", "write the value itself")
    fields = _fields(tree, tree.documents[0].root, "the file", FILE)
    files = _children(tree, fields["files"], "files") if "files" in fields else {}
    states = {}
    for path, node in files.items():
        fields = _fields(tree, node, path, STATE)
        images = _children(tree, fields["images"], "images") if "images" in fields else {}
        state = State(
            _hold(tree, fields["hold"]) if "hold" in fields else None,
            {alias: memory for alias, image in images.items() if (memory := _memory(tree, image, alias)) != Memory()},
            _released(tree, fields),
        )
        if state != State():
            states[path] = state
    return states


def _memory(tree: Tree, node: Node, alias: str) -> Memory:
    fields = _fields(tree, node, alias, MEMORY)
    rollback = None
    if "rollback" in fields:
        words = _words(tree, _fields(tree, fields["rollback"], "rollback", MEANT))
        rollback = Meant(*(words.get(name, "") for name in MEANT))
    return Memory(
        written=_written(tree, fields["written"], "written") if "written" in fields else None,
        replaced=_list(tree, fields["replaced"], "replaced") if "replaced" in fields else (),
        hold=_hold(tree, fields["hold"]) if "hold" in fields else None,
        deferred=_written(tree, fields["deferred"], "deferred") if "deferred" in fields else None,
        rollback=rollback if rollback != Meant("") else None,
        released=_released(tree, fields),
    )


def _released(tree: Tree, fields: Mapping[str, Node]) -> str:
    return _words(tree, {"released": fields["released"]})["released"] if "released" in fields else ""


def _hold(tree: Tree, node: Node) -> Hold:
    """Return the hold. An unreadable one is an error, not "no hold", because its images must not change."""
    hint = "write `reason: …` on a line of its own below it, or remove the hold"
    if node.null or (node.kind == "mapping" and not node.children):
        raise _wrong(tree, node, "hold is empty", hint)
    fields = _fields(tree, node, "hold", HOLD)
    if "reason" not in fields:
        raise _wrong(tree, node, "hold has no reason", hint)
    words = _words(tree, fields)
    return Hold(words["reason"], words.get("by", ""), words.get("at", ""), words.get("until", ""))


def _written(tree: Tree, node: Node, what: str) -> Written | None:
    words = _words(tree, fields := _fields(tree, node, what, WRITTEN))
    number = words.get("sequence", "")
    if number and not _SEQUENCE.fullmatch(number):
        raise _wrong(tree, fields["sequence"], f"sequence: {number[:50]!r} is not a number", "write up to 20 digits")
    names = ("counter", "commit", "repository", "created")
    build = Build(int(number) if number else None, *(words.get(name, "") for name in names))
    written = Written(words.get("tag", ""), words.get("digest", ""), build, words.get("image-digest", ""))
    return written if written != Written() else None


def _words(tree: Tree, fields: Mapping[str, Node]) -> dict[str, str]:
    """Return the text of each field, with times in normal form."""
    words = {name: _word(tree, node, name) for name, node in fields.items()}
    for name in _TIMES:
        if text := words.get(name):
            try:
                words[name] = utc(text)
            except Malformed as error:
                raise _wrong(tree, fields[name], f"{name}: {error.message}", error.hint) from error
    return words


def _word(tree: Tree, node: Node, name: str) -> str:
    if node.kind != "scalar" or node.tag not in _TAGS:
        raise _wrong(tree, node, f"{name} is {_kind(node)}, not a text", f'write `{name}: "…"`')
    return "" if node.null else node.value


def _list(tree: Tree, node: Node, name: str) -> tuple[str, ...]:
    hint = f'write each on a line of its own below {name}: - "…"'
    if node.null:
        return ()
    if node.kind != "sequence" or node.tag:
        raise _wrong(tree, node, f"{name} is {_kind(node)}, not a list", hint)
    if empty := next((item for item in node.children if item.null), None):
        raise _wrong(tree, empty, f"{name} has an empty item", hint)
    return tuple(_word(tree, item, f"an item of {name}") for item in node.children)


def _fields(tree: Tree, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
    """Return the values of the known keys in a mapping.

    A key that is nearly known, or known in another place, is an error, because a misspelt hold would have no effect.
    """
    children = _children(tree, node, what)
    for key, _ in pairs(node) if children else ():
        shown = "".join(letter for letter in key.value.lower() if letter.isprintable() and not letter.isspace())
        if key.value not in known and shown.rstrip("s") in _STEMS | {word.rstrip("s") for word in known}:
            raise _wrong(tree, key, f"{what[:50]} has a key {key.value!r}", _MISPLACED.format(", ".join(known)))
    return {key: value for key, value in children.items() if key in known}


def _children(tree: Tree, node: Node, what: str) -> dict[str, Node]:
    if node.null:
        return {}
    if node.kind != "mapping" or node.tag:
        hint = "write `key: value` lines" + (" below it" if node is not tree.documents[0].root else "")
        raise _wrong(tree, node, f"{what[:50]} is {_kind(node)}, not a mapping", hint)
    children: dict[str, Node] = {}
    for key, value in pairs(node):
        if key.kind != "scalar" or key.tag not in _TAGS:
            raise _wrong(tree, key, f"a key of {what[:50]} is {_kind(key)}", "write a plain word, or put it in quotes")
        if key.value in children:  # YAML readers disagree about which one counts
            raise _wrong(tree, key, f"{key.value[:50]!r} appears twice in {what[:50]}", "keep one of them")
        children[key.value] = value
    return children


def _kind(node: Node) -> str:
    if node.tag and node.kind == "scalar":
        return f"tagged {node.tag}"
    return {"mapping": "a mapping", "sequence": "a list", "alias": "an alias"}.get(node.kind, "a single value")


def _wrong(tree: Tree, node: Node, what: str, hint: str) -> TargetError:
    return TargetError(f"line {tree.line(node)}: {what}", hint=hint)


def with_unknown(tree: Tree, data: Data) -> Data:
    """Add the keys of newer versions that the file has to the data.

    When a hold or a build is removed, the unknown keys in it go as well.
    """
    return _with_kept(tree.documents[0].root, data, _SHAPE) if tree.documents else data


def _with_kept(node: Node, data: Data, shape: _Shape) -> Data:
    whole = dict(data)
    for key, value in pairs(node) if node.kind == "mapping" else ():
        name = key.value
        if name not in shape and ANY not in shape:
            whole[name] = value
            continue
        inner, known = shape.get(name, shape.get(ANY)), data.get(name)
        if inner is None or (known is None and ANY not in inner and ANY not in shape):
            continue
        if below := _with_kept(value, known if isinstance(known, Mapping) else {}, inner):
            whole[name] = below
    return whole


def _instant(name: str, text: str) -> str:
    try:
        return utc(text) if text else ""
    except Malformed as error:
        raise TargetError(f"{name}: {error.message}", hint=error.hint) from error


def stripped(text: str) -> str:
    """Replace each surrogate by U+FFFD.

    Python uses surrogates for bytes in an argument that are not UTF-8, and no file can contain them.
    """
    return _SURROGATES.sub("\ufffd", text)


def data_of(states: Mapping[str, State]) -> dict[str, object]:
    """Return the states as nested mappings, lists and texts, in the file's order, and without empty values.

    Times are in normal form. Raises TargetError if one is invalid, or a sequence has more than 20 digits.
    """
    files = {}
    for path, state in sorted(states.items()):
        images = {
            alias: {
                "written": _written_data(memory.written),
                "replaced": list(memory.replaced),
                "hold": asdict(memory.hold) if memory.hold else {},
                "deferred": _written_data(memory.deferred),
                "rollback": asdict(memory.rollback) if memory.rollback else {},
                "released": memory.released,
            }
            for alias, memory in sorted(state.images.items())
        }
        hold = asdict(state.hold) if state.hold else {}
        files[path] = {"hold": hold, "images": images, "released": state.released}
    return _stored({"files": files})


def _written_data(written: Written | None) -> Data:
    if written is None:
        return {}
    number = "" if written.build.sequence is None else str(written.build.sequence)
    if number and not _SEQUENCE.fullmatch(number):
        raise TargetError(f"the sequence {number} cannot be remembered", hint="use up to 20 digits")
    build = {**asdict(written.build), "sequence": number}
    return {"tag": written.tag, "digest": written.digest, **build, "image-digest": written.image_digest}


def _stored(data: Data) -> dict[str, object]:
    """Return the data as a file stores it. Only a hold's reason is there even if it is empty."""
    stored: dict[str, object] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            plain: object = _stored(value)
        elif isinstance(value, list):
            plain = [stripped(one) for one in value]
        else:
            plain = _instant(key, str(value)) if key in _TIMES else stripped(str(value))
        if plain or (key, plain) == ("reason", ""):
            stored[stripped(key)] = plain
    return stored
