"""The nouns of the work. All are frozen: a change is a new value."""

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
Through = Literal["git", "github"]  # what makes a commit: git and a push, or GitHub's API
Grouping = Literal["repository", "project", "application", "image"]


@dataclass(frozen=True)
class Image:
    """One image reference: `name` as written, `registry` and `repository` in normal form."""

    name: str  # as written, without tag and digest: "nginx", "localhost:5000/acme/api"
    registry: str  # "docker.io" where the name has none
    repository: str  # "library/nginx", "acme/api"
    tag: str = ""
    digest: str = ""  # "sha256:…"

    @property
    def identity(self) -> str:
        """The repository in normal form, which is equal for its spellings `nginx` and `docker.io/library/nginx`."""
        return f"{self.registry}/{self.repository}"

    @property
    def version(self) -> str:
        """The part after the name: `tag`, `tag@digest` or, without a tag, the digest."""
        return f"{self.tag}@{self.digest}" if self.tag and self.digest else self.tag or self.digest

    @property
    def reference(self) -> str:
        """The whole reference, in the form that container runtimes take."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}@{self.digest}" if self.digest else f"{self.name}{tag}"


@dataclass(frozen=True)
class Entry:
    """One entry of `image-list`: `alias=name:constraint@digest`."""

    alias: str  # "" if the entry has none
    image: Image  # without a tag; the digest as written, which has no effect, as in AIU
    constraint: str  # the tag part, trimmed; "" if the entry has none
    text: str  # as written, trimmed


@dataclass(frozen=True)
class Parameter:
    """One Helm parameter of an Application's source."""

    name: str
    value: str
    force_string: bool = False


@dataclass(frozen=True)
class Source:
    """The parts of an Application's source that a write-back needs."""

    repo: str
    path: str = ""
    revision: str = ""  # "" and "HEAD": the repository's default branch
    chart: str = ""
    ref: str = ""
    kind: Kind = ""  # from the status, else from the spec's section; "" until Git is read
    section: Kind = ""  # the section that the spec has for this source
    parameters: tuple[Parameter, ...] = ()  # helm.parameters
    images: tuple[str, ...] = ()  # kustomize.images
    env: tuple[tuple[str, str], ...] = ()  # plugin.env
    value_files: tuple[str, ...] = ()  # helm.valueFiles
    recurse: bool = False  # directory.recurse


@dataclass(frozen=True)
class KeySecret:
    """A field of a Kubernetes Secret with the public key by which an image must be signed."""

    namespace: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.key})"


@dataclass(frozen=True)
class Application:
    """One Argo CD Application."""

    namespace: str
    name: str
    annotations: Mapping[str, str]  # those with the annotation prefix, their keys without it
    sources: tuple[Source, ...]
    multi: bool = False  # spec.sources rather than spec.source
    live: tuple[str, ...] = ()  # status.summary.images, as written
    sync: str = ""  # status.sync.status, "" if it is not known; as the next one
    health: str = ""  # status.health.status
    project: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""  # "apps/web.yaml:12", "cluster"
    generated_by: str = ""  # namespace/name of the ApplicationSet that was rendered to it
    from_resource: frozenset[str] = frozenset()  # the annotations that its ImageUpdater stands for
    # What its ImageUpdater says, and no annotation can say:
    signing_keys: Mapping[str, KeySecret] = field(default_factory=dict)  # by alias; "" is for every image
    request_labels: tuple[str, ...] = ()  # of its pull requests

    @property
    def key(self) -> str:
        """`namespace/name`, its name in reports and messages."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Policy:
    """Which tags an entry takes, and in which order they count as newer."""

    strategy: Strategy = "semver"
    constraints: tuple[str, ...] = ()  # the entry's and that of `semver:<constraint>`; all of them must hold
    allow: str | None = None  # RE2 pattern, unanchored; None is any tag
    ignore: tuple[str, ...] = ()  # Go filepath.Match globs
    platforms: tuple[str, ...] = ()
    pin_digest: bool = False
    pull_secret: str = ""  # the annotation that names the registry's login


@dataclass(frozen=True)
class Keys:
    """The names of an image's places in a target, from the per-image annotations; "" if they give none."""

    name: str = ""  # helm.image-name / plugin.image-name
    tag: str = ""  # helm.image-tag / plugin.image-tag
    spec: str = ""  # helm.image-spec / plugin.image-spec; wins over name and tag
    kustomize_name: str = ""  # kustomize.image-name
    manifests_name: str = ""  # manifests.image-name


