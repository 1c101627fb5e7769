"""A GitOps repository with unmerged changes, and the checkouts that CI hosts make of these."""

from pathlib import Path

import yaml

from support import bare_repo, commit, git
from support.runs import KUSTOMIZATION, application, target

STATE = ".image-update/apps/web/argocd_web.state"
HELD = (
    "files:\n  apps/web/kustomization.yaml:\n"
    '    hold: {reason: "INC-1", by: jane, at: "2026-11-22T11:00:00Z"}\n'
)
AGREED = "1.1.0"
EXCLUDED = "2.0.0"


def at(version: str) -> dict[str, str | None]:
    return {target("web"): KUSTOMIZATION.replace("1.0.0", version)}


class Scene:
    """A GitOps repository that contains its own Applications, with an unmerged change."""

    def __init__(self, folder: Path, url: str = "", **files: str) -> None:
        self.folder = folder
        self.count = 0
        self.merges: dict[tuple[str, str], str] = {}
        self.repo = folder / "gitops.git"
        self.url = url or f"file://{self.repo}"
        self.own: dict[str, str] = {}  # the CI host's environment variables
        app = application("web", self.url, image_list="web=ghcr.io/acme/web:^1")
        apps = {"applications/web.yaml": yaml.safe_dump(app)}
        bare_repo(folder, {**apps, **files, target("web"): KUSTOMIZATION}, name="gitops.git")
        git(self.repo, "config", "uploadpack.allowAnySHA1InWant", "true")  # as CI hosts do

    def change(self, version: str, branch: str = "change", start: str = "main") -> str:
        """Create a branch that changes the version."""
        git(self.repo, "branch", "--force", branch, start)
        return commit(self.repo, at(version), branch)

    def merge(self, head: str, base: str = "main") -> str:
        """Return the merge commit that the host creates for a change. There is one for each state
        of the base.
        """
        sides = (git(self.repo, "rev-parse", base), head)
        if sides in self.merges:
            return self.merges[sides]
        tree = git(self.repo, "merge-tree", "--write-tree", base, head).split("\n")[0]
        author = ("-c", "user.name=host", "-c", "user.email=host@example.com")
        parents = ("-p", base, "-p", head)
        made = git(self.repo, *author, "commit-tree", tree, *parents, "-m", "Merge").strip()
        git(self.repo, "update-ref", "refs/pull/7/merge", made)
        self.merges[sides] = made
        return made

    def place(self, path: str) -> Path:
        """Create a root folder for a container, and return the folder inside it that corresponds to
        `path`.
        """
        self.count += 1
        folder = self.folder / f"root-{self.count}"
        found = Path(f"{folder}{path}")
        found.mkdir(parents=True)
        return found

    def checkout(self, path: str, sha: str) -> Path:
        """Check out a commit at `path` in a new root folder, as actions/checkout and GitLab's
        runner do. Return the root folder.
        """
        here = self.place(path)
        git(here, "init", "--quiet")
        git(here, "remote", "add", "origin", self.url)
        git(here, "fetch", "--quiet", "--depth=1", f"file://{self.repo}", sha)
        git(here, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        return self.folder / f"root-{self.count}"
