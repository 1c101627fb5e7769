"""A repository's own config, from the command line to the branch: one test for each effect.

The rules themselves are tested in tests/repository_config and tests/landing/test_governed.py.
"""

import json
from pathlib import Path

import jsonschema
import pytest
from support import Result, commit, git, image_update, show
from support.runs import WEB, application, arguments, manifest, repository, target

from task.schemas import load

CONFIG = ".image-update/config"
STATE = ".image-update/apps/a/argocd_a.state"
NOW = 'version: 1\nfreezes:\n- {schedule: "* * * * *", duration: 1h, reason: the big sale, match: {paths: [apps/a]}}\n'


def run_for(
    folder: Path, repo: Path, *names: str, image: str = f"{WEB}:1.1.0", more: tuple[str, ...] = ()
) -> Result:
    apps = manifest(
        folder,
        *(application(name, repo, update_strategy="newest-build") for name in names or ("a",)),
    )
    return image_update(*arguments(apps, *more, image=image))


def tag(repo: Path, name: str = "a") -> str:
    return show(repo, "main", target(name)).partition("newTag: ")[2].strip()


@pytest.mark.measured
def test_a_freeze_defers_an_event_until_the_first_run_after_it(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    commit(repo, {CONFIG: NOW})
    result = run_for(tmp_path, repo, "a", "b", more=("--sequence", "1"))
    assert result.code == 0, result.stderr
    found = {one["application"]: one for one in result.json["decisions"]}
    assert (found["argocd/a"]["verdict"], found["argocd/a"]["rule"]) == ("defer", "held")
    assert "held by the freeze in .image-update/config, line 3" in found["argocd/a"]["because"]
    assert "the big sale" in found["argocd/a"]["because"]
    assert (found["argocd/b"]["verdict"], tag(repo), tag(repo, "b")) == ("update", "1.0.0", "1.1.0")
    assert "1.1.0" in show(repo, "main", STATE)
    on_screen = image_update(
        "lint", "--applications", tmp_path / "applications.json", "--allow-protocol", "file"
    )
    assert "images are held by the freeze" in on_screen.stdout

    given = (
        "status",
        "--applications",
        str(tmp_path / "applications.json"),
        "--allow-protocol",
        "file",
    )
    shown = image_update(*given, "--output", "json").json["images"]
    frozen = next(one for one in shown if one["application"] == "argocd/a")
    assert (frozen["hold"]["scope"], frozen["hold"]["reason"]) == ("freeze", "the big sale")
    assert frozen["deferred"]["tag"] == "1.1.0"

    commit(repo, {CONFIG: None})
    assert run_for(tmp_path, repo, image=f"{WEB}:1.0.5", more=("--sequence", "0")).code == 0
    assert tag(repo) == "1.1.0"


def test_a_broken_config_is_an_error_for_every_application_and_blocks_all_writes(
    tmp_path: Path,
) -> None:
    repo, other = repository(tmp_path, "a", "b"), repository(tmp_path, "c", name="other.git")
    commit(repo, {CONFIG: "version: 1\npullRequests:\n  enable: true\n"})
    tip = git(repo, "rev-parse", "main")
    apps = manifest(
        tmp_path, application("a", repo), application("b", repo), application("c", other)
    )
    result = image_update(*arguments(apps))
    assert result.code == 3
    found = {one["application"]: one for one in result.json["decisions"]}
    for name in ("argocd/a", "argocd/b"):
        assert (found[name]["verdict"], found[name]["rule"]) == ("error", "target")
        assert (
            ".image-update/config: line 3: unknown key 'enable' in pullRequests"
            in found[name]["because"]
        )
    assert found["argocd/c"]["verdict"] == "update"  # in another repository
    assert git(repo, "rev-parse", "main") == tip
    assert "did you mean enabled?" in result.json["errors"][0]["hint"]

    given = ("status", "--applications", str(apps), "--allow-protocol", "file", "--output", "json")
    status = image_update(*given, "--image", f"{WEB}:1.1.0")
    assert status.code == 3
    would = {
        one["application"]: (one["current"]["tag"], one["would"]["verdict"])
        for one in status.json["images"]
    }
    assert would == {
        "argocd/a": ("1.0.0", "error"),
        "argocd/b": ("1.0.0", "error"),
        "argocd/c": ("1.1.0", "unchanged"),
    }


def test_the_config_sets_the_commit_message_but_options_win(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    config = (
        "version: 1\ncommit:\n  authorName: Deploy Bot\n  authorEmail: bot@example.com\n"
        "  template: .image-update/message.tmpl\n  trailers: {Team: platform}\n  signOff: true\n"
    )
    commit(repo, {CONFIG: config, ".image-update/message.tmpl": "deploy {{.AppName}}\n"})
    assert run_for(tmp_path, repo, more=("--git-author-email", "given@example.com")).code == 0
    author, _, message = git(repo, "log", "-1", "--format=%an <%ae>%n%B", "main").partition("\n")
    assert author == "Deploy Bot <given@example.com>"
    assert message.startswith("deploy a\n")
    assert "\nTeam: platform\nSigned-off-by: Deploy Bot <given@example.com>" in message


def test_reading_the_config_needs_no_extra_fetch(tmp_path: Path) -> None:
    """The repository is so large that its files are fetched individually."""
    repo = repository(tmp_path, "a")
    commit(repo, {f"filler/{number}": f"{number}" for number in range(2000)})

    def transfers(image: str) -> int:
        result = run_for(tmp_path, repo, image=image, more=("--log-level", "debug"))
        assert result.code == 0, result.stderr
        return result.stderr.count(": fetch ")

    before = transfers(f"{WEB}:1.1.0")
    commit(repo, {CONFIG: "version: 1\ncommit: {signOff: true}\n"})
    assert transfers(f"{WEB}:1.2.0") == before
    assert "Signed-off-by: image-update" in git(repo, "log", "-1", "--format=%B", "main")


def test_lint_names_the_line_of_a_mistake_in_the_config(tmp_path: Path) -> None:
    """The config is located at the root of the work tree, wherever in the work tree the
    Applications are.
    """
    git(tmp_path, "init", "--quiet", "work")
    apps = tmp_path / "work" / "applications"
    apps.mkdir()
    (apps / "app.yaml").write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: x}\nspec: {source: {path: x}}\n"
    )
    config = tmp_path / "work" / CONFIG
    config.parent.mkdir()
    config.write_text("version: 1\npinDigest: maybe\n")
    result = image_update("lint", "--applications", apps, "--output", "json")
    jsonschema.validate(result.json, load("lint.v1"))
    (found,) = result.json["findings"]
    assert (result.code, found["severity"], found["application"], found["line"]) == (
        3,
        "error",
        None,
        2,
    )
    assert found["file"].endswith(CONFIG)
    assert found["message"] == "pinDigest is neither true nor false"
    config.write_text("version: 1\npinDigest: true\n")
    assert image_update("lint", tmp_path / "work").code == 0
    assert (
        json.loads(image_update("lint", "--applications", apps, "--output", "json").stdout)[
            "findings"
        ]
        == []
    )


