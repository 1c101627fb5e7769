"""Input that must not be edited is rejected with a reason, in bounded time."""

import time
from typing import Any

import pytest
from editors.editing import OVERRIDE, PATHS, edit, read, target
from hypothesis import given
from hypothesis import strategies as st

from task.editors import EDITORS
from task.editors.yaml.tree import parse
from task.errors import AnnotationError, TargetError
from task.model import File, Keys, Reading, Target, TargetKind

KINDS: list[TargetKind] = [*EDITORS]
CREATED = [
    "helmvalues",
    "helm-override",
    "kustomize-override",
    "plugin-override",
]  # targets whose files are created if missing
FILE_OF = {"kustomization": "apps/web/kustomization.yaml", "manifests": "apps/web/deploy.yaml"}
BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def aim(kind: TargetKind) -> Target:
    """Return a target with all keys that this kind of target needs."""
    path = FILE_OF["manifests"] if kind == "manifests" else PATHS[kind]
    return target(kind, keys=Keys(tag="image.tag"), path=path)


def file_of(kind: TargetKind) -> str:
    return FILE_OF.get(kind, PATHS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: 'x\n",
        "- a\n",
        "just text\n",
        "\ta: 1\n",
        "a: *nothing\n",
        "a: \x01\n",
        "[" * 300,
        "? " * 300,
        "{a: " * 201,
    ],
    ids=[
        "flow",
        "quote",
        "list",
        "scalar",
        "tab",
        "alias",
        "control",
        "deep",
        "deep keys",
        "deep maps",
    ],
)
def test_a_file_that_is_not_a_yaml_mapping_is_rejected(kind: TargetKind, text: str) -> None:
    with pytest.raises(TargetError) as caught:
        edit({file_of(kind): File(text)}, aim(kind), "ghcr.io/acme/api:2")
    assert caught.value.hint
    assert caught.value.subject


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("file", "words"),
    [
        (File("", "120000"), "symbolic link"),
        (File("", "160000"), "submodule"),
        (File("", "040000"), "folder"),
        (File("", problem="not UTF-8 text"), "not UTF-8 text"),
        (File("a: 1\n" * 2_200_000), "larger than 10 MB"),
        (File(LFS), "Git LFS"),
    ],
    ids=["link", "submodule", "folder", "utf-8", "large", "lfs"],
)
def test_links_submodules_folders_and_large_files_are_rejected(
    kind: TargetKind, file: File, words: str
) -> None:
    if kind == "manifests" and words == "folder":
        return  # a folder is valid here
    for call in (
        lambda one, files: read(files, one),
        lambda one, files: edit(files, one, "ghcr.io/acme/api:2"),
    ):
        with pytest.raises(TargetError, match=words):
            call(aim(kind), {file_of(kind): file})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["120000", "160000", "100644"])
def test_a_file_in_place_of_a_folder_is_rejected(kind: TargetKind, mode: str) -> None:
    with pytest.raises(TargetError, match="apps is"):
        read({"apps": File("", mode)}, aim(kind))


@pytest.mark.parametrize("kind", CREATED)
def test_a_missing_file_that_can_be_created_is_read_as_empty(kind: TargetKind) -> None:
    assert read({}, aim(kind)) == Reading(file=PATHS[kind])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in CREATED])
def test_a_missing_file_that_is_never_created_is_an_error(kind: TargetKind) -> None:
    with pytest.raises(TargetError):
        read({}, aim(kind))


MERGE_BOMB = "a0: &a0 {x: y}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
)


@pytest.mark.parametrize("bomb", [BOMB, MERGE_BOMB], ids=["list", "merge"])
def test_an_alias_bomb_is_refused_in_no_time(bomb: str) -> None:
    begun = time.process_time()
    with pytest.raises(TargetError, match="aliases expand to more than"):
        edit(
            {"v.yaml": File(bomb + "image:\n  tag: v1\n")},
            target("helmvalues", path="v.yaml"),
            "ghcr.io/acme/api:2",
        )
    assert time.process_time() - begun < 2


def test_many_aliases_are_accepted() -> None:
    text = (
        "base: &b {a: 1, b: 2}\n"
        + "".join(f"k{n}: *b\n" for n in range(5000))
        + "image:\n  tag: v1\n"
    )
    after, _ = edit(
        {"v.yaml": File(text)}, target("helmvalues", path="v.yaml"), "ghcr.io/acme/api:v2"
    )
    assert after["v.yaml"].text == text.replace("v1", "v2")


def test_a_recursive_anchor_is_rejected() -> None:
    with pytest.raises(TargetError, match="has no anchor"):
        parse("a: &a [*a]\n")


@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_endless_brackets_are_refused_at_once(size: int) -> None:
    begun = time.process_time()
    with pytest.raises(TargetError):
        parse("[" * size)
    assert time.process_time() - begun < 5


@given(st.text("abc:-[]{}&*!|>'\"%@`#,? \n\t0123~<=.", max_size=60))
def test_random_text_is_either_edited_correctly_or_rejected(text: str) -> None:
    for kind in KINDS:
        try:
            changed, edits = edit({file_of(kind): File(text)}, aim(kind), "ghcr.io/acme/api:2")
        except TargetError:
            continue
        assert edits
        assert edit({file_of(kind): File(text), **changed}, aim(kind), "ghcr.io/acme/api:2") == (
            {},
            (),
        )


@pytest.mark.parametrize(
    ("kind", "keys", "words"),
    [
        ("helmvalues", Keys(name="image.name"), "there is no key for the tag"),
        ("helmvalues", Keys(name="image", tag="image"), "both"),
        ("helm-override", Keys(name="image", tag="image"), "both"),
        ("plugin-override", Keys(name="IMAGE"), "the plugin variable for the tag"),
    ],
)
def test_keys_without_a_place_for_the_tag_cause_annotation_errors(
    kind: TargetKind, keys: Any, words: str
) -> None:
    with pytest.raises(AnnotationError, match=words):
        read({}, target(kind, keys=keys))


def test_an_extremely_long_key_path_is_rejected() -> None:
    one = target("helmvalues", keys=Keys(tag=".".join("a" * 5000)))
    with pytest.raises(TargetError, match="200 steps"):
        edit({}, one, "ghcr.io/acme/api:2")


def test_an_edit_keeps_the_file_mode() -> None:
    changed, _ = edit(
        {OVERRIDE: File("helm:\n", "100755")}, target("helm-override"), "ghcr.io/acme/api:2"
    )
    assert changed[OVERRIDE].mode == "100755"


def test_a_manifest_after_a_byte_order_mark_is_found() -> None:
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: ghcr.io/acme/api:v1\n"
    text = f"{pod}---\n\ufeff# of another file\n{pod}"
    new, _ = edit({"apps/web/pod.yaml": File(text)}, target("manifests"), "ghcr.io/acme/api:v2")
    assert (
        new["apps/web/pod.yaml"].text
        == text.replace("v1\n---", "v2\n---").removesuffix("v1\n") + "v2\n"
    )
