"""The nouns of the story. All are frozen, so a change is a new value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from task.errors import Exit, TaskError, Trouble, Troubled
from task.proof import Demand, Proof

Strategy = Literal["semver", "newest-build", "alphabetical", "digest"]
Kind = Literal["Helm", "Kustomize", "Plugin", "Directory", ""]
TargetKind = Literal[
    "helm-override",
    "kustomize-override",
    "plugin-override",
    "kustomization",
    "helmvalues",
    "manifests",
    "live",
    "flux",
]
VerdictName = Literal["update", "unchanged", "refuse", "defer", "error"]
Through = Literal["git", "github"]  # what makes a commit: git and a push, or GitHub's API
Grouping = Literal["repository", "project", "application", "image"]


class Versioned:
    """What has a tag and a digest. Each is "" if there is none."""

    tag: str
    digest: str

    @property
    def version(self) -> str:
        """Return `tag`, `tag@digest` or the digest alone."""
        return f"{self.tag}@{self.digest}" if self.tag and self.digest else self.tag or self.digest


@dataclass(frozen=True)
class Image(Versioned):
    """One image reference: `name` as written, `registry` and `repository` in normal form."""

    name: str  # as written, without tag and digest: "nginx", "localhost:5000/acme/api"
    registry: str  # "docker.io" if the name has none
    repository: str  # "library/nginx", "acme/api"
    tag: str = ""
    digest: str = ""  # "sha256:…"

    @property
    def identity(self) -> str:
        """The repository in normal form.

        It is the same for the spellings `nginx` and `docker.io/library/nginx`.
        """
        return f"{self.registry}/{self.repository}"

    @property
    def reference(self) -> str:
        """The whole reference, as container runtimes accept it."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}@{self.digest}" if self.digest else f"{self.name}{tag}"


@dataclass(frozen=True)
class Entry:
    """One entry of `image-list`: `alias=name:constraint@digest`."""

    alias: str  # "" if the entry has none
    image: Image  # without a tag; the digest is as written, and has no effect, as in AIU
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
    values: str = ""  # helm.valuesObject, else helm.values, as YAML
    values_field: str = ""  # which of the two it is
    file_parameters: tuple[str, ...] = ()  # the names in helm.fileParameters
    recurse: bool = False  # directory.recurse
    name: str = ""  # of one of several sources, for Argo CD's own commands


