"""Take the light and dark screenshots in docs/screenshots: a summary, a request, and the pages of
`status` and `report`.

Run `python -m scripts.screenshots`. This requires chromium. The summary and the request come from
the tests (tests/data/situations). The command generates the pages for a repository in a temporary
folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from markdown import markdown

from scripts.browser import browser

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "screenshots"
SITUATIONS = ROOT / "tests" / "data" / "situations"
WIDTH, LONGEST = 1000, 700
URL = "https://github.com/acme/gitops.git"
PREFIX = "argocd-image-updater.argoproj.io/"
LOOK = """\
body{margin:0;padding:16px 20px;font:14px/1.5 system-ui,"DejaVu Sans",sans-serif;color:#1f2328;background:#fff}
h1,h3{font-size:18px;margin:0 0 10px;padding-bottom:6px;border-bottom:1px solid #d1d9e0}
table{border-collapse:collapse;margin:10px 0}td,th{border:1px solid #d1d9e0;padding:5px 10px;text-align:left}
code{font:12px ui-monospace,"DejaVu Sans Mono",monospace;background:#818b981f;padding:2px 4px;border-radius:4px}
a{color:#0969da}ul{padding-left:20px}
@media (prefers-color-scheme:dark){body{color:#f0f6fc;background:#0d1117}a{color:#4493f8}
td,th,h1,h3{border-color:#3d444d}}
"""
# The Applications in the repository, with their constraints.
APPS = {"shop": "^1", "search": "^1", "cart": "^1", "billing": "~1.4", "legacy": "^1", "mail": "^1"}


def main() -> None:
    """Write the screenshots."""
    if not (program := shutil.which("chromium")):
        sys.exit("chromium is not installed")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made, browser(program) as page:
        for name, text in pages(Path(made)).items():
            path = Path(made, f"{name}.html")
            path.write_text(text, encoding="utf-8")
            for scheme in ("light", "dark"):
                page.reader(WIDTH, 200, scheme)
                page.open(path.as_uri())
                FOLDER.joinpath(f"{name}-{scheme}.png").write_bytes(page.picture(LONGEST))


def pages(folder: Path) -> dict[str, str]:
    """Return the HTML for each screenshot."""
    run, status = commands(folder)
    return {
        "summary": rendered(situation("mixed-update-and-failure", "summary")),
        "request": rendered(
            re.sub(r"^(.*)\n", r"# \1\n", situation("request-with-waiting-builds", "request, open"))
        ),
        "report": run,
        "status": status,
    }


def situation(name: str, part: str) -> str:
    """Return one part of the output for a situation."""
    text = SITUATIONS.joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return text.partition(f"## {part}\n")[2].partition("\n## ")[0]


def rendered(text: str) -> str:
    """Return a page with rendered Markdown that looks like a Git host's."""
    return f"<!doctype html><meta charset=utf-8><style>{LOOK}</style>{markdown(text, extensions=['tables'])}"


def commands(folder: Path) -> tuple[str, str]:
    """Return the report page of a run, and the `status` page after that run, for some Applications
    in one repository.
    """
    work, repo, environ = folder / "work", folder / "gitops.git", dict(os.environ)
    apps = [
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {
                "name": name,
                "namespace": "argocd",
                "annotations": {
                    f"{PREFIX}image-list": f"web=ghcr.io/acme/web:{constraint}",
                    f"{PREFIX}{'write-back-target' if name != 'mail' else 'write-back-targt'}": "kustomization",
                },
            },
            "spec": {
                "project": "shop",
                "source": {"repoURL": URL, "targetRevision": "main", "path": f"apps/{name}"},
            },
        }
        for name, constraint in APPS.items()
    ]
    for name in APPS:
        file = work / "apps" / name / "kustomization.yaml"
        file.parent.mkdir(parents=True)
        file.write_text("images:\n- name: ghcr.io/acme/web\n  newTag: 1.4.2\n")
    manifest = folder / "applications.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": apps}))
    environ |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "IMAGE_UPDATE_APPLICATIONS": str(manifest),
        "PYTHONPATH": str(ROOT),
    }
    environ |= {"IMAGE_UPDATE_REWRITE_URL": f"{URL}={repo}", "IMAGE_UPDATE_ALLOW_PROTOCOL": "file"}

    def call(*words: str | Path) -> str:
        done = subprocess.run(
            [*words], cwd=folder, env=environ, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 3):
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout

    def update(*words: str | Path) -> str:
        return call(sys.executable, "-m", "task", *words)

    identity = ("-c", "user.name=Jane", "-c", "user.email=jane@acme.example")
    call("git", "init", "--quiet", "--initial-branch=main", work)
    call("git", "-C", work, "add", ".")
    call("git", "-C", work, *identity, "commit", "--quiet", "--message", "The shop")
    call("git", "clone", "--quiet", "--bare", work, repo)
    update("hold", "cart", "--reason", "incident 42", "--by", "jane", "--until", "3d")
    by = ("--pipeline-run", "https://ci.acme.example/runs/7", "--report", "report.json")
    update("run", "--image", "ghcr.io/acme/web:1.5.0", *by)
    return update("report", "report.json", "--html=-"), update("status", "--html=-")


if __name__ == "__main__":
    main()
