"""Real updates with the image over ssh and https, under each host's rules, against real servers."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hosts import runners
from hosts.gitlab import PROJECT
from hosts.gitlab import gitlab as gitlab_job
from hosts.images import APPLICATIONS, OPENSHIFT, STRANGER, real, said
from hosts.steps import Step, Volume, as_container
from support import git, needs, show
from support.real_servers import PASSWORD, USER, Nginx, Sshd
from support.runs import WEB, application, repository, target

from task.ci.publish import NAMES


class Scene(NamedTuple):
    """A repository on both servers, and their credentials."""

    repo: Path
    ssh: Sshd
    web: Nginx

    def url(self, way: str) -> str:
        return self.ssh.url(self.repo) if way == "ssh" else self.web.url(self.repo.name)

    @property
    def server(self) -> str:
        return f"https://localhost:{self.web.tls}"

    def ssh_secret(self) -> dict[str, str]:
        return {"id_ed25519": self.ssh.key.read_text(), "known_hosts": f"{self.ssh.host_key}\n"}

    def basic_auth(self) -> dict[str, str]:
        login = f"{USER}:{PASSWORD.replace('/', '%2F').replace('@', '%40')}"
        return {
            ".gitconfig": f'[credential "{self.server}"]\n\thelper = store\n',
            ".git-credentials": f"https://{login}@localhost:{self.web.tls}\n",
        }

    def landed(self) -> bool:
        return "newTag: 1.1.0" in show(self.repo, "main", target("web"))


@pytest.fixture
def scene(repos: Path, ssh: Sshd, web: Nginx) -> Scene:
    return Scene(repository(repos, "web", name=f"{os.urandom(4).hex()}.git"), ssh, web)


def applications(scene: Scene, way: str) -> Volume:
    return Volume(
        {APPLICATIONS: json.dumps({"kind": "List", "items": [application("web", scene.url(way))]})}
    )


def tekton(scene: Scene, way: str, *, mode: int = 0o644, group: int = 0) -> Step:
    """Return a Tekton step with Secrets as workspaces. `group` is the pod's fsGroup."""
    secret = Volume(secret=True, mode=mode, read_only=True)
    bound = {"source": applications(scene, way)}
    if way == "ssh":
        bound["ssh-directory"] = replace(secret, files=scene.ssh_secret())
    else:
        bound["basic-auth"] = replace(secret, files=scene.basic_auth())
        bound["ssl-ca-directory"] = replace(secret, files={"ca.crt": scene.web.ca.read_text()})
    return runners.tekton(
        {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}, bound, group=group
    )


def tekton_home(scene: Scene, way: str) -> Step:
    """Return a step whose credentials Tekton put into the home folder, not into a workspace."""
    given = {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}
    step = runners.tekton(given, {"source": applications(scene, way)})
    files = {f".ssh/{name}": text for name, text in scene.ssh_secret().items()}
    if way == "https":
        files = {**scene.basic_auth(), "ca.crt": scene.web.ca.read_text()}
        files[".gitconfig"] += "[http]\n\tsslCAInfo = /tekton/home/ca.crt\n"
    return replace(step, volumes={**step.volumes, "/tekton/home": Volume(files)})


def argo(scene: Scene, way: str) -> Step:
    (template,) = (
        one for one in runners.manifest(runners.TEMPLATE)["spec"]["templates"] if "container" in one
    )
    ((artifact, path),) = ((one["name"], one["path"]) for one in template["inputs"]["artifacts"])
    names = {one["name"]: one.get("value") for one in template["inputs"]["parameters"]}
    secrets = {
        str(names["ssh-secret"]): scene.ssh_secret(),
        str(names["basic-auth-secret"]): {"username": USER, "password": PASSWORD},
        str(names["ca-secret"]): {"ca.crt": scene.web.ca.read_text()},
    }
    secrets = {
        name: keys
        for name, keys in secrets.items()
        if (name == names["ssh-secret"]) == (way == "ssh")
    }
    given = {"image": f"{WEB}:1.1.0", "applications": f"{path}/{APPLICATIONS}"}
    given |= {"git-credentials-url": scene.server} if way == "https" else {}
    return runners.argo(
        given, {artifact: applications(scene, way)}, secrets, template=template["name"]
    )


def github(scene: Scene, way: str) -> Step:
    files = {**applications(scene, way).files, "ca.pem": scene.web.ca.read_text()}
    inputs = {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}
    if way == "ssh":
        inputs |= {
            "ssh-key": scene.ssh.key.read_text(),
            "options": f"--ssh-host-key={scene.ssh.host_key}",
        }
    else:
        inputs |= {
            "git-token": PASSWORD,
            "git-username": USER,
            "git-credentials-url": scene.server,
            "ca-file": "ca.pem",
        }
    return runners.github(inputs, Volume(files), token="ghs_of-the-workflow")


def gitlab(scene: Scene, way: str) -> Step:
    """Return a GitLab step with secrets in project variables and a CA bundle in a file variable."""
    given = {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}
    files = {**applications(scene, way).files, "ca.pem": scene.web.ca.read_text()}
    if way == "ssh":
        variables = {"IMAGE_UPDATE_SSH_KEY": scene.ssh.key.read_text()}
        given["options"] = f"--ssh-host-key={scene.ssh.host_key}"
    else:
        variables = {
            "IMAGE_UPDATE_GIT_TOKEN": PASSWORD,
            "IMAGE_UPDATE_CA_FILE": f"{PROJECT}/ca.pem",
        }
        given |= {"git-username": USER, "git-credentials-url": scene.server}
    return gitlab_job(given, Volume(files), variables)


