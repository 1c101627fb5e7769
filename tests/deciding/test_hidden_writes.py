"""The law of visible writes, tested with Helm and Kustomize: an update changes the rendered image.

Both tools are called as Argo CD calls them in `helmTemplate` in reposerver/repository, `template`
in util/helm/cmd.go, and `Build` in util/kustomize/kustomize.go (v3.1): the values files in order,
the Application's own values as another file, then `--set`, `--set-string`, and `--set-file`. The
effect of `kustomize edit set image` in the source's folder is written to the file here. Override
files are applied by `editors/argocd.py`, which was compared with Argo CD's own merge.
"""

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from editors.argocd import merged
from support import THOROUGH, needs
from support.memory import SCOPE, WORDING, Branch, Story
from support.random_histories import LIMIT
from support.runs import application

from task.annotations.application import parse_application
from task.annotations.subscription import subscribe
from task.deciding.cautions import file_cautions
from task.deciding.decide import decide_one, missing_places, places
from task.deciding.job import Ask, Job, Terms
from task.deciding.target import target_of
from task.editors import EDITORS
from task.errors import TaskError
from task.image import parse_image
from task.model import Decision, File, Files, Snapshot, Subscription

URL = "https://git.example/gitops.git"
IMAGE = "ghcr.io/acme/web"
NEW = "9.0.0"
Texts = dict[str, str]


def seen(texts: Mapping[str, str], ask: Ask) -> Snapshot:
    """Return a snapshot that contains only the files that a run would read."""
    files: dict[str, File] = {}
    folders = {str(parent) for path in texts for parent in Path(path).parents}

    def read(path: str) -> None:
        if path in texts:
            files[path] = File(texts[path])
        elif path in folders:
            files[path] = File("", "040000")

    for place in places(ask):
        read(place.path)
    snapshot = Snapshot(URL, "main", "1" * 40, dict(files))
    for _ in range(20):
        for place in missing_places(snapshot, ask.subscription, Terms()):
            read(place.path)
        if files == snapshot.files:
            break
        snapshot = replace(snapshot, files=dict(files))
    return snapshot


def decided(app: Any, texts: Mapping[str, str]) -> tuple[Decision, Texts]:
    """Return the decision about a new version, and the files after its commit."""
    (sub,) = subscribe(parse_application(app)).subscriptions
    ask = Ask(sub, (parse_image(f"{IMAGE}:{NEW}"),))
    snapshot = seen(texts, ask)
    one = decide_one(snapshot, ask, Terms(check="never")).decision
    after = dict(texts)
    if one.kind and one.verdict in ("update", "error"):
        after |= {path: file.text for path, file in written(snapshot.files, sub, one).items()}
    return one, after


def written(files: Files, sub: Subscription, one: Decision) -> Files:
    assert one.kind
    try:
        return EDITORS[one.kind].write(files, target_of(sub, one.kind), one.candidate)[0]
    except TaskError:
        return {}


# ---- Helm

CHART = "apiVersion: v2\nname: web\nversion: 0.1.0\n"
TEMPLATE = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: web\n"
    "    image: '{{ (.Values.image | default dict).name }}:{{ (.Values.image | default dict).tag }}'\n"
)
TEXTS = ("image: {tag: 1.0.0}\n", f"image:\n  name: {IMAGE}\n  tag: 1.0.0\n")
OTHERS = ("replicas: 2\n", "image: {pullPolicy: Always}\n", "image: {tag: null}\n", "image: null\n", "image: {}\n")  # fmt: skip
BELOW = {"name": "image.tag", "value": "1.0.0"}
SIDE = {"name": "replicas", "value": "3"}


