"""The nouns of the work, all frozen. A change is a new value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from task.errors import TaskError

Strategy = Literal["semver", "newest-build", "alphabetical", "digest"]
Kind = Literal["Helm", "Kustomize", "Plugin", "Directory", ""]
TargetKind = Literal[
    "helm-override", "kustomize-override", "plugin-override", "kustomization", "helmvalues", "manifests", "live", "flux"
]
VerdictName = Literal["update", "unchanged", "refuse", "defer", "error"]


@dataclass(frozen=True)
class Image:
    """One image reference: `name` as it was written, `registry` and `repository` in normal form."""

    name: str  # as written, without tag and digest: "nginx", "localhost:5000/acme/api"
    registry: str  # "docker.io" where none is written
    repository: str  # "library/nginx", "acme/api"
    tag: str = ""
    digest: str = ""  # "sha256:…"

    @property
    def identity(self) -> str:
        """Equal for two spellings of one repository: `nginx`, `docker.io/library/nginx`."""
        return f"{self.registry}/{self.repository}"

    @property
    def version(self) -> str:
        """What follows the name: `tag`, `tag@digest` or, with no tag, the digest."""
        return f"{self.tag}@{self.digest}" if self.tag and self.digest else self.tag or self.digest

    @property
    def reference(self) -> str:
        """The whole reference, as a container runtime takes it."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}@{self.digest}" if self.digest else f"{self.name}{tag}"


@dataclass(frozen=True)
class Entry:
    """One entry of `image-list`: `alias=name:constraint@digest`."""

    alias: str  # "" where none is written
    image: Image  # no tag; the digest as written
    constraint: str  # the tag part, trimmed; "" where none is written
    text: str  # as written, trimmed


@dataclass(frozen=True)
class Parameter:
    """One Helm parameter of an Application's source."""

    name: str
    value: str
    force_string: bool = False


@dataclass(frozen=True)
class Source:
    """One source of an Application, as far as a write-back needs it."""

    repo: str
    path: str = ""
    revision: str = ""  # "" and "HEAD": the repository's default branch
    chart: str = ""
    ref: str = ""
    kind: Kind = ""  # from the status, else the spec's section, else "" (Git will tell)
    section: Kind = ""  # the section that the spec holds for this source
    parameters: tuple[Parameter, ...] = ()  # helm.parameters
    images: tuple[str, ...] = ()  # kustomize.images
    env: tuple[tuple[str, str], ...] = ()  # plugin.env
    value_files: tuple[str, ...] = ()  # helm.valueFiles
    recurse: bool = False  # directory.recurse


