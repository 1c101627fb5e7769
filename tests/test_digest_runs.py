"""Whole runs with a digest next to the tag: both are written together, and no command silently
succeeds if an old digest remains.
"""

from pathlib import Path
from typing import Any

import pytest
from support import Result, bare_repo, commit, image_update, show
from support.runs import WEB, application, arguments, manifest, repository

OLD, NEW = (f"sha256:{letter * 64}" for letter in "ab")
VALUES = f"image:\n  repository: {WEB}\n  tag: 1.4.2\n  digest: {OLD}\n"
CHART = "apiVersion: v2\nname: web\nversion: 0.1.0\n"
KEYS: Any = {"web.helm.image-name": "image.repository", "web.helm.image-tag": "image.tag"}
DIGEST_KEY: Any = {"web.helm.image-digest": "image.digest"}
WHERE = "line 4: image.digest is 'sha256:a"


def scene(
    folder: Path, values: str = VALUES, helm: dict[str, Any] | None = None, **annotations: str
) -> tuple[Path, Path]:
    """Return a repository, and the manifest of an Application that deploys a chart from the
    repository.
    """
    repo = bare_repo(folder, {"apps/web/Chart.yaml": CHART, "apps/web/values.yaml": values})
    app = application("web", repo, **{"write_back_target": "", **annotations})
    app["spec"]["source"]["helm"] = helm or {"releaseName": "web"}
    return repo, manifest(folder, app)


def errors(result: Result) -> str:
    return " ".join(one["message"] for one in result.json["errors"] if one["severity"] == "error")


@pytest.mark.parametrize("target", ["helmvalues", "", "helmvalues:prod.yaml"])
def test_every_command_reports_an_outdated_digest_next_to_the_tag(
    tmp_path: Path, target: str
) -> None:
    repo, apps = scene(tmp_path, write_back_target=target, **KEYS)
    before = show(repo, "main", "apps/web/values.yaml")
    given = arguments(apps, "--image-digest", NEW, image=f"{WEB}:1.5.0")
    for command in ("plan", "run"):
        result = image_update(command, *given[1:])
        assert result.code == 3
        (decision,) = result.json["decisions"]
        assert (decision["verdict"], decision["rule"]) == ("error", "target")
        assert f"apps/web/values.yaml: {WHERE}" in decision["because"]
        (error,) = result.json["errors"]
        assert (
            error["hint"] == "set web.helm.image-digest: image.digest, so that each update sets it"
        )
    status = image_update("status", *given[3:])
    assert (status.code, WHERE in errors(status)) == (3, True)
    lint = image_update("lint", str(apps), "--allow-protocol", "file", "--output", "json")
    assert lint.code == 3
    assert any(WHERE in one["message"] for one in lint.json["findings"])
    assert show(repo, "main", "apps/web/values.yaml") == before


@pytest.mark.parametrize(
    "helm",
    [
        {"parameters": [{"name": "image.digest", "value": OLD}]},
        {"valuesObject": {"image": {"digest": OLD}}},
        {"values": f"image: {{digest: '{OLD}'}}"},
    ],
)
def test_an_outdated_digest_in_the_application_spec_is_reported_as_well(
    tmp_path: Path, helm: dict[str, Any]
) -> None:
    _, apps = scene(tmp_path, VALUES.replace(OLD, '""'), helm, **KEYS)
    result = image_update(*arguments(apps, image=f"{WEB}:1.5.0"))
    assert result.code == 3
    assert "the Application's" in result.json["decisions"][0]["because"]


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("digest", ["", NEW])
def test_a_digest_value_named_by_an_annotation_is_written_or_emptied(
    tmp_path: Path, digest: str, *, pin: bool
) -> None:
    repo, apps = scene(tmp_path, write_back_target="helmvalues", **KEYS, **DIGEST_KEY)
    more = [*(("--image-digest", digest) if digest else ()), *(("--pin-digest",) if pin else ())]
    result = image_update(
        *arguments(apps, *more, "--registry-check", "never", image=f"{WEB}:1.5.0")
    )
    if pin and not digest:
        assert (result.code, show(repo, "main", "apps/web/values.yaml")) == (3, VALUES)
        return
    assert result.code == 0
    wanted = VALUES.replace("1.4.2", "1.5.0").replace(OLD, digest or '""')
    assert show(repo, "main", "apps/web/values.yaml") == wanted
    again = image_update(*arguments(apps, *more, "--registry-check", "never", image=f"{WEB}:1.5.0"))
    assert again.json["decisions"][0]["verdict"] == "unchanged"


def test_a_rollback_restores_the_digest_together_with_the_tag(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, write_back_target="helmvalues", **KEYS, **DIGEST_KEY)
    assert image_update(*arguments(apps, "--image-digest", NEW, image=f"{WEB}:1.5.0")).code == 0
    result = image_update("rollback", "web", "--to", "previous", *arguments(apps)[3:])
    assert (result.code, show(repo, "main", "apps/web/values.yaml")) == (0, VALUES)


def test_an_override_file_clears_the_digest_of_the_chart(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, **KEYS, **DIGEST_KEY)
    assert image_update(*arguments(apps, image=f"{WEB}:1.5.0")).code == 0
    text = show(repo, "main", "apps/web/.argocd-source-web.yaml")
    assert '- name: image.digest\n    value: ""\n    forcestring: true\n' in text


def test_changing_a_value_shared_through_an_anchor_is_a_warning(tmp_path: Path) -> None:
    values = f"image: &image\n  repository: {WEB}\n  tag: 1.4.2\nworker: *image\n"
    repo, apps = scene(tmp_path, values, write_back_target="helmvalues", **KEYS)
    for more in (["--dry-run"], []):
        result = image_update(*arguments(apps, *more, image=f"{WEB}:1.5.0"))
        assert (result.code, [one["message"] for one in result.json["errors"]]) == (
            0,
            ["apps/web/values.yaml: this also changes worker.tag, through an anchor"],
        )
    assert show(repo, "main", "apps/web/values.yaml") == values.replace("1.4.2", "1.5.0")


@pytest.mark.parametrize(
    ("now", "event", "end"),
    [
        ("1.0.0", f"{WEB}:1.1.0", ("error", "registry")),
        ("1.0.0", f"{WEB}:1.1.0@{OLD}", ("update", "admitted")),
        (f"1.1.0@{OLD}", f"{WEB}:1.1.0", ("unchanged", "same")),
        ("1.2.0", f"{WEB}:1.1.0", ("refuse", "not-newer")),
    ],
)
def test_pin_digest_never_writes_a_tag_without_a_digest(
    tmp_path: Path, now: str, event: str, end: tuple[str, str]
) -> None:
    repo = repository(tmp_path, "a")
    commit(repo, {"apps/a/.argocd-source-a.yaml": f"kustomize:\n  images:\n  - {WEB}:{now}\n"})
    apps = manifest(tmp_path, application("a", repo, write_back_target=""))
    (decision,) = image_update(*arguments(apps, "--pin-digest", image=event)).json["decisions"]
    assert (decision["verdict"], decision["rule"]) == end
