"""The folder in which a step starts is often a checkout. The checkout's Git configuration, broken
or not, is ignored.
"""

from pathlib import Path

import pytest
from support import image_update, show
from support.runs import application, arguments, manifest, repository, target

BROKEN = "[core\n\tbare = maybe"
HOSTILE = """\
[core]
	repositoryformatversion = 0
	bare = false
	sshCommand = touch {marker}
	fsmonitor = touch {marker}
	hooksPath = {hooks}
	worktree = /nonexistent
[url "https://git.invalid/"]
	insteadOf = /
	insteadOf = file:///
[alias]
	fetch = !touch {marker}
	push = !touch {marker}
[remote "image-update"]
	url = https://git.invalid/elsewhere.git
[user]
	name = Somebody Else
[protocol]
	allow = never
[include]
	path = {folder}/loop
"""


def checkout(folder: Path, config: str) -> Path:
    """A checkout in which a step may start."""
    (folder / "work" / ".git" / "objects").mkdir(parents=True)
    (folder / "work" / ".git" / "refs").mkdir()
    (folder / "work" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "work" / ".git" / "config").write_text(config)
    return folder / "work"


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(BROKEN, id="broken"),
        pytest.param("[core]\n\trepositoryformatversion = 99\n", id="of a git to come"),
        pytest.param(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tnew = 1\n",
            id="an unknown extension",
        ),
        pytest.param("\0\xff" * 1000, id="no text"),
        pytest.param(HOSTILE, id="hostile"),
    ],
)
def test_the_git_configuration_of_the_working_folder_is_ignored(
    tmp_path: Path, config: str
) -> None:
    repo, marker, hooks = repository(tmp_path, "a"), tmp_path / "marker", tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-push", "reference-transaction", "post-update"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (hooks / name).chmod(0o755)
    (tmp_path / "loop").write_text(f"[include]\n\tpath = {tmp_path}/loop\n")
    said = config
    for name, value in (("marker", marker), ("hooks", hooks), ("folder", tmp_path)):
        said = said.replace(f"{{{name}}}", str(value))
    work = checkout(tmp_path, said)
    (tmp_path / ".gitconfig").write_text(
        "[http]\n\tsslVerify = true\n"
    )  # so that git is queried for this setting
    apps = manifest(tmp_path, application("a", repo))
    done = image_update(*arguments(apps), cwd=work, env={"HOME": str(tmp_path)})
    assert (done.code, done.json["status"]) == (0, "updated"), done.stderr
    assert "newTag: 1.1.0" in show(repo, "main", target("a"))
    assert not marker.exists()


def test_a_dangling_git_file_in_the_working_folder_is_ignored(tmp_path: Path) -> None:
    repo, work = repository(tmp_path, "a"), tmp_path / "work"
    work.mkdir()
    (work / ".git").write_text("gitdir: /nonexistent\n")
    (tmp_path / ".gitconfig").write_text("[http]\n\tsslVerify = true\n")
    done = image_update(
        *arguments(manifest(tmp_path, application("a", repo))),
        cwd=work,
        env={"HOME": str(tmp_path)},
    )
    assert (done.code, done.json["status"]) == (0, "updated"), done.stderr


RELEASE = """\
apiVersion: helm.fluxcd.io/v1
kind: HelmRelease
metadata: {name: web, namespace: shop, annotations: {fluxcd.io/automated: "true"}}
spec: {values: {image: {repository: ghcr.io/acme/web, tag: 1.0.0}}}
"""


def test_a_broken_git_configuration_in_a_work_tree_that_is_read_is_a_warning(
    tmp_path: Path,
) -> None:
    """Flux HelmReleases belong to the `origin` of the work tree that contains them. The
    Applications next to them are still updated.
    """
    repo, work = repository(tmp_path, "a"), checkout(tmp_path, BROKEN)
    for number in (1, 2):
        (work / f"release{number}.yaml").write_text(
            RELEASE.replace("name: web", f"name: web{number}")
        )
    manifest(work, application("a", repo))
    done = image_update(*arguments(work), cwd=work, env={"HOME": str(tmp_path)})
    assert "newTag: 1.1.0" in show(repo, "main", target("a")), done.stderr
    assert done.stderr.count("cannot tell which repository") == 1
    assert f"which repository {work} belongs to" in done.stderr
    assert "bad config line" in done.stderr
    assert [one["rule"] for one in done.json["errors"]] == ["source", "source"]
    assert "repair it, or clone the repository again" in done.stderr
