"""Patches to a live Application's own source: what changes, what remains, and what is tested."""

import copy
from typing import Any

import pytest
from fakes.argocd_api import PatchError, apply_patch
from hypothesis import given
from hypothesis import strategies as st

from task.editors.live import read, write
from task.errors import AnnotationError, SourceError
from task.image import parse_image
from task.model import Edit, Image, Keys, Kind, Source, Target

WEB = "ghcr.io/acme/web"
DIGEST = "sha256:" + "0" * 64


def target(kind: Kind, image: str = WEB, **keys: str) -> Target:
    return Target(
        "live", "", Keys(**keys), parse_image(image), Source("https://git.example.com/x", kind=kind)
    )


def manifest_of(source: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "web"},
        "spec": {"source": {"repoURL": "https://git.example.com/x", **source}},
    }


def after(source: dict[str, Any], to: Target, image: str) -> dict[str, Any]:
    """Return the patched source, without its repoURL."""
    manifest = manifest_of(source)
    operations, edits = write(manifest, 0, to, parse_image(image))
    changed = apply_patch(manifest, operations)
    assert bool(operations) == bool(edits)
    assert write(changed, 0, to, parse_image(image)) == ((), ())  # a second patch changes nothing
    found = read(changed, 0, to)
    wanted = parse_image(image)
    assert (found.tag or "latest", found.digest) == (wanted.tag or "latest", wanted.digest)
    return {name: value for name, value in changed["spec"]["source"].items() if name != "repoURL"}


def helm(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"helm": {"parameters": list(parameters), **more}}


def parameter(name: str, value: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, **more}


FORCED = {"forceString": True}
BOTH = {"name": "web.name", "tag": "web.tag"}
HELM = [
    ("nothing there", {}, {}, f"{WEB}:1.2.4",
     helm(parameter("image.name", WEB, **FORCED), parameter("image.tag", "1.2.4", **FORCED))),
    ("no parameters", {"helm": {"valueFiles": ["a.yaml"]}}, {}, f"{WEB}:1.2.4",
     helm(parameter("image.name", WEB, **FORCED), parameter("image.tag", "1.2.4", **FORCED), valueFiles=["a.yaml"])),
    ("null parameters", {"helm": {"parameters": None}}, BOTH, f"{WEB}:1",
     helm(parameter("web.name", WEB, **FORCED), parameter("web.tag", "1", **FORCED))),
    ("in place, others untouched",
     helm(parameter("a", "1e3"), parameter("web.tag", "1.2.3", **FORCED), parameter("web.name", WEB, **FORCED),
          parameter("z", "yes", forceString=False), releaseName="x"), BOTH, f"{WEB}:1.2.4",
     helm(parameter("a", "1e3"), parameter("web.tag", "1.2.4", **FORCED), parameter("web.name", WEB, **FORCED),
          parameter("z", "yes", forceString=False), releaseName="x")),
    ("forceString is set", helm(parameter("image.name", WEB), parameter("image.tag", "1.10")), {}, f"{WEB}:1.10",
     helm(parameter("image.name", WEB, **FORCED), parameter("image.tag", "1.10", **FORCED))),
    ("one of both is missing", helm(parameter("web.tag", "1")), BOTH, f"{WEB}:2",
     helm(parameter("web.tag", "2", **FORCED), parameter("web.name", WEB, **FORCED))),
    ("all of one name", helm(parameter("image.tag", "1"), parameter("image.name", WEB), parameter("image.tag", "2")),
     {}, f"{WEB}:3", helm(parameter("image.tag", "3", **FORCED), parameter("image.name", WEB, **FORCED),
                          parameter("image.tag", "3", **FORCED))),
    ("a parameter without a value", helm({"name": "image.tag"}, parameter("image.name", WEB)), {}, f"{WEB}:3",
     helm(parameter("image.tag", "3", **FORCED), parameter("image.name", WEB, **FORCED))),
    ("one for both", helm(parameter("web.image", f"{WEB}:1")), {"spec": "web.image"}, f"{WEB}:2@{DIGEST}",
     helm(parameter("web.image", f"{WEB}:2@{DIGEST}", **FORCED))),
    ("digest and tag", helm(parameter("image.tag", "1")), {}, f"{WEB}:2@{DIGEST}",
     helm(parameter("image.tag", f"2@{DIGEST}", **FORCED), parameter("image.name", WEB, **FORCED))),
    ("a digest of its own", helm(parameter("image.digest", "sha256:1"), parameter("image.tag", "1")),
     {"digest": "image.digest"}, f"{WEB}:2@{DIGEST}",
     helm(parameter("image.digest", DIGEST, **FORCED), parameter("image.tag", "2", **FORCED),
          parameter("image.name", WEB, **FORCED))),
    ("an empty digest", helm(parameter("image.digest", DIGEST), parameter("image.tag", f"1@{DIGEST}")),
     {"digest": "image.digest"}, f"{WEB}:2",
     helm(parameter("image.digest", "", **FORCED), parameter("image.tag", "2", **FORCED),
          parameter("image.name", WEB, **FORCED))),
    ("junk among them keeps its place", helm({"value": "x"}, parameter("image.tag", "1"), parameter("image.name", WEB)),
     {}, f"{WEB}:2",
     helm({"value": "x"}, parameter("image.tag", "2", **FORCED), parameter("image.name", WEB, **FORCED))),
    ("strange letters", helm(parameter("x", 'a: "b"\n#\u2028 \u00e4'), parameter("image.tag", "1")), {}, f"{WEB}:2",
     helm(parameter("x", 'a: "b"\n#\u2028 \u00e4'), parameter("image.tag", "2", **FORCED),
          parameter("image.name", WEB, **FORCED))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "keys", "image", "expected"), [row[1:] for row in HELM], ids=[row[0] for row in HELM]
)
def test_helm_parameters_are_patched(
    source: dict[str, Any], keys: dict[str, str], image: str, expected: dict[str, Any]
) -> None:
    assert after(source, target("Helm", **keys), image) == expected


