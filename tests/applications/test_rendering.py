"""`--render`: what Helm and Kustomize render from a folder. They can read nothing else."""

import os
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import Link, bare_repo, needs
from support.reports import trouble_of
from support.runs import PREFIX, WEB, alive, wait_until

from task.applications.git import KeptRepository, git_manifests
from task.applications.manifest_files import local_manifests
from task.applications.manifest_text import found_in
from task.applications.rendering import Rendering, run
from task.applications.work_tree import LARGEST
from task.errors import Malformed, SourceError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Found
from task.processes import Bounds

CHART = {
    "platform/Chart.yaml": "apiVersion: v2\nname: platform\nversion: 0.1.0\n",
    "platform/values.yaml": f"apps: [web, shop]\nimage: {WEB}\n",
    "platform/files/note.txt": "of a file\n",
    "platform/templates/_helpers.tpl": '{{ define "path" }}apps/{{ . }}{{ end }}',
    "platform/templates/apps.yaml": f"""\
{{{{- range .Values.apps }}}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {{{{ $.Release.Name }}}}-{{{{ . }}}}
  namespace: {{{{ $.Release.Namespace }}}}
  annotations:
    {PREFIX}image-list: web={{{{ $.Values.image }}}}
    note: {{{{ $.Files.Get "files/note.txt" | trim }}}}
spec: {{source: {{repoURL: "https://h/x.git", path: {{{{ include "path" . }}}}, targetRevision: main}}}}
{{{{- end }}}}
""",
    "platform/templates/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n",
    "platform/templates/release.yaml": "apiVersion: helm.fluxcd.io/v1\nkind: HelmRelease\nmetadata: {name: old}\n",
}
APPLICATION = f"""\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {{name: web, annotations: {{{PREFIX}image-list: "web={WEB}"}}}}
spec: {{source: {{repoURL: "https://h/x.git", path: apps/web, targetRevision: main}}}}
"""
OVERLAYS = {
    "base/kustomization.yaml": "resources: [web.yaml]\n",
    "base/web.yaml": APPLICATION,
    "prod/kustomization.yaml": "resources: [../base]\nnamePrefix: prod-\nnamespace: argocd\npatches:\n"
    '- {target: {kind: Application}, patch: \'[{"op":"replace","path":"/spec/source/repoURL","value":"https://h/y.git"}]\'}\n',
}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def with_programs(*commands: list[str]) -> dict[str, str]:
    """Return an environment that has these programs in its PATH, and contains a secret."""
    return {
        "PATH": os.pathsep.join(os.path.dirname(one[0]) for one in commands),
        "GITHUB_TOKEN": "s3cret",
    }


def from_git(
    folder: Path, files: Mapping[str, Any], path: str, rendering: Rendering
) -> list[Found]:
    repo = str(bare_repo(folder, files))
    with closing(BareRepository(Git({}, protocols=frozenset({"file"})), repo)) as git:
        found = list(git_manifests(KeptRepository(git), path, rendering))
    return [replace(one, origin=one.origin.replace(repo, "REPO")) for one in found]


def by_hand(*command: str | Path) -> list[Mapping[str, Any]]:
    made = subprocess.run(command, check=True, capture_output=True).stdout
    return [one.item for one in found_in(made, "") if one.item["kind"] == "Application"]


