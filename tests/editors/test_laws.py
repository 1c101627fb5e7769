"""The laws that every editor obeys, for YAML in every style."""

import copy
from typing import Any

import yaml
from editors.editing import (
    DIGEST,
    OTHER,
    OVERRIDE,
    documents,
    plain,
    read,
    styled,
    target,
    write_one,
    yaml_texts,
)
from hypothesis import given
from hypothesis import strategies as st

from task.model import File, Keys

VALUES = "apps/web/values.yaml"
TAGS = st.sampled_from(
    [
        "v2",
        "2.0",
        "1e3",
        "0123",
        "yes",
        "2024-01-02",
        "12345678",
        "1.2.3-rc.1",
        "latest",
        "0x1f",
        "on",
        "1_0",
    ]
)


def escaped(key: str) -> str:
    return key.replace(".", "\\.")


def scalar_paths(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all scalars."""
    if isinstance(data, str):
        return [prefix]
    items = data.items() if isinstance(data, dict) else enumerate(data)
    return [path for key, each in items for path in scalar_paths(each, (*prefix, key))]


def mapping_paths(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all mappings."""
    if isinstance(data, str):
        return []
    items = data.items() if isinstance(data, dict) else enumerate(data)
    own = [prefix] if isinstance(data, dict) else []
    return own + [path for key, each in items for path in mapping_paths(each, (*prefix, key))]


def path_text(path: tuple[Any, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{escaped(step)}" for step in path)
    return text.removeprefix(".")


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(data)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def is_string(text: str, path: tuple[Any, ...], value: str) -> bool:
    """Return whether a YAML 1.1 reader finds this string at a path, whatever the key types are."""
    node: Any = next(yaml.compose_all(text.removeprefix("\ufeff"), yaml.SafeLoader))
    for step in path:
        inner = node.value
        node = (
            inner[step]
            if isinstance(step, int)
            else next(each for key, each in inner if key.value == step)
        )
    return (node.tag, node.value) == ("tag:yaml.org,2002:str", value)


def changed_lines(before: str, after: str) -> int:
    """Return the number of lines from the first to the last line that differs."""
    old, new = before.splitlines(), after.splitlines()
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return max(len(old), len(new))


@given(yaml_texts(), TAGS, st.data())
def test_editing_an_existing_value_changes_only_that_value(
    drawn: tuple[str, dict[str, Any]], tag: str, data: st.DataObject
) -> None:
    text, content = drawn
    paths = [path for path in scalar_paths(content) if path]
    if not paths:
        return
    path = data.draw(st.sampled_from(paths))
    aim = target("helmvalues", keys=Keys(tag=path_text(path)))
    after = write_one(aim, VALUES, text, f"ghcr.io/acme/api:{tag}")
    assert plain(after) == put(plain(text), path, tag)
    assert is_string(after, path, tag)
    assert documents(after)[1:] == documents(text)[1:]
    assert changed_lines(text, after) <= 1
    assert write_one(aim, VALUES, after, f"ghcr.io/acme/api:{tag}") == after
    said = read({VALUES: File(after)}, aim)
    assert (said.tag, said.digest, said.sound) == (tag, "", True)


@given(yaml_texts(), TAGS, st.data())
def test_adding_a_missing_key_changes_nothing_else(
    drawn: tuple[str, dict[str, Any]], tag: str, data: st.DataObject
) -> None:
    text, content = drawn
    path = (*data.draw(st.sampled_from(mapping_paths(content))), "newKey")
    deeper = data.draw(st.booleans())
    aim = target("helmvalues", keys=Keys(tag=path_text(path) + (".tag" if deeper else "")))
    after = write_one(aim, VALUES, text, f"ghcr.io/acme/api:{tag}")
    assert plain(after) == put(plain(text), path, {"tag": tag} if deeper else tag)
    assert documents(after)[1:] == documents(text)[1:]
    assert changed_lines(text, after) <= 3
    assert write_one(aim, VALUES, after, f"ghcr.io/acme/api:{tag}") == after
    said = read({VALUES: File(after)}, aim)
    assert (said.tag, said.digest, said.sound) == (tag, "", True)


IMAGE = "ghcr.io/acme/api"
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["nginx", IMAGE, "api", "reg:5000/a"])},
        optional={
            "newTag": st.sampled_from(["v1", "1.0", "2"]),
            "digest": st.just(OTHER),
            "newName": st.sampled_from([IMAGE, "mirror.example/x"]),
            "tagSuffix": st.just("-x"),
        },
    ),
    max_size=3,
)


