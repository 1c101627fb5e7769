"""Reads and writes an Application's state file,
with the state for each file and alias.

Its path is `.image-update/<path>/<namespace>_<application>.state`. `<path>` is the folder of the
first write-back file, so that two Argo CD instances that use the same repository and Application
name do not share state.

People may read, edit, and revert the file. Its content is YAML, but its name does not end in
`.yaml`, because Argo CD's directory sources would apply it as a manifest. Values are read as
strings: an unquoted `1.10` is the tag 1.10, not a number. The file is written in a fixed form.
Comments at the beginning are kept. An unknown key belongs to a newer version: it is ignored and
kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import cast

from task.editors.yaml.edit import eol
from task.editors.yaml.spelling import Data, double_quoted, flow, spell
from task.editors.yaml.tree import NOTHING, Node, Tree, pairs, parse, refuse_odd_breaks, walk
from task.errors import Malformed, TargetError
from task.model import Build, Hold, Meant, Memory, State, Written
from task.timestamps import utc

LARGEST = 1_000_000  # characters
_CORRECT = "fix the file, or delete it, which also lifts its holds"
_HEAD = (
    "# Image Update's state for this Application: written builds, holds, and waiting builds. You"
    " can edit this file.\n"
)
_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")
_CORE = "tag:yaml.org,2002:"
_TYPED = set(",[]{}#:\n")  # a plain scalar with one of these can change its meaning in flow style
_LONG_KEY = 1000  # characters; after 1024, libyaml stops searching for the `:` of a simple key
_Shape = Mapping[str, "_Shape | None"]
ANY = ""  # in a shape, matches any key
_HOLD: _Shape = dict.fromkeys(("reason", "by", "at", "until"))
_MEANT: _Shape = dict.fromkeys(("to", "tag", "digest", "was"))
_BUILD = ("counter", "commit", "repository", "created")
_WRITTEN: _Shape = dict.fromkeys(("tag", "digest", "sequence", *_BUILD, "image-digest"))
_MEMORY: _Shape = {
    "written": _WRITTEN,
    "replaced": None,
    "failed": None,
    "hold": _HOLD,
    "deferred": _WRITTEN,
    "rollback": _MEANT,
}
_STATE: _Shape = {"hold": _HOLD, "images": {ANY: _MEMORY}}
_FILE: _Shape = {"files": {ANY: _STATE}}
# Treat singular and plural alike, because people write `image:` instead of `images:`.
_STEMS = {word.rstrip("s") for word in (*_FILE, *_STATE, *_MEMORY)}
_MISPLACED = (
    "valid keys here: {}. State belongs below files: <file>: images: <alias>, and a hold below its"
    " file or alias"
)
_TIMES = ("at", "until", "created")
_SEQUENCE = re.compile(r"[0-9]{1,20}")  # a 64-bit number
_TAGS = ("", "!", "tag:yaml.org,2002:str")  # the YAML tags for a string
# A lone surrogate is a byte from a command-line argument that was not UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")
Wanted = Mapping[str, object]  # a Node in it comes from a newer version, and is kept unchanged


def states_of(tree: Tree) -> dict[str, State]:
    """Return the states in a state file, by write-back file.

    Raises a TargetError with the line, the mistake, and the fix.
    """
    if len(tree.roots) > 1:
        hint = "a state file has only one document: remove `---` and everything after it"
        raise _line_error(tree, tree.roots[1], "unexpected second YAML document", hint)
    if tree.root.null:
        return {}
    for node in walk(tree.root):
        # an anchor would link lines that must change independently
        if node.kind == "alias" or node.anchor:
            name = (
                f"the alias *{node.value}" if node.kind == "alias" else f"the anchor &{node.anchor}"
            )
            raise _line_error(
                tree,
                node,
                f"{name[:50]} is not allowed in a state file",
                "write out the value",
            )
    states = {}
    for path, node in _children(
        tree,
        _fields(tree, tree.root, "the file", _FILE)["files"],
        "files",
    ).items():
        fields = _fields(tree, node, path, _STATE)
        images = _children(tree, fields["images"], "images").items()
        memories = {alias: _image_memory(tree, image, alias) for alias, image in images}
        state = State(
            _hold(tree, fields["hold"]),
            {alias: memory for alias, memory in memories.items() if memory != Memory()},
        )
        if state != State():
            states[path] = state
    return states


def _image_memory(tree: Tree, node: Node, alias: str) -> Memory:
    fields = _fields(tree, node, alias, _MEMORY)
    rollback = Meant(**_words(tree, _fields(tree, fields["rollback"], "rollback", _MEANT)))
    return Memory(
        written=_written(tree, fields["written"], "written"),
        replaced=_text_list(tree, fields["replaced"], "replaced"),
        failed=_text_list(tree, fields["failed"], "failed"),
        hold=_hold(tree, fields["hold"]),
        deferred=_written(tree, fields["deferred"], "deferred"),
        rollback=rollback if rollback != Meant("") else None,
    )


def _hold(tree: Tree, node: Node) -> Hold | None:
    """Return the hold.

    An unreadable hold is an error and does not count as "no hold", because the held images must not
    change.
    """
    if node is NOTHING:
        return None
    hint = "add `reason: …` on its own line below it, or remove the hold"
    if node.null or (node.kind == "mapping" and not node.children):
        raise _line_error(tree, node, "hold is empty", hint)
    fields = _fields(tree, node, "hold", _HOLD)
    if fields["reason"] is NOTHING:
        raise _line_error(tree, node, "hold has no reason", hint)
    return Hold(**_words(tree, fields))


def _written(tree: Tree, node: Node, what: str) -> Written | None:
    words = _words(tree, fields := _fields(tree, node, what, _WRITTEN))
    number = words["sequence"]
    if number and not _SEQUENCE.fullmatch(number):
        raise _line_error(
            tree,
            fields["sequence"],
            f"sequence: {number[:50]!r} is not a number",
            "use up to 20 digits",
        )
    build = Build(int(number) if number else None, *(words[field] for field in _BUILD))
    written = Written(words["tag"], words["digest"], build, words["image-digest"])
    return written if written != Written() else None


def _words(tree: Tree, fields: Mapping[str, Node]) -> dict[str, str]:
    """Return the value of each field, with times normalized."""
    words = {name: _scalar_text(tree, node, name) for name, node in fields.items()}
    for name in _TIMES:
        if text := words.get(name):
            try:
                words[name] = utc(text)
            except Malformed as error:
                raise _line_error(
                    tree,
                    fields[name],
                    f"{name}: {error.message}",
                    error.hint,
                ) from error
    return words


def _scalar_text(tree: Tree, node: Node, name: str) -> str:
    if node.kind != "scalar" or node.tag not in _TAGS:
        raise _line_error(
            tree,
            node,
            f"{name} is {_kind_in_words(node)}, not a string",
            f'use `{name}: "…"`',
        )
    return "" if node.null else node.value


def _text_list(tree: Tree, node: Node, name: str) -> tuple[str, ...]:
    hint = f'put each item on its own line below {name}: - "…"'
    if node.null:
        return ()
    if node.kind != "sequence" or node.tag:
        raise _line_error(tree, node, f"{name} is {_kind_in_words(node)}, not a list", hint)
    if empty := next((item for item in node.children if item.null), None):
        raise _line_error(tree, empty, f"{name} has an empty item", hint)
    return tuple(_scalar_text(tree, item, f"an item of {name}") for item in node.children)


def _fields(tree: Tree, node: Node, what: str, known: _Shape) -> dict[str, Node]:
    """Return the values of all known keys in a mapping.

    A key that resembles a known key, or belongs elsewhere, is an error, because a misspelled hold
    would have no effect.
    """
    children = _children(tree, node, what)
    if children:
        similar = _STEMS | {word.rstrip("s") for word in known}
        for key, _ in pairs(node):
            letters = [each for each in key.value.lower() if each.isprintable()]
            stem = "".join(each for each in letters if not each.isspace()).rstrip("s")
            if key.value not in known and stem in similar:
                raise _line_error(
                    tree,
                    key,
                    f"{what[:50]} has the key {key.value!r}",
                    _MISPLACED.format(", ".join(known)),
                )
    return {key: children.get(key, NOTHING) for key in known}


def _children(tree: Tree, node: Node, what: str) -> dict[str, Node]:
    if node.null:
        return {}
    if node.kind != "mapping" or node.tag:
        hint = "use `key: value` lines" + (" below it" if node is not tree.root else "")
        raise _line_error(tree, node, f"{what[:50]} is {_kind_in_words(node)}, not a mapping", hint)
    children: dict[str, Node] = {}
    for key, value in pairs(node):
        if key.kind != "scalar" or key.tag not in _TAGS:
            raise _line_error(
                tree,
                key,
                f"a key in {what[:50]} is {_kind_in_words(key)}",
                "use a plain word, or quote it",
            )
        if key.value in children:  # YAML readers disagree about which one wins
            raise _line_error(
                tree,
                key,
                f"{key.value[:50]!r} appears twice in {what[:50]}",
                "keep one of them",
            )
        children[key.value] = value
    return children


def _kind_in_words(node: Node) -> str:
    if node.tag and node.kind == "scalar":
        return f"tagged {node.tag}"
    return {
        "mapping": "a mapping",
        "sequence": "a list",
        "alias": "an alias",
    }.get(node.kind, "a single value")


def _line_error(tree: Tree, node: Node, what: str, hint: str) -> TargetError:
    return TargetError(f"line {tree.line(node)}: {what}", hint=hint)


def with_unknown(tree: Tree, data: Wanted) -> Wanted:
    """Add the file's keys from newer versions to the data.

    When a hold or a build is removed, the unknown keys in it are also removed.
    """
    return _with_kept(tree.root, data, _FILE)


def _with_kept(node: Node, data: Wanted, shape: _Shape) -> Wanted:
    whole = dict(data)
    if node.kind == "mapping":
        for key, value in pairs(node):
            name = key.value
            if name not in shape and ANY not in shape:
                whole[name] = value
                continue
            inner = shape.get(name, shape.get(ANY))
            known = data.get(name)
            if inner is None or (known is None and ANY not in inner and ANY not in shape):
                continue
            if below := _with_kept(value, known if isinstance(known, Mapping) else {}, inner):
                whole[name] = below
    return whole


def _instant(name: str, text: str) -> str:
    try:
        return text and utc(text)
    except Malformed as error:
        raise TargetError(f"{name}: {error.message}", hint=error.hint) from error


def stripped(text: str) -> str:
    """Replace each surrogate with U+FFFD.

    Python uses surrogates for non-UTF-8 bytes in an argument, and files cannot contain them.
    """
    return _SURROGATES.sub("\ufffd", text)


def data_of(states: Mapping[str, State]) -> dict[str, object]:
    """Return the states as nested mappings, lists, and strings, in the file's order
    and without empty values.

    Times are normalized. Raises TargetError if a time is invalid, or a sequence has more than 20
    digits.
    """
    files = {}
    for path, state in sorted(states.items()):
        images = {
            alias: (
                asdict(memory)
                | {
                    "written": _written_data(memory.written),
                    "deferred": _written_data(memory.deferred),
                }
            )
            for alias, memory in sorted(state.images.items())
        }
        files[path] = {
            "hold": state.hold and asdict(state.hold),
            "images": images,
        }
    return _as_stored({"files": files})


def _written_data(written: Written | None) -> Wanted:
    if written is None:
        return {}
    number = "" if written.build.sequence is None else str(written.build.sequence)
    if number and not _SEQUENCE.fullmatch(number):
        raise TargetError(f"the sequence {number} cannot be stored", hint="use up to 20 digits")
    build = {**asdict(written.build), "sequence": number}
    return {
        "tag": written.tag,
        "digest": written.digest,
        **build,
        "image-digest": written.image_digest,
    }


def _as_stored(data: Wanted) -> dict[str, object]:
    """Return the data as stored in a file. Empty values are omitted, except for a hold's reason."""
    stored: dict[str, object] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            plain: object = _as_stored(value)
        elif isinstance(value, tuple):
            plain = [stripped(item) for item in value]
        else:
            text = str(value or "")
            plain = _instant(key, text) if key in _TIMES else stripped(text)
        if plain or (key, plain) == ("reason", ""):
            stored[stripped(key)] = plain
    return stored