@pytest.mark.measured
@pytest.mark.parametrize("place", ["here", "in Git"])
def test_a_rendered_chart_equals_the_output_of_helm(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    helm = needs("helm")
    rendering = Rendering(["helm"], with_programs(helm))
    monkeypatch.chdir(written(tmp_path / "here", CHART))
    here = place == "here"
    found = (
        list(local_manifests("platform", rendering))
        if here
        else from_git(tmp_path, CHART, "platform", rendering)
    )
    expected = by_hand(*helm, "template", "--namespace", "argocd", "platform", "platform")
    assert [one.item for one in found] == expected
    assert [one.item["metadata"]["name"] for one in found] == ["platform-web", "platform-shop"]
    assert found[0].item["metadata"]["annotations"]["note"] == "of a file"
    assert {one.origin for one in found} == {"platform" if here else "REPO//platform"}


@pytest.mark.parametrize(
    ("asked", "made", "told"),
    [
        ('.Capabilities.APIVersions.Has "argoproj.io/v1alpha1"', True, False),
        ('.Capabilities.APIVersions.Has "argoproj.io/v1alpha1/Application"', True, False),
        ('.Capabilities.APIVersions.Has "monitoring.coreos.com/v1"', False, True),
        ('semverCompare ">=99" .Capabilities.KubeVersion.Version', False, True),
    ],
)
def test_a_chart_that_checks_cluster_capabilities_is_reported(
    tmp_path: Path, asked: str, made: bool, told: bool
) -> None:
    helm = needs("helm")
    apps = CHART["platform/templates/apps.yaml"]
    files = {
        **CHART,
        "platform/templates/apps.yaml": f"{{{{ if {asked} }}}}\n{apps}{{{{ end }}}}\n",
    }
    rendering = Rendering(["helm"], with_programs(helm))
    found = list(local_manifests(str(written(tmp_path, files) / "platform"), rendering))
    assert bool([one for one in found if one.item]) == made
    problems = [trouble_of(one).message for one in found if one.trouble]
    assert bool(problems) == told
    assert all("templates/apps.yaml:1" in one for one in problems)


def test_helm_never_reads_a_schema(tmp_path: Path) -> None:
    helm = needs("helm")
    schema = {"platform/values.schema.json": '{"$ref": "file:///no/such/file.json"}'}
    schema |= {"platform/charts/sub/values.schema.json": '{"$ref": "http://127.0.0.1:9/x.json"}'}
    files = {
        **CHART,
        **schema,
        "platform/charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
    }
    by_itself = [*helm, "template", str(written(tmp_path, files) / "platform")]
    assert b"no/such/file" in subprocess.run(by_itself, capture_output=True, check=False).stderr
    found = local_manifests(str(tmp_path / "platform"), Rendering(["helm"], with_programs(helm)))
    assert [one.item["metadata"]["name"] for one in found] == ["platform-web", "platform-shop"]


def test_all_rendering_of_a_run_has_one_budget(tmp_path: Path, stand_in: Path) -> None:
    write(stand_in, "while :; do :; done")
    rendering = Rendering(["helm"], {"PATH": str(stand_in.parent)}, seconds=0.5)
    written(tmp_path, CHART)
    for why in ("helm was stopped", "rendering in this run has already taken 0 seconds"):
        with pytest.raises(SourceError, match=why):
            list(local_manifests(str(tmp_path / "platform"), rendering))


@pytest.mark.measured
@pytest.mark.slow
@pytest.mark.parametrize("place", ["here", "in Git"])
def test_a_rendered_kustomization_equals_the_output_of_kustomize(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kustomize = needs("kustomize")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / os.path.basename(kustomize[0]).partition("-")[0]).symlink_to(kustomize[0])
    rendering = Rendering(["kustomize"], {"PATH": str(tmp_path / "bin")})
    monkeypatch.chdir(written(tmp_path / "here", OVERLAYS))
    found = (
        list(local_manifests("./prod/", rendering))
        if place == "here"
        else from_git(tmp_path, OVERLAYS, "prod", rendering)
    )
    assert [one.item for one in found] == by_hand(*kustomize, "prod")
    (app,) = found
    assert (app.item["metadata"]["name"], app.item["metadata"]["namespace"]) == (
        "prod-web",
        "argocd",
    )
    assert app.item["spec"]["source"]["repoURL"] == "https://h/y.git"
    assert app.origin == ("prod" if place == "here" else "REPO//prod")


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """Return the path of a fake `helm` with the arguments and exit codes of Helm 3.17."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder / "helm"


def write(program: Path, text: str) -> Rendering:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    secrets = {
        "GITHUB_TOKEN": "s3cret",
        "IMAGE_UPDATE_GIT_TOKEN": "s3cret",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
    }
    return Rendering(
        ["helm", "kustomize"], {"PATH": f"relative:{program.parent}", "HOME": "/h", **secrets}
    )


def test_a_rendering_program_has_no_secrets_home_or_other_programs(
    tmp_path: Path, stand_in: Path
) -> None:
    written(tmp_path, CHART)
    seen = tmp_path / "seen"
    rendering = write(stand_in, f'/usr/bin/env > {seen}; echo "$@" >> {seen}; pwd >> {seen}')
    assert list(local_manifests(str(tmp_path / "platform"), rendering)) == []
    *variables, arguments, folder = seen.read_text().splitlines()
    told = dict(one.split("=", 1) for one in variables)
    assert "s3cret" not in seen.read_text()
    assert told["HOME"] == told["PATH"] == told["HELM_PLUGINS"] != "/h"
    assert told["HTTPS_PROXY"] == told["https_proxy"] == "http://127.0.0.1:9"
    assert (told["GIT_ALLOW_PROTOCOL"], told["KUBECONFIG"]) == ("none", os.devnull)
    group = "argoproj.io/v1alpha1"
    kinds = ("", "/Application", "/ApplicationSet", "/AppProject")
    versions = " ".join(f"--api-versions {group}{kind}" for kind in kinds)
    assert arguments == f"template --namespace argocd {versions} -- platform ./"
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo 'Error: x' >&2; echo made; exit 1", "helm exited with 1: Error: x"),
        (
            "printf 'Error: x\\n\\nUse --debug flag to render out invalid YAML\\n' >&2; exit 1",
            r"helm exited with 1: Error: x$",
        ),
        ("echo 'not: [yaml'", ""),
        ("kill -9 $$", "helm exited with"),
    ],
)
def test_the_error_message_of_a_rendering_program_is_reported(
    tmp_path: Path, stand_in: Path, text: str, words: str
) -> None:
    rendering = write(stand_in, text)
    written(tmp_path, CHART)
    source = local_manifests(str(tmp_path / "platform"), rendering)
    if not words:  # the program's output is read like any manifest
        assert list(source) == []
        return
    with pytest.raises(SourceError, match=words) as raised:
        list(source)
    assert (raised.value.subject, int(raised.value.exit)) == (str(tmp_path / "platform"), 3)


@pytest.mark.parametrize("text", ["garbage", "#!/none\n"])
def test_a_rendering_program_that_cannot_be_started_is_reported(stand_in: Path, text: str) -> None:
    stand_in.write_text(text)
    stand_in.chmod(0o755)
    with pytest.raises(Malformed, match="cannot be started"):
        run([str(stand_in)], {}, {})


def test_a_program_is_killed_together_with_its_children(tmp_path: Path, stand_in: Path) -> None:
    write(stand_in, f"(trap '' TERM; /bin/sleep 600) & echo $! > {tmp_path}/child; /bin/sleep 600")
    with pytest.raises(Malformed, match="it took more than 0 seconds"):
        run([str(stand_in)], {}, {}, seconds=0.3)
    wait_until(lambda: not alive(int((tmp_path / "child").read_text())))


def test_the_output_of_a_rendering_program_is_limited(stand_in: Path) -> None:
    write(stand_in, "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done")
    with pytest.raises(Malformed, match="it printed more than 1 MB"):
        run([str(stand_in)], {}, {}, bounds=Bounds(messages=1_000_000))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"../x": ""}, "is not a valid file path"),
        ({"a/./b": ""}, "is not a valid file path"),
        ({"/etc/x": ""}, "is not a valid file path"),
        ({"a\0b": ""}, "is not a valid file path"),
        ({"a": "", "a/b": ""}, "cannot copy 'a/b'"),
        ({"a" * 300: ""}, "cannot copy"),
    ],
)
def test_files_outside_of_the_rendering_folder_are_refused(
    files: dict[str, str], words: str
) -> None:
    with pytest.raises(Malformed, match=words):
        run(["/bin/true"], files, {})


def test_files_that_are_too_large_to_render_are_rejected() -> None:
    with pytest.raises(Malformed, match="larger than 64 MB"):
        run(["/bin/true"], {"a": "x" * (LARGEST + 1)}, {})


def test_a_link_in_a_chart_is_refused(tmp_path: Path, stand_in: Path) -> None:
    rendering, link = write(stand_in, "exit 0"), "platform/templates/x.yaml"
    here = written(tmp_path / "here", CHART)
    (here / link).symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match=r"'templates/x\.yaml' is a symbolic link"):
        list(local_manifests(str(here / "platform"), rendering))
    with pytest.raises(SourceError, match=f"'{link}' is a symbolic link"):
        from_git(tmp_path, {**CHART, link: Link("/etc/passwd")}, "platform", rendering)


def test_a_symbolic_link_cannot_be_a_kustomization_resource(tmp_path: Path, stand_in: Path) -> None:
    rendering = write(stand_in.with_name("kustomize"), "exit 0")
    files = {"k/kustomization.yaml": "resources: [outside]\n", "k/outside": Link("/etc")}
    with pytest.raises(SourceError, match="'outside' is a symbolic link"):
        from_git(tmp_path, files, "k", rendering)


def test_a_skipped_binary_file_is_mentioned_if_rendering_fails(
    tmp_path: Path, stand_in: Path
) -> None:
    rendering = write(stand_in, "exit 1")
    with pytest.raises(SourceError) as raised:
        from_git(tmp_path, {**CHART, "platform/charts/sub.tgz": b"\xff\0"}, "platform", rendering)
    assert "platform/charts/sub.tgz was skipped" in raised.value.hint


@pytest.mark.parametrize(
    ("allowed", "programs", "hint"),
    [
        ((), ["helm", "kubectl"], "render it with --render helm"),
        (("kustomize",), ["helm", "kubectl"], "render it with --render helm"),
        (("helm",), ["kubectl"], "install helm for this step"),
    ],
)
def test_an_unrendered_chart_is_reported_with_a_way_to_render_it(
    tmp_path: Path, stand_in: Path, allowed: tuple[str, ...], programs: list[str], hint: str
) -> None:
    for name in programs:
        write(stand_in.with_name(name), "exit 0")
    written(tmp_path, CHART)
    rendering = Rendering(allowed, {"PATH": str(stand_in.parent)})
    (advice,) = [
        one for one in local_manifests(str(tmp_path / "platform"), rendering) if one.trouble
    ]
    assert (advice.advice, trouble_of(advice).severity) == (True, "warning")
    assert trouble_of(advice).hint.startswith(hint)


@pytest.mark.parametrize(
    ("kustomization", "files", "warned"),
    [
        ("resources: [web.yaml]\n", {"web.yaml": APPLICATION}, False),
        ("resources: [web.yaml]\nnamePrefix: a-\n", {"web.yaml": APPLICATION}, True),
        ("resources: [web.yaml]\nnamespace: argocd\n", {"web.yaml": APPLICATION}, False),
        ("resources: [web.yaml]\nnamespace: other\n", {"web.yaml": APPLICATION}, True),
        ("resources: [pod.yaml]\nnamePrefix: a-\n", {"pod.yaml": "kind: Pod\n"}, False),
        ("resources: [../base]\n", {}, True),
    ],
)
def test_an_unrendered_kustomization_is_reported_if_it_changes_applications(
    tmp_path: Path, kustomization: str, files: dict[str, str], *, warned: bool
) -> None:
    files = {
        f"k/{name}": text for name, text in {"kustomization.yaml": kustomization, **files}.items()
    }
    for found in (
        list(local_manifests(str(written(tmp_path, files) / "k"), Rendering())),
        from_git(tmp_path, files, "k", Rendering()),
    ):
        said = [trouble_of(one).message for one in found if one.trouble]
        made = [message for message in said if "no Application was found in " not in message]
        assert ["this kustomization generates Applications" in one for one in made] == [
            True
        ] * warned


def test_kubectl_is_used_for_rendering_if_kustomize_is_missing(
    tmp_path: Path, stand_in: Path
) -> None:
    seen = tmp_path / "seen"
    rendering = write(stand_in.with_name("kubectl"), f'echo "$@" > {seen}')
    written(tmp_path, OVERLAYS)
    assert list(local_manifests(str(tmp_path / "base"), rendering)) == []
    assert seen.read_text() == "kustomize ./\n"


def test_a_chart_given_as_a_source_is_not_reported_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path, CHART))
    sources = (".", "./platform/")
    assert [
        trouble_of(one).message
        for one in local_manifests(".", Rendering((), {}, "argocd", sources))
        if one.trouble
    ] == []


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("platform", "platform"),
        ("My_Apps", "my-apps"),
        ("", "applications"),
        ("-x-" * 40, "x-x-x"),
        ("ü", "applications"),
    ],
)
def test_the_release_name_is_always_valid_for_helm(
    tmp_path: Path, stand_in: Path, folder: str, name: str
) -> None:
    seen = tmp_path / "seen"
    rendering = write(stand_in, f'echo "${{13}}" > {seen}')
    from_git(tmp_path, {f"{folder}/Chart.yaml".lstrip("/"): "name: x\n"}, folder, rendering)
    shown = seen.read_text().strip()
    assert shown.startswith(name if folder else "repo")
    assert len(shown) <= 53
