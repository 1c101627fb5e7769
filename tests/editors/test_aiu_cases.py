"""Comparison with Argo CD Image Updater's edits of the same files. A table explains differences."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from editors.editing import edit, image, plain, source, target, typed
from support import DATA

from task.editors.helm_values import read
from task.editors.override_kustomize import parse_entry
from task.editors.yaml.spelling import plain_safe
from task.errors import TargetError
from task.image import parse_image_list
from task.model import Entry, File, Keys, Parameter, Source, Target, TargetKind

ON_PURPOSE = {
    "set-list-of-lists": {"images": [["a", "c"]]},  # we support indexes at any depth
    "set-parent-null": {"image": {"tag": "v2"}},  # a null parent becomes a mapping
    "set-nested-yes": {"image": {"tag": "yes"}},  # quoted, so that the value stays a string
    # None: the case tests a different feature
    "doc-empty-existing": None,  # the case writes no image; copied entries are tested separately
    "doc-quoting": None,  # six images, none of them live; quoting is in a separate table
    "doc-invalid-existing": TargetError,  # a file that is not a mapping is rejected, not replaced
    "doc-other-keys-dropped": {
        "helm": {
            "releaseName": "keep",
            "parameters": [
                {"name": "image.tag", "value": "2.0.0", "forcestring": "true", "extra": "1"},
                {"name": "image.name", "value": "nginx", "forcestring": "true"},
            ],
        },
        "kustomize": {"namePrefix": "x"},
    },  # other keys remain; the image name is written as AIU does for a live image
    "doc-no-section": None,  # nothing to write
    "doc-1411": {
        "kustomize": {"images": ["docker.io/library/nginx:1.0.1"]}
    },  # edited in place, keeping the file's spelling
    "flow-hostport-existing-file": {
        "kustomize": {"images": ["reg.example:5000/a:1.1.0", "reg.example:5000/b:1.2.0"]}
    },  # issue 516: both images are written
    "merge-docker-io-org": [
        "docker.io/jannfis/foobar:1.0.1"
    ],  # one repository, one entry, keeping the file's spelling
    "merge-x-duplicates": ["a:3", "a:3"],  # all duplicates receive the new tag
    "k-multi-registry": {
        "kustomize": {
            "images": [
                "jannfis/foobar:1.0.1",
                "jannfis/barbar:1.0.1",
                "gcr.io/jannfis/foobar:1.0.3",
                "gcr.io/jannfis/barbar:1.0.3",
            ]
        }
    },  # an image in another registry is a different image, so its spec entry is copied
    # an entry only in the spec stays hidden: Argo CD has ignored it since the file was created
    "doc-merge": {"kustomize": {"images": ["existing:latest", "updated:latest"]}},
    "flow-type-none": None,  # this is decided before an editor is called
    "set-x-two-docs": TargetError,
}


def cases(suite: str, *kinds: str) -> list[Any]:
    content = json.loads((DATA / "cases" / f"{suite}.json").read_text())
    found = [case for case in content["cases"] if case["id"].split("-")[0] in kinds]
    return [
        pytest.param(case, id=case["id"])
        for case in found
        if ON_PURPOSE.get(case["id"], "") is not None
    ]


def meant(case: dict[str, Any]) -> Any:
    """Return the expected outcome: the parsed content, or TargetError."""
    if case["id"] in ON_PURPOSE:
        return ON_PURPOSE[case["id"]]
    expect = case.get("expect_v1", case["expect"])
    if isinstance(expect, list):
        return expect
    return TargetError if "error" in expect else letters(expect["parsed"])


def letters(data: Any) -> Any:
    """Return data with all scalars as strings, as `plain` reads them."""
    return plain(json.dumps(data))


def outcome(aim: Target, path: str, text: str | None, reference: str) -> Any:
    files = {} if text is None else {path: File(text)}
    try:
        changed, _ = edit(files, aim, reference)
    except TargetError:
        return TargetError
    return plain({**files, **changed}[path].text)


@pytest.mark.parametrize("case", cases("helmvalues", "set"))
def test_a_key_path_is_written_as_in_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    aim = target("helmvalues", "acme/x", Keys(tag=given["key"]), path="v.yaml")
    assert outcome(aim, "v.yaml", given["text"], f"acme/x:{given['value']}") == meant(case)


@pytest.mark.parametrize("case", cases("helmvalues", "get"))
def test_a_key_path_is_read_as_in_image_updater(case: dict[str, Any]) -> None:
    given, expect = case["input"], case["expect"]
    aim = target("helmvalues", "acme/x", Keys(tag=given["key"]), path="v.yaml")
    files = {"v.yaml": File(given["text"])}
    if expect.get("error") == "not a scalar":
        with pytest.raises(TargetError):
            read(files, aim)
    else:
        assert read(files, aim).tag == expect.get("value", "")


def test_the_same_texts_are_written_unquoted_as_in_image_updater() -> None:
    row = next(case.values[0] for case in cases("helmvalues", "safe"))["input"]
    assert [text for text in row["safe_unquoted"] if not plain_safe(text)] == []
    assert [text for text in row["must_quote_or_remarshal"] if plain_safe(text)] == []


def entries(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the alias and the image of each entry in the image list, without constraints."""
    for found in parse_image_list(given["annotations"]["image-list"]):
        assert isinstance(found, Entry)
        yield found.alias, found.image.name