def test_lint_reports_all_mistakes_in_the_config_with_their_lines(tmp_path: Path) -> None:
    """An unreadable rule does not conceal that another rule matches nothing, or that a template is
    missing.
    """
    git(tmp_path, "init", "--quiet", "work")
    git(tmp_path / "work", "remote", "add", "origin", "https://git.example/x")
    git(tmp_path / "work", "commit", "--quiet", "--allow-empty", "--message", "begin")
    config = tmp_path / "work" / CONFIG
    config.parent.mkdir()
    config.write_text(
        "version: 1\nrules:\n- {match: {projets: [a]}, pinDigest: true}\n"
        "- {match: {projects: [none]}, commit: {signOff: true}}\n- {match: {projects: []}, commit: {template: no}}\n"
        "pinDigest: maybe\n"
    )
    (tmp_path / "work" / "app.yaml").write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata:\n  name: x\n  annotations:\n"
        "    argocd-image-updater.argoproj.io/image-list: x=acme/x\n"
        "spec: {source: {repoURL: https://git.example/x, path: x}}\n"
    )
    result = image_update("lint", tmp_path / "work", "--output", "json")
    told = sorted((one["line"], one["severity"], one["message"]) for one in result.json["findings"])
    assert result.code == 3
    assert told == [
        (3, "error", "unknown key 'projets' in rules[1].match"),
        (
            4,
            "warning",
            "rules[2] does not match the only Application that writes to this repository",
        ),
        (5, "error", "commit.template: there is no file no"),
        (5, "error", "rules[3].match.projects is empty, so it matches nothing"),
        (6, "error", "pinDigest is neither true nor false"),
    ]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "there is no file .image-update/message"),
        ("", "is a folder"),
        ("{{.AppName", "line 1"),
    ],
)
def test_lint_checks_the_commit_template_named_in_the_config(
    tmp_path: Path, template: str | None, words: str
) -> None:
    """A template that would make every run fail is reported as an error at the line of its key."""
    git(tmp_path, "init", "--quiet", "work")
    config = tmp_path / "work" / CONFIG
    config.parent.mkdir()
    config.write_text("version: 1\ncommit:\n  template: .image-update/message\n")
    path = config.parent / "message"
    if template:
        path.write_text(template)
    elif template == "":
        path.mkdir()
    result = image_update("lint", tmp_path / "work", "--output", "json")
    (found,) = [one for one in result.json["findings"] if one["severity"] == "error"]
    assert (result.code, found["severity"], found["line"]) == (3, "error", 3)
    assert found["message"].startswith("commit.template: ")
    assert words in found["message"]