def in_fixed_form(tree: Tree, data: Wanted) -> str:
    """Return the text with all lines rewritten in the fixed form, below the comments at its
    beginning.
    """
    head = []
    end = eol(tree.text)
    for line in tree.text.splitlines():
        if (
            line.strip("\ufeff \t")
            and line != "---"
            and not line.lstrip("\ufeff \t").startswith("#")
        ):
            break
        head.append(line)
    return "".join(line + end for line in (*head, *_lines(data)))


def in_flow(data: object) -> str:
    """Return the data on one line.

    Values from a newer version keep their types: plain scalars remain plain.
    """
    if isinstance(data, Node):
        return _node_in_flow(data)
    if isinstance(data, Mapping):
        entries = [f"{spell(key)}: {in_flow(value)}" for key, value in data.items()]
        return "{" + ", ".join(entries) + "}"
    return flow(cast("Data", data))


def _node_in_flow(node: Node) -> str:
    tag = ""
    if node.tag:
        short = f"!!{node.tag.removeprefix(_CORE)}" if node.tag.startswith(_CORE) else node.tag
        tag = f"{short} "
    if node.kind == "scalar":
        plain = not node.style and not set(node.value) & _TYPED
        return tag + (node.value if plain else double_quoted(node.value))
    if node.kind == "sequence":
        return f"{tag}[{', '.join(map(_node_in_flow, node.children))}]"
    entries = [f"{_node_in_flow(key)}: {_node_in_flow(value)}" for key, value in pairs(node)]
    return tag + "{" + ", ".join(entries) + "}"


