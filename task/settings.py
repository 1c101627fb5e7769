"""Frozen options, validated once: raw texts → Settings, or a UsageError that says which option is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from task.cli.door import Call, Raw
from task.cli.options import BY_HAND, OPTIONS, Option
from task.errors import UsageError
from task.model import Person, Strategy
from task.secret import Secret

TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Output:
    """Where results and log go."""

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
    """What Git servers are given to know us by. Files are named here; what is in them is nobody's business."""

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
    configured: bool = True  # whether what the user's git configuration says of servers counts


@dataclass(frozen=True)
class GitSettings:
    """How repositories are reached and what is committed."""

    author: Person
    deadline: float = 120.0
    protocols: frozenset[str] = frozenset()
    rewrites: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()
    template_file: str = ""
    trailers: tuple[tuple[str, str], ...] = ()
    sign_off: bool = False
    signing_key: Secret = Secret("")
    signing_format: str = "openpgp"
    pipeline_run: str = ""
    stall: float = 60.0
    cache_dir: str = ""
    access: AccessSettings = AccessSettings()


@dataclass(frozen=True)
class BuildSettings:
    """What tells this build from others, as given; `parse.build` reads it."""

    sequence: str = ""
    commit: str = ""
    repository: str = ""
    created: str = ""


@dataclass(frozen=True)
class ArgoSettings:
    """Which cluster and which Argo CD, and what they are asked after a push."""

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
    """Whose signature is required: that of a key, or of an identity that an issuer vouches for."""

    keys: str = ""  # a file
    identity: str = ""
    issuer: str = ""
    timeout: float = 0.0  # seconds

    @property
    def wanted(self) -> bool:
        """Whether any is."""
        return bool(self.keys or self.identity)


@dataclass(frozen=True)
class RequestSettings:
    """Pull requests."""

    wanted: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool = False
    auto_merge: bool = False
    forge: str = ""
    token_file: str = ""
    username: str = ""


@dataclass(frozen=True)
class HoldSettings:
    """What `hold`, `release` and `rollback` are given."""

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
class ShownSettings:
    """What `report` is given."""

    file: str = ""
    html: str = ""  # "-" is stdout; "" makes no page


@dataclass(frozen=True)
class Settings:
    """All options of one call."""

    command: str
    images: tuple[str, ...]  # as given; `parse.event` reads them
    image_digest: str
    tag: str
    applications: tuple[str, ...]
    application: tuple[str, ...]  # narrowing; empty narrows nothing
    namespace: tuple[str, ...]
    project: tuple[str, ...]
    selector: str
    output: Output
    git: GitSettings
    argocd_namespace: str = "argocd"
    annotation_prefix: str = ""
    strategy: Strategy = "semver"
    allow_downgrade: bool = False
    require_live: bool = False
    require_update: bool = False
    require_match: bool = False
    pin_digest: bool = False
    carry: bool = True
    atomic: bool = False
    build: BuildSettings = BuildSettings()
    held: HoldSettings = HoldSettings()
    dry: bool = False  # predict in place of pushing
    check: str = "auto"  # whether to ask the registry
    argo: ArgoSettings = ArgoSettings()
    registry: RegistrySettings = RegistrySettings()
    request: RequestSettings = RequestSettings()
    holds: bool = False  # of lint: ask every repository what is held
    images_from: tuple[str, ...] = ()  # files of builders; `parse.builders` reads them
    shown: ShownSettings = ShownSettings()
    verify: VerifySettings = VerifySettings()