def test_lint_warns_about_a_rule_that_matches_no_application(tmp_path: Path) -> None:
    """A mistyped glob disables a review, and nothing else would report that."""
    repo = repository(tmp_path, "a")
    git(tmp_path, "clone", "--quiet", str(repo), "work")
    config = tmp_path / "work" / CONFIG
    config.parent.mkdir(exist_ok=True)
    rules = [
        f"- {{match: {{paths: [{glob}]}}, pinDigest: true}}" for glob in ("apps/a", "aps/**", '"["')
    ]
    config.write_text("\n".join(("version: 1", "rules:", *rules)))
    manifest(tmp_path / "work", application("a", repo), application("b", tmp_path / "other"))
    result = image_update("lint", tmp_path / "work", "--output", "json")
    found = [
        (one["severity"], one["line"], one["message"])
        for one in result.json["findings"]
        if one["line"]
    ]
    none = "does not match the only Application that writes to this repository"
    assert found == [("warning", 4, f"rules[2] {none}"), ("warning", 5, f"rules[3] {none}")]
    assert result.code == 0


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("ending", [".yaml", ".yml", ".json"])
def test_a_config_with_an_extension_is_an_error(tmp_path: Path, ending: str, beside: bool) -> None:
    repo = repository(tmp_path, "a")
    commit(repo, {f"{CONFIG}{ending}": NOW, **({CONFIG: "version: 1\n"} if beside else {})})
    tip = git(repo, "rev-parse", "main")
    apps = manifest(tmp_path, application("a", repo))
    for command in ("run", "plan"):
        result = image_update(command, *arguments(apps)[1:])
        (found,) = result.json["decisions"]
        assert (result.code, found["verdict"], found["rule"]) == (3, "error", "target")
        assert found["because"] == f"{CONFIG}{ending}: is not read: the config file is {CONFIG}"
    assert git(repo, "rev-parse", "main") == tip
    given = ("--applications", apps, "--allow-protocol", "file", "--output", "json")
    assert image_update("status", *given, "--image", f"{WEB}:1.1.0").code == 3
    assert image_update("hold", "a", "--reason", "x", *given).code == 3
    assert git(repo, "rev-parse", "main") == tip


def test_lint_reports_a_config_in_the_wrong_place(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "work")
    (tmp_path / "work" / CONFIG).mkdir(parents=True)
    (tmp_path / "work" / f"{CONFIG}.yaml").write_text("version: 1\n")
    result = image_update("lint", tmp_path / "work", "--output", "json")
    found = [one["message"] for one in result.json["findings"] if "is not read" in one["message"]]
    assert found == [
        f"the folder {CONFIG} is not read",
        f"{CONFIG}.yaml is not read: the config file is {CONFIG}",
    ]
    assert result.code == 3
