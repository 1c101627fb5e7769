"""What a kustomization may use: folders in its repository, but nothing remote or executable."""

import posixpath
from collections.abc import Mapping

import pytest
from support import costs_at_most

from task.applications.kustomizations import MOST_FOLDERS, changes, needed, reaches_out
from task.errors import Malformed

TREE = {
    "base/kustomization.yaml": "resources: [web.yaml]",
    "base/web.yaml": "kind: Application",
    "overlays/prod/kustomization.yml": "resources: [../../base, more.yaml]\ncomponents: [../../parts/labels]\n",
    "overlays/prod/more.yaml": "",
    "overlays/prod/deep/file.yaml": "",
    "parts/labels/Kustomization": "kind: Component",
    "unused/kustomization.yaml": "resources: []",
}


def files(folder: str, tree: Mapping[str, str]) -> dict[str, str]:
    def read(below: str) -> dict[str, str]:
        return {
            path: text for path, text in tree.items() if not below or path.startswith(f"{below}/")
        }

    return needed(folder, read)


def test_only_referenced_folders_are_needed() -> None:
    assert set(files("overlays/prod", TREE)) == {
        path for path in TREE if not path.startswith("unused/")
    }
    assert set(files("base", TREE)) == {"base/kustomization.yaml", "base/web.yaml"}


def test_the_root_may_be_a_kustomization() -> None:
    tree = {"kustomization.yaml": "resources: [./base]", **TREE}
    assert set(files("", tree)) == set(tree)


REMOTE = "is not in the repository"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resources: [https://127.0.0.1:8080/x.yaml]", REMOTE),
        ("resources: [HTTPS://h/x.yaml]", REMOTE),
        ("RESOURCES: [http://h/x.yaml]", REMOTE),
        (
            "RESOURCES: [github.com/acme/base]",
            "'RESOURCES' is not a kustomization key",
        ),  # Kustomize accepts it
        (
            "Resources: [github.com/acme/base]\nresources: []",
            "'Resources' is not a kustomization key",
        ),
        (
            "re\u017fources: [github.com/acme/base]",
            "is not a kustomization key",
        ),  # Go treats the long s as an s
        ("resources: [http://h/x.yaml]\nresources: []", "the key 'resources' appears twice"),
        (
            "configMapGenerator: [{files: [http://h/x], files: []}]",
            "the key 'files' appears twice",
        ),
        ("resources: [!!binary aHR0cDovL2gveA==]", "line 1 has the tag 'tag:yaml.org,2002:binary'"),
        ("!!binary cmVzb3VyY2Vz: [http://h/x]", "the tag"),
        ("resources: !!seq [x.yaml]", "the tag"),
        ("resources: [github.com/acme/base?ref=v1]", REMOTE),
        ("resources: ['git@github.com:acme/base.git//x']", REMOTE),
        ("resources: ['git::https://h/x']", REMOTE),
        ("resources: ['ssh://git@h/x']", REMOTE),
        ("resources: [missing]", REMOTE),
        ("bases: [https://h/x]", REMOTE),
        ("components: [https://h/x]", REMOTE),
        ("crds: [https://h/x.json]", REMOTE),
        ("configurations: [https://h/x.yaml]", REMOTE),
        ("openapi: {path: https://h/x.json}", REMOTE),
        ("patches: [{path: https://h/x.yaml}]", REMOTE),
        ("patchesStrategicMerge: [' https://h/x.yaml']", REMOTE),
        ("replacements: [{path: https://h/x.yaml}]", REMOTE),
        ("configMapGenerator: [{name: x, files: ['k=https://h/x']}]", REMOTE),
        ("secretGenerator: [{name: x, envs: [https://h/x]}]", REMOTE),
        ("helmCharts: [{name: x, repo: https://h}]", "helmCharts is not rendered: it would fetch"),
        (
            "helmChartInflationGenerator: [{}]",
            "helmChartInflationGenerator is not rendered: it would",
        ),
        ("generators: [x.yaml]", "generators is not rendered: it may run a program"),
        ("transformers: [x.yaml]", "transformers is not rendered"),
        ("validators: [x.yaml]", "validators is not rendered"),
        ("x: &x {resources: [https://h/x]}\n<<: *x", "merge key"),
        ("resources: [../../secrets]", "points outside the repository"),
        ("resources: [..]\nnamePrefix: a", "has no kustomization.yaml"),
        ("resources: [/etc]", "points outside the repository"),
        ("[]", "is not a kustomization"),
        ("{", "kustomization.yaml"),
    ],
)
def test_remote_resources_and_plugins_are_refused(text: str, words: str) -> None:
    with pytest.raises(Malformed, match=words) as raised:
        files("apps", {"apps/kustomization.yaml": text, "apps/x.yaml": ""})
    assert raised.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("resources: [https://h/x.yaml]", "Kustomize would fetch it"),
        ("resources: [github.com/acme/base]", "Kustomize would fetch it"),
        ("resources: ['acme/base?ref=v1']", "Kustomize would fetch it"),
        ("resources: [nope.yaml]", "fix the entry"),
        ("resources: [./sub.d/nope.yaml]", "fix the entry"),
        ("resources: [../nope]", "fix the entry"),
        ("resources: [linked]", "replace the link with the actual file or folder"),
        ("resources: [linked/web.yaml]", "replace the link with the actual file or folder"),
        ("helmCharts: [{name: x}]", "commit the chart's rendered manifests"),
        ("transformers: [x.yaml]", "use patches"),
        ("Resources: []", "spell the key as in Kustomize's documentation"),
        ("resources: !!seq []", "remove the tag"),
        ("resources: []\nresources: []", "keep one"),
    ],
)
def test_each_rejection_includes_a_hint(text: str, hint: str) -> None:
    with pytest.raises(Malformed) as raised:
        needed("apps", lambda _path: {"apps/kustomization.yaml": text}, {"apps/linked"})
    assert raised.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "text",
    [
        "commonAnnotations: {a: https://h/x}",
        "configMapGenerator: [{name: x, literals: ['url=https://h/x'], options: {annotations: {u: https://h/}}}]",
        "patches: [{target: {kind: Application}, patch: 'https://h is in a text that is not opened'}]",
        "patchesStrategicMerge: ['kind: Application\nspec: {source: {repoURL: https://h/x.git}}']",
        "images: [{name: ghcr.io/acme/web, newName: registry:5000/acme/web, newTag: '1'}]",
        "labels: [{pairs: {a: https://h/x}}]",
    ],
)
def test_urls_that_are_only_text_are_ignored(text: str) -> None:
    assert files("apps", {"apps/kustomization.yaml": text})