@dataclass(frozen=True)
class Application:
    """One Argo CD Application, parsed once."""

    namespace: str
    name: str
    annotations: Mapping[str, str]  # keys without the annotation prefix; only keys that had it
    sources: tuple[Source, ...]
    multi: bool = False  # spec.sources rather than spec.source
    live: tuple[str, ...] = ()  # status.summary.images, as written
    project: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""  # where it was read: "apps/web.yaml:12", "cluster"

    @property
    def key(self) -> str:
        """`namespace/name`, as reports and messages name it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Policy:
    """Which tags an entry takes, and in which order they count as newer."""

    strategy: Strategy = "semver"
    constraints: tuple[str, ...] = ()  # every one must hold: the entry's, and that of `semver:<constraint>`
    allow: str | None = None  # RE2 pattern, unanchored; None: any tag
    ignore: tuple[str, ...] = ()  # Go filepath.Match globs
    platforms: tuple[str, ...] = ()
    pin_digest: bool = False
    pull_secret: str = ""  # which login the registry gets, as the annotation says it


@dataclass(frozen=True)
class Keys:
    """Where in a target an image goes, as the per-image annotations say; "" where they say nothing."""

    name: str = ""  # helm.image-name / plugin.image-name
    tag: str = ""  # helm.image-tag / plugin.image-tag
    spec: str = ""  # helm.image-spec / plugin.image-spec; wins over name and tag
    kustomize_name: str = ""  # kustomize.image-name
    manifests_name: str = ""  # manifests.image-name


@dataclass(frozen=True)
class Claim:
    """One image-list entry, and the names that it gives its image in a target; "" where it gives none."""

    alias: str
    identity: str  # of its image, in normal form
    kustomize_name: str = ""
    manifests_name: str = ""


@dataclass(frozen=True)
class Target:
    """One place to write: a file (or, for `kustomization` and `manifests`, a folder) and the keys in it."""

    kind: TargetKind
    path: str  # from the repository's root, "/"-separated, no leading "/", no ".."; "" is the root
    keys: Keys
    image: Image  # the entry's image: its spelling is the fallback for what is written
    source: Source  # the Application's source: what its spec holds is carried along
    application: str = ""  # namespace/name
    alias: str = ""
    recurse: bool = False  # manifests: look into sub-folders
    fallbacks: tuple[str, ...] = ()  # other spellings of `path`, used when only they exist
    carry: bool = True  # carry the spec's parameters, images and env along
    managed: tuple[str, ...] = ()  # parameters, image identities, variables that any alias of the Application writes
    others: tuple[Claim, ...] = ()  # the Application's other image-list entries


@dataclass(frozen=True)
class File:
    """What a snapshot says about one path. Absent paths have no File."""

    text: str  # "" for anything but a regular file that was asked for
    mode: str = "100644"  # Git's: 100644, 100755, 120000 symlink, 160000 submodule, 040000 folder
    problem: str = ""  # why it cannot be edited: "not UTF-8 text", "larger than 10 MB", …


Files = Mapping[str, File]


@dataclass(frozen=True)
class Place:
    """What a snapshot must know about: the text of a file, whether a path exists, or all manifests of a folder."""

    path: str
    want: Literal["text", "exists", "folder", "tree"] = "text"


@dataclass(frozen=True)
class Destination:
    """Where commits go. `base` is a branch name; `head` equals `base` unless `git-branch` says otherwise."""

    repo: str  # the Application's own URL, without userinfo
    base: str
    head: str


@dataclass(frozen=True)
class Snapshot:
    """The files asked for, at one commit of the base branch."""

    repo: str
    branch: str  # the base branch's name, "HEAD" resolved
    tip: str  # commit id
    files: Files


@dataclass(frozen=True)
class Reading:
    """What a target says now about an image; all "" where it says nothing."""

    name: str = ""
    tag: str = ""
    digest: str = ""
    sound: bool = True  # False: a YAML reader takes the scalar for a number, boolean or date: rewrite it
    file: str = ""  # the file that was, or will be, written


@dataclass(frozen=True)
class Edit:
    """One scalar that changed, for commit messages and reports."""

    path: str
    key: str
    old: str
    new: str


@dataclass(frozen=True)
class Person:
    """Author and committer of a commit."""

    name: str
    email: str


@dataclass(frozen=True)
class Changeset:
    """What to commit on top of `tip`, for one head branch."""

    destination: Destination
    tip: str
    files: Files  # only those that change, with their new text and mode
    message: str
    author: Person
    head_commit: str | None = (
        None  # the head branch's commit that was read, "" where it did not exist; None: not looked at
    )


@dataclass(frozen=True)
class Landing:
    """What became of a changeset."""

    commit: str  # "" when only predicted
    tree: str
    pushed: bool = True  # False: the head branch already had exactly this


Fact = Literal["exists", "digest", "created", "platforms", "labels", "tags"]


@dataclass(frozen=True)
class Question:
    """What a rule needs to know of one image that neither the event nor Git tells; a registry answers."""

    image: Image  # with the tag, the digest, or both that are asked about
    facts: tuple[Fact, ...]
    platforms: tuple[str, ...] = ()  # "os/arch[/variant]": of an index, only these members count; () is all
    secret: str = ""  # the annotation `pull-secret`, as written
    namespace: str = ""  # the Application's: whose secrets may be named


@dataclass(frozen=True)
class Answer:
    """A registry's answer; what was not asked for stays empty."""

    exists: bool = True
    digest: str = ""  # of what the tag names: an index's own digest where it is one
    created: str = ""  # RFC 3339, UTC, "2026-11-21T06:00:00.123Z"; "" where the image has no date
    platforms: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()  # of the image's repository
    error: TaskError | None = None  # why there is no answer


@dataclass(frozen=True)
class Proposal:
    """A pull request as it should be: one per (repository, base, head)."""

    repo: str  # the Application's own URL
    base: str
    head: str
    title: str
    body: str
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool = False
    auto_merge: bool = False


@dataclass(frozen=True)
class Proposed:
    """A pull request as it is."""

    url: str  # the page for people
    number: str
    state: Literal["open", "merged", "closed", "gone"]  # "gone": closed by the forge, since its branch was deleted
    title: str = ""
    body: str = ""
    head_commit: str = ""
    merge_commit: str = ""  # of a merged one
    conflicts: bool = False  # with its base, as far as the forge tells
    note: str = ""  # what could not be done and does no harm: "GitHub cannot merge by itself here: …"


@dataclass(frozen=True)
class Build:
    """What tells two builds of one image apart in time (contract, section 5). "" and None are unknown."""

    sequence: int | None = None
    counter: str = ""  # who counts: sequences of two counters cannot be compared; "" for --sequence
    commit: str = ""
    repository: str = ""  # of that commit, without userinfo
    created: str = ""  # RFC 3339, UTC


@dataclass(frozen=True)
class Written:
    """One build of an image, as the state file remembers it."""

    tag: str = ""
    digest: str = ""
    build: Build = Build()


@dataclass(frozen=True)
class Hold:
    """What keeps an image, or all of an Application, as it is."""

    reason: str
    by: str = ""
    at: str = ""  # RFC 3339, UTC
    until: str = ""  # RFC 3339, UTC; "" is until it is released


