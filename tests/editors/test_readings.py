"""The current version in a target, and writes that are needed even if the tag is already equal."""

from dataclasses import replace

import pytest
from editors.editing import DIGEST, OVERRIDE, PATHS, read, source, target

from task.editors import EDITORS
from task.model import File, Keys, Place, Reading, TargetKind

API = "ghcr.io/acme/api"


def helm(*items: str) -> str:
    return "helm:\n  parameters:\n" + "".join(f"  - {{{item}}}\n" for item in items)


SAYS: list[tuple[TargetKind, Keys, str, tuple[str, str, str]]] = [
    (
        "helm-override",
        Keys(),
        helm("name: image.tag, value: v1, forcestring: true"),
        ("", "v1", ""),
    ),
    (
        "helm-override",
        Keys(),
        helm(f'name: image.tag, value: "v1@{DIGEST}", forcestring: true'),
        ("", "v1", DIGEST),
    ),
    (
        "helm-override",
        Keys(spec="i"),
        helm(f'name: i, value: "{API}:v1", forcestring: true'),
        (API, "v1", ""),
    ),
    ("helm-override", Keys(tag="t"), helm("Name: t, Value: v1, forceString: true"), ("", "v1", "")),
    ("helm-override", Keys(), "kustomize: {}\n", ("", "", "")),
    (
        "kustomize-override",
        Keys(),
        f"kustomize:\n  images:\n  - x=y:1\n  - {API}:v1@{DIGEST}\n",
        (API, "v1", DIGEST),
    ),
    ("kustomize-override", Keys(), f"kustomize:\n  images:\n  - api={API}:v1\n", (API, "v1", "")),
    ("kustomize-override", Keys(), "kustomize:\n  images:\n", ("", "", "")),
    (
        "plugin-override",
        Keys(tag="T"),
        "plugin:\n  env:\n  - {name: T, value: v1}\n",
        ("", "v1", ""),
    ),
    (
        "kustomization",
        Keys(),
        f"images:\n- {{name: {API}, newTag: v1, digest: '{DIGEST}'}}\n",
        (API, "v1", DIGEST),
    ),
    (
        "kustomization",
        Keys(),
        f"images:\n- {{name: x, newName: {API}, newTag: v1}}\n",
        (API, "v1", ""),
    ),
    ("kustomization", Keys(), "resources: []\n", ("", "", "")),
    ("helmvalues", Keys(), f"image: {{name: {API}, tag: v1}}\n", (API, "v1", "")),
    ("helmvalues", Keys(tag="web.tag"), "base: &b {tag: v1}\nweb: {<<: *b}\n", ("", "v1", "")),
    (
        "helmvalues",
        Keys(tag="web.tag"),
        "base: &b {tag: v0}\nweb:\n  <<: [*b]\n  tag: v1\n",
        ("", "v1", ""),
    ),
    ("helmvalues", Keys(tag="web.tag"), "base: &b v1\nweb: {tag: *b}\n", ("", "v1", "")),
    ("helmvalues", Keys(tag="image.tag"), "image:\n", ("", "", "")),
    ("helmvalues", Keys(tag="image.tag"), "image: {tag: ~}\n", ("", "", "")),
    ("helmvalues", Keys(spec="image"), f"image: {API}:v1@{DIGEST}\n", (API, "v1", DIGEST)),
    (
        "flux",
        Keys(),
        f"kind: HelmRelease\nspec: {{values: {{image: '{API}:v1'}}}}\n",
        (API, "v1", ""),
    ),
    (
        "flux",
        Keys(tag="a"),
        f"kind: HelmRelease\nspec: {{values: {{a: {{image: {API}, tag: v1}}}}}}\n",
        (API, "v1", ""),
    ),
]


def file_of(kind: TargetKind) -> str:
    return "apps/web/kustomization.yaml" if kind == "kustomization" else PATHS[kind]


@pytest.mark.parametrize(("kind", "keys", "text", "says"), SAYS)
def test_name_tag_and_digest_are_read_from_each_target(
    kind: TargetKind, keys: Keys, text: str, says: tuple[str, str, str]
) -> None:
    aim = target(kind, keys=keys, application="")
    assert read({file_of(kind): File(text)}, aim) == Reading(*says, True, file_of(kind))