def settings_of(call: Call) -> Settings:
    """Validate a call whose environment has been read. Raises `UsageError`."""
    read = _Reader(call.values)
    verify = _verify(read)
    return Settings(
        command=call.command,
        images=read.many("image"),
        image_digest=read.text("image-digest"),
        tag=read.text("tag"),
        images_from=read.many("images-from"),
        applications=read.many("applications"),
        application=read.many("application"),
        namespace=read.many("namespace"),
        project=read.many("project"),
        selector=read.text("selector"),
        output=_output(read),
        git=_git(read),
        argocd_namespace=read.text("argocd-namespace"),
        annotation_prefix=read.text("annotation-prefix").rstrip("/") + "/",
        strategy=cast("Strategy", read.text("strategy")),
        allow_downgrade=read.flag("allow-downgrade"),
        require_live=read.flag("require-live"),
        require_update=read.flag("require-update"),
        require_match=_require_match(call.command, read),
        pin_digest=read.flag("pin-digest") or verify.wanted,
        carry=read.flag("carry-parameters"),
        atomic=read.flag("atomic"),
        build=BuildSettings(
            read.text("sequence"), _commit(read, "source-commit"), read.text("source-repository"), read.text("created")
        ),
        held=_held(call.command, read),
        dry=call.command == "plan" or read.flag("dry-run"),
        holds=read.flag("holds"),
        check=_check(call.command, read),
        argo=_argo(read),
        registry=RegistrySettings(
            read.text("registries-conf"),
            read.text("registry-username"),
            read.text("registry-password-file"),
            read.many("registry-credentials-for"),
            read.text("registry-cache-dir"),
            read.many("allow-env"),
            read.flag("allow-exec"),
        ),
        request=_request(read),
        verify=verify,
        shown=_shown(call.command, read),
    )


def _shown(command: str, read: _Reader) -> ShownSettings:
    if command != "report":
        return ShownSettings()
    if not read.text("report-file"):
        variable = read.options["report-file"].variable
        raise UsageError("report: FILE is missing", hint=f"name the JSON report of a run (or set {variable})")
    return ShownSettings(read.text("report-file"), read.text("html"))


def _require_match(command: str, read: _Reader) -> bool:
    wanted = read.flag("require-match")
    if wanted and command == "scan":
        raise UsageError("--require-match: scan is given no image", hint="leave it out; run and plan take it")
    return wanted


def _check(command: str, read: _Reader) -> str:
    value = read.text("registry-check")
    if command == "scan" and value == "never":
        raise _wrong(read.options["registry-check"], value, "scan asks the registries: write auto or always")
    return value


def _verify(read: _Reader) -> VerifySettings:
    keys, identity, issuer = (read.text(name) for name in ("verify", "verify-identity", "verify-issuer"))
    if bool(identity) != bool(issuer):
        raise UsageError(
            "--verify-identity and --verify-issuer go together",
            hint="name both: an identity means nothing without who vouches for it",
        )
    if keys and identity:
        raise UsageError("--verify and --verify-identity exclude each other", hint="give the key, or the identity")
    return VerifySettings(keys, identity, issuer, read.number("verify-timeout"))


def _output(read: _Reader) -> Output:
    return Output(
        format=read.text("output"),
        report=read.text("report"),
        results_dir=read.text("results-dir"),
        dotenv=read.text("dotenv"),
        log_level=read.text("log-level"),
        log_format=read.text("log-format"),
        metrics_file=read.text("metrics-file"),
        cloudevent_url=read.text("cloudevent-url"),
    )


def _argo(read: _Reader) -> ArgoSettings:
    return ArgoSettings(
        kubeconfig=read.text("kubeconfig"),
        context=read.text("kube-context"),
        server=read.text("argocd-server"),
        token_file=read.text("argocd-auth-token-file"),
        plaintext=read.flag("argocd-plaintext"),
        insecure=read.flag("argocd-insecure"),
        ca_file=read.text("argocd-ca-file"),
        root_path=read.text("argocd-root-path"),
        headers=read.many("argocd-header"),
        refresh=read.flag("refresh"),
        parents=read.flag("refresh-parents"),
        wait=read.flag("wait"),
        limit=read.number("wait-timeout"),
        revision=read.text("revision"),
        repository=read.text("repository"),
        events=read.flag("kubernetes-events"),
    )


def _request(read: _Reader) -> RequestSettings:
    return RequestSettings(
        wanted=read.flag("pull-request"),
        labels=read.many("pull-request-label"),
        reviewers=read.many("pull-request-reviewer"),
        assignees=read.many("pull-request-assignee"),
        draft=read.flag("pull-request-draft"),
        auto_merge=read.flag("auto-merge"),
        forge=read.text("forge"),
        token_file=read.text("forge-token-file"),
        username=read.text("forge-username"),
    )


