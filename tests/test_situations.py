"""What people see in twenty situations. Any change to the wording changes `tests/data/situations`,
so it is visible in review.

`SITUATIONS=write python -m pytest tests/test_situations.py` rewrites the files. Each file contains
the log (stderr before stdout), the step's summary, the commit message, the pull request, what
`status` prints afterwards, and the page, as far as these exist. Times and IDs are the same in every
run.
"""

import html
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_api import argocd_server
from fakes.forge_server import ForgeServer
from fakes.github_api import GitHub
from fakes.oci_images import image
from fakes.registry_api import registry_api
from support import DATA, commit, git, image_update
from support.git_servers import git_server
from support.request_scenes import Branches
from support.runs import KUSTOMIZATION, WEB, application, manifest, repository, target
from support.serving import serving
from test_wait_runs import env as of_argocd
from test_wait_runs import hook_fails, played

FILES = DATA / "situations"
URL = "https://github.com/acme/gitops.git"
BUILT = ("--source-repository", "https://github.com/acme/web", "--source-commit", "0123456789" * 4)
CI = ("--pipeline-run", "https://ci.example.com/runs/7")
TOKEN = "good-token"
WRITE = (
    os.environ.get("SITUATIONS") == "write"
)  # read before the test environment replaces this one
LOG = re.compile(r"^## log: .*\n((?:.*\n)+?)exit code (\d+)$", re.MULTILINE)


@dataclass
class Stage:
    """A repository with Applications, and the output of commands about these."""

    folder: Path
    stack: ExitStack
    names: tuple[str, ...] = ("web",)
    url: str = URL
    apps: list[dict[str, Any]] = field(default_factory=list)
    more: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    server: ForgeServer | None = None
    said: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.repo = repository(self.folder, *self.names)
        self.apps = [application(name, self.url, image_list=f"web={WEB}:^1") for name in self.names]
        self.more = ("--rewrite-url", f"{self.url}={self.repo}", "--allow-protocol", "file")

    def forge(self) -> None:
        """Host the repository on a fake forge that responds to requests."""
        self.server = self.stack.enter_context(serving(GitHub()))
        self.server.branches = Branches(self.repo)
        self.url = f"{self.server.url}/acme/deploy"
        self.apps = [application(name, self.url, image_list=f"web={WEB}") for name in self.names]
        self.more = ("--rewrite-url", f"{self.url}={self.repo}", "--allow-protocol", "file")
        self.more += ("--forge", f"github={self.server.url}")
        self.env["IMAGE_UPDATE_FORGE_TOKEN"] = TOKEN

    def call(self, *words: str) -> Any:
        """Run a command. The first of the `words` is its name."""
        given = ("--applications", str(manifest(self.folder, *self.apps)), *self.more)
        return image_update(*words, *given, env=self.env)

    def run(self, tag: str, *more: str) -> None:
        """Run the command for a build, to prepare for the command whose output is saved."""
        assert self.call("run", "--image", f"{WEB}:{tag}", *more).code in (0, 3)

    def show(self, *words: str) -> None:
        """Run a command, and save everything that it outputs."""
        tips = git(self.repo, "for-each-ref")
        summary, report = self.folder / "summary.md", self.folder / "report.json"
        publishes = words[0] != "status"
        summary.unlink(missing_ok=True)
        self.env["GITHUB_STEP_SUMMARY"] = str(summary)
        if publishes:
            words += ("--report", str(report))
            words += () if words[0] == "check" else CI
        words += BUILT if words[0] in ("run", "plan") else ()
        result = self.call(*words)
        asked = " ".join(words[: words.index("--report")] if publishes else words)
        self.say(
            f"log: image-update {asked}", f"{result.stderr}{result.stdout}exit code {result.code}"
        )
        if publishes:
            self.say("summary", summary.read_text())
            pages = image_update("report", report, "--html=-")
            self.say("page", text_of(pages.stdout))
        if git(self.repo, "for-each-ref") != tips:
            for head in git(
                self.repo, "for-each-ref", "--format=%(refname)", "refs/heads/"
            ).split():
                if (tip := git(self.repo, "rev-parse", head)) not in tips:
                    name = head.removeprefix("refs/heads/")
                    self.say(f"commit on {name}", git(self.repo, "log", "-1", "--format=%B", tip))
        if self.server and self.server.pulls:
            pull = self.server.pulls[-1]
            self.say(f"request, {pull.state}", f"{pull.title}\n\n{pull.body}")

    def status(self) -> None:
        """Save the current output of `status`: the short form, the form for one Application, and
        the page.
        """
        self.say("status", self.call("status").stdout)
        self.say("status web", self.call("status", "web").stdout)
        self.say("page of status", text_of(self.call("status", "--html=-").stdout))

    def say(self, title: str, text: str) -> None:
        self.said.append((title, text.rstrip("\n")))


def text_of(page: str) -> str:
    """Return the text of a page: one line for each row, paragraph, and list item."""
    body = page.partition("<body>")[2]
    body = re.sub(r"\s+", " ", body)
    body = re.sub(
        r"<(/?tr|/?p|/?li|/?h1|/?dl|dt|/?ul|/?details|summary|footer|span)\b[^>]*>", "\n", body
    )
    lines = [
        re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", line)).strip() for line in body.split("\n")
    ]
    return html.unescape("\n".join(filter(None, lines)))


