"""One run for each repository that `plan` lists (Argo's withParam, GitHub's matrix)."""

import json
from pathlib import Path

from support import image_update, runs, show


def test_each_repository_listed_by_plan_is_updated_by_its_own_run(tmp_path: Path) -> None:
    repos = [runs.repository(tmp_path, name, name=f"{name}.git") for name in ("web", "api", "done")]
    apps = [runs.application(repo.stem, repo) for repo in repos]
    apps[2]["metadata"]["annotations"][f"{runs.PREFIX}web.allow-tags"] = "regexp:^never$"
    given: list[str | Path] = [
        "--image",
        f"{runs.WEB}:1.1.0",
        "--applications",
        runs.manifest(tmp_path, *apps),
        "--allow-protocol",
        "file",
    ]

    plan = image_update("plan", *given, "--output", "repositories")
    listed = json.loads(plan.stdout)
    assert listed == sorted(str(repo) for repo in repos[:2])
    assert plan.stdout.count("\n") == 1

    for number, repo in enumerate(listed, 1):
        done = image_update("run", *given, "--only-repository", repo, "--output", "json")
        assert [one["repository"] for one in done.json["commits"]] == [repo]
        written = [show(one, "main", runs.target(one.stem)) for one in repos]
        assert sum("1.1.0" in text for text in written) == number


def test_a_plan_without_updates_lists_no_repositories(tmp_path: Path) -> None:
    apps = runs.manifest(tmp_path, runs.application("web", runs.repository(tmp_path, "web")))
    given: list[str | Path] = [
        "--image",
        "other:1.1.0",
        "--applications",
        apps,
        "--allow-protocol",
        "file",
    ]
    assert image_update("plan", *given, "--output", "repositories").stdout == "[]\n"