@dataclass(frozen=True)
class KeySecret:
    """A field of a Kubernetes Secret, with the public key
    that has to verify an image's signature.
    """

    namespace: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.key})"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an Application is deployed. Of a cluster, the spec has its URL or its name."""

    server: str = ""
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class Tracker:
    """What tracks images, and is deployed from Git: an Argo CD Application,
    or a HelmRelease of Flux v1.
    """

    namespace: str
    name: str
    # Image Updater's, without the annotation prefix
    annotations: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    live: tuple[str, ...] = ()  # the images that run, as written
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""  # "apps/web.yaml:12", "cluster"
    # Only of Applications; "" is unknown as well.
    project: str = ""
    destination: Destination = Destination()
    sync: str = ""  # status.sync.status
    health: str = ""  # status.health.status
    generated_by: str = ""  # namespace/name of the ApplicationSet that it was rendered from
    request_labels: tuple[str, ...] = ()  # of its pull requests, from its ImageUpdater

    @property
    def key(self) -> str:
        """`namespace/name`, its name in reports and messages."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Application(Tracker):
    """One Argo CD Application, with what it takes to read its annotations."""

    multi: bool = False  # whether it has spec.sources, not spec.source
    from_resource: frozenset[str] = frozenset()  # the annotations that were set by its ImageUpdater
    resource: str = ""  # namespace/name of that ImageUpdater
    resource_origin: str = ""  # its place, as `origin`
    reference: str = ""  # the reference of an ImageUpdater that selects it, as messages name it
    # From its ImageUpdater, because there is no annotation for this. By alias; "" is every image.
    signing_keys: Mapping[str, KeySecret] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """Which tags an entry accepts, and which of two tags is the newer one."""

    strategy: Strategy = "semver"
    constraints: tuple[
        str, ...
    ] = ()  # the entry's, and that of `semver:<constraint>`; all of them must hold
    allow: str | None = None  # RE2 pattern, unanchored; None is any tag
    ignore: tuple[str, ...] = ()  # Go filepath.Match globs
    platforms: tuple[str, ...] = ()
    pin_digest: bool = False
    pull_secret: str = ""  # the annotation that names the registry's login
    tag_order: str = ""  # the order of tags, as it is written; "" is the strategy's own
    minimum_age: int = 0  # seconds, for `scan` and `promote`


@dataclass(frozen=True)
class Keys:
    """Where an image is in a target, from the per-image annotations;
    "" if there is no such annotation.
    """

    name: str = ""  # helm.image-name / plugin.image-name
    tag: str = ""  # helm.image-tag / plugin.image-tag
    spec: str = ""  # helm.image-spec / plugin.image-spec; wins over name and tag
    kustomize_name: str = ""  # kustomize.image-name
    manifests_name: str = ""  # manifests.image-name
    digest: str = ""  # helm.image-digest


@dataclass(frozen=True)
class Claim:
    """One image-list entry, and the names of its image in a target;
    "" if there is no such annotation.
    """

    alias: str
    identity: str  # of its image
    tag: str = ""
    kustomize_name: str = ""
    manifests_name: str = ""


@dataclass(frozen=True)
class Target:
    """One place to write: a file (or, for `kustomization` and `manifests`,
    a folder) and the keys in it.
    """

    kind: TargetKind
    path: str  # from the repository's root, "/"-separated, no leading "/", no ".."; "" is the root
    keys: Keys
    image: Image  # the entry's image; its spelling is used if the file has no name yet
    source: Source  # the Application's source; its parameters, images and env are carried along
    application: str = ""  # namespace/name
    alias: str = ""
    recurse: bool = False  # for manifests: include sub-folders
    fallbacks: tuple[str, ...] = ()  # other spellings of `path`, used if only they exist
    # whether the spec's parameters, images and env are carried along; None: into lists of ours, and
    # new ones
    carry: bool | None = None
    managed: tuple[
        str, ...
    ] = ()  # parameters, image identities and variables that any alias of the Application writes
    others: tuple[Claim, ...] = ()  # the Application's other image-list entries
    values: tuple[
        str, ...
    ] = ()  # the values files in this repository that Helm reads, in its order


@dataclass(frozen=True)
class File:
    """One path of a snapshot. Absent paths have no File."""

    text: str  # "" for anything but a regular file that was requested
    mode: str = "100644"  # Git's: 100644, 100755, 120000 symlink, 160000 submodule, 040000 folder
    # the reason why it cannot be edited: "not UTF-8 text", "larger than 10 MB", …
    problem: str = ""


Files = Mapping[str, File]


@dataclass(frozen=True)
class Place:
    """A path that a snapshot must have: a file's text, whether it exists,
    or all manifests of a folder.

    `names` means all files in a folder and below it, without their texts. `files` adds their texts,
    and links.
    """

    path: str
    want: Literal["text", "exists", "folder", "tree", "names", "files"] = "text"


@dataclass(frozen=True)
class Snapshot:
    """The requested files, at one commit of the base branch."""

    repo: str
    branch: str  # the base branch's name, "HEAD" resolved
    tip: str  # commit id
    files: Files
    message: str = ""  # of that commit
    memory: Files = field(default_factory=dict)  # on the memory branch: states and lists
    memory_tip: str = ""  # "" if there is no such branch
    # the memory branch and its tip that `memory` comes from, if its base is gone and this one has
    # none
    inherited: tuple[str, str] | None = None
    renamed_from: str = ""  # that base
    # memory branches whose base is gone and that this base may not take, with that base's name
    left: tuple[tuple[str, str], ...] = ()
    prefix: str = "image-update"  # of our own branches
    # what of the memory branch does not count, in words: nobody who may has signed it
    unsigned: str = ""
    # of the default branch's tip, if that is another commit
    default: Files = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """The tip of a head branch."""

    branch: str
    tip: str  # commit id
    tree: str
    parent: str  # "" if the commit has none, or several
    message: str = ""
    by: str = ""  # its author


@dataclass(frozen=True)
class Reading(Versioned):
    """The image that is in a target now; everything is "" if the target does not have it."""

    name: str = ""
    tag: str = ""
    digest: str = ""
    # False if the target must be rewritten although its text is right, such as the number 1.10
    sound: bool = True
    file: str = ""  # the file that is written
    # tags of the image's other entries, which an update replaces as well
    also: tuple[str, ...] = ()


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

    repo: str  # the Application's own URL, without userinfo
    base: str  # a branch name
    head: str  # the base, unless `git-branch` or a pull request names another branch
    tip: str
    files: Files  # only changed ones, with their new text and mode
    message: str
    author: Person
    # the tip of the head branch, "" if it is absent, None if it was not read
    head_commit: str | None = None
    # the head branch is somebody else's: the commit continues its own tip, `tip`
    on_top: bool = False
    push_options: tuple[str, ...] = ()  # for the server


@dataclass(frozen=True)
class LandedCommit:
    """The result of landing a changeset."""

    commit: str  # "" if it is only predicted
    tree: str
    pushed: bool = True  # False if the head branch had exactly this already
    through: Through = "git"
    memory: str = ""  # the commit of the memory branch that was pushed with it


@dataclass(frozen=True)
class FileVersion:
    """One text of a file on a branch, and the commit that wrote it;
    these fields are "" if that is too far back.
    """

    text: str | None  # None if there was no file, or it is not text
    commit: str = ""
    at: str = ""  # RFC 3339, UTC
    by: str = ""  # the author's name
    message: str = ""


Fact = Literal["exists", "digest", "created", "platforms", "labels", "tags"]


@dataclass(frozen=True)
class Question:
    """Facts about one image that a rule needs and that neither the event nor Git has.

    A registry answers.
    """

    image: Image  # with the tag, the digest, or both
    facts: tuple[Fact, ...]
    platforms: tuple[
        str, ...
    ] = ()  # "os/arch[/variant]": only these members of an index count; () is all
    secret: str = ""  # the annotation `pull-secret`, as written
    namespace: str = ""  # the Application's, because it may name secrets there
    signed_by: KeySecret | None = None  # for a question about signatures, as the next one
    demands: tuple[Demand, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A registry's answer. Facts that were not requested are empty."""

    exists: bool = True
    digest: str = ""  # of the manifest that the tag names, which may be an index
    created: str = ""  # RFC 3339, UTC, "2026-11-21T06:00:00.123Z"; "" if the image has no date
    platforms: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()  # of the image's repository
    error: TaskError | None = None  # the reason why there is no answer