@dataclass(frozen=True)
class Claim:
    """One image-list entry, and the names of its image in a target; "" if it gives none."""

    alias: str
    identity: str  # of its image
    kustomize_name: str = ""
    manifests_name: str = ""


@dataclass(frozen=True)
class Target:
    """One place to write: a file (or, for `kustomization` and `manifests`, a folder) and the keys in it."""

    kind: TargetKind
    path: str  # from the repository's root, "/"-separated, no leading "/", no ".."; "" is the root
    keys: Keys
    image: Image  # the entry's image, whose spelling is written where the file has none
    source: Source  # the Application's source, whose parameters, images and env are carried along
    application: str = ""  # namespace/name
    alias: str = ""
    recurse: bool = False  # for manifests: sub-folders count, too
    fallbacks: tuple[str, ...] = ()  # other spellings of `path`, used where only they exist
    carry: bool = True  # whether the spec's parameters, images and env are carried along
    managed: tuple[str, ...] = ()  # parameters, image identities and variables that any alias of the Application writes
    others: tuple[Claim, ...] = ()  # the Application's other image-list entries


@dataclass(frozen=True)
class File:
    """One path of a snapshot. Absent paths have no File."""

    text: str  # "" for anything but a regular file that was asked for
    mode: str = "100644"  # Git's: 100644, 100755, 120000 symlink, 160000 submodule, 040000 folder
    problem: str = ""  # the reason why it cannot be edited: "not UTF-8 text", "larger than 10 MB", …


Files = Mapping[str, File]


@dataclass(frozen=True)
class Place:
    """A path that a snapshot has to hold: a file's text, whether it exists, or all manifests of a folder.

    `names` are all files in a folder and below it, without their texts; `files` are with them, and with links.
    """

    path: str
    want: Literal["text", "exists", "folder", "tree", "names", "files"] = "text"


@dataclass(frozen=True)
class Destination:
    """Where commits go. `base` is a branch name; `head` equals `base` unless `git-branch` names another one."""

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
    """The image in a target as it is now; all "" if the target does not have it."""

    name: str = ""
    tag: str = ""
    digest: str = ""
    sound: bool = True  # False if the target must be rewritten although its letters are right: 1.10 is a number
    file: str = ""  # the file that is written


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
    """The commit to make on top of `tip`, for one head branch."""

    destination: Destination
    tip: str
    files: Files  # only those that change, with their new text and mode
    message: str
    author: Person
    head_commit: str | None = None  # the tip of the head branch, "" if it is absent, None if it was not read


@dataclass(frozen=True)
class Landing:
    """The result of landing a changeset."""

    commit: str  # "" if it is only predicted
    tree: str
    pushed: bool = True  # False if the head branch had exactly this already
    through: Through = "git"


@dataclass(frozen=True)
class FileVersion:
    """One text of a file on a branch, and the commit that wrote it; all "" if that lies further back."""

    text: str | None  # None if there was no file, or none that is text
    commit: str = ""
    at: str = ""  # RFC 3339, UTC
    by: str = ""  # the author's name
    message: str = ""


Fact = Literal["exists", "digest", "created", "platforms", "labels", "tags"]


@dataclass(frozen=True)
class Question:
    """Facts of one image that a rule needs and that neither the event nor Git has; a registry answers."""

    image: Image  # with the tag, the digest, or both that are asked about
    facts: tuple[Fact, ...]
    platforms: tuple[str, ...] = ()  # "os/arch[/variant]"; only these members of an index count; () is all
    secret: str = ""  # the annotation `pull-secret`, as written
    namespace: str = ""  # the Application's, whose secrets may be named
    signed_by: KeySecret | None = None  # of a question about signatures


@dataclass(frozen=True)
class Answer:
    """A registry's answer; facts that were not asked for stay empty."""

    exists: bool = True
    digest: str = ""  # of the manifest that the tag names, which may be an index
    created: str = ""  # RFC 3339, UTC, "2026-11-21T06:00:00.123Z"; "" if the image has no date
    platforms: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()  # of the image's repository
    error: TaskError | None = None  # the reason why there is no answer


@dataclass(frozen=True)
class Proposal:
    """A pull request as it should be; there is one for each repository, base and head."""

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
    conflicts: bool = False  # with its base, as far as the forge says
    note: str = ""  # a step that failed without harm: "GitHub cannot merge by itself here: …"