def kustomize(*images: str, **more: Any) -> dict[str, Any]:
    return {"kustomize": {"images": list(images), **more}}


LOCAL = "reg:5000/b"
KUSTOMIZE = [
    ("nothing there", {}, WEB, {}, f"{WEB}:2", kustomize(f"{WEB}:2")),
    ("no images", {"kustomize": {"namePrefix": "x-"}}, WEB, {}, f"{WEB}:2", kustomize(f"{WEB}:2", namePrefix="x-")),
    ("in place", kustomize("a:1", f"{WEB}:1", "z:1"), WEB, {}, f"{WEB}:2", kustomize("a:1", f"{WEB}:2", "z:1")),
    # Argo CD Image Updater issue 516: the text up to the first colon is the host.
    ("of two on a host with a port, the right one", kustomize("reg:5000/a:1", "reg:5000/b:1"), LOCAL, {}, f"{LOCAL}:2",
     kustomize("reg:5000/a:1", "reg:5000/b:2")),
    ("the first one on a host with a port", kustomize("reg:5000/a:1"), LOCAL, {}, f"{LOCAL}:2",
     kustomize("reg:5000/a:1", "reg:5000/b:2")),
    ("the port alone differs", kustomize("reg:5001/b:1"), LOCAL, {}, f"{LOCAL}:2",
     kustomize("reg:5001/b:1", "reg:5000/b:2")),
    ("a name that begins alike", kustomize("foobar:1"), "foo", {}, "foo:2", kustomize("foobar:1", "foo:2")),
    ("another spelling stays", kustomize("docker.io/library/nginx:1"), "nginx", {}, "nginx:2",
     kustomize("docker.io/library/nginx:2")),
    ("a digest alone", kustomize(f"{WEB}@{DIGEST}"), WEB, {}, f"{WEB}:2", kustomize(f"{WEB}:2")),
    ("the name in the manifests stays", kustomize(f"web={WEB}:1"), WEB, {"kustomize_name": "web"}, f"{WEB}:2",
     kustomize(f"web={WEB}:2")),
    ("the name in the manifests is written", kustomize(), WEB, {"kustomize_name": "web"}, f"{WEB}:2",
     kustomize(f"web={WEB}:2")),
    ("the name leads elsewhere until now", kustomize("web=old.example/web:1"), WEB, {"kustomize_name": "web"},
     f"{WEB}:2", kustomize(f"web={WEB}:2")),
    ("two host:port images, both named", kustomize("a=reg:5000/a:1", "b=reg:5000/b:1"), LOCAL,
     {"kustomize_name": "b"}, f"{LOCAL}:2", kustomize("a=reg:5000/a:1", "b=reg:5000/b:2")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "entry", "keys", "image", "expected"),
    [row[1:] for row in KUSTOMIZE],
    ids=[row[0] for row in KUSTOMIZE],
)
def test_kustomize_images_are_patched(
    source: dict[str, Any], entry: str, keys: dict[str, str], image: str, expected: dict[str, Any]
) -> None:
    assert after(source, target("Kustomize", entry, **keys), image) == expected


def test_plugin_variables_are_patched() -> None:
    to = target("Plugin", name="IMAGE", tag="TAG")
    env = {"plugin": {"name": "p", "env": [parameter("TAG", "1"), parameter("OTHER", "yes")]}}
    expected = [parameter("TAG", "2"), parameter("OTHER", "yes"), parameter("IMAGE", WEB)]
    assert after(env, to, f"{WEB}:2") == {"plugin": {"name": "p", "env": expected}}