@st.composite
def kustomizations(draw: Any) -> tuple[str, list[dict[str, str]] | None]:
    """Draw a kustomization file in any style, and its images."""
    images = draw(st.none() | ENTRIES)
    data = {
        "kind": "Kustomization",
        "resources": ["d.yaml"],
        **({} if images is None else {"images": images}),
        "x": "y",
    }
    return draw(styled(data)), images


def about(entry: dict[str, str]) -> bool:
    return IMAGE in {entry["name"], entry.get("newName")}


@given(kustomizations(), st.sampled_from([":2.10", f":v2@{DIGEST}", f"@{DIGEST}"]))
def test_editing_a_kustomization_changes_only_the_image_entry(
    drawn: tuple[str, list[dict[str, str]] | None], version: str
) -> None:
    text, images = drawn
    path, aim = "k/kustomization.yaml", target("kustomization", IMAGE, path="k")
    after = write_one(aim, path, text, f"{IMAGE}{version}")
    tag, _, digest = version.removeprefix(":").partition("@")
    fields = {key: value for key, value in (("newTag", tag), ("digest", digest)) if value}
    kept = [
        {k: v for k, v in each.items() if not about(each) or k not in {"newTag", "digest"}}
        for each in images or ()
    ]
    wanted = [{**each, **fields} if about(each) else each for each in kept]
    if not any(map(about, wanted)):
        wanted.append({"name": IMAGE, **fields})
    assert plain(after) == {**plain(text), "images": wanted}
    assert write_one(aim, path, after, f"{IMAGE}{version}") == after
    reading = read({path: File(after)}, aim)
    assert (reading.tag, reading.digest, reading.sound) == (tag, digest, True)


@given(
    st.data(),
    st.lists(st.sampled_from(["image.tag", "image.name", "log"]), max_size=4, unique=True),
)
def test_editing_an_override_file_changes_only_the_image_parameters(
    data: st.DataObject, names: list[str]
) -> None:
    items = [
        {"name": name, "value": "v1"} | ({"forcestring": "true"} if name != "log" else {})
        for name in names
    ]
    content = {"helm": {"releaseName": "x", "parameters": items}, "other": ["a", {"b": "c"}]}
    text = data.draw(styled(content, quotes=False))
    aim = target("helm-override")
    after = write_one(aim, OVERRIDE, text, f"{IMAGE}:1.10")
    own = {"image.name": IMAGE, "image.tag": "1.10"}
    wanted = [{**each, "value": own.get(each["name"], "v1")} for each in items]
    wanted += [
        {"name": k, "value": v, "forcestring": "true"} for k, v in own.items() if k not in names
    ]
    assert plain(after) == {**content, "helm": {"releaseName": "x", "parameters": wanted}}
    assert write_one(aim, OVERRIDE, after, f"{IMAGE}:1.10") == after
    said = read({OVERRIDE: File(after)}, aim)
    assert (said.name, said.tag, said.digest, said.sound) == (IMAGE, "1.10", "", True)


@given(
    st.data(),
    st.lists(
        st.sampled_from([IMAGE, f"{IMAGE}:v1", "nginx:1", f"{IMAGE}@{OTHER}"]),
        min_size=1,
        max_size=4,
    ),
)
def test_editing_a_manifest_changes_only_containers_with_the_image(
    data: st.DataObject, images: list[str]
) -> None:
    containers = [{"name": f"c{number}", "image": each} for number, each in enumerate(images)]
    content = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": containers, "image": IMAGE},
    }
    text = data.draw(styled(content))
    aim = target("manifests", path="k")
    if images == ["nginx:1"] * len(images):
        return
    after = write_one(aim, "k/d.yaml", text, f"{IMAGE}:1.10")
    new = [
        {**each, "image": f"{IMAGE}:1.10" if IMAGE in each["image"] else each["image"]}
        for each in containers
    ]
    assert plain(after) == {**content, "spec": {"containers": new, "image": IMAGE}}
    said = read({"k/d.yaml": File(after)}, aim)
    assert (said.name, said.tag, said.digest, said.sound) == (IMAGE, "1.10", "", True)
