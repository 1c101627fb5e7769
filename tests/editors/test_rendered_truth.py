"""Files rendered by the real helm and kustomize: the image is updated, and nothing else changes."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from editors.argocd import merged
from editors.editing import DIGEST, OTHER, OVERRIDE, edit, read, source, target
from support import needs

from task.model import File, Keys, Parameter

TAGS = ["v2", "1.10", "1e3", "0123", "yes", "2024-01-02", "12345678", "0x1f"]
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n",
    "values.yaml": "image:\n  name: acme/web\n  tag: v1\nreplicaCount: 1\nlog: {level: info}\n",
    "templates/web.yaml": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: {{ .Values.replicaCount }}\n"
        '  values: {{ omit .Values "image" | toJson | quote }}\n'
        "  image: '{{ .Values.image.name }}:{{ .Values.image.tag }}'\n"
    ),
}
SPEC = (
    Parameter("replicaCount", "3"),
    Parameter("log.level", "debug"),
    Parameter("note", "12", force_string=True),
)


def chart(folder: Path, **files: str) -> Path:
    for name, text in {**CHART, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def rendered(folder: Path, parameters: Any = ()) -> Any:
    """Return the output of `helm template`, with parameters passed as in Argo CD."""
    flags = []
    for each in parameters:
        flags += [
            "--set-string" if each.get("forceString") else "--set",
            f"{each['name']}={each['value']}",
        ]
    done = subprocess.run(
        [*needs("helm"), "template", "web", str(folder), *flags], capture_output=True, check=True
    )
    return yaml.safe_load(done.stdout)


def without(document: Any, *path: str) -> Any:
    copy = json.loads(json.dumps(document))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner.pop(path[-1])
    return copy


@pytest.mark.parametrize("tag", TAGS)
def test_an_override_file_changes_the_image_and_keeps_every_other_value(
    tmp_path: Path, tag: str
) -> None:
    origin = {
        "helm": {
            "parameters": [
                {"name": one.name, "value": one.value, "forceString": one.force_string}
                for one in SPEC
            ]
        }
    }
    after = edit(
        {}, target("helm-override", "acme/web", source=source(parameters=SPEC)), f"acme/web:{tag}"
    )[0]
    folder = chart(tmp_path)
    old = rendered(folder, origin["helm"]["parameters"])
    new = rendered(folder, merged(origin, after[OVERRIDE].text)["helm"]["parameters"])
    assert new["spec"]["image"] == f"acme/web:{tag}"
    assert without(new, "spec", "image") == without(old, "spec", "image")


def test_an_override_file_renders_manual_and_followed_values(tmp_path: Path) -> None:
    origin = {
        "helm": {
            "parameters": [
                {"name": one.name, "value": one.value, "forceString": one.force_string}
                for one in SPEC
            ]
        }
    }
    mine = '  - name: replicaCount  # twice the load\n    value: "5"\n    forcestring: false\n'
    theirs = (
        "  - name: log.level  # from the Application\n    value: info\n    forcestring: false\n"
    )
    gone = "  - name: left  # from the Application\n    value: over\n    forcestring: false\n"
    before = {OVERRIDE: File(f"helm:\n  parameters:\n{gone}{mine}{theirs}")}
    after = edit(
        before, target("helm-override", "acme/web", source=source(parameters=SPEC)), "acme/web:v2"
    )[0]
    new = rendered(chart(tmp_path), merged(origin, after[OVERRIDE].text)["helm"]["parameters"])
    values = json.loads(new["spec"]["values"])
    assert (new["spec"]["image"], new["spec"]["replicas"]) == ("acme/web:v2", 5)
    assert (values["log"], values["note"], "left" in values) == ({"level": "debug"}, "12", False)


@pytest.mark.parametrize("tag", TAGS)
def test_editing_a_values_file_changes_only_the_rendered_image(tmp_path: Path, tag: str) -> None:
    folder = chart(tmp_path)
    old = rendered(folder)
    aim = target("helmvalues", "acme/web", Keys("image.name", "image.tag"), path="values.yaml")
    after = edit({"values.yaml": File(CHART["values.yaml"])}, aim, f"acme/web:{tag}")[0]
    new = rendered(chart(tmp_path, **{"values.yaml": after["values.yaml"].text}))
    assert new["spec"]["image"] == f"acme/web:{tag}"
    assert without(new, "spec", "image") == without(old, "spec", "image")


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - {name: api, image: "ghcr.io/acme/api:1.0"}
      - {name: side, image: "ghcr.io/acme/side:1.0"}
      - {name: short, image: api}
"""
HEAD = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [d.yaml]\n"
OVERLAYS = {
    "no list": HEAD,
    "null": HEAD + "images:\n",
    "brackets": HEAD + "images: []\n",
    "another": HEAD + "images:\n- name: ghcr.io/acme/side\n  newTag: '2'\n",
    "tag": HEAD + "images:\n  - newTag: 1.1.0\n    name: ghcr.io/acme/api\n",
    "digest": HEAD + f"images:\n- digest: {OTHER}\n  name: ghcr.io/acme/api\n",
    "both": HEAD + f"images:\n- name: ghcr.io/acme/api\n  digest: {OTHER}\n  newTag: '1'\n",
    "flow": HEAD + "images: [{name: ghcr.io/acme/api, newTag: '1'}]\n",
    "component": HEAD.replace("v1beta1", "v1alpha1").replace("Kustomization", "Component"),
}