@dataclass(frozen=True)
class Meant:
    """What the last rollback was asked for in words, and the version that this meant then."""

    to: str  # "previous", "3-back"
    tag: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Memory:
    """What is remembered of one image-list entry."""

    written: Written | None = None  # the newest build that was ever written
    replaced: tuple[str, ...] = ()  # versions (`tag`, `tag@digest`, digest) whose replay changes nothing; newest first
    hold: Hold | None = None
    deferred: Written | None = None  # the newest event while held
    rollback: Meant | None = None


@dataclass(frozen=True)
class State:
    """What is remembered of one Application in one write-back file. A state file holds one for each file."""

    hold: Hold | None = None  # covers all images
    images: Mapping[str, Memory] = field(
        default_factory=dict
    )  # by alias; without one, by the image's name as `image-list` spells it


@dataclass(frozen=True)
class Subscription:
    """One write-back target of one image-list entry of one Application: who takes which tag, and where it goes."""

    application: Application
    entry: Entry
    policy: Policy
    keys: Keys
    source: Source
    target: str  # "override", "kustomization", "helmvalues", "manifests", "file", "flux"
    path: str  # what the target names, from the repository's root; for "override" the file
    repo: str  # the Application's own URL
    base: str = ""  # "" is the repository's default branch
    head: str = ""  # template of the head branch; "" is the base branch
    method: Literal["git", "argocd"] = "git"
    credentials: str = ""  # "" and "repocreds": found by the URL; "secret:ns/name"
    fallbacks: tuple[str, ...] = ()
    managed: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()  # all entries of the Application, this one included
    pull_request: bool = False
    home: str = ""  # the folder of the Application's first write-back file in this repository; its state lies there
    suspended: str = ""  # why Flux's own annotations stop its updates; "" when they do not
    flaw: Flaw | None = None  # why its entry cannot be used: then nothing but the application and the entry is known


@dataclass(frozen=True)
class Problem:
    """One line of `errors[]`: an error of this run, or a warning that never changes the exit code."""

    application: str  # namespace/name; "" when it is about none
    rule: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"
    key: str = ""  # the annotation, without prefix
    value: str = ""
    exit: int = 0  # of an error that is no annotation's: its exit code


@dataclass(frozen=True)
class Flaw:
    """Something wrong with an annotation, and whose update it stops."""

    text: str  # the image-list entry as written; "" for a key that belongs to none
    entry: Entry | None  # None: the entry itself could not be read
    key: str  # the annotation, without prefix
    value: str
    message: str
    hint: str = ""
    rule: str = "annotation"
    severity: Literal["error", "warning", "info"] = "error"
    misspelt: bool = False  # it is about the key itself, a near miss of one that exists
    strategy: Strategy | None = None  # of the entry, as far as it can be read


@dataclass(frozen=True)
class Subscribed:
    """What the annotations of one Application ask for, and everything that is wrong with them."""

    application: Application
    subscriptions: tuple[Subscription, ...]
    flaws: tuple[Flaw, ...]


@dataclass(frozen=True)
class Verdict:
    """What the rules say, and why in one sentence."""

    verdict: VerdictName
    rule: str
    because: str
    hint: str = ""  # of an error: what to do about it
    exit: int = 0  # of an error: its exit code; 0 is that of a wrong configuration


@dataclass(frozen=True)
class Decision:
    """What was decided about one subscription and the image on offer, and why."""

    subscription: Subscription
    candidate: Image
    verdict: Verdict
    current: Reading = Reading()
    branch: str = ""  # the base branch, as Git names it; "" where Git was not asked
    head: str = ""  # the branch that is written: the base branch, or a head branch
    kind: TargetKind | None = None  # what the target is; None where Git was not asked
    unchecked: str = ""  # what the rules wanted to know and nobody could tell


@dataclass(frozen=True)
class Commit:
    """One commit that landed, or in `plan` would land."""

    repo: str
    branch: str
    head: str
    commit: str | None
    tree: str
    files: tuple[str, ...]
    applications: tuple[str, ...]
    attempts: int = 1
    diff: str | None = None
    pull_request: str | None = None
    already_there: bool = False  # it was there already: this run wrote nothing


@dataclass(frozen=True)
class Timings:
    """When a run began, and how long its parts took, in seconds."""

    started: str  # RFC 3339, UTC
    find: float  # the Applications, and what the registries have (`scan`)
    land: float  # read, decide, commit and push, in all repositories at the same time
    follow: float  # Argo CD, forges: what was told and waited for after the push

    @property
    def total(self) -> float:
        """All of it."""
        return self.find + self.land + self.follow


@dataclass(frozen=True)
class Report:
    """All that a run found and did."""

    command: str
    images: tuple[Image, ...]
    considered: int  # Applications looked at
    decisions: tuple[Decision, ...]
    commits: tuple[Commit, ...]
    problems: tuple[Problem, ...]
    exit: int
    timings: Timings | None = None  # None for a run that ended before it began
    dry: bool = False  # it only says what would happen


JSON = Mapping[str, Any]