def helm_layouts(number: int) -> Iterator[tuple[dict[str, Any], Texts]]:
    """Yield Applications that use a chart, with their files. Half of the places lack the image."""
    chance = random.Random(39)  # noqa: S311 - the same layouts each time
    for _ in range(number):

        def values(often: float = 0.25) -> str:
            return chance.choice(TEXTS if chance.random() < often else OTHERS[:2] + OTHERS[4:])

        texts = {
            "apps/a/Chart.yaml": CHART,
            "apps/a/templates/pod.yaml": TEMPLATE,
            "apps/a/tag.txt": "1.0.0",
            "apps/a/values.yaml": f"image: {{name: {IMAGE}, tag: 1.0.0}}\n",
        }
        names = chance.sample(
            ("a.yaml", "b.yaml", "values.yaml", "/env/c.yaml"), chance.randrange(4)
        )
        for name in (*names, "stray.yaml"):
            path = name.lstrip("/") if name.startswith("/") else f"apps/a/{name}"
            texts.setdefault(path, chance.choice(OTHERS) if chance.random() < 0.15 else values(0.4))
        helm: dict[str, Any] = {"valueFiles": names} if names else {}
        if chance.random() < 0.3:
            helm["values"] = values()
        if chance.random() < 0.3:
            helm["valuesObject"] = yaml.safe_load(values())
        if chance.random() < 0.35:
            helm["parameters"] = [
                {**SIDE},
                *(
                    [{**BELOW, "forceString": chance.random() < 0.5}]
                    if chance.random() < 0.4
                    else []
                ),
            ]
        if chance.random() < 0.1:
            helm["fileParameters"] = [{"name": "image.tag", "path": "tag.txt"}]
        for override in (".argocd-source.yaml", ".argocd-source-a.yaml"):
            if chance.random() < 0.25:
                own = chance.choice(
                    (
                        {"parameters": [chance.choice((BELOW, SIDE))]},
                        {"valuesObject": yaml.safe_load(values())},
                        {"values": values()},
                        {"valueFiles": chance.sample(names, len(names))},
                    )
                )
                texts[f"apps/a/{override}"] = yaml.safe_dump({"helm": own})
        named = chance.choice(("values.yaml", *names, *names, "stray.yaml"))
        app = application(
            "a",
            URL,
            write_back_method="git",
            write_back_target=f"helmvalues:{named}",
            **{"web.helm.image-name": "image.name", "web.helm.image-tag": "image.tag"},
        )
        app["metadata"]["annotations"]["argocd-image-updater.argoproj.io/image-list"] = (
            f"web={IMAGE}"
        )
        app["spec"]["source"] = {"repoURL": URL, "path": "apps/a", "helm": helm}
        yield app, texts


def helm_image(folder: Path, app: Any, texts: Texts) -> str:
    """Return the image that Helm renders, called as Argo CD does, or else the error message."""
    put(folder, texts)
    overrides = [
        texts[path]
        for path in ("apps/a/.argocd-source.yaml", "apps/a/.argocd-source-a.yaml")
        if path in texts
    ]
    helm = merged(app["spec"]["source"], *overrides).get("helm", {})
    flags = []
    for name in helm.get("valueFiles", ()):
        flags += ["--values", str(folder / name.lstrip("/") if name.startswith("/") else folder / "apps/a" / name)]  # fmt: skip
    if "valuesObject" in helm or helm.get("values"):
        own = json.dumps(helm["valuesObject"]) if "valuesObject" in helm else helm["values"]
        (folder / "own.yaml").write_text(own)
        flags += ["--values", str(folder / "own.yaml")]
    for each in helm.get("parameters", ()):
        flag = "--set-string" if each.get("forceString") else "--set"
        flags += [flag, f"{each['name']}={each['value']}"]
    for each in helm.get("fileParameters", ()):
        flags += ["--set-file", f"{each['name']}={folder / 'apps/a' / each['path']}"]
    return rendered([*needs("helm"), "template", "web", str(folder / "apps/a"), *flags])


