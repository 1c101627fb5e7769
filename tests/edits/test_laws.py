"""The laws of every editor, over YAML in every style."""

import copy
import difflib
from typing import Any

from edits.editing import documents, plain, read, target, typed, write_one, yaml_texts
from hypothesis import given
from hypothesis import strategies as st

from task.model import File, Keys

VALUES = "apps/web/values.yaml"
TAGS = st.sampled_from(["v2", "2.0", "1e3", "0123", "yes", "2024-01-02", "12345678", "1.2.3-rc.1", "latest", "0x1f", "on", "1_0"])


def escaped(key: str) -> str:
    return key.replace(".", "\\.")


def scalar_paths(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all scalars."""
    if isinstance(data, str):
        return [prefix]
    items = data.items() if isinstance(data, dict) else enumerate(data)
    return [path for key, each in items for path in scalar_paths(each, (*prefix, key))]


def mapping_paths(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all mappings."""
    if isinstance(data, str):
        return []
    items = data.items() if isinstance(data, dict) else enumerate(data)
    own = [prefix] if isinstance(data, dict) else []
    return own + [path for key, each in items for path in mapping_paths(each, (*prefix, key))]


def path_text(path: tuple[Any, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{escaped(step)}" for step in path)
    return text.removeprefix(".")


def put(data: Any, path: tuple[Any, ...], value: str) -> Any:
    changed = copy.deepcopy(data)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def typed_at(text: str, path: tuple[Any, ...]) -> Any:
    """What a YAML 1.1 reader takes for a value, whatever it takes the keys on the way for."""
    letters, data = plain(text), typed(text)
    for step in path:
        data = list(data.values())[list(letters).index(step)] if isinstance(letters, dict) else data[step]
        letters = letters[step]
    return data


def changed_lines(before: str, after: str) -> int:
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


@given(yaml_texts(), TAGS, st.data())
def test_a_scalar_that_is_there(drawn: tuple[str, dict[str, Any]], tag: str, data: st.DataObject) -> None:
    text, content = drawn
    paths = [path for path in scalar_paths(content) if path]
    if not paths:
        return
    path = data.draw(st.sampled_from(paths))
    aim = target("helmvalues", keys=Keys(tag=path_text(path)))
    after = write_one(aim, VALUES, text, f"ghcr.io/acme/api:{tag}")
    assert plain(after) == put(plain(text), path, tag)
    assert typed_at(after, path) == tag
    assert documents(after)[1:] == documents(text)[1:]
    assert changed_lines(text, after) <= 1
    assert write_one(aim, VALUES, after, f"ghcr.io/acme/api:{tag}") == after
    assert read({VALUES: File(after)}, aim)[1:4] == (tag, "", True)


@given(yaml_texts(), TAGS, st.data())
def test_a_key_that_is_not_there(drawn: tuple[str, dict[str, Any]], tag: str, data: st.DataObject) -> None:
    text, content = drawn
    path = (*data.draw(st.sampled_from(mapping_paths(content))), "newKey")
    deeper = data.draw(st.booleans())
    aim = target("helmvalues", keys=Keys(tag=path_text(path) + (".tag" if deeper else "")))
    after = write_one(aim, VALUES, text, f"ghcr.io/acme/api:{tag}")
    assert plain(after) == put(plain(text), path, {"tag": tag} if deeper else tag)
    assert documents(after)[1:] == documents(text)[1:]
    assert changed_lines(text, after) <= 3
    assert write_one(aim, VALUES, after, f"ghcr.io/acme/api:{tag}") == after
    assert read({VALUES: File(after)}, aim)[1:4] == (tag, "", True)