def _held(command: str, read: _Reader) -> HoldSettings:
    if command not in (*BY_HAND, "wait"):
        return HoldSettings()
    for name, commands in (("app", (*BY_HAND, "wait")), ("reason", ("hold",)), ("to", ("rollback",))):
        if command in commands and not read.many(name):
            option = read.options[name]
            called = "APP" if option.positional else f"--{name}"
            raise UsageError(f"{command}: {called} is missing", hint=f"{option.help} (or set {option.variable})")
    return HoldSettings(
        apps=read.many("app"),
        images=tuple(word for text in read.many("image") for word in text.replace(",", " ").split()),
        reason=read.text("reason"),
        until=read.text("until"),
        by=read.text("by"),
        to=read.text("to"),
        unknown=read.flag("unknown-tag"),
        hold=read.flag("hold"),
        discard=read.flag("discard"),
    )


class _Reader:
    """Reads single options out of the raw values."""

    def __init__(self, values: Raw) -> None:
        self.values = values
        self.options = {option.name: option for option in OPTIONS}

    def many(self, name: str) -> tuple[str, ...]:
        return self.values.get(name, ())

    def text(self, name: str) -> str:
        option, texts = self.options[name], self.many(name)
        value = texts[-1] if texts else option.default
        if option.choices and value not in option.choices:
            raise _wrong(option, value, f"choose from {', '.join(option.choices)}")
        return value

    def flag(self, name: str) -> bool:
        value = self.text(name).lower() or "false"
        if value not in TRUE + FALSE:
            raise _wrong(self.options[name], value, "write true or false")
        return value in TRUE

    def number(self, name: str) -> float:
        value = self.text(name)
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e6:  # noqa: PLR2004 - eleven days; also keeps out inf and nan
            raise _wrong(self.options[name], value, "write a number of seconds")
        return number

    def pairs(self, name: str, hint: str) -> tuple[tuple[str, str], ...]:
        found = []
        for text in self.many(name):
            key, equals, value = text.partition("=")
            if not (key.strip() and equals and value.strip()):
                raise _wrong(self.options[name], text, hint)
            found.append((key.strip(), value.strip()))
        return tuple(found)


def _wrong(option: Option, value: str, hint: str) -> UsageError:
    return UsageError(f"--{option.name}: {value!r} is not what it takes", hint=f"{hint} (or set {option.variable})")


def _git(read: _Reader) -> GitSettings:
    author = Person(read.text("git-author-name"), read.text("git-author-email"))
    for name, value in (("git-author-name", author.name), ("git-author-email", author.email)):
        if not value.isprintable() or set(value) & set("<>"):
            raise _wrong(read.options[name], value, "leave out < > and control characters")
    return GitSettings(
        author=author,
        deadline=read.number("deadline"),
        protocols=frozenset(read.many("allow-protocol")),
        rewrites=read.pairs("rewrite-url", "write PREFIX=REPLACEMENT"),
        only=read.many("only-repository"),
        template_file=read.text("commit-message-template"),
        trailers=read.pairs("trailer", "write KEY=VALUE"),
        sign_off=read.flag("sign-off"),
        signing_key=Secret(read.text("signing-key")),
        signing_format=read.text("signing-format"),
        pipeline_run=read.text("pipeline-run"),
        stall=read.number("stall-timeout"),
        cache_dir=read.text("git-cache-dir"),
        access=_access(read),
    )


def _access(read: _Reader) -> AccessSettings:
    return AccessSettings(
        username=read.text("git-username"),
        password_file=read.text("git-password-file"),
        credentials_urls=read.many("git-credentials-url"),
        ssh_key_file=read.text("ssh-key-file"),
        ssh_known_hosts_file=read.text("ssh-known-hosts-file"),
        ssh_host_keys=read.many("ssh-host-key"),
        ssh_directory=read.text("ssh-directory"),
        basic_auth_directory=read.text("basic-auth-directory"),
        ca_file=read.text("ca-file"),
        app_id=read.text("github-app-id"),
        app_installation=read.text("github-app-installation-id"),
        app_key_file=read.text("github-app-key-file"),
        configured=read.flag("git-config"),
    )


def _commit(read: _Reader, name: str) -> str:
    """A commit's id, which is all that a later step can look up."""
    value = read.text(name).lower()
    if value and not (set(value) <= set("0123456789abcdef") and 7 <= len(value) <= 64):  # noqa: PLR2004 - as git has them
        raise _wrong(read.options[name], value, "write the commit's id, 40 hexadecimal digits")
    return value
