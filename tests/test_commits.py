"""Commit messages, tested through the command line: the image's origin, the sign-off, and text that
CI systems interpret.
"""

import subprocess
from pathlib import Path

import pytest
from support import git, image_update
from support.runs import application, arguments, manifest, repository, start

SHA = "0123456789abcdef0123456789abcdef01234567"
GITLAB = {
    "CI_COMMIT_SHA": SHA,
    "CI_PROJECT_URL": "https://gitlab.example/acme/web",
    "CI_PIPELINE_URL": "https://gitlab.example/acme/web/-/pipelines/7",
    "CI_COMMIT_AUTHOR": "Ann <ann@example.com>",
    "CI_COMMIT_TIMESTAMP": "2024-05-01T10:00:00+02:00",
    "CI_COMMIT_MESSAGE": 'Fix "it": now\n\nBecause.\nSigned-off-by: Eve <eve@example.com>',
}


def message(
    folder: Path, *more: str | Path, env: dict[str, str] | None = None
) -> tuple[str, list[tuple[str, str]]]:
    """Return the commit message, and the trailers that git finds in it."""
    repo = repository(folder, "a")
    running = start(arguments(manifest(folder, application("a", repo)), *more), env=env)
    _, err = running.communicate()
    assert running.returncode == 0, err
    text = git(repo, "log", "-1", "--format=%B", "main")
    found = subprocess.run(
        ["git", "interpret-trailers", "--parse"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return text, [
        (key, value) for key, _, value in (line.partition(": ") for line in found.splitlines())
    ]


def test_no_source_trailers_are_added_outside_of_ci(tmp_path: Path) -> None:
    _, trailers = message(tmp_path)
    assert [key for key, _ in trailers] == ["Image", "Application"]


def test_options_set_the_trailers(tmp_path: Path) -> None:
    given = (
        "--source-commit",
        SHA.upper(),
        "--source-repository",
        "https://git.example/web",
        "--pipeline-run",
        "run-7",
    )
    _, trailers = message(tmp_path, *given, "--trailer", "Ticket=ABC-1", "--sign-off")
    assert trailers[2:] == [
        ("Source-Commit", SHA),
        ("Pipeline-Run", "run-7"),
        ("Ticket", "ABC-1"),
        ("Argocd-reference-commit-sha", SHA),
        ("Argocd-reference-commit-repourl", "https://git.example/web"),
        ("Signed-off-by", "image-update <image-update@noreply.invalid>"),
    ]


def test_ci_variables_set_the_trailers(tmp_path: Path) -> None:
    _, trailers = message(tmp_path, env=GITLAB)
    assert trailers[2:] == [
        ("Source-Commit", SHA),
        ("Pipeline-Run", "https://gitlab.example/acme/web/-/pipelines/7"),
        ("Argocd-reference-commit-author", "Ann <ann@example.com>"),
        ("Argocd-reference-commit-date", "2024-05-01T10:00:00+02:00"),
        ("Argocd-reference-commit-subject", 'Fix "it": now'),
        ("Argocd-reference-commit-sha", SHA),
        ("Argocd-reference-commit-repourl", "https://gitlab.example/acme/web"),
        ("Argocd-reference-commit-body", '"Because.\\nSigned-off-by: Eve <eve@example.com>"'),
    ]


def test_commit_details_from_the_ci_system_are_not_used_for_a_different_commit(
    tmp_path: Path,
) -> None:
    _, trailers = message(tmp_path, "--source-commit", "f" * 40, env=GITLAB)
    assert [(key, value) for key, value in trailers if key.startswith("Argocd")] == [
        ("Argocd-reference-commit-sha", "f" * 40)
    ]
    assert ("Pipeline-Run", GITLAB["CI_PIPELINE_URL"]) in trailers


def test_credentials_in_ci_variables_are_not_written(tmp_path: Path) -> None:
    env = {
        "GIT_COMMIT": SHA,
        "GIT_URL": "https://bot:tops3cret@git.example/web",
        "BUILD_URL": "https://u:tops3cret@ci/7/",
    }
    text, _ = message(tmp_path, env=env)
    assert "tops3cret" not in text
    assert "Argocd-reference-commit-repourl: https://git.example/web" in text


@pytest.mark.parametrize("value", ["main", "xyz", "123", "f" * 65])
def test_invalid_source_commits_are_rejected(tmp_path: Path, value: str) -> None:
    running = start(arguments(manifest(tmp_path), "--source-commit", value))
    _, err = running.communicate()
    assert (running.returncode, b"--source-commit" in err) == (2, True)


@pytest.mark.parametrize(
    "template", ["[skip ci] {{ .AppName }}\n\nbody\n", "{{ .AppName }}\n\n[skip ci]\n"]
)
def test_the_message_template_can_add_skip_ci(tmp_path: Path, template: str) -> None:
    (tmp_path / "template").write_text(template)
    text, trailers = message(
        tmp_path, "--commit-message-template", tmp_path / "template", "--sign-off"
    )
    assert "[skip ci]" in text
    assert trailers[-1][0] == "Signed-off-by"


def test_an_invalid_trailer_key_is_a_usage_error(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("a", repository(tmp_path, "a")))
    result = image_update(*arguments(apps, "--trailer", "Foo: bar=baz"))
    assert (result.code, result.json["errors"][0]["rule"]) == (2, "usage")