def keys_of(given: dict[str, Any], alias: str, name: str) -> Keys:
    get = given["annotations"].get
    prefix = alias or name.rpartition("/")[2]
    return Keys(
        get(f"{prefix}.helm.image-name", ""),
        get(f"{prefix}.helm.image-tag", ""),
        get(f"{prefix}.helm.image-spec", ""),
        get(f"{prefix}.kustomize.image-name", ""),
    )


def spec_of(given: dict[str, Any]) -> Source:
    section = given.get("source") or next(each for each in given["sources"] if "helm" in each)
    found = section.get("helm", {}).get("parameters", ())
    return source(
        parameters=tuple(
            Parameter(each["name"], each["value"], each.get("forceString", False)) for each in found
        ),
        images=tuple(section.get("kustomize", {}).get("images", ())),
    )


@pytest.mark.parametrize("case", cases("helmvalues", "doc"))
def test_values_files_are_written_as_in_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    text, path = given["existing"], "v.yaml"
    if meant(case) is TargetError:
        assert (
            outcome(target("helmvalues", "nginx", Keys("a", "b"), path=path), path, text, "nginx:1")
            is TargetError
        )
        return
    spec = {each.name: each.value for each in spec_of(given).parameters}
    for alias, name in entries(given):
        keys = keys_of(given, alias, name)
        new = f"{spec.get(keys.name, name)}:{spec.get(keys.tag, 'v1.0.0')}"
        aim = target("helmvalues", new, keys, path=path)
        changed, _ = edit({} if text is None else {path: File(text)}, aim, new)
        text = changed[path].text if changed else text
    assert text is not None
    assert plain(text) == meant(case)


@pytest.mark.parametrize("case", cases("override-helm", "doc") + cases("override-kustomize", "doc"))
def test_override_files_are_written_as_in_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    spec, helm = spec_of(given), given["source_type"] == "Helm"
    newest = spec.images[-1] if not helm else f"nginx:{spec.parameters[-1].value}"
    reference = newest if ":" in newest else f"{newest}:1"
    kind: TargetKind = "helm-override" if helm else "kustomize-override"
    aim = target(
        kind, reference, keys_of(given, "n", "nginx"), source=spec, path="a/.argocd-source-web.yaml"
    )
    assert outcome(aim, aim.path, given["existing"], reference) == meant(case)