@dataclass(frozen=True)
class Proposal:
    """A pull request as it should be. There is one for each repository, base and head."""

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
    prefix: str = "image-update"  # of our own head branches


@dataclass(frozen=True)
class Proposed:
    """A pull request as it is now."""

    url: str  # the page for people
    number: str
    # "gone": closed by the forge, since its branch was deleted
    state: Literal["open", "merged", "closed", "gone"]
    title: str = ""
    body: str = ""
    head_commit: str = ""
    merge_commit: str = ""  # if it is merged
    conflicts: bool = False  # with its base, according to the forge
    # whether the forge will merge it on its own; None if it does not say
    auto_merge: bool | None = None
    thrown_out: str = ""  # why its merge queue threw it out; "" if it did not, or a person did
    note: str = ""  # a harmless failure, such as "GitHub cannot merge automatically here: …"


Fate = Literal["waits", "merged", "superseded", "deferred", "dropped"]


@dataclass(frozen=True)
class HeadBuildRow:
    """A build that waited on a head branch before this run, and what became of it."""

    application: (
        str  # namespace/name; "" for lines of a file that belong to no Application of this run
    )
    alias: str
    tag: str
    digest: str
    head: str
    outcome: Fate
    because: str
    pull_request: str = ""  # its page


@dataclass(frozen=True)
class Build:
    """Where a build is in the order of one image's builds; "" and None mean unknown."""

    sequence: int | None = None
    # what counts `sequence`, because numbers of two counters cannot be compared; "" for --sequence
    counter: str = ""
    commit: str = ""
    repository: str = ""  # of that commit, without userinfo
    created: str = ""  # RFC 3339, UTC


