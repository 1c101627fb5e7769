"""The image, built from the Dockerfile and run under each host's rules, against real Git servers."""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hosts import runners
from hosts.steps import COMMAND, Step, Volume, argv_of, as_container, lay
from real_servers import PASSWORD, USER, Nginx, Sshd, nginx, sshd
from runs import WEB, application, repository, target
from support import ROOT, git, needs, show

from scripts import containers
from task import __version__
from task.words.results import NAMES

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root may run a container as any user")
REAL = [pytest.mark.servers, pytest.mark.timeout(600), pytest.mark.xdist_group("image"), ROOT_ONLY]

APPLICATIONS = "applications.json"
OPENSHIFT = 1000660000


def real(test: Callable[..., None]) -> Callable[..., None]:
    """A test that needs the image."""
    for mark in REAL:
        test = mark(test)
    return test


# What can be read off


def test_the_dockerfile_is_clean() -> None:
    done = subprocess.run([*needs("hadolint"), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_base_is_pinned_and_can_be_another() -> None:
    text = (ROOT / "Dockerfile").read_text()
    (name,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"[\w./]+:\d+\.\d+\.\d+-[\w.-]+", name)
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.MULTILINE)
    assert stages[:3] == [("${PYTHON_IMAGE}", "builder"), ("${PYTHON_IMAGE}", "runtime"), ("runtime", "action")]
    assert stages[-1][0] == "runtime"
    assert f"ARG VERSION={__version__}\n" in text


# The image itself


@pytest.fixture(scope="module")
def built() -> Callable[[str], str]:
    for program in containers.PROGRAMS:
        needs(program)
    return containers.build


@pytest.fixture(scope="module")
def runtime(built: Callable[[str], str]) -> str:
    return built("runtime")


def said(*argv: str) -> str:
    done = subprocess.run(argv, env=containers.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(image: str, script: str, *options: str) -> str:
    """What a script says in the container, for a user without a name and with a read-only root."""
    nobody = (f"--user={OPENSHIFT}:0", "--passwd=false", "--entrypoint=/bin/sh")
    return said(*containers.run(image, *nobody, *options, command=("-c", script)))


def configuration(image: str) -> Any:
    return json.loads(said(*containers.podman("image", "inspect", image)))[0]["Config"]


@real
@pytest.mark.parametrize(
    ("wanted", "user", "folder"), [("runtime", "65532:0", "/home/nonroot"), ("action", "0:0", "/")]
)
def test_who_it_runs_as(built: Callable[[str], str], wanted: str, user: str, folder: str) -> None:
    found = configuration(built(wanted))
    assert (found["User"], found["WorkingDir"]) == (user, folder)
    assert found["Entrypoint"] == [COMMAND]
    assert "Cmd" not in found or not found["Cmd"]


@real
def test_its_labels(runtime: str) -> None:
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): text for name, text in configuration(runtime)["Labels"].items()}
    told = {name for name, text in labels.items() if text}
    assert {"title", "description", "url", "source", "documentation", "vendor", "licenses", "version"} <= told
    assert (labels["version"], labels["base.name"]) == (__version__, containers.BASE)


@real
def test_it_has_the_programs_that_a_run_may_start(runtime: str) -> None:
    shell(runtime, "for one in git ssh ssh-keygen gpg gpg-agent openssl; do command -v $one || exit 1; done")


@real
def test_no_module_is_compiled_while_it_runs(runtime: str) -> None:
    script = "PYTHONVERBOSE=1 image-update run --help 2>&1; PYTHONVERBOSE=1 image-update lint --applications / 2>&1; :"
    log = shell(runtime, script)
    loaded = re.findall(r"^# code object from '?([^'\n]+?)'?$", log, re.MULTILINE)
    assert any(path.endswith("/task/cli.py") or "/task/__pycache__/cli." in path for path in loaded)
    assert [path for path in loaded if not path.endswith(".pyc")] == []


@real
def test_it_holds_the_package_and_nothing_of_the_checkout(runtime: str) -> None:
    found = shell(
        runtime, "find / -xdev -name 'test_image*' -o -xdev -name 'requirements*.lock' -o -path /src; ls /opt"
    )
    assert found.split() == ["image-update"]


