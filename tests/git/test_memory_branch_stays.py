"""A memory branch that nobody may delete, like a protected branch on GitLab or Gitea."""

from functools import partial
from pathlib import Path

from support.git_branch import GitBranch
from support.history_scenes import HEAD, Scene, verdicts
from support.runs import hook

# The arguments are those of a Git hook. GitLab 17 and Gitea 1.22 also reject pushes in a hook.
REFUSES = """\
case "$1" in
  refs/heads/image-update-memory/*)
    case "$3" in *[!0]*) exit 0 ;; esac
    echo "You can only delete protected branches using the web interface." >&2
    exit 1 ;;
esac"""


def test_a_memory_branch_that_cannot_be_deleted_is_emptied(tmp_path: Path) -> None:
    scene = Scene(made=partial(GitBranch, folder=tmp_path))
    repo = scene.branch.repo  # type: ignore[attr-defined]
    hook(repo, "update", REFUSES)
    scene.by_hand("hold", "web")
    assert "web" in str(scene.branch.memory)
    report = scene.by_hand("release", "web")
    assert verdicts(report) == ["unchanged"]
    assert [one.verdict for one in report.decisions if one.verdict == "error"] == []
    (memory,) = [name for name in scene.branch.heads if name != HEAD]
    assert scene.branch.remembered == {}
    scene.event("web:1.1.0")
    assert list(scene.branch.lists) == [HEAD]
    assert scene.branch.merge(HEAD)
    scene.event("web:1.1.0")
    assert scene.branch.remembered == {}
    before = scene.branch.heads[memory].id
    assert verdicts(scene.event("web:1.1.0")) == ["unchanged"]
    assert scene.branch.heads[memory].id == before
