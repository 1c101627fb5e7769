"""Reads and writes an Application's state file, which contains a state for each write-back file and
alias.

The file's path is `.image-update/<path>/<namespace>_<application>.state`. `<path>` is the folder of
the first write-back file, so that two Argo CD instances that use the same repository and
Application name do not share state.

People may read, edit, and revert the file. Its content is YAML, but its name does not end in
`.yaml`, because Argo CD's directory sources would otherwise apply it as a manifest. Values are read
as strings: an unquoted `1.10` is the tag 1.10, not a number. The file is written in a fixed form.
Comments at the beginning are kept. Unknown keys are assumed to come from a newer version, so they
are ignored but kept.
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
_TYPED = set(",[]{}#:\n")  # a plain scalar with one of these may change its meaning in flow style
_LONG_KEY = 1000  # characters; libyaml gives up on finding the `:` of a simple key after 1024
# The known keys of a mapping, each with the shape of the mapping below it, or with None for a value
# or a list.
_Shape = Mapping[str, "_Shape | None"]
ANY = ""  # matches any key in a shape
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
_SEQUENCE = re.compile(r"[0-9]{1,20}")  # enough for a 64-bit number
_TAGS = ("", "!", "tag:yaml.org,2002:str")  # the YAML tags that stand for a string
# A lone surrogate stands for a byte of a command-line argument that was not UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")
# A state file's content as nested mappings, lists, and strings. A Node in it is the value of a key
# that only a newer version of Image Update knows, and is kept unchanged.
FileData = Mapping[str, object]


def states_of(tree: Tree) -> dict[str, State]:
    """Return the states in a state file, keyed by write-back file. Empty states are omitted.

    Raises a TargetError that contains the line, the mistake, and the fix.
    """
    if len(tree.roots) > 1:
        hint = "a state file has only one document: remove `---` and everything after it"
        raise _line_error(tree, tree.roots[1], "unexpected second YAML document", hint)
    if tree.root.null:
        return {}
    _refuse_anchors(tree)
    top_level = _fields(tree, tree.root, "the file", _FILE)
    files = _children(tree, top_level["files"], "files")
    states = {path: _file_state(tree, node, path) for path, node in files.items()}
    return {path: state for path, state in states.items() if state != State()}


def _refuse_anchors(tree: Tree) -> None:
    """Raise TargetError for an anchor or alias, because it would link lines that must change
    independently.
    """
    for node in walk(tree.root):
        if node.kind == "alias":
            name = f"the alias *{node.value}"
        elif node.anchor:
            name = f"the anchor &{node.anchor}"
        else:
            continue
        raise _line_error(
            tree,
            node,
            f"{name[:50]} is not allowed in a state file",
            "write out the value",
        )


def _file_state(tree: Tree, node: Node, path: str) -> State:
    """Return the state stored for a write-back file: the hold on all images, and the memory of each
    image (what the state file remembers about it), keyed by alias. Empty memories are omitted.
    """
    fields = _fields(tree, node, path, _STATE)
    images = _children(tree, fields["images"], "images")
    memories = {alias: _memory_below_alias(tree, image, alias) for alias, image in images.items()}
    return State(
        _hold_below_key(tree, fields["hold"]),
        {alias: memory for alias, memory in memories.items() if memory != Memory()},
    )


def _memory_below_alias(tree: Tree, node: Node, alias: str) -> Memory:
    """Return an image's memory, which is what the state file remembers about the image, from the
    mapping below the image's alias.

    The keys are `written`, `replaced`, `failed`, `hold`, `deferred`, and `rollback`. Raises
    TargetError if one of them has an invalid value.
    """
    fields = _fields(tree, node, alias, _MEMORY)
    rollback_fields = _fields(tree, fields["rollback"], "rollback", _MEANT)
    rollback = Meant(**_texts_of_fields(tree, rollback_fields))
    return Memory(
        written=_build_below_key(tree, fields["written"], "written"),
        replaced=_text_list(tree, fields["replaced"], "replaced"),
        failed=_text_list(tree, fields["failed"], "failed"),
        hold=_hold_below_key(tree, fields["hold"]),
        deferred=_build_below_key(tree, fields["deferred"], "deferred"),
        rollback=rollback if rollback != Meant("") else None,  # None if no field is set
    )


def _hold_below_key(tree: Tree, node: Node) -> Hold | None:
    """Return the hold (an order to keep the current version), or None if the key is missing.

    Raises TargetError for a hold that is empty or has no reason. Such a hold must not be treated as
    "no hold", because the held images must not change.
    """
    if node is NOTHING:
        return None
    hint = "add `reason: …` on its own line below it, or remove the hold"
    if node.null or (node.kind == "mapping" and not node.children):
        raise _line_error(tree, node, "hold is empty", hint)
    fields = _fields(tree, node, "hold", _HOLD)
    if fields["reason"] is NOTHING:
        raise _line_error(tree, node, "hold has no reason", hint)
    return Hold(**_texts_of_fields(tree, fields))


def _build_below_key(tree: Tree, node: Node, key: str) -> Written | None:
    """Return the build below a key (`written` or `deferred`), or None if the build has no fields.

    Raises TargetError if the build's sequence is not a number.
    """
    fields = _fields(tree, node, key, _WRITTEN)
    texts = _texts_of_fields(tree, fields)
    sequence = texts["sequence"]
    if sequence and not _SEQUENCE.fullmatch(sequence):
        raise _line_error(
            tree,
            fields["sequence"],
            f"sequence: {sequence[:50]!r} is not a number",
            "use up to 20 digits",
        )
    build = Build(
        sequence=int(sequence) if sequence else None,
        **{field: texts[field] for field in _BUILD},
    )
    written = Written(
        tag=texts["tag"],
        digest=texts["digest"],
        build=build,
        image_digest=texts["image-digest"],
    )
    return written if written != Written() else None


def _texts_of_fields(tree: Tree, fields: Mapping[str, Node]) -> dict[str, str]:
    """Return the value of each field, with times converted to UTC. Raises TargetError for an
    invalid time.
    """
    texts = {name: _scalar_text(tree, node, name) for name, node in fields.items()}
    for name in _TIMES:
        time = texts.get(name, "")
        if not time:
            continue
        try:
            texts[name] = utc(time)
        except Malformed as error:
            problem = f"{name}: {error.message}"
            raise _line_error(tree, fields[name], problem, error.hint) from error
    return texts


def _scalar_text(tree: Tree, node: Node, name: str) -> str:
    """Return the value of a string, or "" for a null. Raises TargetError for any other node."""
    if node.kind != "scalar" or node.tag not in _TAGS:
        raise _line_error(
            tree,
            node,
            f"{name} is {_kind_in_words(node)}, not a string",
            f'use `{name}: "…"`',
        )
    return "" if node.null else node.value


def _text_list(tree: Tree, node: Node, name: str) -> tuple[str, ...]:
    """Return the strings in a list, or () for a null. Raises TargetError for any other node."""
    hint = f'put each item on its own line below {name}: - "…"'
    if node.null:
        return ()
    if node.kind != "sequence" or node.tag:
        raise _line_error(tree, node, f"{name} is {_kind_in_words(node)}, not a list", hint)
    for item in node.children:
        if item.null:
            raise _line_error(tree, item, f"{name} has an empty item", hint)
    return tuple(_scalar_text(tree, item, f"an item of {name}") for item in node.children)


def _fields(tree: Tree, node: Node, name: str, known: _Shape) -> dict[str, Node]:
    """Return the value of each known key in a mapping. A missing key has the value `NOTHING`.

    `name` is the mapping's name, for messages. Raises TargetError for an unknown key that resembles
    a known key, or that belongs elsewhere in the file, because a misspelled hold would have no
    effect.
    """
    children = _children(tree, node, name)
    known_stems = _STEMS | {_stem(word) for word in known}
    for key, _ in pairs(node):
        if key.value not in known and _stem(key.value) in known_stems:
            raise _line_error(
                tree,
                key,
                f"{name[:50]} has the key {key.value!r}",
                _MISPLACED.format(", ".join(known)),
            )
    return {key: children.get(key, NOTHING) for key in known}


def _stem(key: str) -> str:
    """Return the part that similar keys have in common: the singular in lowercase, without
    whitespace and invisible characters.
    """
    letters = [letter for letter in key.lower() if letter.isprintable() and not letter.isspace()]
    return "".join(letters).rstrip("s")


def _children(tree: Tree, node: Node, name: str) -> dict[str, Node]:
    """Return the keys and values of a mapping, or {} for a null. `name` is the mapping's name, for
    messages.

    Raises TargetError for any other node, and for a key that is not a string or that appears twice.
    """
    if node.null:
        return {}
    short_name = name[:50]
    if node.kind != "mapping" or node.tag:
        hint = "use `key: value` lines"
        if node is not tree.root:
            hint += " below it"
        raise _line_error(
            tree, node, f"{short_name} is {_kind_in_words(node)}, not a mapping", hint
        )
    children: dict[str, Node] = {}
    for key, value in pairs(node):
        if key.kind != "scalar" or key.tag not in _TAGS:
            raise _line_error(
                tree,
                key,
                f"a key in {short_name} is {_kind_in_words(key)}",
                "use a plain word, or quote it",
            )
        if key.value in children:  # YAML readers disagree about which value wins
            raise _line_error(
                tree,
                key,
                f"{key.value[:50]!r} appears twice in {short_name}",
                "keep one of them",
            )
        children[key.value] = value
    return children


def _kind_in_words(node: Node) -> str:
    """Return the node's kind in words, such as "a list", for use in a message."""
    if node.tag and node.kind == "scalar":
        return f"tagged {node.tag}"
    return {
        "mapping": "a mapping",
        "sequence": "a list",
        "alias": "an alias",
    }.get(node.kind, "a single value")