@real
def test_a_user_without_a_name_may_write_its_home(runtime: str) -> None:
    script = "touch /home/nonroot/x && rm /home/nonroot/x && echo written"
    nobody = (f"--user={OPENSHIFT}:0", "--passwd=false", "--entrypoint=/bin/sh")
    assert said(*containers.container(runtime, *nobody, command=("-c", script))) == "written\n"


# A real update, over ssh and over https, under each host's rules


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repos")


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, repos: Path) -> Iterator[Nginx]:
    with nginx(tmp_path_factory.mktemp("nginx"), repos) as server:
        yield server


class Scene(NamedTuple):
    """A repository on both servers, and what opens them."""

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
    return Volume({APPLICATIONS: json.dumps({"kind": "List", "items": [application("web", scene.url(way))]})})


def tekton(scene: Scene, way: str, *, mode: int = 0o644, group: int = 0) -> Step:
    """Workspaces that are Secrets; `group` is the pod's fsGroup."""
    secret = Volume(secret=True, mode=mode, read_only=True)
    bound = {"source": applications(scene, way)}
    if way == "ssh":
        bound["ssh-directory"] = secret._replace(files=scene.ssh_secret())
    else:
        bound["basic-auth"] = secret._replace(files=scene.basic_auth())
        bound["ssl-ca-directory"] = secret._replace(files={"ca.crt": scene.web.ca.read_text()})
    return runners.tekton({"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}, bound, group=group)


def tekton_home(scene: Scene, way: str) -> Step:
    """Credentials that Tekton put into the home, for the ServiceAccount's Secrets; no workspace but the manifests."""
    given = {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}
    step = runners.tekton(given, {"source": applications(scene, way)})
    files = {f".ssh/{name}": text for name, text in scene.ssh_secret().items()}
    if way == "https":
        files = {**scene.basic_auth(), "ca.crt": scene.web.ca.read_text()}
        files[".gitconfig"] += "[http]\n\tsslCAInfo = /tekton/home/ca.crt\n"
    return step._replace(volumes={**step.volumes, "/tekton/home": Volume(files)})


def argo(scene: Scene, way: str) -> Step:
    (template,) = (one for one in runners.manifest(runners.TEMPLATE)["spec"]["templates"] if "container" in one)
    ((artifact, path),) = ((one["name"], one["path"]) for one in template["inputs"]["artifacts"])
    names = {one["name"]: one.get("value") for one in template["inputs"]["parameters"]}
    secrets = {
        str(names["ssh-secret"]): scene.ssh_secret(),
        str(names["basic-auth-secret"]): {"username": USER, "password": PASSWORD},
        str(names["ca-secret"]): {"ca.crt": scene.web.ca.read_text()},
    }
    secrets = {name: keys for name, keys in secrets.items() if (name == names["ssh-secret"]) == (way == "ssh")}
    given = {"image": f"{WEB}:1.1.0", "applications": f"{path}/{APPLICATIONS}"}
    given |= {"git-credentials-url": scene.server} if way == "https" else {}
    return runners.argo(given, {artifact: applications(scene, way)}, secrets, template=template["name"])


def github(scene: Scene, way: str) -> Step:
    files = {**applications(scene, way).files, "ca.pem": scene.web.ca.read_text()}
    inputs = {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}
    if way == "ssh":
        inputs |= {"ssh-key": scene.ssh.key.read_text(), "ssh-host-key": scene.ssh.host_key}
    else:
        inputs |= {
            "git-token": PASSWORD,
            "git-username": USER,
            "git-credentials-url": scene.server,
            "ca-file": "ca.pem",
        }
    return runners.github(inputs, Volume(files), token="ghs_of-the-workflow")


class Rules(NamedTuple):
    """How a host starts it, and who it makes it run as."""

    start: Callable[[Scene, str], Step]
    options: tuple[str, ...] = ("--passwd=false",)  # Kubernetes and Docker add no entry for a stranger
    image: str = "runtime"


STRANGER = (f"--user={OPENSHIFT}:0", "--passwd=false")
HOSTS: Mapping[str, Rules] = {
    "tekton": Rules(tekton),
    "tekton, with fsGroup": Rules(lambda scene, way: tekton(scene, way, mode=0o400, group=65532)),
    "tekton on OpenShift": Rules(lambda scene, way: tekton(scene, way, mode=0o400, group=OPENSHIFT), STRANGER),
    "tekton, credentials in home": Rules(tekton_home),
    "argo": Rules(argo),
    "argo on OpenShift": Rules(argo, STRANGER),
    "github": Rules(github, image="action"),
}


@real
@pytest.mark.parametrize("way", ["ssh", "https"])
@pytest.mark.parametrize("host", HOSTS)
def test_an_update(built: Callable[[str], str], scene: Scene, tmp_path: Path, host: str, way: str) -> None:
    rules = HOSTS[host]
    ran = as_container(rules.start(scene, way), tmp_path, built(rules.image), *rules.options)
    assert ran.code == 0, ran.stderr
    assert scene.landed()
    assert set(ran.results) == set(NAMES)
    assert (ran.results["status"], ran.results["commit"]) == ("updated", git(scene.repo, "rev-parse", "main"))
    told = ran.stdout + ran.stderr + "".join(ran.results.values())
    assert PASSWORD not in told
    assert "PRIVATE KEY" not in told


@real
def test_github_files_keep_their_owner(built: Callable[[str], str], scene: Scene, tmp_path: Path) -> None:
    """The runner reads and removes them as another user."""
    as_container(github(scene, "https"), tmp_path, built("action"))
    found = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in found} == {(1001, 0o644)}


@real
@pytest.mark.parametrize("form", ["openpgp", "ssh"])
def test_a_signed_commit_by_a_user_without_a_name(runtime: str, scene: Scene, tmp_path: Path, form: str) -> None:
    step = tekton(scene, "ssh")
    env = {"IMAGE_UPDATE_SIGNING_KEY": signing_key(tmp_path, form, scene), "IMAGE_UPDATE_SIGNING_FORMAT": form}
    root = tmp_path / "root"
    ran = as_container(step._replace(env={**step.env, **env}), root, runtime, *STRANGER)
    assert (ran.code, scene.landed()) == (0, True), ran.stderr
    words = {"openpgp": "BEGIN PGP SIGNATURE", "ssh": "BEGIN SSH SIGNATURE"}
    assert words[form] in git(scene.repo, "cat-file", "commit", "main")


def signing_key(folder: Path, form: str, scene: Scene) -> str:
    if form == "ssh":
        return scene.ssh.key.read_text()
    home = folder / "gnupg"
    home.mkdir(mode=0o700)
    gpg = [*needs("gpg"), "--homedir", str(home), "--batch", "--passphrase", "", "--pinentry-mode", "loopback"]
    said(*gpg, "--quick-generate-key", "Tests <tests@example.com>", "ed25519", "sign", "never")
    return said(*gpg, "--armor", "--export-secret-keys")


# As process 1


@real
@pytest.mark.parametrize("user", ["65532:0", f"{OPENSHIFT}:0"])
def test_it_ends_at_once_when_it_is_told_to(runtime: str, tmp_path: Path, user: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes the connection, and says nothing
        stalled = f"https://127.0.0.1:{server.getsockname()[1]}/repo.git"
        apps = json.dumps({"kind": "List", "items": [application("web", stalled)]})
        given = {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}
        step = runners.tekton(given, {"source": Volume({APPLICATIONS: apps})})
        code, seconds = stopped(step, tmp_path, runtime, user, server)
    told = step.results(tmp_path)
    assert code == 143
    assert seconds < 2
    assert set(told) == set(NAMES)
    assert (told["status"], told["updated"]) == ("failed", "false")


def stopped(step: Step, root: Path, image: str, user: str, server: socket.socket) -> tuple[int, float]:
    """The exit code after SIGTERM, and how long it took."""
    name = f"image-update-{os.urandom(4).hex()}"
    lay(step, root)
    argv = argv_of(step, root, image, f"--user={user}", "--passwd=false", f"--name={name}")
    server.settimeout(60)
    with subprocess.Popen(argv, env=containers.environment(), stdout=-3, stderr=-3) as process:
        server.accept()
        began = time.monotonic()
        said(*containers.podman("kill", "--signal=TERM", name))
        return process.wait(30), time.monotonic() - began