@dataclass(frozen=True)
class Event:
    """A push of an image, as a registry or a pipeline tells it."""

    image: Image  # with a tag; one that a pipeline wrote may have only a digest
    form: str = ""  # whose form it has: "harbor", "quay", …; "lines" is our own
    at: str = ""  # RFC 3339, UTC; when the registry says that it happened
    build: Build = Build()  # what a line of our own says
    run: str = ""  # the page of the pipeline that built it, from a line of our own
    claimed: bool = True  # whether the registry has to confirm it

    @property
    def origin(self) -> str:
        """Where the build came from, in words: `registry event, harbor`."""
        if self.claimed:
            return f"registry event, {self.form}"
        return f"pipeline event, {self.run}" if self.run else "pipeline event"


@dataclass(frozen=True)
class Written(Versioned):
    """One build of an image, as it is in the state file."""

    tag: str = ""
    digest: str = ""
    build: Build = Build()
    image_digest: str = ""  # what its event said, if only the tag is written


@dataclass(frozen=True)
class Hold:
    """A hold on one image, or on all images of an Application: no update changes them."""

    reason: str
    by: str = ""
    at: str = ""  # RFC 3339, UTC
    until: str = ""  # RFC 3339, UTC; "" is until it is released
    source: str = ""  # of a freeze: the place in the config that asks for it


@dataclass(frozen=True)
class Meant(Versioned):
    """The last rollback: what it asked for, the version that this was at that time,
    and the one that was left.
    """

    to: str  # "previous", "3-back"; "" for a tag
    tag: str = ""
    digest: str = ""
    was: str = ""  # on a head branch, this says that a person's rollback waits there


@dataclass(frozen=True)
class Memory:
    """The memory of one image-list entry."""

    written: Written | None = None  # the newest build that was ever written
    # Versions (`tag`, `tag@digest`, digest) that a repeated run must not bring back; newest first.
    replaced: tuple[str, ...] = ()
    # Versions whose rollout failed after a newer build had landed; newest first. No rollback that
    # looks for a good version goes to them.
    failed: tuple[str, ...] = ()
    hold: Hold | None = None
    deferred: Written | None = None  # the newest event while held
    rollback: Meant | None = None


@dataclass(frozen=True)
class State:
    """The memory of one Application in one write-back file.

    A state file has one for each such file.
    """

    hold: Hold | None = None  # on all images
    # By alias. An entry without an alias has its image's name, as `image-list` spells it.
    images: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True)
class Writes:
    """The files and branches that the repository's own config lets Applications write, as globs;
    None is any.
    """

    paths: tuple[str, ...] | None = None
    branches: tuple[str, ...] | None = None
    line: int = field(default=0, compare=False)  # of the config
    only: str = ""  # the one file that this is about; "" is all that the Application writes


@dataclass(frozen=True)
class Wishes:
    """What the repository's own config says about an Application; None if it does not say it."""

    author_name: str | None = None
    author_email: str | None = None
    # the path of the commit message's template, from the repository's root
    template: str | None = None
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
    tag_order: str | None = None
    push_options: tuple[str, ...] | None = None
    minimum_age: int | None = None  # seconds
    writes: Writes | None = None
    signatures: Demand | None = None
    provenance: Demand | None = None
    branch_prefix: str | None = None  # of our own branches; only for the whole repository


@dataclass(frozen=True)
class Tracked:
    """One image that an Application or HelmRelease tracks.

    This much is known even if its annotations are wrong.
    """

    application: Tracker
    entry: Entry


@dataclass(frozen=True)
class Subscription(Tracked):
    """One write-back target of one image-list entry: which Application takes which tags,
    and where they go.
    """

    policy: Policy
    keys: Keys
    source: Source
    target: str  # "override", "kustomization", "helmvalues", "manifests", "file", "flux"
    path: str  # of the target, from the repository's root; for "override", of the file
    repo: str  # the Application's own URL
    base: str = ""  # "" is the repository's default branch
    head_template: str = ""  # what `git-branch` has after its colon; "" is the base branch
    method: Literal["git", "argocd"] = "git"
    credentials: str = ""  # "secret:ns/name"; "" is the login for the URL
    fallbacks: tuple[str, ...] = ()
    managed: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()  # of all entries of the Application, including this one
    pull_request: bool = False
    # the folder of the Application's first write-back file in this repository; determines the
    # state's path
    home: str = ""
    # The paths of the other targets of the same entry on the same branch: they get the version, too.
    beside: tuple[str, ...] = ()
    suspended: str = ""  # the reason why Flux's own annotations stop updates, or ""
    # the key that must have signed the image, in addition to what the command line requires
    signed_by: KeySecret | None = None
    wishes: Wishes = Wishes()  # from the repository's config, after it was read
    freeze: Hold | None = None  # the freeze in the repository's config that applies now
    writes: tuple[
        Writes, ...
    ] = ()  # of the configs of all branches that matter; each must allow what is written
    demands: tuple[
        Demand, ...
    ] = ()  # of the configs of the branches that are written, with the texts of their keys
    neighbour: str = ""  # another Application with the written file in its path: namespace/name

    def image_at(self, version: Versioned) -> Image:
        """Return the entry's image with this tag and digest."""
        return replace(self.entry.image, tag=version.tag, digest=version.digest)

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """The part that identifies it. The repository's config does not change this part."""
        return self.application.key, self.entry.text, self.repo, self.target, self.path


