"""The options of one call of the command, as frozen records. `task/cli` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from task.model import Person, Strategy, Through
from task.secret import Secret


@dataclass(frozen=True)
class OutputSettings:
    """Where results and the log go."""

    format: str = "text"
    report: str = ""
    results_dir: str = ""
    dotenv: str = ""
    log_level: str = "info"
    log_format: str = "auto"
    metrics_file: str = ""
    cloudevent_url: str = ""


@dataclass(frozen=True)
class AccessSettings:
    """How to log in to Git servers. `task/git/credentials.py` reads the files that are named here."""

    username: str = ""
    password_file: str = ""
    credentials_urls: tuple[str, ...] = ()
    ssh_key_file: str = ""
    ssh_known_hosts_file: str = ""
    ssh_host_keys: tuple[str, ...] = ()
    ssh_directory: str = ""
    basic_auth_directory: str = ""
    ca_file: str = ""
    app_id: str = ""
    app_installation: str = ""
    app_key_file: str = ""
    configured: bool = True  # whether the user's and the system's git configuration is used


@dataclass(frozen=True)
class GitSettings:
    """How repositories are reached, and how commits are made."""

    author: Person = Person("", "")  # a part that is not given is empty
    deadline: float = 120.0
    protocols: frozenset[str] = frozenset()
    rewrites: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()
    template_file: str = ""
    trailers: tuple[tuple[str, str], ...] = ()
    sign_off: bool | None = None  # None: not given
    signing_key: Secret = Secret("")
    signing_format: str = ""  # "": the key determines it
    through: Through = "git"
    pipeline_run: str = ""
    stall: float = 60.0
    cache_dir: str = ""
    access: AccessSettings = AccessSettings()


@dataclass(frozen=True)
class BuildSettings:
    """The options that identify the build. `task/ci/build.py` parses them."""

    sequence: str = ""
    commit: str = ""
    repository: str = ""
    created: str = ""


@dataclass(frozen=True)
class ArgoSettings:
    """Which cluster and which Argo CD to use, and what to do there after a push."""

    kubeconfig: str = ""
    context: str = ""
    server: str = ""
    token_file: str = ""
    plaintext: bool = False
    insecure: bool = False
    ca_file: str = ""
    root_path: str = ""
    headers: tuple[str, ...] = ()
    refresh: bool = True
    parents: bool = False
    wait: bool = False
    limit: float = 600.0  # seconds
    expect_image: bool = True
    on_failure: str = "none"
    revision: str = ""
    repository: str = ""
    events: bool = False


@dataclass(frozen=True)
class RegistrySettings:
    """How registries are reached."""

    conf: str = ""
    username: str = ""
    password_file: str = ""
    scopes: tuple[str, ...] = ()
    cache_dir: str = ""
    env: tuple[str, ...] = ()  # variables that annotations may name
    execute: bool = False


@dataclass(frozen=True)
class VerifySettings:
    """The signature that an image needs: by a key, or by an identity that an issuer confirmed."""

    keys: str = ""  # a file
    identity: str = ""
    issuer: str = ""
    timeout: float = 0.0  # seconds

    @property
    def wanted(self) -> bool:
        """Whether images need a signature."""
        return bool(self.keys or self.identity)


@dataclass(frozen=True)
class RequestSettings:
    """How to open pull requests, and what else to show on the forge."""

    wanted: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool | None = None  # None: not given
    auto_merge: bool | None = None
    forge: str = ""
    token_file: str = ""
    username: str = ""
    comment: bool = False  # for plan: comment on the pull request that the job runs for
    deployments: bool = False  # whether to show deployments on the forge of the application's repository


@dataclass(frozen=True)
class HoldSettings:
    """The options of `hold`, `release` and `rollback`."""

    apps: tuple[str, ...] = ()
    images: tuple[str, ...] = ()  # aliases; () is all
    reason: str = ""
    until: str = ""
    by: str = ""
    to: str = ""
    unknown: bool = False  # --unknown-tag
    hold: bool = True
    discard: bool = False


@dataclass(frozen=True)
class PromoteSettings:
    """The options of `promote`."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    source_selector: str = ""
    target_selector: str = ""
    images: tuple[str, ...] = ()  # aliases; () is all
    healthy: bool = False


@dataclass(frozen=True)
class ShownSettings:
    """The file that `report` shows, and where to write its page."""

    file: str = ""
    html: str = ""  # "-" is stdout; "" makes no page


@dataclass(frozen=True)
class Settings:
    """All options of one call."""

    command: str
    images: tuple[str, ...] = ()  # as given, for `task/ci/event.py` to parse
    image_digest: str = ""
    tag: str = ""
    images_from: tuple[str, ...] = ()  # files of builders, for `task/ci/builder_files.py` to read
    applications: tuple[str, ...] = ()
    clusters: str = ""  # the file that lists them, for ApplicationSets
    render: tuple[str, ...] = ()  # "helm", "kustomize": what may be rendered
    follow: int = 0  # how many levels of Applications that Applications deploy are read
    application: tuple[str, ...] = ()  # () is all; so for the next three
    namespace: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    selector: str = ""
    output: OutputSettings = OutputSettings()
    git: GitSettings = GitSettings()
    argocd_namespace: str = "argocd"
    annotation_prefix: str = "argocd-image-updater.argoproj.io/"
    strategy: Strategy = "semver"
    allow_downgrade: bool = False
    require_live: bool = False
    require_update: bool = False
    require_match: bool = False
    pin_digest: bool = False
    carry: bool | None = None
    atomic: bool = False
    build: BuildSettings = BuildSettings()
    held: HoldSettings = HoldSettings()
    promote: PromoteSettings = PromoteSettings()
    dry: bool = False  # show the diff, push nothing
    check: str = "auto"  # whether to ask the registry
    argo: ArgoSettings = ArgoSettings()
    registry: RegistrySettings = RegistrySettings()
    request: RequestSettings = RequestSettings()
    repository_config: bool = True
    holds: bool = False  # for lint: ask every repository what is held
    from_image_updater: bool = False  # for lint: compare with what Image Updater does
    newest: bool = False  # for status: ask the registries for the newest tags
    builds: int = 5  # for status: how many of the last builds are shown
    shown: ShownSettings = ShownSettings()
    verify: VerifySettings = VerifySettings()
