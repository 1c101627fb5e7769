"""Settings → Edges: the only file that constructs edges, and the tables of what there is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from task import stop
from task.draft import Terms, Wording
from task.edges.applications.manifests import Manifests
from task.edges.log import Log
from task.errors import Malformed, UsageError
from task.find import Manifest, Scope
from task.light import once
from task.model import Image
from task.parse.ci_variables import Origin
from task.parse.narrow import Narrow
from task.parse.subscription import Defaults
from task.pipeline import Edges, Order, Store
from task.rules.judge import Leave
from task.settings import AccessSettings, GitSettings, Settings
from task.words.trailers import KEY as TRAILER_KEY
from task.words.trailers import Trailer, build_trailers, commit_references

if TYPE_CHECKING:
    from task.edges.access import Access
    from task.edges.git import Git
    from task.edges.signing import Signer

# Variables that hold a secret, beside the options: secrets are never arguments.
SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "GITHUB_TOKEN",
)  # fmt: skip
CHOICES = "a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF"


def edges_of(settings: Settings, environ: Mapping[str, str], log: Log) -> Edges:
    """The world as these settings want it."""
    opened = ExitStack()
    git = _gits(settings, environ, log, opened)
    store = _stores(git, _signers(settings.git, git, opened), settings.git.cache_dir)
    return Edges(
        applications=lambda: _applications(settings, store),
        locate=_locate(git),
        store=store,
        now=time.monotonic,
        sleep=stop.sleep,
        jitter=_jitter,
        log=log,
        close=opened.close,
    )


def _of_git(sentence: str, log: Log) -> None:
    warning = sentence.startswith(("warning: ", "git: warning: "))
    log("warning" if warning else "debug", sentence.replace("warning: ", "", 1))


def _jitter() -> float:
    return int.from_bytes(os.urandom(2)) / 0xFFFF


def order_of(settings: Settings, images: tuple[Image, ...], origin: Origin = Origin()) -> Order:
    """What `run` or `plan` is asked to do. Raises `UsageError` for a template that does not parse."""
    return Order(
        command=settings.command,
        images=images,
        scope=scope_of(settings),
        terms=Terms(Leave(settings.allow_downgrade), settings.carry, settings.require_live),
        wording=Wording(settings.git.author, _template(settings.git.template_file), _trailers(settings.git, origin)),
        deadline=settings.git.deadline,
        atomic=settings.atomic,
        require_update=settings.require_update,
        only=settings.git.only,
    )


def _trailers(given: GitSettings, origin: Origin) -> tuple[Trailer, ...]:
    """What is known of the build; what the CI system says of its own commit is not said of another one."""
    for key, _ in given.trailers:
        if not TRAILER_KEY.fullmatch(key):
            raise UsageError(f"--trailer: {key!r} is no key", hint="letters, digits and dashes only: Ticket=ABC-1")
    from task.edges.git_names import without_login

    if given.source_commit and given.source_commit != origin.commit.lower():
        origin = Origin(run=origin.run)
    commit, repository = (
        given.source_commit or origin.commit,
        given.source_repository or without_login(origin.repository),
    )
    references = commit_references(commit, repository, origin.author, origin.date, origin.message)
    run = given.pipeline_run or without_login(origin.run)
    signed = (("Signed-off-by", f"{given.author.name} <{given.author.email}>"),) if given.sign_off else ()
    return (*build_trailers(commit, run, given.trailers, references), *signed)


def scope_of(settings: Settings) -> Scope:
    """Which Applications are considered, and what holds where no annotation says otherwise."""
    return Scope(
        settings.annotation_prefix,
        Narrow(settings.application, settings.namespace, settings.project, settings.selector),
        Defaults(settings.argocd_namespace, settings.strategy, settings.pin_digest),
    )


def _template(path: str) -> str | None:
    if not path:
        return None
    from task.words.commit_message import check_template

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        check_template(text)
    except OSError as error:
        raise UsageError(
            f"--commit-message-template: cannot read {path!r}: {error.strerror}", hint="name a readable file"
        ) from None
    except (Malformed, UnicodeDecodeError) as error:
        raise UsageError(
            f"--commit-message-template: {error}", hint="write a Go text/template, as Image Updater takes it"
        ) from None
    return text


def _applications(settings: Settings, store: Callable[[str], Store]) -> Iterable[Manifest]:
    if not settings.applications:
        raise UsageError("no source of Applications given", hint=f"name one with --applications: {CHOICES}")
    for source in settings.applications:
        yield from _source(source, store)


def _source(source: str, store: Callable[[str], Store]) -> Iterable[Manifest]:
    """The table of application sources, by the shape of the text."""
    if source in ("cluster", "argocd"):
        raise UsageError(f"--applications {source} is not supported by this version", hint=f"give {CHOICES}")
    repo, marker, path = _repository(source)
    if marker and not os.path.exists(source):
        from task.edges.applications.git_manifests import GitManifests

        return GitManifests(store(repo), path).all()
    return Manifests(source).all()


def _repository(source: str) -> tuple[str, str, str]:
    """`REPO//PATH?ref=REF` → (REPO, "//", PATH?ref=REF); the `//` of a scheme is no marker."""
    start = source.find("://")
    start = start + 3 if start >= 0 else 1
    at = source.find("//", start)
    return (source, "", "") if at < 0 else (source[:at], "//", source[at + 2 :])


def _gits(settings: Settings, environ: Mapping[str, str], log: Log, opened: ExitStack) -> Callable[[], Git]:
    """The one door to git, opened when first needed; but credentials that make no sense are an error at once."""
    access = _access(settings.git.access, environ)

    @once
    def git() -> Git:
        from task.edges.git import Git

        door = Git(
            environ,
            protocols=settings.git.protocols,
            rewrites=settings.git.rewrites,
            access=access,
            configured=settings.git.access.configured,
            stall=settings.git.stall,
            log=lambda sentence: _of_git(sentence, log),
        )
        opened.callback(door.close)
        return door

    return git


def _access(given: AccessSettings, environ: Mapping[str, str]) -> Access | None:
    """What was given to log in with; None where that is nothing."""
    if given._replace(configured=True) == AccessSettings() and not any(environ.get(name) for name in SECRETS):
        return None
    from task.edges.credentials import access_of

    return access_of(given, environ)


def _signers(given: GitSettings, git: Callable[[], Git], opened: ExitStack) -> Callable[[], Signer | None]:
    """Who signs the commits; nobody without a key. Raises `UsageError` for a key that is none."""
    if not given.signing_key:
        return lambda: None
    from task.edges.signing import Signer, key_of

    key = key_of(given.signing_key, given.signing_format)

    @once
    def signer() -> Signer:
        found = Signer(git(), key)
        opened.callback(found.close)
        return found

    return signer


def _stores(git: Callable[[], Git], signer: Callable[[], Signer | None], cache_dir: str) -> Callable[[str], Store]:
    def store(repo: str) -> Store:
        from task.edges.stores.bare import BareStore

        return BareStore(git(), repo, signer(), cache_dir)

    return store


def _locate(git: Callable[[], Git]) -> Callable[[str], tuple[str, str, str] | None]:
    def locate(origin: str) -> tuple[str, str, str] | None:
        from task.edges.applications.work_tree import locate as find

        path, _, _line = origin.rpartition(":")
        found = find(path, git())
        return (found.repo, found.branch, found.path) if found else None

    return locate