@dataclass(frozen=True, kw_only=True)
class Problem(Troubled):
    """One line of `errors[]`: a trouble of this run, and where it is."""

    trouble: Trouble = field(kw_only=False)
    application: str = ""  # namespace/name; "" if it is not about an Application
    key: str = ""  # the annotation, without prefix
    value: str = ""
    # whether it is not a mistake, but says what is not read, and how to read it
    advice: bool = False
    field: tuple[
        str | int, ...
    ] = ()  # of the manifest that the message names: ("spec", "applicationRefs", 0)
    place: str = ""  # `file:line` in the repository that `check` judges


@dataclass(frozen=True)
class Flaw(Troubled):
    """A mistake in an annotation, and the entry whose update it stops."""

    text: str  # the image-list entry as written; "" for a key that does not belong to an entry
    entry: Entry | None  # None if the entry itself does not parse
    key: str  # the annotation, without prefix
    value: str
    trouble: Trouble
    misspelt: bool = False  # whether the key itself is the mistake: it is similar to a known key
    strategy: Strategy | None = None  # of the entry, if the annotation is valid


@dataclass(frozen=True)
class Subscribed:
    """The Subscriptions that the annotations of one Application ask for,
    and the flaws in these annotations.
    """

    application: Tracker
    subscriptions: tuple[Subscription, ...]
    flaws: tuple[Flaw, ...]


@dataclass(frozen=True)
class Verdict:
    """The decision of the rules, with the reason in one sentence."""

    verdict: VerdictName
    rule: str
    because: str
    hint: str = ""  # what to do about an error
    exit: Exit = Exit.CONFIGURATION  # of a run with this error

    @classmethod
    def of(cls, trouble: Trouble) -> Verdict:
        """Return the error that this trouble makes of a decision."""
        return cls("error", trouble.rule, trouble.message, trouble.hint, trouble.exit)

    @property
    def trouble(self) -> Trouble:
        """The error, or what would be one."""
        return Trouble(self.rule, self.because, self.hint, exit=self.exit)


@dataclass(frozen=True)
class Compared:
    """What `check` compares: a base, and a change of it."""

    base: str  # a branch, tag or commit
    head: str
    repository: str = ""  # its URL; "" is the checkout in the current folder
    # the branch that the change goes into, as the CI system says. Its tip of now is the base, unless
    # `base` is a commit: in a merge queue, that is what the requests before this one make of it
    branch: str = ""
    # a merge of both that the Git host has made; it counts only if these are its parents
    merge: str = ""


@dataclass(frozen=True)
class Judged:
    """The verdict about one tracked image and the offered one, as a report shows it."""

    subscription: Tracked
    candidate: Image
    judged: Verdict
    current: Reading = Reading()
    branch: str = ""  # the base branch's name in Git; "" if Git was not asked
    head: str = ""  # the branch that is written: the base branch, or a head branch
    kind: TargetKind | None = None  # None if Git was not asked
    source: str = ""  # namespace/name of the Application whose version is promoted
    proof: Proof | None = None  # what was proved about the candidate
    # who writes the refused version to the same place: "namespace/name (alias)"
    overridden_by: str = ""
    line: int = 0  # of the file, for `check`; 0 if it is not known

    @property
    def verdict(self) -> VerdictName:
        """Return "update", "unchanged", "refuse", "defer" or "error"."""
        return self.judged.verdict

    @property
    def rule(self) -> str:
        """Return the rule that decided."""
        return self.judged.rule

    @property
    def because(self) -> str:
        """Return the reason, one sentence."""
        return self.judged.because

    @property
    def hint(self) -> str:
        """Return what to do about an error."""
        return self.judged.hint

    @property
    def exit(self) -> Exit:
        """Return the exit code of a run with this error."""
        return self.judged.exit

    @property
    def place(self) -> str:
        """Return `file:line` of the version; "" if it is unknown."""
        file = self.current.file
        return f"{file}:{self.line or 1}" if file else ""