def alike(text: str, folder: Path) -> str:
    """Return the text with everything that differs between runs replaced: IDs, times, folders, and
    ports.
    """
    ids: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        known = ids.setdefault(found[0][:12], f"{len(ids) + 1:x}")
        return (known * 64)[: len(found[0])]

    text = text.replace(str(folder), "/tmp/demo")
    text = re.sub(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b|\b[0-9a-f]{12}\b", numbered, text)
    text = re.sub(r"(image-update(?:-memory)?/(?:[\w-]+-)?)[0-9a-f]{8}\b", r"\g<1>0a1b2c3d", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-11-21T06:00:00Z", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "2026-11-21 06:00 UTC", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "git.example.com", text)
    text = re.sub(r"\b\d+\.\d+ s\b|after \d+ s\b|\b\d+ seconds\b", "1 s", text)
    text = re.sub(r"(read, 1 s): .* 1 s", r"\1", text)
    return re.sub(r"(image-update-(?:builds|declined)[^:]*: )[A-Za-z0-9+/=]{20,}", r"\1…", text)


def first_update(stage: Stage) -> None:
    stage.show("run", "--image", f"{WEB}:1.1.0")
    stage.status()


def several_applications(stage: Stage) -> None:
    commit(stage.repo, {target("shop"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
    stage.show("run", "--image", f"{WEB}:1.1.0")
    stage.status()


def refused_by_constraint(stage: Stage) -> None:
    stage.show("run", "--image", f"{WEB}:2.0.0")


def pre_release(stage: Stage) -> None:
    stage.show("run", "--image", f"{WEB}:1.1.0-rc.1")


def not_a_version(stage: Stage) -> None:
    stage.show("run", "--image", f"{WEB}:main-3f2a1b")


def held(stage: Stage) -> None:
    stage.show("hold", "web", "--reason", "incident 42", "--by", "jane")
    stage.show("run", "--image", f"{WEB}:1.1.0")
    stage.status()


def frozen(stage: Stage) -> None:
    freeze = '- schedule: "* * * * *"\n  duration: 1h\n  reason: the big sale\n'
    commit(stage.repo, {".image-update/config": f"version: 1\nfreezes:\n{freeze}"})
    stage.show("run", "--image", f"{WEB}:1.1.0")
    stage.status()


def released(stage: Stage) -> None:
    stage.call("hold", "web", "--reason", "incident 42", "--by", "jane")
    stage.run("1.1.0")
    stage.show("release", "web")


def rolled_back(stage: Stage) -> None:
    stage.run("1.1.0")
    stage.show("rollback", "web", "--to", "previous", "--by", "jane")
    stage.status()


def superseded(stage: Stage) -> None:
    stage.run("1.1.0")
    stage.call("rollback", "web", "--to", "previous", "--by", "jane", "--no-hold")
    stage.show("run", "--image", f"{WEB}:1.1.0")


def request_opened(stage: Stage) -> None:
    stage.forge()
    stage.show("run", "--pull-request", "--image", f"{WEB}:1.1.0")
    stage.status()


def request_with_waiting_builds(stage: Stage) -> None:
    stage.forge()
    commit(stage.repo, {".image-update/config": "version: 1\npullRequests: {group: application}\n"})
    stage.apps = [application("web", stage.url, image_list=f"web={WEB},api=ghcr.io/acme/api")]
    stage.run("1.1.0", "--pull-request")
    stage.show("run", "--pull-request", "--image", "ghcr.io/acme/api:2.0.0")
    stage.status()


def mixed_update_and_failure(stage: Stage) -> None:
    stage.call("hold", "web", "--reason", "incident 42", "--by", "jane")
    stage.apps[2]["spec"]["source"]["path"] = "apps/nowhere"
    stage.apps.append(
        application("docs", URL, image_list=f"web={WEB}:~1.0", web_update_strategy="semver")
    )
    stage.apps[-1]["spec"]["source"]["path"] = "apps/shop"
    stage.show("run", "--image", f"{WEB}:1.1.0")
    stage.show("run", "--image", f"{WEB}:1.2.0", "--application", "shop", "--application", "web")
    stage.status()


def git_login_refused(stage: Stage) -> None:
    server = stage.stack.enter_context(git_server(stage.folder))
    server.logins = {"jane": "right"}
    stage.apps = [application("web", f"{server.url}repo.git")]
    stage.more, stage.env["IMAGE_UPDATE_GIT_PASSWORD"] = ("--allow-protocol", "http"), "wrong"
    stage.show(
        "run",
        "--image",
        f"{WEB}:1.1.0",
        "--git-username",
        "jane",
        "--git-credentials-url",
        server.url,
    )


def unknown_host(stage: Stage) -> None:
    server = stage.stack.enter_context(git_server(stage.folder))
    stage.apps, stage.more = (
        [application("web", f"{server.url}repo.git")],
        ("--allow-protocol", "http"),
    )
    stage.show("run", "--image", f"{WEB}:1.1.0", "--pull-request")


def no_application_tracks(stage: Stage) -> None:
    stage.show("run", "--image", "ghcr.io/acme/other:1.1.0")


def planned(stage: Stage) -> None:
    stage.show("plan", "--image", f"{WEB}:1.1.0")


def checked(stage: Stage) -> None:
    """A person changes four versions: one is held, one is excluded by the rules, and one is older
    than the current one.
    """
    stage.call("hold", "held", "--reason", "incident 42", "--by", "jane")
    git(stage.repo, "branch", "change", "main")
    versions = {"web": "1.1.0", "held": "1.1.0", "excluded": "2.0.0", "older": "0.9.0"}
    stage.apps[-1] = application("older", stage.url, image_list=f"web={WEB}")
    files = {
        target(name): KUSTOMIZATION.replace("1.0.0", version) for name, version in versions.items()
    }
    commit(stage.repo, files, "change")
    stage.show("check", "--repository", stage.url, "--base", "main", "--head", "change")


def promoted(stage: Stage) -> None:
    stage.run("1.1.0", "--application", "staging")
    stage.show("promote", "--from", "staging", "--to", "production")


def scanned(stage: Stage) -> None:
    registry = stage.stack.enter_context(registry_api())
    for tag in ("1.0.0", "1.1.0"):
        registry.put("acme/web", tag, image())
    name = f"{registry.name}/acme/web"
    stage.apps = [application("web", URL, image_list=f"web={name}:^1")]
    commit(stage.repo, {target("web"): KUSTOMIZATION.replace(WEB, name)})
    stage.env["IMAGE_UPDATE_REGISTRY_CHECK"] = "auto"
    stage.show("scan")


def shown_status(stage: Stage) -> None:
    stage.run("1.1.0", "--application", "app-0*")
    stage.call("hold", "app-03", "--reason", "incident 42", "--by", "jane")
    stage.show("status")
    stage.show("status", "app-03")
    stage.say("page", text_of(stage.call("status", "--html=-").stdout))


def failed_rollout(stage: Stage) -> None:
    server = stage.stack.enter_context(argocd_server())
    folder = stage.folder / "argocd"
    folder.mkdir()
    stage.repo = played(server, folder, web=hook_fails)
    stage.more, stage.env = ("--allow-protocol", "file"), dict(of_argocd(server))
    stage.apps = [one for _, one in sorted(server.plays.apps.items())]  # type: ignore[attr-defined]
    stage.show("run", "--image", f"{WEB}:1.1.0", "--wait", "--wait-timeout", "20")


SITUATIONS: dict[str, tuple[Callable[[Stage], None], tuple[str, ...]]] = {
    "first-update": (first_update, ("web",)),
    "several-applications": (several_applications, ("web", "blog", "shop")),
    "refused-by-constraint": (refused_by_constraint, ("web",)),
    "pre-release": (pre_release, ("web",)),
    "not-a-version": (not_a_version, ("web",)),
    "held": (held, ("web",)),
    "frozen": (frozen, ("web",)),
    "released": (released, ("web",)),
    "rolled-back": (rolled_back, ("web",)),
    "superseded": (superseded, ("web",)),
    "request-opened": (request_opened, ("web",)),
    "request-with-waiting-builds": (request_with_waiting_builds, ("web",)),
    "mixed-update-and-failure": (mixed_update_and_failure, ("web", "shop", "api")),
    "git-login-refused": (git_login_refused, ("web",)),
    "unknown-host": (unknown_host, ("web",)),
    "no-application-tracks": (no_application_tracks, ("web",)),
    "plan": (planned, ("web", "shop")),
    "check": (checked, ("web", "held", "excluded", "older")),
    "promote": (promoted, ("staging", "production")),
    "scan": (scanned, ("web",)),
    "status": (shown_status, tuple(f"app-{number:02}" for number in range(12))),
    "failed-rollout": (failed_rollout, ("web",)),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_the_output_of_each_situation_matches_the_saved_file(
    name: str, tmp_path: Path, stack: ExitStack
) -> None:
    play, names = SITUATIONS[name]
    stage = Stage(tmp_path, stack, names)
    play(stage)
    shown = alike("\n\n".join(f"## {title}\n{text}" for title, text in stage.said) + "\n", tmp_path)
    path = FILES / f"{name}.txt"
    if WRITE:
        FILES.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def test_every_saved_file_belongs_to_a_situation() -> None:
    assert {path.stem for path in FILES.iterdir()} == set(SITUATIONS)


def test_a_single_log_line_summarizes_each_run() -> None:
    """Among 2,000 lines from other steps, one line states all that matters: the image, the numbers,
    what failed, and who needs to act.
    """
    for path in FILES.iterdir():
        for log in LOG.findall(path.read_text(encoding="utf-8")):
            lines, code = (
                [line for line in log[0].splitlines() if line.startswith("image-update ")],
                log[1],
            )
            assert len(set(lines)) <= 1, path
            shown = f"; exit code {code} (" if code != "0" else ""
            assert all(shown in line for line in lines), path
            assert code != "0" or "exit code" not in "".join(lines), path