def rendered(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        return done.stderr.decode()
    return str(yaml.safe_load(done.stdout)["spec"]["containers"][0]["image"])


def put(folder: Path, texts: Texts) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# ---- Kustomize

POD = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers:\n  - {{name: web, image: '{IMAGE}:1.0.0'}}\n"
FOLDERS = ("apps/a", "apps/base", "apps/part", "apps/more")


def images(chance: random.Random) -> list[dict[str, str]]:
    return chance.choice(
        (
            [],
            [],
            [{"name": "ghcr.io/acme/other", "newTag": "1.0.0"}],
            [{"name": IMAGE, "newTag": "2.0.0"}],
            [{"name": IMAGE, "newTag": "3.0.0"}, {"name": "redis", "newTag": "7"}],
        )
    )


def kustomize_layouts(number: int) -> Iterator[tuple[dict[str, Any], Texts]]:
    """Yield Applications that use an overlay with a base and components. Any of these may have
    entries.
    """
    chance = random.Random(40)  # noqa: S311 - the same layouts each time
    for _ in range(number):
        nested = chance.random() < 0.3
        parts = chance.sample(("../part", "../more"), chance.randrange(3))
        of_base = ["../part"] if nested and "../part" not in parts else []
        overlay: dict[str, Any] = {
            "resources": ["../base"],
            "components": parts,
            "images": images(chance),
        }
        base: dict[str, Any] = {
            "resources": ["pod.yaml"],
            "components": of_base,
            "images": images(chance),
        }
        component = {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1",
            "kind": "Component",
            "commonAnnotations": {"part": "of-web"},  # Kustomize rejects an empty kustomization
        }
        texts = {"apps/base/pod.yaml": POD}
        for folder, data in zip(
            FOLDERS,
            (overlay, base, *({**component, "images": images(chance)} for _ in range(2))),
            strict=True,
        ):
            kept = {key: value for key, value in data.items() if value}
            texts[f"{folder}/kustomization.yaml"] = yaml.safe_dump(kept, sort_keys=False)
        source: dict[str, Any] = {"repoURL": URL, "path": "apps/a"}
        given = (f"{IMAGE}:1.5.0", "redis:7", f"{IMAGE}={IMAGE}:1.5.0")
        if chance.random() < 0.25:
            source["kustomize"] = {"images": [chance.choice(given)]}
        if chance.random() < 0.25:
            own = {"kustomize": {"images": [chance.choice(given)]}}
            name = chance.choice((".argocd-source.yaml", ".argocd-source-a.yaml"))
            texts[f"apps/a/{name}"] = yaml.safe_dump(own)
        taken = [f"../{part[3:]}" for part in (*parts, *of_base)]
        named = chance.choice((".", ".", "../base", *taken))
        app = application(
            "a", URL, write_back_method="git", write_back_target=f"kustomization:{named}"
        )
        app["metadata"]["annotations"]["argocd-image-updater.argoproj.io/image-list"] = (
            f"web={IMAGE}"
        )
        app["spec"]["source"] = source
        yield app, texts


def kustomize_image(folder: Path, app: Any, texts: Texts) -> str:
    overrides = [
        texts[path]
        for path in ("apps/a/.argocd-source.yaml", "apps/a/.argocd-source-a.yaml")
        if path in texts
    ]
    given = merged(app["spec"]["source"], *overrides).get("kustomize", {}).get("images", ())
    put(folder, texts)
    if given:
        path = folder / "apps/a/kustomization.yaml"
        data = yaml.safe_load(path.read_text())
        by_name = {one["name"]: one for one in data.get("images", ())}
        for text in given:
            left, _, right = text.rpartition("=")
            name, _, tag = right.rpartition(":")
            entry = {"name": left or name, "newTag": tag}
            by_name[entry["name"]] = {**entry, "newName": name} if left else entry
        data["images"] = [by_name[name] for name in sorted(by_name)]
        path.write_text(yaml.safe_dump(data))
    return rendered([*needs("kustomize"), str(folder / "apps/a")])


LAYOUTS: dict[
    str, tuple[Callable[[int], Iterator[tuple[Any, Texts]]], Callable[[Path, Any, Texts], str]]
] = {"helm": (helm_layouts, helm_image), "kustomize": (kustomize_layouts, kustomize_image)}


@pytest.mark.slow
@LIMIT
@pytest.mark.parametrize("tool", LAYOUTS)
def test_an_update_either_changes_the_rendered_image_or_is_an_error(
    tmp_path: Path, tool: str
) -> None:
    layouts, image = LAYOUTS[tool]
    verdicts: dict[str, int] = {}
    judged = 0  # errors for files that could be written, with an image that can be rendered
    for number, (app, texts) in enumerate(layouts(40 * THOROUGH)):
        one, after = decided(app, texts)
        verdicts[one.verdict] = verdicts.get(one.verdict, 0) + 1
        told = (number, one.verdict, one.because, app["spec"], app["metadata"], texts)
        if one.verdict == "update":
            new = image(tmp_path / f"{number}-new", app, after)
            assert new.endswith(f":{NEW}"), (new, told)
            continue
        assert (one.verdict, one.rule) == ("error", "target"), told
        if after != texts:  # identical files would render the same image
            old = image(tmp_path / f"{number}-old", app, texts)
            new = image(tmp_path / f"{number}-new", app, after)
            assert new == old, (new, told)
            judged += old.startswith(f"{IMAGE}:")
    assert min(verdicts["update"], verdicts["error"]) > 10, verdicts
    assert judged > 7, judged


SOURCE = {"repoURL": URL, "path": "apps/a"}
VALUES = {"apps/a/Chart.yaml": CHART, "apps/a/values.yaml": "image: {tag: 1.0.0}\n"}
OF_HELM = "remove it from spec.source.helm"
PLACES: dict[str, tuple[str, dict[str, Any], Texts, str, str]] = {
    "parameters": (
        "helmvalues", {"helm": {"parameters": [BELOW]}}, {}, "spec.source.helm.parameters", f"{OF_HELM}.parameters",
    ),
    "a parameter above the key": (
        "helmvalues", {"helm": {"parameters": [{"name": "image", "value": "x"}]}}, {}, "helm.parameters", OF_HELM,
    ),
    "the values object": (
        "helmvalues", {"helm": {"valuesObject": {"image": {"tag": "1"}}}}, {}, "spec.source.helm.valuesObject", OF_HELM,
    ),
    "the values": ("helmvalues", {"helm": {"values": "image: null"}}, {}, "spec.source.helm.values", OF_HELM),
    "a later file": (
        "helmvalues:a.yaml",
        {"helm": {"valueFiles": ["a.yaml", "b.yaml"]}},
        {"apps/a/a.yaml": "image: {tag: 1.0.0}", "apps/a/b.yaml": "image: {tag: 1.0.0}"},
        "the values file apps/a/b.yaml",
        "write-back-target: helmvalues:/apps/a/b.yaml",
    ),
    "file parameters": (
        "helmvalues",
        {"helm": {"fileParameters": [{"name": "image.tag", "path": "t"}]}}, {}, "helm.fileParameters", OF_HELM,
    ),
    "file parameters over an override file": (
        "", {"helm": {"fileParameters": [{"name": "image.tag", "path": "t"}]}}, {}, "helm.fileParameters", OF_HELM,
    ),
    "an old override file": (
        "helmvalues",
        {},
        {"apps/a/.argocd-source-a.yaml": yaml.safe_dump({"helm": {"parameters": [BELOW]}})},
        "helm.parameters in apps/a/.argocd-source-a.yaml",
        "remove it from apps/a/.argocd-source-a.yaml",
    ),
    "the chart above": (
        "helmvalues:charts/web/values.yaml",
        {},
        {"apps/a/values.yaml": "web: {image: {tag: 1.0.0}}", "apps/a/charts/web/values.yaml": "image: {tag: 1.0.0}"},
        "the values file apps/a/values.yaml sets web.image.tag",
        "helmvalues:/apps/a/values.yaml",
    ),
    "no source reads it": (
        "helmvalues:prod.yaml", {}, {"apps/a/prod.yaml": "image: {tag: 1.0.0}"}, "no source", "valueFiles",
    ),
    "images": (
        "kustomization",
        {"kustomize": {"images": [f"{IMAGE}:1.0.0"]}},
        {"apps/a/kustomization.yaml": f"images: [{{name: {IMAGE}, newTag: 1.0.0}}]"},
        "spec.source.kustomize.images",
        "remove the image from spec.source.kustomize.images",
    ),
    "images of an override file": (
        "kustomization",
        {},
        {
            "apps/a/kustomization.yaml": f"images: [{{name: {IMAGE}, newTag: 1.0.0}}]",
            "apps/a/.argocd-source-a.yaml": f"kustomize: {{images: ['{IMAGE}:1.0.0']}}",
        },
        "kustomize.images in apps/a/.argocd-source-a.yaml",
        "remove the image from apps/a/.argocd-source-a.yaml",
    ),
    "the overlay": (
        "kustomization:../base",
        {},
        {
            "apps/a/kustomization.yaml": f"resources: [../base]\nimages: [{{name: {IMAGE}, newTag: 1.0.0}}]",
            "apps/base/kustomization.yaml": f"images: [{{name: {IMAGE}, newTag: 1.0.0}}]",
        },
        "the kustomization in apps/a",
        "kustomization:/apps/a",
    ),
}  # fmt: skip


def hidden_app(target: str, section: dict[str, Any]) -> dict[str, Any]:
    annotations = {"write_back_method": "git", "write_back_target": target}
    app = application("a", URL, **annotations)
    app["metadata"]["annotations"]["argocd-image-updater.argoproj.io/image-list"] = f"web={IMAGE}"
    app["spec"]["source"] = {**SOURCE, **section}
    return app


@pytest.mark.parametrize("place", PLACES)
def test_the_error_names_the_value_that_hides_the_update_and_the_remedy(place: str) -> None:
    target, section, texts, where, way_out = PLACES[place]
    texts = texts if "apps/a/kustomization.yaml" in texts else {**VALUES, **texts}
    one, _ = decided(hidden_app(target, section), texts)
    assert (one.verdict, one.rule, one.judged.exit) == ("error", "target", 3), one.because
    assert where in one.because
    assert way_out in one.judged.hint


@pytest.mark.parametrize("kind", ["Helm", ""], ids=["known", "unknown"])
def test_a_hidden_values_file_is_an_error_even_if_the_sources_type_is_unknown(kind: str) -> None:
    app = hidden_app("/apps/a/values.yaml", {})
    app["status"] = {"sourceType": kind} if kind else {}
    override = yaml.safe_dump({"helm": {"parameters": [BELOW]}})
    one, _ = decided(app, {**VALUES, "apps/a/.argocd-source-a.yaml": override})
    assert (one.verdict, one.rule) == ("error", "target"), one.because
    assert "helm.parameters in apps/a/.argocd-source-a.yaml sets image.tag" in one.because


TWO_FILES = {"valueFiles": ["values.yaml", "prod.yaml"]}
HIDDEN_TWICE: dict[str, tuple[dict[str, Any], Texts]] = {
    "helmvalues:values.yaml, helmvalues:prod.yaml": (
        {"helm": TWO_FILES},
        {**VALUES, "apps/a/prod.yaml": "image: {tag: 1.0.0}\n"},
    ),
    "kustomization:../base, kustomization:.": (
        {},
        {
            "apps/a/kustomization.yaml": f"resources: [../base]\nimages:\n- {{name: {IMAGE}, newTag: 1.0.0}}\n",
            "apps/base/kustomization.yaml": f"images:\n- {{name: {IMAGE}, newTag: 1.0.0}}\n",
        },
    ),
    "kustomization:../base, kustomization:/apps/a": (  # the base renames the image
        {},
        {
            "apps/a/kustomization.yaml": f"resources: [../base]\nimages:\n- {{name: {IMAGE}, newTag: 1.0.0}}\n",
            "apps/base/kustomization.yaml": f"images:\n- {{name: web, newName: {IMAGE}, newTag: 1.0.0}}\n",
        },
    ),
}


def verdicts_of(target: str, section: dict[str, Any], texts: Texts) -> list[tuple[str, str]]:
    """Return the decision about each target."""
    subs = subscribe(parse_application(hidden_app(target, section))).subscriptions
    asks = [Ask(sub, (parse_image(f"{IMAGE}:{NEW}"),)) for sub in subs]
    moves = [decide_one(seen(texts, ask), ask, Terms(check="never")) for ask in asks]
    return [(move.decision.verdict, move.decision.rule) for move in moves]


@pytest.mark.parametrize("target", HIDDEN_TWICE)
def test_a_target_may_be_hidden_by_another_target_for_the_same_image(target: str) -> None:
    """Both targets receive the version. Writing only the hidden target would have no effect."""
    section, texts = HIDDEN_TWICE[target]
    assert verdicts_of(target, section, texts) == [("update", "admitted")] * 2
    hidden = target.partition(",")[0]
    assert verdicts_of(hidden, section, texts) == [("error", "target")]


def test_a_value_that_hides_both_targets_is_an_error_for_both() -> None:
    target = "helmvalues:values.yaml, helmvalues:prod.yaml"
    _section, texts = HIDDEN_TWICE[target]
    section = {"helm": {**TWO_FILES, "values": "image: {tag: 0.9.0}"}}
    assert verdicts_of(target, section, texts) == [("error", "target")] * 2


def test_a_values_file_outside_the_application_needs_the_repository_annotation() -> None:
    app = hidden_app("helmvalues:/apps/values.yaml", {"helm": {"valueFiles": ["values.yaml"]}})
    texts = {**VALUES, "apps/values.yaml": "image: {tag: 1.0.0}\n"}
    assert decided(app, texts)[0].rule == "target"
    key = "argocd-image-updater.argoproj.io/git-repository"
    app["metadata"]["annotations"] |= {key: URL}
    assert decided(app, texts)[0].verdict == "update"


@pytest.mark.parametrize(
    ("target", "section", "texts"),
    [
        ("helmvalues", {"helm": {"valuesObject": {"image": {"pullPolicy": "Always"}}}}, {}),
        ("helmvalues", {"helm": {"valuesObject": {}, "values": "image: {tag: 1.0.0}"}}, {}),
        ("helmvalues", {"helm": {"parameters": [SIDE]}}, {}),
        (
            "helmvalues",
            {"helm": {"parameters": [BELOW]}},
            {"apps/a/.argocd-source-a.yaml": yaml.safe_dump({"helm": {"parameters": [SIDE]}})},
        ),
        ("helmvalues:e-a.yaml", {"helm": {"valueFiles": ["e-$ARGOCD_APP_NAME.yaml"]}}, {}),
        ("helmvalues:e-a.yaml", {"helm": {"valueFiles": ["e-${ARGOCD_ENV_X}.yaml"]}}, {}),
        ("helmvalues:env/x.yaml", {"helm": {"valueFiles": ["env/*.yaml"]}}, {}),
        (
            "helmvalues:/charts/web/values.yaml",
            {},
            {
                "apps/a/Chart.yaml": f"{CHART}dependencies:\n- {{name: web, repository: 'file://../../charts/web'}}\n",
                "charts/web/values.yaml": "image: {tag: 1.0.0}",
            },
        ),
    ],
)
def test_values_that_hide_nothing_are_not_errors(
    target: str, section: dict[str, Any], texts: Texts
) -> None:
    one, _ = decided(hidden_app(target, section), {**VALUES, **texts})
    assert one.verdict == "update", one.because


VARIABLES = [
    ("p-$ARGOCD_APP_NAME.yaml", "argocd", "p-a.yaml"),
    ("${ARGOCD_APP_NAME}/p.yaml", "argocd", "a/p.yaml"),
    ("$ARGOCD_APP_NAME/p.yaml", "team", "team_a/p.yaml"),  # outside Argo CD's namespace
    ("p-$ARGOCD_APP_NAMESPACE.yaml", "argocd", "p-shop.yaml"),
    ("p-${ARGOCD_APP_PROJECT_NAME}.yaml", "argocd", "p-default.yaml"),
    ("/$ARGOCD_APP_SOURCE_PATH/p.yaml", "argocd", "p.yaml"),
    ("p-$ARGOCD_APP_SOURCE_TARGET_REVISION.yaml", "argocd", "p-main.yaml"),
    ("$here/apps/a/p-$ARGOCD_APP_NAME.yaml", "argocd", "p-a.yaml"),
]


@pytest.mark.parametrize(("name", "namespace", "path"), VARIABLES)
def test_variables_that_are_known_before_a_sync_are_replaced_in_values_files_and_targets(
    name: str, namespace: str, path: str
) -> None:
    def application_with(target: str) -> dict[str, Any]:
        app = hidden_app(target, {"targetRevision": "main"})
        app["metadata"]["namespace"] = namespace
        app["spec"]["destination"] = {"namespace": "shop"}
        source = app["spec"].pop("source")
        helm = {"helm": {"valueFiles": ["values.yaml", name]}}
        app["spec"]["sources"] = [{**source, **helm}, {**source, "path": "", "ref": "here"}]
        return app

    texts = {**VALUES, f"apps/a/{path}": "image: {tag: 1.0.0}\n"}
    hidden, _ = decided(application_with("helmvalues"), texts)
    assert f"the values file apps/a/{path} sets image.tag" in hidden.because
    for target in (path, name):
        one, after = decided(application_with(f"helmvalues:{target}"), texts)
        assert one.verdict == "update", one.because
        assert after[f"apps/a/{path}"] == f"image: {{tag: {NEW}}}\n"
    newer = {**texts, f"apps/a/{path}": "image: {tag: 10.0.0}\n"}
    assert decided(application_with(""), newer)[0].rule == "not-newer"


POD_10 = POD.replace("1.0.0", "10.0.0")
OVERLAY = "resources: [../base]\n"
BASE = {"apps/base/kustomization.yaml": "resources: [pod.yaml]\n", "apps/base/pod.yaml": POD_10}
FIRST_TAGS: dict[str, Texts] = {
    "a manifest beside it": {"apps/a/kustomization.yaml": "resources: [pod.yaml]\n", "apps/a/pod.yaml": POD_10},
    "a manifest of the base": {"apps/a/kustomization.yaml": OVERLAY, **BASE},
    "the base's entry": {
        "apps/a/kustomization.yaml": OVERLAY,
        **BASE,
        "apps/base/pod.yaml": POD,
        "apps/base/kustomization.yaml": f"resources: [pod.yaml]\nimages: [{{name: {IMAGE}, newTag: 10.0.0}}]\n",
    },
    "a component's entry": {
        "apps/a/kustomization.yaml": f"{OVERLAY}components: [../part]\n",
        **BASE,
        "apps/base/pod.yaml": POD,
        "apps/part/kustomization.yaml": f"kind: Component\nimages: [{{name: {IMAGE}, newTag: 10.0.0}}]\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("target", ["", "kustomization"])
@pytest.mark.parametrize("where", FIRST_TAGS)
def test_a_tag_rendered_by_kustomize_counts_as_the_current_version(where: str, target: str) -> None:
    one, _ = decided(hidden_app(target, {}), FIRST_TAGS[where])
    assert (one.verdict, one.rule, one.current.tag) == ("refuse", "not-newer", "10.0.0")


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (f"images:\n- name: {IMAGE}\n  newtag: 1.0.0\n", "line 3: Kustomize reads 'newtag'"),
        (f"Images:\n- name: {IMAGE}\n  newTag: 1.0.0\n", "line 1: Kustomize reads 'Images'"),
        (f"images:\n- Name: {IMAGE}\n  newTag: 1.0.0\n", "line 2: Kustomize reads 'Name'"),
        (
            f"images:\n- name: {IMAGE}\n  newTag: 1.0.0\n  Digest: ''\n",
            "line 4: Kustomize reads 'Digest'",
        ),
    ],
)
def test_a_misspelled_kustomize_key_is_an_error(lines: str, key: str) -> None:
    one, _ = decided(hidden_app("kustomization", {}), {"apps/a/kustomization.yaml": lines})
    assert (one.verdict, one.rule) == ("error", "target")
    assert key in one.because


def test_an_entry_that_matches_no_image_causes_a_warning() -> None:
    (sub,) = subscribe(parse_application(hidden_app("kustomization", {}))).subscriptions
    for name, expected in ((IMAGE, 0), ("ghcr.io/acme/wep", 1)):
        texts = {
            "apps/a/kustomization.yaml": f"resources: [pod.yaml]\nimages: [{{name: {IMAGE}, newTag: 1.0.0}}]\n",
            "apps/a/pod.yaml": POD.replace(IMAGE, name),
        }
        files = {path: File(text) for path, text in texts.items()}
        found = file_cautions(files, sub, "kustomization", parse_image(f"{IMAGE}:1.0.0"), Terms())
        assert len([one for one in found if "has no effect" in one.message]) == expected


def test_replacing_a_yaml_alias_with_its_value_causes_a_warning() -> None:
    lines = f"x-version: &v 1.0.0\nimages:\n- name: {IMAGE}\n  newTag: *v\n"
    story = Story(hidden_app("kustomization", {}), Branch({"apps/a/kustomization.yaml": lines}))
    job = Job("run", (parse_image(f"{IMAGE}:{NEW}"),), SCOPE, Terms(), WORDING)
    told = [one.message for one in story.run(job).problems]
    assert told == ["apps/a: line 4: newTag: *v is replaced with the literal version"]
    assert f"newTag: {NEW}" in story.branch.files["apps/a/kustomization.yaml"]
