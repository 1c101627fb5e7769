"""Two aliases for one image, an app and its migration. Neither changes the other's entries."""

from dataclasses import replace
from typing import Any

import pytest
from editors.editing import OVERRIDE, edit, read, target

from task.editors import live
from task.errors import AnnotationError
from task.image import parse_image
from task.model import Claim, File, Keys, Source, Target, TargetKind

WEB = "ghcr.io/acme/web"
IDENTITY = "ghcr.io/acme/web"
PATHS = {
    "kustomization": "apps/web/kustomization.yaml",
    "kustomize-override": OVERRIDE,
    "manifests": "apps/web/pods.yaml",
}


def aim(kind: TargetKind, alias: str, **names: str) -> Target:
    """Return the target for one alias. `names` maps each alias to its name, or "" for none."""
    field = "manifests_name" if kind == "manifests" else "kustomize_name"
    others = tuple(
        Claim(one, IDENTITY, **{field: name}) for one, name in names.items() if one != alias
    )
    return target(kind, WEB, Keys(**{field: names[alias]}), alias=alias, others=others)


def kustomization(*entries: str) -> str:
    """Return a kustomization. Each `name version` is an entry that maps a name to the image."""
    said = (one.split() for one in entries)
    return "images:\n" + "".join(
        f"- name: {name}\n  newName: {WEB}\n  newTag: {tag}\n" for name, tag in said
    )


def override(*entries: str) -> str:
    said = (one.split() for one in entries)
    return "kustomize:\n  images:\n" + "".join(f"  - {name}={WEB}:{tag}\n" for name, tag in said)


def manifests(*entries: str) -> str:
    said = (one.split() for one in entries)
    pods = (
        f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: {name}:{tag}\n"
        for name, tag in said
    )
    return "---\n".join(pods)


SHAPES: list[Any] = [
    ("kustomization", kustomization),
    ("kustomize-override", override),
    ("manifests", manifests),
]
TWO = {"app": "web", "migrate": "web-db"}
ROWS = [
    # aliases and their image names, the alias to write, before, after
    (TWO, "app", ["web v1", "web-db v1"], ["web v2", "web-db v1"]),
    (TWO, "migrate", ["web v1", "web-db v1"], ["web v1", "web-db v2"]),
    (TWO, "migrate", ["web-db v1", "web v9"], ["web-db v2", "web v9"]),
    # an entry that neither alias names is kept: two conflicting rules cannot both apply to it
    (TWO, "app", ["web v1", f"{WEB} v1"], ["web v2", f"{WEB} v1"]),
    # an alias without an image name owns the entries that no other alias names
    (
        {"app": "", "migrate": "web-db"},
        "app",
        [f"{WEB} v1", "web-db v1"],
        [f"{WEB} v2", "web-db v1"],
    ),
    (
        {"app": "", "migrate": "web-db"},
        "migrate",
        [f"{WEB} v1", "web-db v1"],
        [f"{WEB} v1", "web-db v2"],
    ),
    # a shared name belongs to both aliases, as before
    ({"app": "web", "migrate": "web"}, "app", ["web v1"], ["web v2"]),
    # a single alias owns every entry of its image, as before
    ({"app": "web"}, "app", ["web v1", f"{WEB} v1"], ["web v2", f"{WEB} v2"]),
]


@pytest.mark.parametrize(("kind", "text"), SHAPES)
@pytest.mark.parametrize(("names", "alias", "before", "after"), ROWS)
def test_an_alias_writes_only_its_own_entry(
    kind: TargetKind,
    text: Any,
    names: dict[str, str],
    alias: str,
    before: list[str],
    after: list[str],
) -> None:
    files, to = {PATHS[kind]: File(text(*before))}, aim(kind, alias, **names)
    changed, edits = edit(files, to, f"{WEB}:v2")
    assert changed[PATHS[kind]].text == text(*after)
    assert edits
    assert edit({**files, **changed}, to, f"{WEB}:v2")[0] == {}
    found = read({**files, **changed}, to)
    assert (found.tag, found.sound) == ("v2", True)


@pytest.mark.parametrize(("kind", "text"), SHAPES[:2])
def test_an_alias_adds_an_entry_and_keeps_the_others(kind: TargetKind, text: Any) -> None:
    files = {PATHS[kind]: File(text("web v1"))}
    changed, _ = edit(files, aim(kind, "migrate", **TWO), f"{WEB}:v2")
    assert changed[PATHS[kind]].text == text("web v1", "web-db v2")
    assert read(files, aim(kind, "migrate", **TWO)).tag == ""


def test_the_entry_of_another_alias_in_the_spec_is_copied_unchanged() -> None:
    source = Source("x", "apps/web", images=(f"web={WEB}:v1", f"web-db={WEB}:v1"))
    to = replace(aim("kustomize-override", "migrate", **TWO), source=source)
    changed, _ = edit({}, to, f"{WEB}:v2")
    assert f"web={WEB}:v1" in changed[OVERRIDE].text
    assert f"web-db={WEB}:v2" in changed[OVERRIDE].text


@pytest.mark.parametrize("kind", ["kustomization", "kustomize-override"])
def test_an_alias_whose_only_entry_belongs_to_another_alias_is_an_error(kind: TargetKind) -> None:
    to = aim(kind, "app", app="", migrate=WEB)
    files = {PATHS[kind]: File("{}\n")}
    for call in (lambda: read(files, to), lambda: edit(files, to, f"{WEB}:v2")):
        with pytest.raises(AnnotationError, match="belongs to migrate") as caught:
            call()
        assert "app.kustomize.image-name" in caught.value.hint


def test_a_line_marked_for_another_alias_is_not_written() -> None:
    line = '  - image: {}:v1 # {{"$imagepolicy": "argocd:{}"}}\n'
    text = (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
        + line.format(WEB, "app")
        + line.format(WEB, "migrate")
    )
    path = PATHS["manifests"]
    changed, _ = edit({path: File(text)}, aim("manifests", "app", app="", migrate=""), f"{WEB}:v2")
    assert changed[path].text == text.replace(":v1", ":v2", 1)


@pytest.mark.parametrize(("alias", "place"), [("app", 0), ("migrate", 1)])
def test_an_alias_patches_only_its_own_entry_in_the_live_application(
    alias: str, place: int
) -> None:
    images = [f"web={WEB}:v1", f"web-db={WEB}:v1"]
    manifest = {"spec": {"source": {"kustomize": {"images": images}}}}
    to = replace(
        aim("kustomize-override", alias, **TWO), kind="live", source=Source("x", kind="Kustomize")
    )
    assert live.read(manifest, 0, to).sound
    operations, _ = live.write(manifest, 0, to, parse_image(f"{WEB}:v2"))
    assert [one["path"] for one in operations if one["op"] == "replace"] == [
        f"/spec/source/kustomize/images/{place}"
    ]