@dataclass(frozen=True)
class Decision(Judged):
    """The decision about one subscription and the offered image, with the reason."""

    subscription: Subscription
    # facts that the rules needed and that no registry could give: which ones, and what to do
    unchecked: Trouble | None = None
    created: str = ""  # the values file that did not exist
    # a key that is added to the file, and one there that is almost the same
    misspelt: tuple[str, str] | None = None
    shared: tuple[str, ...] = ()  # other keys of the file that change as well, because of an anchor
    event: str = ""  # where the build came from: "registry event, harbor"; "" is the CI job
    built: str = ""  # the build's digest, even if only its tag is written; "" if unknown
    owner: str = ""  # who takes back the patch of a live Application: "ApplicationSet web"


@dataclass(frozen=True)
class Unusable(Judged):
    """The error about a tracked image with a wrong annotation: it has no subscription."""

    strategy: Strategy | None = None  # of the entry, if that annotation is valid


@dataclass(frozen=True)
class Commit:
    """One commit that landed, or that would land, for `plan`."""

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
    rollback: bool = False  # whether it restores what was there before, because the rollout failed
    through: Through | None = None  # what made it; None if another run did
    remembers: bool = False  # on the memory branch: what is held, and what waits
    notes: bool = False  # it only notes that a version failed, which is no answer to a command
    url: str = ""  # its page on the Git host; "" if the host is unknown


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
    decisions: tuple[Decision | Unusable, ...]
    commits: tuple[Commit, ...]
    problems: tuple[Problem, ...]
    exit: int
    # None for a run that failed before it began, such as for a usage error
    timings: Timings | None = None
    dry: bool = False  # whether it only says what would happen
    undone: tuple[
        Decision, ...
    ] = ()  # what the commits marked as rollbacks say, because rollouts failed
    waiting: tuple[HeadBuildRow, ...] = ()  # what waited on head branches before
    earlier: tuple[Commit, ...] = ()  # commits of earlier runs that have these builds already
    source: str = ""  # the page of the commit that was built, else its id
    pipeline_run: str = ""
    passed_over: int = 0  # events that are not a push of a tagged image
    base: str = ""  # the commits that `check` compared
    head: str = ""

    @property
    def updates(self) -> tuple[Decision, ...]:
        """The decisions that wrote an image."""
        return tuple(
            unusable
            for unusable in self.decisions
            if isinstance(unusable, Decision) and unusable.verdict == "update"
        )


@dataclass(frozen=True)
class Found:
    """One manifest that a source of Applications found, and its origin,
    or why something there could not be read.
    """

    item: Mapping[str, Any]
    origin: str = ""  # "apps/web.yaml:12"
    trouble: Trouble | None = None
    # (repository, branch, path in it) of a manifest from Git
    place: tuple[str, str, str] | None = None
    generated_by: str = ""  # "namespace/name" of the ApplicationSet that generates this Application
    owner: Mapping[str, Any] | None = None  # that ApplicationSet
    # the template of an ApplicationSet that could not be rendered; placeholders are unknown text
    template: bool = False
    subject: str = ""  # "namespace/name" that the trouble is about
    text: str = ""  # of the file from Git, in which `lint` looks for lines
    # the trouble is not a mistake: it says what is not read, and how to read it
    advice: bool = False

    @property
    def concerns_us(self) -> bool:
        """Whether it is a manifest of a kind that is read, or makes such manifests."""
        return self.is_application or self.item.get("kind") in ("ImageUpdater", "HelmRelease")

    @property
    def is_application(self) -> bool:
        """Whether this is an Application or an ApplicationSet."""
        return self.item.get("kind") in ("Application", "ApplicationSet")
