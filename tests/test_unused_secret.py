"""A Secret that an annotation names, where Applications do not come from the cluster: it is not read, and said so."""

from pathlib import Path

from runs import application, arguments, manifest, repository
from support import image_update


def test_a_secret_that_is_not_read_is_named_once(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    secret = "git:secret:argocd/git-creds"
    apps = manifest(tmp_path, *(application(name, repo, write_back_method=secret) for name in ("a", "b")))
    ended = image_update(*arguments(apps))
    assert (ended.code, ended.json["counts"]["updated"]) == (0, 2)
    told = [line for line in ended.stderr.splitlines() if "git-creds" in line]
    assert len(told) == 1
    assert "git:secret:argocd/git-creds, which argocd/a names, is read only with --applications cluster" in told[0]


def test_nothing_is_said_if_no_secret_is_named(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("a", repository(tmp_path, "a"), write_back_method="git"))
    assert "--applications cluster" not in image_update(*arguments(apps)).stderr