def built(folder: Path, kustomization: str) -> list[str]:
    """Return the container images in the output of kustomize, in order."""
    (folder / "d.yaml").write_text(DEPLOYMENT)
    (folder / "kustomization.yaml").write_text(kustomization)
    done = subprocess.run([*needs("kustomize"), str(folder)], capture_output=True, check=True)
    document = yaml.safe_load(done.stdout)
    return [each["image"] for each in document["spec"]["template"]["spec"]["containers"]]


@pytest.mark.parametrize("version", [":2.10", f":2.10@{DIGEST}", f"@{DIGEST}"])
@pytest.mark.parametrize("style", [style for style in OVERLAYS if style != "component"])
def test_a_kustomization_changes_only_the_intended_image(
    tmp_path: Path, style: str, version: str
) -> None:
    aim = target("kustomization", "ghcr.io/acme/api", path="k")
    after = edit(
        {"k/kustomization.yaml": File(OVERLAYS[style])}, aim, f"ghcr.io/acme/api{version}"
    )[0]
    old, new = built(tmp_path, OVERLAYS[style]), built(tmp_path, after["k/kustomization.yaml"].text)
    assert new[0] == f"ghcr.io/acme/api{version}"
    assert new[1:] == old[1:]


def test_an_image_name_in_the_manifests_is_replaced_with_the_image(tmp_path: Path) -> None:
    aim = target("kustomization", "ghcr.io/acme/api", Keys(kustomize_name="api"), path="k")
    after = edit({"k/kustomization.yaml": File(HEAD)}, aim, "ghcr.io/acme/api:2")[0]
    assert built(tmp_path, after["k/kustomization.yaml"].text)[2] == "ghcr.io/acme/api:2"


def test_an_empty_kustomization_file_builds_after_the_edit(tmp_path: Path) -> None:
    aim = target("kustomization", "ghcr.io/acme/api", path="k")
    after = edit({"k/kustomization.yaml": File("# nothing yet\n")}, aim, "ghcr.io/acme/api:2")[0]
    text = after["k/kustomization.yaml"].text + "resources: [d.yaml]\n"
    assert built(tmp_path, text)[0] == "ghcr.io/acme/api:2"


def test_a_component_sets_the_image_of_the_overlay_that_uses_it(tmp_path: Path) -> None:
    aim = target("kustomization", "ghcr.io/acme/api", path="k")
    component = OVERLAYS["component"].replace("resources: [d.yaml]\n", "")
    after = edit({"k/kustomization.yaml": File(component)}, aim, "ghcr.io/acme/api:2")[0]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "kustomization.yaml").write_text(after["k/kustomization.yaml"].text)
    assert built(tmp_path, HEAD + "components: [c]\n")[0] == "ghcr.io/acme/api:2"


NAMED = ("web", "ghcr.io/acme/api", "", "1.0.0"), ("ghcr.io/acme/api", "", "", "2.0.0")
SEVERAL = {
    "as AIU appends it": NAMED,
    "the other way round": NAMED[::-1],
    "a twin": (("ghcr.io/acme/api", "", "", "3.0.0"), ("ghcr.io/acme/api", "", "", "2.0.0")),
    "a twin with another name": (
        ("web", "ghcr.io/acme/api", "", "1.0.0"),
        ("web", "ghcr.io/acme/api", "", "2.0.0"),
    ),
    "a digest on top": (*NAMED, ("ghcr.io/acme/api", "", DIGEST, "")),
}


@pytest.mark.parametrize("base", ["web", "ghcr.io/acme/api"])
@pytest.mark.parametrize("edited", [False, True], ids=["build", "edit set image"])
@pytest.mark.parametrize(
    "entries", [pytest.param(entries, id=name) for name, entries in SEVERAL.items()]
)
def test_the_entry_that_kustomize_applies_is_read_as_current(
    tmp_path: Path, entries: Any, edited: Any, base: str
) -> None:
    images: list[str] = []
    if edited:  # the way Argo CD applies an override file
        images = [
            f"{f'{name}=' if new else ''}ghcr.io/acme/api{f':{tag}' if tag else ''}{f'@{digest}' if digest else ''}"
            for name, new, digest, tag in entries
        ]
        aim, path = (
            target("kustomize-override", "ghcr.io/acme/api", Keys(kustomize_name=base)),
            OVERRIDE,
        )
        text = yaml.safe_dump({"kustomize": {"images": images}})
    else:
        fields = ("name", "newName", "digest", "newTag")
        listed = [
            {key: value for key, value in zip(fields, one, strict=True) if value} for one in entries
        ]
        aim, path = (
            target("kustomization", "ghcr.io/acme/api", Keys(kustomize_name=base), path="k"),
            "k/kustomization.yaml",
        )
        text = HEAD + yaml.safe_dump({"images": listed})
    (tmp_path / "d.yaml").write_text(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: a, image: {base}}}]}}\n"
    )
    (tmp_path / "kustomization.yaml").write_text(HEAD if edited else text)
    program = needs("kustomize")
    if edited:
        edit_command = [program[0], "edit", "set", "image", *images]
        if subprocess.run(edit_command, cwd=tmp_path, capture_output=True, check=False).returncode:
            pytest.skip("kubectl's kustomize has no edit")
    done = subprocess.run([*program, str(tmp_path)], capture_output=True, check=True)
    runs = yaml.safe_load(done.stdout)["spec"]["containers"][0]["image"]
    now = read({path: File(text)}, aim)
    if base in {name for name, *_ in entries}:
        assert (
            runs == f"ghcr.io/acme/api:{now.tag}" if not now.digest else runs.endswith(now.digest)
        )
    assert {now.tag, *now.also} - {""} == {tag for *_, tag in entries if tag}