def tekton_secret(scene: Scene, way: str) -> Step:
    """Return a step with variables from a Secret, and no workspace for credentials."""
    spec = runners.manifest(runners.TASK)["spec"]
    (name,) = (one["default"] for one in spec["params"] if one["name"] == "secret")
    given: dict[str, Any] = {
        "image": f"{WEB}:1.1.0",
        "applications": APPLICATIONS,
        "options": [f"--ssh-host-key={scene.ssh.host_key}"],
    }
    bound = {"source": applications(scene, way)}
    if way == "ssh":
        return runners.tekton(given, bound, {name: {"ssh-key": scene.ssh.key.read_text()}})
    given |= {"git-username": USER, "git-credentials-url": scene.server}
    bound["ssl-ca-directory"] = Volume(
        {"ca.crt": scene.web.ca.read_text()}, secret=True, mode=0o644, read_only=True
    )
    return runners.tekton(given, bound, {name: {"git-token": PASSWORD}})


class Rules(NamedTuple):
    """How a host starts the image, and as which user."""

    start: Callable[[Scene, str], Step]
    options: tuple[str, ...] = (
        "--passwd=false",
    )  # Kubernetes and Docker add no passwd entry for an unknown user


HOSTS: Mapping[str, Rules] = {
    "tekton": Rules(tekton),
    "tekton, with fsGroup": Rules(lambda scene, way: tekton(scene, way, mode=0o400, group=65532)),
    "tekton on OpenShift": Rules(
        lambda scene, way: tekton(scene, way, mode=0o400, group=OPENSHIFT), STRANGER
    ),
    "tekton, credentials in home": Rules(tekton_home),
    "tekton, variables from a Secret": Rules(tekton_secret, STRANGER),
    "argo": Rules(argo),
    "argo on OpenShift": Rules(argo, STRANGER),
    "github": Rules(github),
    "gitlab": Rules(gitlab),
}


def made_for(step: Step) -> str:
    """Return the Dockerfile stage that is published under the image name in the manifest."""
    return "action" if step.image.endswith("-action") else "runtime"


@real
@pytest.mark.parametrize("way", ["ssh", "https"])
@pytest.mark.parametrize("host", HOSTS)
def test_the_image_makes_an_update_over_ssh_and_https_on_each_host(
    built: Callable[[str], str], scene: Scene, tmp_path: Path, host: str, way: str
) -> None:
    step = HOSTS[host].start(scene, way)
    ran = as_container(step, tmp_path, built(made_for(step)), *HOSTS[host].options)
    assert ran.code == 0, ran.stderr
    assert scene.landed()
    assert set(ran.results) == set(NAMES)
    assert (ran.results["status"], ran.results["commit"]) == (
        "updated",
        git(scene.repo, "rev-parse", "main"),
    )
    said_by_it = "\n".join((ran.stdout, ran.stderr, *ran.results.values()))
    told = re.sub(r"^::add-mask::.*$", "", said_by_it, flags=re.MULTILINE)
    assert PASSWORD not in told
    assert "PRIVATE KEY" not in told


@real
def test_files_for_github_are_still_owned_by_the_runner(
    built: Callable[[str], str], scene: Scene, tmp_path: Path
) -> None:
    """The runner reads and removes these files as another user."""
    step = github(scene, "https")
    as_container(step, tmp_path, built(made_for(step)))
    found = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in found} == {(1001, 0o644)}


@real
@pytest.mark.parametrize("form", ["openpgp", "ssh"])
def test_a_user_without_a_name_can_sign_commits(
    runtime: str, scene: Scene, tmp_path: Path, form: str
) -> None:
    step = tekton(scene, "ssh")
    env = {
        "IMAGE_UPDATE_SIGNING_KEY": signing_key(tmp_path, form, scene),
        "IMAGE_UPDATE_SIGNING_FORMAT": form,
    }
    root = tmp_path / "root"
    ran = as_container(replace(step, env={**step.env, **env}), root, runtime, *STRANGER)
    assert (ran.code, scene.landed()) == (0, True), ran.stderr
    words = {"openpgp": "BEGIN PGP SIGNATURE", "ssh": "BEGIN SSH SIGNATURE"}
    assert words[form] in git(scene.repo, "cat-file", "commit", "main")


def signing_key(folder: Path, form: str, scene: Scene) -> str:
    if form == "ssh":
        return scene.ssh.key.read_text()
    home = folder / "gnupg"
    home.mkdir(mode=0o700)
    gpg = [
        *needs("gpg"),
        "--homedir",
        str(home),
        "--batch",
        "--passphrase",
        "",
        "--pinentry-mode",
        "loopback",
    ]
    try:
        said(*gpg, "--quick-generate-key", "Tests <tests@example.com>", "ed25519", "sign", "never")
        return said(*gpg, "--armor", "--export-secret-keys")
    finally:  # stop the agent started by gpg
        said("gpgconf", "--homedir", str(home), "--kill", "all")
