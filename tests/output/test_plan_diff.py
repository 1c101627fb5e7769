"""The diff of a plan, which `git apply` accepts."""

from pathlib import Path

import pytest
from support import git

from task.model import File
from task.output.diff import unified_diff

NAMES = (
    "a.yaml", "with blank.yaml", 'a "quoted" name.yaml', "tab\there.yaml", "line\nend.yaml", "back\\slash.yaml",
    "\x01\x7f.yaml", "ümlaut.yaml", 'ü".yaml', " b/ a.yaml",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_git_apply_accepts_a_diff_with_any_file_name(tmp_path: Path, name: str) -> None:
    git(tmp_path, "init", "-q")
    changed, new, gone = (tmp_path / folder / name for folder in ("old", "new", "gone"))
    for path in (changed, gone):
        path.parent.mkdir(parents=True)
        path.write_text("tag: 1\n")
    before = {f"{folder}/{name}": File("tag: 1\n") for folder in ("old", "gone")}
    after = {
        f"old/{name}": File("tag: 2\n"),
        f"new/{name}": File("tag: 3\n"),
        f"gone/{name}": File("", mode=""),
    }
    git(tmp_path, "apply", "-", stdin=unified_diff(before, after).encode())
    assert (changed.read_text(), new.read_text(), gone.exists()) == ("tag: 2\n", "tag: 3\n", False)