def _lines(data: Wanted) -> list[str]:
    """Return the data as block lines, one key or item per line."""
    lines: list[str] = []
    for key, value in data.items():
        name = spell(key)
        if isinstance(value, str):
            lines.append(f"{name}: {spell(value)}")
        elif isinstance(value, Node):
            lines.append(f"{name}: {in_flow(value)}")
        elif not isinstance(value, Mapping):
            lines += [f"{name}:", *(f"- {spell(item)}" for item in cast("list[str]", value))]
        elif len(name) > _LONG_KEY:
            first, *rest = _lines(value)
            lines += [f"? {name}", f": {first}", *(f"  {line}" for line in rest)]
        else:
            lines += [f"{name}:", *("  " + line for line in _lines(value))]
    return lines


def read_state(text: str) -> dict[str, State]:
    """Return the states in a state file's text, by write-back file, or {} if the text is empty or
    has only comments.

    Times are RFC 3339 in UTC. Raises a TargetError with the line, the mistake, and the fix.
    """
    return states_of(_state_tree(text))


def write_state(text: str, states: Mapping[str, State]) -> str:
    """Return the text with `states`, or "" if there are no states to store and the file must be
    removed.

    The text is unchanged if it already has these states, in any form. Keys from newer versions are
    kept. Raises TargetError if `text` is not a state file, or a time in the states is invalid.
    """
    wanted = data_of(states)
    tree = _state_tree(text if text.strip("\ufeff \t\r\n") else "")
    known = data_of(states_of(tree))
    data = with_unknown(tree, wanted)
    if not data:
        return ""
    if known == wanted:
        return text
    result = ("" if tree.text else _HEAD) + in_fixed_form(tree, data)
    new = _state_tree(result)
    written = in_flow(_sorted(with_unknown(new, wanted)))
    if data_of(states_of(new)) != wanted or written != in_flow(_sorted(data)):
        raise TargetError(
            "the state is too large for one state file",
            hint="shorten the hold's reason",
        )
    return result


def _sorted(data: object) -> object:
    """Return the same data with sorted keys, so that comparisons ignore their order."""
    return (
        {key: _sorted(value) for key, value in sorted(data.items())}
        if isinstance(data, Mapping)
        else data
    )


def _state_tree(text: str) -> Tree:
    if len(text) > LARGEST:
        raise TargetError("the state file is larger than 1 MB", hint=_CORRECT)
    try:
        tree = parse(text)
    except TargetError as error:
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(_CONFLICT[0]):
                signs = ", ".join(sign.strip() for sign in _CONFLICT)
                hint = f"keep one side, and remove the lines that begin with {signs}"
                raise TargetError(
                    f"line {number}: a merge conflict was committed",
                    hint=hint,
                ) from error
        raise TargetError(error.message, hint=_CORRECT) from error
    refuse_odd_breaks(tree)
    return tree