def test_every_patch_operation_tests_the_previous_value() -> None:
    manifest = manifest_of(kustomize("a:1", f"{WEB}:1"))
    operations, edits = write(manifest, 0, target("Kustomize"), parse_image(f"{WEB}:2"))
    path = "/spec/source/kustomize/images/1"
    assert operations == (
        {"op": "test", "path": path, "value": f"{WEB}:1"},
        {"op": "replace", "path": path, "value": f"{WEB}:2"},
    )
    assert [(edit.path, edit.old, edit.new) for edit in edits] == [
        ("spec.source.kustomize.images", f"{WEB}:1", f"{WEB}:2")
    ]
    moved = manifest_of(kustomize(f"{WEB}:1", "a:1"))
    with pytest.raises(PatchError, match="testing value"):
        apply_patch(moved, operations)


def test_a_helm_edit_names_the_parameter() -> None:
    _, edits = write(
        manifest_of(helm(parameter("image.tag", "1"))), 0, target("Helm"), parse_image(f"{WEB}:2")
    )
    assert Edit("spec.source.helm.parameters", "image.tag", "1", "2") in edits


SOURCES = [
    ({"sources": [{"chart": "x"}, {"helm": {}}]}, 1, "/spec/sources/1/helm/parameters"),
    ({"source": {"helm": {}}}, 0, "/spec/source/helm/parameters"),
    ({"source": {"helm": {}}, "sources": []}, 0, "/spec/source/helm/parameters"),
    (
        {"sourceHydrator": {"drySource": {"helm": {}}}},
        0,
        "/spec/sourceHydrator/drySource/helm/parameters",
    ),
]


@pytest.mark.parametrize(("spec", "index", "path"), SOURCES)
def test_the_selected_source_is_patched(spec: dict[str, Any], index: int, path: str) -> None:
    manifest = {"spec": spec}
    operations, _ = write(manifest, index, target("Helm"), parse_image(f"{WEB}:2"))
    assert [one["path"] for one in operations] == [path]
    apply_patch(manifest, operations)


READ = [
    (
        "Helm",
        helm(parameter("image.name", WEB), parameter("image.tag", "1.10")),
        {},
        (WEB, "1.10", "", False),
    ),
    ("Helm", helm(parameter("image.tag", "1.10", **FORCED)), {}, ("", "1.10", "", True)),
    ("Helm", {}, {}, ("", "", "", True)),
    ("Kustomize", kustomize("a:1", f"{WEB}:1@{DIGEST}"), {}, (WEB, "1", DIGEST, True)),
    ("Kustomize", kustomize("reg:5000/a:1"), {}, ("", "", "", True)),
    ("Plugin", {"plugin": {"env": [parameter("TAG", "1")]}}, {"tag": "TAG"}, ("", "1", "", True)),
]


@pytest.mark.parametrize(("kind", "source", "keys", "expected"), READ)
def test_the_current_version_is_read_from_the_source(
    kind: Kind, source: dict[str, Any], keys: dict[str, str], expected: Any
) -> None:
    found = read(manifest_of(source), 0, target(kind, **keys))
    assert (found.name, found.tag, found.digest, found.sound) == expected
    assert found.file == ""


def test_a_plain_directory_has_no_place_for_an_image() -> None:
    for kind in ("Directory", ""):
        with pytest.raises(SourceError) as caught:
            read(manifest_of({}), 0, target(kind))
        assert "write-back-method: git" in caught.value.hint


GONE: list[dict[str, Any]] = [
    {},
    {"spec": {}},
    {"spec": {"sources": [{}]}},
    {"spec": {"source": "x"}},
]


@pytest.mark.parametrize("manifest", GONE)
def test_a_missing_source_is_reported(manifest: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="no longer exists"):
        write(manifest, 1, target("Helm"), parse_image(f"{WEB}:2"))


def test_a_plugin_without_named_variables_causes_an_annotation_error() -> None:
    with pytest.raises(AnnotationError):
        write(manifest_of({}), 0, target("Plugin"), parse_image(f"{WEB}:2"))


NAMES = st.text(min_size=1, max_size=8)
PARAMETERS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"name": NAMES, "value": st.text(max_size=12)}, optional={"forceString": st.booleans()}
        ),
        st.just({"value": "x"}),
        st.none(),
    ),
    max_size=5,
)


@given(PARAMETERS, st.sampled_from(["1.2.3", "1e3", "yes", "0123", "2024-01-02"]))
def test_a_patch_changes_only_the_image_parameters(parameters: list[Any], tag: str) -> None:
    manifest = manifest_of({"helm": {"parameters": parameters}})
    before = copy.deepcopy(manifest)
    operations, _ = write(manifest, 0, target("Helm"), Image(WEB, "ghcr.io", "acme/web", tag))
    assert manifest == before
    changed = apply_patch(manifest, operations)["spec"]["source"]["helm"]["parameters"]
    ours = ("image.name", "image.tag")
    others = [one for one in changed if not (isinstance(one, dict) and one.get("name") in ours)]
    assert others == [
        one for one in parameters if not (isinstance(one, dict) and one.get("name") in ours)
    ]
    assert {"name": "image.tag", "value": tag, "forceString": True} in changed