def _line_error(tree: Tree, node: Node, problem: str, hint: str) -> TargetError:
    """Return an error whose message begins with the node's line."""
    return TargetError(f"line {tree.line(node)}: {problem}", hint=hint)


def with_keys_of_newer_versions(tree: Tree, data: FileData) -> FileData:
    """Return the data to write, plus the unknown keys in the file, which come from a newer version
    of Image Update.

    When a hold, a build, or a rollback is removed, any unknown keys in it are removed as well.
    """
    return _with_unknown_keys(tree.root, data, _FILE)


def _with_unknown_keys(node: Node, data: FileData, shape: _Shape) -> FileData:
    """Return the data of one mapping, plus the unknown keys of the same mapping in the file.

    `node` is the mapping in the file, and `data` is what will be written instead. `shape` contains
    the known keys. Nested mappings are handled in the same way.
    """
    combined = dict(data)
    if node.kind != "mapping":
        return combined
    allows_any_key = ANY in shape  # the keys are names, so none of them is unknown
    for key, value in pairs(node):
        name = key.value
        is_known = name in shape or allows_any_key
        if not is_known:
            combined[name] = value
            continue
        inner_shape = shape[name] if name in shape else shape[ANY]
        if inner_shape is None:  # the key's value is a single value or a list
            continue
        inner_data = data.get(name)
        # In a collection, the keys are names: paths below `files`, and aliases below `images`.
        is_collection = ANY in inner_shape
        # A hold, a build, or a rollback. The items of a collection do not count as records.
        is_record = not allows_any_key and not is_collection
        is_removed = is_record and inner_data is None
        if is_removed:  # the record's unknown keys are removed with it
            continue
        # Anything else may contain unknown keys, even if no data is left for it.
        known_data = inner_data if isinstance(inner_data, Mapping) else {}
        inner = _with_unknown_keys(value, known_data, inner_shape)
        if inner:
            combined[name] = inner
    return combined