UNSOUND: list[tuple[TargetKind, Keys, str]] = [
    (
        "helm-override",
        Keys(),
        helm("name: image.tag, value: 1.0, forcestring: true"),
    ),  # Argo CD fails if the tag is a number
    (
        "helm-override",
        Keys(),
        helm('name: image.tag, value: "12345678"'),
    ),  # `helm --set` parses the tag as a number
    ("helm-override", Keys(), helm("name: image.tag, value: v1", "name: image.tag, value: v2")),
    ("kustomize-override", Keys(), f"kustomize:\n  images:\n  - {API}:1.0\n  - {API}:2.0\n"),
    ("kustomize-override", Keys(kustomize_name="x"), f"kustomize:\n  images:\n  - y={API}:1.0\n"),
    ("plugin-override", Keys(tag="T"), "plugin:\n  env:\n  - {name: T, value: 1.0}\n"),
    ("kustomization", Keys(), f"images:\n- name: {API}\n  newTag: 1.0\n"),
    (
        "kustomization",
        Keys(),
        f"images:\n- {{name: {API}, newTag: v1}}\n- {{name: {API}, newTag: v2}}\n",
    ),
    ("kustomization", Keys(kustomize_name="x"), f"images:\n- {{name: {API}, newTag: v1}}\n"),
    ("helmvalues", Keys(tag="t"), "t: 1.10\n"),
    ("helmvalues", Keys(tag="t"), "t: yes\n"),
    ("helmvalues", Keys(tag="t"), "t: |\n  v1\n"),  # the tag ends with a line break
    (
        "flux",
        Keys(),
        f"kind: HelmRelease\nspec: {{values: {{image: {{repository: {API}, tag: 1.0}}}}}}\n",
    ),
]


@pytest.mark.parametrize(("kind", "keys", "text"), UNSOUND)
def test_unsound_entries_need_a_write_even_if_the_tag_is_equal(
    kind: TargetKind, keys: Keys, text: str
) -> None:
    reading = read({file_of(kind): File(text)}, target(kind, keys=keys, application=""))
    assert reading.tag
    assert not reading.sound


def test_manifests_with_different_versions_are_not_sound() -> None:
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: {}\n"
    files = {
        "apps/web/a.yaml": File(pod.format(f"{API}:v1")),
        "apps/web/b.yaml": File(pod.format(f"{API}:v2")),
    }
    assert read(files, target("manifests")) == Reading(API, "v1", "", False, "apps/web/a.yaml")


def test_an_override_file_under_its_alternative_name_is_used() -> None:
    other = "apps/web/.argocd-source-argocd_web.yaml"
    aim = target("helm-override", fallbacks=(other,))
    assert read({other: File("helm:\n")}, aim).file == other
    assert read({other: File("helm:\n"), OVERRIDE: File("helm:\n")}, aim).file == OVERRIDE
    assert read({}, aim).file == OVERRIDE


PLACES: list[tuple[TargetKind, tuple[Place, ...]]] = [
    ("helm-override", (Place(OVERRIDE), Place("apps/web/.argocd-source.yaml"))),
    ("kustomize-override", (Place(OVERRIDE), Place("apps/web/.argocd-source.yaml"))),
    ("plugin-override", (Place(OVERRIDE), Place("apps/web/.argocd-source.yaml"))),
    (
        "kustomization",
        tuple(
            Place(f"apps/web/{name}")
            for name in ("kustomization.yaml", "kustomization.yml", "Kustomization")
        ),
    ),
    ("helmvalues", (Place("apps/web/values.yaml"),)),
    ("manifests", (Place("apps/web", "folder"),)),
    ("flux", (Place("apps/web/release.yaml"),)),
]


@pytest.mark.parametrize(("kind", "places"), PLACES)
def test_each_target_names_the_files_it_needs(kind: TargetKind, places: tuple[Place, ...]) -> None:
    assert EDITORS[kind].places(target(kind)) == places


def test_a_manifests_target_may_be_a_tree_or_a_single_file() -> None:
    manifests = EDITORS["manifests"].places
    assert manifests(target("manifests", recurse=True)) == (Place("apps/web", "tree"),)
    assert manifests(target("manifests", path="k/d.yml")) == (Place("k/d.yml"),)


def test_the_common_override_file_of_a_root_source_is_at_the_root() -> None:
    aim = target(
        "helm-override", path=".argocd-source-web.yaml", source=replace(source(), path=".")
    )
    assert EDITORS["helm-override"].places(aim)[1:] == (Place(".argocd-source.yaml"),)