DeploymentState = Literal["queued", "in_progress", "success", "failure"]


@dataclass(frozen=True)
class Deployment:
    """A build in an environment, as a forge shows it."""

    environment: str
    commit: str  # of the build's source
    state: DeploymentState
    description: str
    ref: str = ""  # the branch or tag that was built; "" is unknown
    is_tag: bool = False
    page: str = ""  # of the environment, for people
    run: str = ""  # the pipeline's page


@dataclass(frozen=True)
class CommitStatus:
    """What a forge shows beside a commit."""

    commit: str
    context: str  # tells it from the statuses of others
    state: Literal["pending", "success", "failure"]
    description: str
    run: str = ""  # the pipeline's page


@dataclass(frozen=True)
class Build:
    """A build's place in time among the builds of one image; "" and None are unknown."""

    sequence: int | None = None
    counter: str = ""  # of the sequence: numbers of two counters cannot be compared; "" for --sequence
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
    """Keeps an image, or all images of an Application, as they are."""

    reason: str
    by: str = ""
    at: str = ""  # RFC 3339, UTC
    until: str = ""  # RFC 3339, UTC; "" is until it is released


@dataclass(frozen=True)
class Meant:
    """The words of the last rollback, and the version that they meant then."""

    to: str  # "previous", "3-back"
    tag: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Memory:
    """The memory of one image-list entry."""

    written: Written | None = None  # the newest build that was ever written
    replaced: tuple[str, ...] = ()  # versions (`tag`, `tag@digest`, digest) that no replay brings back; newest first
    hold: Hold | None = None
    deferred: Written | None = None  # the newest event while held
    rollback: Meant | None = None


@dataclass(frozen=True)
class State:
    """The memory of one Application in one write-back file. A state file holds one for each such file."""

    hold: Hold | None = None  # covers all images
    # By alias; an entry without an alias has its image's name, as `image-list` spells it.
    images: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True)
class Wishes:
    """What the repository's own config says about commits and pull requests; None if it says nothing."""

    author_name: str | None = None
    author_email: str | None = None
    template: str | None = None  # the path of the commit message's template, from the repository's root
    trailers: tuple[tuple[str, str], ...] | None = None
    sign_off: bool | None = None
    pull_request: bool | None = None
    group: Grouping | None = None  # which updates share a pull request
    labels: tuple[str, ...] | None = None
    reviewers: tuple[str, ...] | None = None
    assignees: tuple[str, ...] | None = None
    draft: bool | None = None
    auto_merge: bool | None = None
    pin_digest: bool | None = None


@dataclass(frozen=True)
class Subscription:
    """One write-back target of one image-list entry: which Application takes which tags, and where they go."""

    application: Application
    entry: Entry
    policy: Policy
    keys: Keys
    source: Source
    target: str  # "override", "kustomization", "helmvalues", "manifests", "file", "flux"
    path: str  # of the target, from the repository's root; for "override" of the file
    repo: str  # the Application's own URL
    base: str = ""  # "" is the repository's default branch
    head: str = ""  # template of the head branch; "" is the base branch
    method: Literal["git", "argocd"] = "git"
    credentials: str = ""  # "secret:ns/name"; "" is the login that the URL finds
    fallbacks: tuple[str, ...] = ()
    managed: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()  # of all entries of the Application, this one included
    pull_request: bool = False
    home: str = ""  # the folder of the Application's first write-back file in this repository, for the state's path
    suspended: str = ""  # the reason why Flux's own annotations stop its updates, or ""
    signed_by: KeySecret | None = None  # the key that the image must be signed by, beside what the command line wants
    flaw: Flaw | None = None  # of an unusable entry: then only the Application and the entry are known
    wishes: Wishes = Wishes()  # of the repository's config, once it is read
    freeze: Hold | None = None  # the freeze of the repository's config that covers it now

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """What stays the same of it, whatever the repository's config says."""
        return self.application.key, self.entry.text, self.repo, self.target, self.path


@dataclass(frozen=True)
class Problem:
    """One line of `errors[]`: an error of this run, or a warning that never changes the exit code."""

    application: str  # namespace/name; "" if it is about no Application
    rule: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"
    key: str = ""  # the annotation, without prefix
    value: str = ""
    exit: int = 0  # the exit code of an error; 0 is that of a wrong annotation
    advice: bool = False  # no mistake of anybody's: it says what is not read, and how it can be