def _instant(name: str, text: str) -> str:
    """Return a field's time in UTC, or "" for "". Raises TargetError if the value is not a time."""
    if not text:
        return ""
    try:
        return utc(text)
    except Malformed as error:
        raise TargetError(f"{name}: {error.message}", hint=error.hint) from error


def without_surrogates(text: str) -> str:
    """Return the text with each surrogate replaced with U+FFFD.

    Python represents non-UTF-8 bytes in command-line arguments as surrogates, which files cannot
    contain.
    """
    return _SURROGATES.sub("\ufffd", text)


def data_of(states: Mapping[str, State]) -> dict[str, object]:
    """Return the states as nested mappings, lists, and strings, in the file's order and without
    empty values, such as `{"files": {<file>: {"images": {<alias>: {"written": {"tag": "1.2"}}}}}}`.

    Times are normalized. Raises TargetError if a time is invalid or a sequence has more than 20
    digits.
    """
    files = {}
    for path, state in sorted(states.items()):
        images = {}
        for alias, memory in sorted(state.images.items()):
            images[alias] = {
                **asdict(memory),
                "written": _written_data(memory.written),
                "deferred": _written_data(memory.deferred),
            }
        hold = asdict(state.hold) if state.hold else None
        files[path] = {"hold": hold, "images": images}
    return _as_stored({"files": files})


