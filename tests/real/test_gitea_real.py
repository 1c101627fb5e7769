"""Complete runs with a real Gitea: pushes, protected branches, and the life cycle of a pull
request.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import requests
from real.gitea_server import PASSWORD, GiteaServer, gitea_server
from support import Result, bare_repo, git, image_update, show
from support.runs import KUSTOMIZATION, WEB, application, manifest, start, target, wait_until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("gitea")]


@pytest.fixture(scope="module")
def gitea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GiteaServer]:
    with gitea_server(tmp_path_factory.mktemp("gitea")) as found:
        yield found


class Scene:
    """A repository on Gitea, an Application for each folder, and runs that log in as `ci`."""

    def __init__(self, gitea: GiteaServer, folder: Path, *names: str) -> None:
        self.gitea, self.name = gitea, folder.name
        files = {target(name): KUSTOMIZATION.replace(WEB, image_of(name)) for name in names}
        self.repo = gitea.take(bare_repo(folder, files, name=f"{self.name}.git"))
        self.url = f"{gitea.url}/person/{self.name}.git"
        self.api = f"repos/person/{self.name}"
        apps = (application(name, self.url, image_list=f"web={image_of(name)}") for name in names)
        self.apps = manifest(folder, *apps)

    def given(self, *more: str, image: str) -> list[str]:
        forge = ("--forge", f"gitea={self.gitea.url}", "--git-credentials-url", self.gitea.url)
        return [
            "run",
            "--image",
            image,
            "--applications",
            str(self.apps),
            *forge,
            "--output",
            "json",
            *more,
        ]

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "IMAGE_UPDATE_GIT_TOKEN": self.gitea.tokens["ci"],
            "IMAGE_UPDATE_GIT_USERNAME": "ci",
        }

    def by_hand(self, verb: str, *more: str) -> Result:
        """Run a command as a person, with the change proposed as a pull request."""
        given = self.given("--pull-request", image="")[3:]
        result = image_update(verb, "web", *more, *given, env=self.env)
        assert result.code == 0, result.stderr
        return result

    def run(self, *more: str, image: str = f"{WEB}:1.1.0", code: int = 0) -> Result:
        result = image_update(*self.given(*more, image=image), env=self.env)
        assert result.code == code, result.stderr
        assert self.gitea.tokens["ci"] not in result.stdout + result.stderr
        return result

    def proposed(self, version: str, *more: str) -> Result:
        return self.run("--pull-request", *more, image=f"{WEB}:{version}")

    def person(self, method: str, path: str, body: Any = None) -> Any:
        return self.gitea.ask("person", method, f"{self.api}/{path}", body)

    def pulls(self, state: str = "open") -> list[Any]:
        found = self.person("GET", f"pulls?state={state}")
        assert isinstance(found, list)
        return found

    def proposed_by_hand(self, version: str) -> Any:
        """Open a request in which a person edits the version."""
        place = f"contents/{target('web')}"
        text = self.main().replace("1.0.0", version)
        body = {
            "sha": self.person("GET", place)["sha"],
            "content": b64encode(text.encode()).decode(),
            "branch": "main",
            "new_branch": "by-hand",
            "message": f"web {version}",
        }
        self.person("PUT", place, body)
        request = {"base": "main", "head": "by-hand", "title": f"web {version}"}
        return self.person("POST", "pulls", request)

    def checked(self, pull: Any) -> int:
        """Check a request, report the result to Gitea, and return the exit code."""
        sides = ("--base", "main", "--head", pull["head"]["ref"], "--repository", self.url)
        login = ("--git-credentials-url", self.gitea.url)
        done = image_update("check", *sides, "--applications", str(self.apps), *login, env=self.env)
        state = "failure" if done.code else "success"
        status = {"context": "check", "state": state}
        self.person("POST", f"statuses/{pull['head']['sha']}", status)
        return done.code

    def merges(self, pull: Any) -> bool:
        """Try to merge a request, and return whether Gitea merges it."""
        url = f"{self.gitea.url}/api/v1/{self.api}/pulls/{pull['number']}/merge"
        login = {"Authorization": f"token {self.gitea.tokens['ci']}"}
        answers = []

        def decided() -> bool:  # during the conflict check, Gitea asks clients to try again
            answers.append(requests.post(url, json={"Do": "merge"}, headers=login, timeout=30))
            return "try again" not in answers[-1].text.lower()

        wait_until(decided)
        return answers[-1].status_code == 200

    def main(self, name: str = "web") -> str:
        return show(self.repo, "main", target(name))

    def head(self) -> str:
        (pull,) = self.pulls()
        return show(self.repo, pull["head"]["ref"], target("web"))


def image_of(name: str) -> str:
    return f"ghcr.io/acme/{name}"


@pytest.fixture
def scene(gitea: GiteaServer, tmp_path: Path) -> Scene:
    return Scene(gitea, tmp_path, "web")


def test_an_update_is_pushed_to_gitea(scene: Scene) -> None:
    assert scene.run().json["status"] == "updated"
    assert "newTag: 1.1.0" in scene.main()
    assert scene.run().json["status"] == "unchanged"
    assert git(scene.repo, "fsck", "--strict", "--no-dangling") == ""


def test_an_update_to_a_protected_branch_requires_a_pull_request(scene: Scene) -> None:
    scene.person("POST", "branch_protections", {"rule_name": "main", "enable_push": False})
    refused = scene.run(code=4)
    assert "--pull-request" in refused.stderr
    assert "newTag: 1.0.0" in scene.main()
    scene.proposed("1.1.0")
    assert "newTag: 1.1.0" in scene.head()


def test_a_branch_that_requires_signed_commits_rejects_an_unsigned_commit(scene: Scene) -> None:
    rule = {"rule_name": "main", "enable_push": True, "require_signed_commits": True}
    scene.person("POST", "branch_protections", rule)
    refused = scene.run(code=4)
    assert "--signing-key" in refused.stderr


def test_invalid_credentials_cause_access_errors(scene: Scene) -> None:
    given = scene.given(image=f"{WEB}:1.1.0")
    wrong = image_update(*given, env={**scene.env, "IMAGE_UPDATE_GIT_TOKEN": "not-a-token"})
    assert (wrong.code, "not-a-token" in wrong.stderr) == (4, False), wrong.stderr
    scene.person("DELETE", "collaborators/ci")
    stranger = scene.run(code=4)
    assert scene.name in stranger.stderr


def test_concurrent_runs_all_land(gitea: GiteaServer, tmp_path: Path) -> None:
    names = [f"app{number}" for number in range(5)]
    scene = Scene(gitea, tmp_path, *names)
    running = [start(scene.given(image=f"{image_of(name)}:1.1.0"), env=scene.env) for name in names]
    ended = [(one.communicate(timeout=100), one.wait()) for one in running]
    assert [code for _, code in ended] == [0] * len(names), [said[1] for said, _ in ended]
    assert git(scene.repo, "rev-list", "--count", "--no-merges", "main") == str(1 + len(names))
    assert all("1.1.0" in scene.main(name) for name in names)


def test_a_pull_request_is_updated_with_newer_builds(scene: Scene) -> None:
    scene.proposed("1.1.0", "--pull-request-label", "deploy", "--pull-request-reviewer", "person")
    (first,) = scene.pulls()
    assert [one["login"] for one in first["requested_reviewers"]] == ["person"]
    scene.proposed("1.2.0", "--pull-request-label", "deploy")
    (pull,) = scene.pulls()
    assert pull["number"] == first["number"]
    assert "1.2.0" in pull["title"]
    assert "newTag: 1.2.0" in scene.head()
    scene.person("POST", f"pulls/{pull['number']}/merge", {"Do": "merge"})
    assert "newTag: 1.2.0" in scene.main()
    assert scene.proposed("1.2.0").json["status"] == "unchanged"


def test_failed_settings_are_applied_later_and_a_persons_changes_are_kept(
    scene: Scene, gitea: GiteaServer
) -> None:
    wanted = ("--pull-request-label", "deploy", "--pull-request-reviewer", "person")
    path, name = scene.apps.parent / "token", {"name": scene.name, "scopes": ["write:repository"]}
    made = requests.post(
        f"{gitea.url}/api/v1/users/ci/tokens", json=name, auth=("ci", PASSWORD), timeout=30
    )
    path.write_text(made.json()["sha1"])
    first = scene.proposed("1.1.0", *wanted, "--forge-token-file", str(path))
    assert "write:issue" in first.stderr
    (pull,) = scene.pulls()
    assert pull["labels"] == []
    assert scene.proposed("1.1.0", *wanted).json["status"] == "unchanged"
    (pull,) = scene.pulls()
    assert [one["name"] for one in pull["labels"]] == ["deploy"]
    number = pull["number"]
    mine = {
        "title": "Checked by a person",
        "body": f"- [x] read\n\n{pull['body'].rstrip()}\n\nAsk ops.",
    }
    scene.person("PATCH", f"pulls/{number}", mine)
    scene.person("DELETE", f"issues/{number}/labels/{pull['labels'][0]['id']}")
    scene.person("DELETE", f"pulls/{number}/requested_reviewers", {"reviewers": ["person"]})
    for version in ("1.1.0", "1.2.0"):
        scene.proposed(version, *wanted)
        (pull,) = scene.pulls()
        assert (pull["title"], pull["labels"]) == ("Checked by a person", [])
        assert not pull["requested_reviewers"]
        assert f"→ `{version}`" in pull["body"]
        assert pull["body"].startswith("- [x] read\n\n")
        assert pull["body"].rstrip().endswith("Ask ops.")


def test_auto_merge_that_a_person_cancels_stays_disabled(scene: Scene) -> None:
    rule = {"rule_name": "main", "enable_push": False, "required_approvals": 1}
    scene.person("POST", "branch_protections", rule)
    scene.proposed("1.1.0", "--auto-merge")
    assert "set again" in scene.proposed("1.2.0", "--auto-merge").stderr
    (pull,) = scene.pulls()
    scene.person("DELETE", f"pulls/{pull['number']}/merge")
    assert "set again" not in scene.proposed("1.3.0", "--auto-merge").stderr
    scene.person("POST", f"pulls/{pull['number']}/reviews", {"event": "APPROVED", "body": "fine"})
    sleep(3)  # longer than Gitea takes for a scheduled merge
    assert [one["number"] for one in scene.pulls()] == [pull["number"]]


def test_a_pull_request_without_waiting_updates_is_closed(scene: Scene) -> None:
    scene.proposed("1.1.0")
    (pull,) = scene.pulls()
    there = scene.person("GET", f"contents/{target('web')}")
    text = b64encode(scene.main().replace("1.0.0", "1.1.0").encode()).decode()
    change = {"content": text, "sha": there["sha"], "branch": "main", "message": "By hand"}
    scene.person("PUT", f"contents/{target('web')}", change)
    assert scene.proposed("1.1.0").json["status"] == "unchanged"
    assert scene.pulls() == []
    assert (
        "so Image Update closed this request"
        in scene.person("GET", f"pulls/{pull['number']}")["body"]
    )
    assert [one["name"] for one in scene.person("GET", "branches")] == ["main"]
    scene.proposed("1.2.0")
    assert "newTag: 1.2.0" in scene.head()


def test_a_pull_request_is_rebuilt_when_its_base_moves(scene: Scene) -> None:
    scene.proposed("1.1.0")
    other = {"content": "eA==", "branch": "main", "message": "Something else"}
    scene.person("POST", "contents/other.txt", other)
    scene.proposed("1.2.0")
    assert "newTag: 1.2.0" in scene.head()
    (pull,) = scene.pulls()
    assert git(scene.repo, "merge-base", "main", pull["head"]["ref"])


@pytest.mark.parametrize("deleted", [False, True])
def test_an_update_closed_by_a_person_is_not_proposed_again(scene: Scene, deleted: bool) -> None:
    scene.proposed("1.1.0")
    (pull,) = scene.pulls()
    scene.person("PATCH", f"pulls/{pull['number']}", {"state": "closed"})
    if deleted:
        scene.person("DELETE", f"branches/{pull['head']['ref'].replace('/', '%2F')}")
    scene.proposed("1.1.0")
    assert scene.pulls() == []
    scene.proposed("1.2.0")
    (newer,) = scene.pulls()
    assert newer["number"] != pull["number"]


def test_a_pull_request_can_be_a_draft(scene: Scene) -> None:
    scene.proposed("1.1.0", "--pull-request-draft")
    (pull,) = scene.pulls()
    assert pull["draft"] is True


def test_auto_merge_merges_an_approved_pull_request(scene: Scene) -> None:
    rule = {"rule_name": "main", "enable_push": False, "required_approvals": 1}
    scene.person("POST", "branch_protections", rule)
    scene.proposed("1.1.0", "--auto-merge")
    (pull,) = scene.pulls()
    scene.person("POST", f"pulls/{pull['number']}/reviews", {"event": "APPROVED", "body": "fine"})
    wait_until(lambda: "newTag: 1.1.0" in scene.main())


def test_a_required_check_blocks_the_merge_during_a_hold(scene: Scene) -> None:
    """The exit code sets the status, as in a workflow. A hold is set while the request is open."""
    rule = {"rule_name": "main", "enable_push": True, "enable_status_check": True}
    scene.person("POST", "branch_protections", {**rule, "status_check_contexts": ["check"]})
    pull = scene.proposed_by_hand("1.1.0")
    assert not scene.merges(pull)  # the request was not checked yet
    assert scene.checked(pull) == 0
    held = scene.given(image="")[3:]
    reason = ("--reason", "incident 42")
    assert image_update("hold", "web", *reason, *held, env=scene.env).code == 0
    assert scene.checked(pull) == 5
    assert not scene.merges(pull)
    assert "newTag: 1.0.0" in scene.main()
    assert image_update("release", "web", "--discard", *held, env=scene.env).code == 0
    assert scene.checked(pull) == 0
    assert scene.merges(pull)
    assert "newTag: 1.1.0" in scene.main()


def test_declining_or_releasing_a_proposed_rollback_ends_its_hold(scene: Scene) -> None:
    """A rollback waits with its hold. Declining the request ends both. A release keeps the
    rollback.
    """
    scene.run(image=f"{WEB}:1.5.0")
    scene.by_hand("rollback", "--to", "1.0.0")
    assert scene.proposed("1.6.0").json["decisions"][0]["rule"] == "held"
    (pull,) = scene.pulls()
    scene.person("PATCH", f"pulls/{pull['number']}", {"state": "closed"})
    report = scene.proposed("1.6.1").json
    assert [one["verdict"] for one in report["decisions"]] == ["update"]
    assert any("declined" in one["message"] for one in report["errors"])
    assert "newTag: 1.6.1" in scene.head()

    scene.by_hand("hold", "--reason", "load test")
    assert scene.pulls() == []
    scene.by_hand("release")
    assert "newTag: 1.6.1" in scene.head()

    scene.by_hand("rollback", "--to", "1.0.0")
    scene.by_hand("release", "--discard")  # 1.6.1 was waiting for the release
    assert "newTag: 1.0.0" in scene.head()
    (pull,) = scene.pulls()
    wait_until(lambda: scene.person("GET", f"pulls/{pull['number']}")["mergeable"], 20)
    scene.person(
        "POST", f"pulls/{pull['number']}/merge", {"Do": "squash", "delete_branch_after_merge": True}
    )
    assert "newTag: 1.0.0" in scene.main()
    assert scene.proposed("1.5.0").json["decisions"][0]["verdict"] == "refuse"
    assert "newTag: 1.7.0" in (scene.proposed("1.7.0"), scene.head())[1]