@dataclass(frozen=True)
class Flaw:
    """A mistake in an annotation, and the entry whose update it stops."""

    text: str  # the image-list entry as written; "" for a key that belongs to no entry
    entry: Entry | None  # None if the entry itself does not parse
    key: str  # the annotation, without prefix
    value: str
    message: str
    hint: str = ""
    rule: str = "annotation"
    severity: Literal["error", "warning", "info"] = "error"
    misspelt: bool = False  # whether the key itself is the mistake, a near miss of a known key
    strategy: Strategy | None = None  # of the entry, if the annotation is valid


@dataclass(frozen=True)
class Subscribed:
    """The Subscriptions that the annotations of one Application ask for, and the flaws of these annotations."""

    application: Application
    subscriptions: tuple[Subscription, ...]
    flaws: tuple[Flaw, ...]


@dataclass(frozen=True)
class Verdict:
    """The decision of the rules, with the reason in one sentence."""

    verdict: VerdictName
    rule: str
    because: str
    hint: str = ""  # what to do about an error
    exit: int = 0  # the exit code of an error; 0 is that of a wrong configuration


@dataclass(frozen=True)
class Decision:
    """The decision about one subscription and the offered image, with the reason."""

    subscription: Subscription
    candidate: Image
    verdict: Verdict
    current: Reading = Reading()
    branch: str = ""  # the base branch's name in Git; "" if Git was not asked
    head: str = ""  # the branch that is written: the base branch, or a head branch
    kind: TargetKind | None = None  # None if Git was not asked
    unchecked: str = ""  # facts that the rules needed and that no registry gave
    source: str = ""  # namespace/name of the Application whose version is promoted


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
    already_there: bool = False  # whether the branch had it already, and this run wrote nothing
    rollback: bool = False  # whether it puts back what was there before, since the rollout failed
    through: Through | None = None  # what made it; None if another run did


@dataclass(frozen=True)
class Timings:
    """When a run began, and how many seconds its parts took."""

    started: str  # RFC 3339, UTC
    find: float  # finding the Applications and, in `scan`, listing tags
    land: float  # reading, deciding, committing and pushing, in all repositories at the same time
    follow: float  # refreshes, pull requests and waiting after the push

    @property
    def total(self) -> float:
        """The seconds of all parts."""
        return self.find + self.land + self.follow


@dataclass(frozen=True)
class Report:
    """Everything that a run found and did."""

    command: str
    images: tuple[Image, ...]
    considered: int  # Applications looked at
    decisions: tuple[Decision, ...]
    commits: tuple[Commit, ...]
    problems: tuple[Problem, ...]
    exit: int
    timings: Timings | None = None  # None for a run that failed before it began, such as by a usage error
    dry: bool = False  # whether it only says what would happen


@dataclass(frozen=True)
class PastBuild:
    """A version that Git said, and the commit that wrote it."""

    tag: str
    digest: str
    commit: str
    at: str  # RFC 3339, UTC
    by: str  # the author's name
    pipeline_run: str = ""  # of the commit's trailer


@dataclass(frozen=True)
class OpenRequest:
    """An open pull request, and the version of one image that it proposes."""

    url: str
    number: str
    head: str
    tag: str


@dataclass(frozen=True)
class ImageStatus:
    """One write-back target of one image-list entry: what Git says there now, what runs, and what waits."""

    subscription: Subscription
    branch: str = ""  # the base branch's name; "" if Git was not asked
    kind: TargetKind | None = None  # None if Git was not asked
    in_git: Reading = Reading()  # of a live Application: what its spec says
    live: tuple[Image, ...] = ()
    newest: Image | None = None  # that the rules admit, in the registry; None if it was not asked, or has none
    read: bool = True  # whether Git, or the live Application, could be read
    unanswered: bool = False  # the registry was asked for the newest, and did not say
    hold: Hold | None = None
    scope: Literal["application", "image", "freeze"] = "application"  # of the hold
    deferred: Written | None = None
    deferred_at: str = ""  # RFC 3339, UTC
    request: OpenRequest | None = None
    builds: tuple[PastBuild, ...] = ()  # the last ones, newest first
    would: Verdict | None = None  # what would become of the image that was asked about


@dataclass(frozen=True)
class Status:
    """What `status` found."""

    images: tuple[ImageStatus, ...]
    problems: tuple[Problem, ...]
    considered: int  # Applications looked at
    exit: int


JSON = Mapping[str, Any]