def _written_data(written: Written | None) -> FileData:
    """Return the fields of a written or deferred build, or {} if there is none."""
    if written is None:
        return {}
    sequence = "" if written.build.sequence is None else str(written.build.sequence)
    if sequence and not _SEQUENCE.fullmatch(sequence):
        raise TargetError(f"the sequence {sequence} cannot be stored", hint="use up to 20 digits")
    build = {**asdict(written.build), "sequence": sequence}
    return {
        "tag": written.tag,
        "digest": written.digest,
        **build,
        "image-digest": written.image_digest,
    }


def _as_stored(data: FileData) -> dict[str, object]:
    """Return the data as stored in a file: every value as a string, a list, or a mapping.

    Empty values are omitted, except for a hold's reason.
    """
    stored: dict[str, object] = {}
    for key, value in data.items():
        stored_value: object
        if isinstance(value, Mapping):
            stored_value = _as_stored(value)
        elif isinstance(value, tuple):
            stored_value = [without_surrogates(item) for item in value]
        elif key in _TIMES:
            stored_value = _instant(key, str(value or ""))
        else:
            stored_value = without_surrogates(str(value or ""))
        is_empty_reason = key == "reason" and stored_value == ""
        if stored_value or is_empty_reason:
            stored[without_surrogates(key)] = stored_value
    return stored


def in_fixed_form(tree: Tree, data: FileData) -> str:
    """Return the new text of a state file: the comments at the beginning of its current text,
    followed by the data in the fixed form.
    """
    head = []
    for line in tree.text.splitlines():
        content = line.strip("\ufeff \t")
        is_before_data = not content or content.startswith("#") or line == "---"
        if not is_before_data:
            break
        head.append(line)
    line_ending = eol(tree.text)
    return "".join(line + line_ending for line in (*head, *_lines(data)))


def in_flow(data: object) -> str:
    """Return the data as YAML on one line, such as `{written: {tag: "1.10"}}`.

    Nodes in the data keep their types: their plain scalars remain plain.
    """
    if isinstance(data, Node):
        return _node_in_flow(data)
    if isinstance(data, Mapping):
        entries = [f"{spell(key)}: {in_flow(value)}" for key, value in data.items()]
        return "{" + ", ".join(entries) + "}"
    return flow(cast("Data", data))


def _node_in_flow(node: Node) -> str:
    """Return a node as YAML on one line, including its tags. A plain scalar remains plain if its
    meaning cannot change on this line.
    """
    tag = node.tag
    if tag.startswith(_CORE):
        tag = f"!!{tag.removeprefix(_CORE)}"
    prefix = f"{tag} " if tag else ""
    if node.kind == "scalar":
        can_be_plain = not node.style and _TYPED.isdisjoint(node.value)
        return prefix + (node.value if can_be_plain else double_quoted(node.value))
    if node.kind == "sequence":
        items = [_node_in_flow(item) for item in node.children]
        return f"{prefix}[{', '.join(items)}]"
    entries = [f"{_node_in_flow(key)}: {_node_in_flow(value)}" for key, value in pairs(node)]
    return prefix + "{" + ", ".join(entries) + "}"