def test_infinitely_nested_kustomizations_are_rejected() -> None:
    tree = {
        f"{at}/kustomization.yaml": f"resources: [../{at + 1}]" for at in range(MOST_FOLDERS + 2)
    }
    with pytest.raises(Malformed, match=f"more than {MOST_FOLDERS} folders"):
        files("0", tree)
    circle = {
        "a/kustomization.yaml": "resources: [../b]",
        "b/kustomization.yaml": "resources: [../a]",
    }
    assert files("a", circle) == circle  # Kustomize itself reports the cycle


def test_alias_bombs_and_recursive_values_are_handled() -> None:
    bomb = "vars:\n  a0: &a0 [x]\n" + "".join(
        f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
    )
    with costs_at_most(seconds=5, megabytes=50):
        assert files("apps", {"apps/kustomization.yaml": bomb})
        with pytest.raises(Malformed, match="contains itself"):  # Kustomize also rejects it
            files("apps", {"apps/kustomization.yaml": bomb + "  b: &b [*b]\n"})


@pytest.mark.parametrize(
    ("text", "changed", "outside"),
    [
        ("resources: [web.yaml, sub]", False, False),
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [./web.yaml]",
            False,
            False,
        ),
        ("resources: [web.yaml]\nnamePrefix: a-", True, False),
        ("resources: [web.yaml]\nnamePrefix: ''", False, False),
        ("resources: [../base]", True, True),
        ("resources: [a/../../base]", True, True),
        ("resources: [https://h/x]", True, True),
        ("broken: [", True, False),
    ],
)
def test_kustomizations_that_change_manifests_are_recognized(
    text: str, *, changed: bool, outside: bool
) -> None:
    assert (changes(text), reaches_out(text)) == (changed, outside)
    assert posixpath.normpath("a/../../base") == "../base"