def newest(tags: list[Any]) -> str:
    """Return the registry's newest image: its tag and digest, or the highest version."""
    if isinstance(tags[0], dict):
        return f"{tags[0]['name']}@{tags[0]['digest']}"
    return str(max(tags, key=lambda tag: [int(part) for part in tag.lstrip("v").split(".")]))


FLOWS = [
    case
    for suite in (
        "override-helm",
        "override-kustomize",
        "kustomization",
        "helmvalues",
        "update-flow",
    )
    for case in cases(suite, "flow", "k", "git", "tags")
    if case.values[0]["expect"].get("files_changed")
]


@pytest.mark.parametrize("case", FLOWS)
def test_complete_updates_match_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    files = {path: File(text) for path, text in given.get("files", {}).items()}
    (path,) = case["expect"]["files_changed"]
    kind = kind_of(given)
    for alias, name in entries(given):
        if not any(
            live.startswith((f"{name}:", f"{name}@")) or "kname" in case["id"]
            for live in given["live_images"]
        ):
            continue
        tags = given["registry_tags"].get(name) or given["registry_tags"].get(
            name.partition("/")[2]
        )
        where = path.rpartition("/")[0] if kind == "kustomization" else path
        aim = target(kind, name, keys_of(given, alias, name), source=spec_of(given), path=where)
        wanted = case["expect"]["files_changed"][path]["parsed"]
        pick = pinned(wanted, name) or newest(tags)
        files = {**files, **edit(files, aim, f"{name}:{pick}")[0]}
    assert plain(files[path].text) == ON_PURPOSE.get(
        case["id"], letters(case["expect"]["files_changed"][path]["parsed"])
    )


def pinned(wanted: Any, name: str) -> str:
    """Return the tag that AIU picked if it is not the newest. The rules are not tested here."""
    found = [
        each
        for each in (wanted.get("helm") or {}).get("parameters", ())
        if each["name"].endswith("tag")
    ]
    return found[0]["value"] if found and name else ""


def kind_of(given: dict[str, Any]) -> TargetKind:
    where = given["annotations"].get("write-back-target", "")
    if where.startswith("kustomization"):
        return "kustomization"
    if where.startswith("helmvalues"):
        return "helmvalues"
    return "helm-override" if given["source_type"] == "Helm" else "kustomize-override"


@pytest.mark.parametrize("case", cases("override-kustomize", "merge"))
def test_kustomize_images_are_merged_into_an_override_file(case: dict[str, Any]) -> None:
    given = case["input"]
    text = (
        None
        if given["existing"] is None
        else yaml.safe_dump({"kustomize": {"images": given["existing"]}})
    )
    (new,) = (parse_entry(each) for each in given["new"])
    aim = target(
        "kustomize-override",
        new.right,
        Keys(kustomize_name=new.left),
        path="a/.argocd-source-x.yaml",
    )
    assert outcome(aim, aim.path, text, new.right)["kustomize"]["images"] == meant(case)


@pytest.mark.parametrize("case", cases("kustomization", "set"))
def test_kustomization_images_are_written_as_in_image_updater(
    case: dict[str, Any],
) -> None:
    given = case["input"]
    path = "k/kustomization.yaml"
    (new,) = (parse_entry(each) for each in given["images"])
    aim = target("kustomization", new.right, Keys(kustomize_name=new.left), path="k")
    assert outcome(aim, path, given["text"], new.right) == meant(case)


@pytest.mark.parametrize("case", cases("kustomization", "parse"))
def test_a_new_kustomization_entry_has_the_same_fields_as_in_image_updater(
    case: dict[str, Any],
) -> None:
    new = parse_entry(case["input"]["image"])
    right = new.right if image(new.right).version else f"{new.right}:1"
    aim = target("kustomization", right, Keys(kustomize_name=new.left), path="k")
    path = "k/kustomization.yaml"
    changed, _ = edit({path: File("kind: Kustomization\n")}, aim, right)
    fields = typed(changed[path].text)["images"][0]
    assert {**case["expect"], "newTag": case["expect"].get("newTag", "1")} == fields