def _lines(data: FileData) -> list[str]:
    """Return the data as lines of YAML in block style, one key or item per line. A node in the data
    is written on a single line.
    """
    lines: list[str] = []
    for key, value in data.items():
        name = spell(key)
        if isinstance(value, str):
            lines.append(f"{name}: {spell(value)}")
        elif isinstance(value, Node):
            lines.append(f"{name}: {in_flow(value)}")
        elif isinstance(value, Mapping):
            inner_lines = _lines(value)
            if len(name) > _LONG_KEY:  # an explicit key; the first inner line follows its `:`
                lines.append(f"? {name}")
                lines.append(f": {inner_lines[0]}")
                inner_lines = inner_lines[1:]
            else:
                lines.append(f"{name}:")
            lines += [f"  {line}" for line in inner_lines]
        else:
            lines.append(f"{name}:")
            lines += [f"- {spell(item)}" for item in cast("list[str]", value)]
    return lines


def read_state(text: str) -> dict[str, State]:
    """Return the states in a state file's text, keyed by write-back file, or {} if the text is
    empty or contains only comments.

    Times are RFC 3339 in UTC. Raises a TargetError that contains the line, the mistake, and the
    fix.
    """
    return states_of(_state_tree(text))


def write_state(text: str, states: Mapping[str, State]) -> str:
    """Return a state file's text with its states replaced by these. Return "" if nothing remains to
    be stored, which means that the file must be removed.

    The text is unchanged if it already contains these states in any form. Keys from newer versions
    are kept. Raises TargetError if `text` is not a state file or if a time in the states is
    invalid.
    """
    wanted_data = data_of(states)
    is_blank = not text.strip("\ufeff \t\r\n")
    tree = _state_tree("" if is_blank else text)
    current_data = data_of(states_of(tree))
    data_to_write = with_keys_of_newer_versions(tree, wanted_data)
    if not data_to_write:
        return ""
    if current_data == wanted_data:
        return text
    new_text = in_fixed_form(tree, data_to_write)
    if is_blank:
        new_text = _HEAD + new_text
    _require_same_data(new_text, wanted_data, data_to_write)
    return new_text


def _require_same_data(text: str, state_data: FileData, all_data: FileData) -> None:
    """Raise TargetError if parsing a new state file's text does not result in the data that was to
    be written.

    `state_data` contains the states, and `all_data` also contains the keys from newer versions.
    """
    tree = _state_tree(text)
    has_same_states = data_of(states_of(tree)) == state_data
    data_in_text = with_keys_of_newer_versions(tree, state_data)
    has_same_data = in_flow(_sorted(data_in_text)) == in_flow(_sorted(all_data))
    if not has_same_states or not has_same_data:
        raise TargetError(
            "the state is too large for one state file",
            hint="shorten the hold's reason",
        )


def _sorted(data: object) -> object:
    """Return the same data with sorted keys, so that the order of keys does not affect
    comparisons.
    """
    if not isinstance(data, Mapping):
        return data
    return {key: _sorted(value) for key, value in sorted(data.items())}


def _state_tree(text: str) -> Tree:
    """Return the tree of a state file's text.

    Raises a TargetError that suggests a fix if the text is not YAML, is too large, or contains a
    line break that only some YAML readers recognize.
    """
    if len(text) > LARGEST:
        raise TargetError("the state file is larger than 1 MB", hint=_CORRECT)
    try:
        tree = parse(text)
    except TargetError as error:
        _refuse_conflict(text, error)
        raise TargetError(error.message, hint=_CORRECT) from error
    refuse_odd_breaks(tree)
    return tree


def _refuse_conflict(text: str, error: TargetError) -> None:
    """Raise TargetError if the text shows signs of a merge conflict, such as `<<<<<<< HEAD`.

    `error` is the error that parsing the text raised.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_CONFLICT[0]):
            signs = ", ".join(sign.strip() for sign in _CONFLICT)
            hint = f"keep one side, and remove the lines that begin with {signs}"
            raise TargetError(
                f"line {number}: a merge conflict was committed",
                hint=hint,
            ) from error
