"""Every option of the command line, once: its name, default, group,
help and reader are a field of a frozen record.

`TAKEN` names the records and the fields of `Settings` that each command takes. It gets `Settings`
with what was given. What it does not take has its default.
"""

from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, fields
from functools import cache, partial
from itertools import chain
from typing import Any, get_args, get_type_hints

from task.command_kinds import commands_that, kind_of
from task.errors import UsageError
from task.model import Strategy, Through
from task.option import (
    OPTION,
    Group,
    Option,
    author_email,
    author_name,
    commit_id,
    count,
    every_text,
    flag_of,
    prefix,
    seconds,
    secret,
)
from task.secret import Secret

# The groups of the help, in their order.
HELD, EVENT, FIND, RULES = map(Group, ("What is held", "The image", "Applications", "Rules"))
CHANGE = Group("The change")
COMMIT, REQUEST, RESULTS = map(Group, ("The commit", "Pull requests", "Results and log"))
GIT, ARGO, REGISTRY = map(Group, ("Git", "Argo CD and Kubernetes", "The registry"))
GROUPS = (HELD, CHANGE, EVENT, FIND, RULES, COMMIT, REQUEST, RESULTS, GIT, ARGO, REGISTRY)

# The commands whose `--help` shows an option that other commands take as well.
BUILDS = commands_that(lambda command: command.takes_images)
NARROWED = (*BUILDS, "scan", "lint", "check")
ROLLED_OUT = ("run", "scan", "promote", "release", "rollback")
WRITERS = commands_that(lambda command: command.writes)
LOGGED_IN = (*WRITERS, "plan", "status", "lint", "check")

# These have a variable and no option, because arguments are visible to other processes.
GIT_SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "GITHUB_TOKEN",
)  # fmt: skip
ARGO_TOKENS = ("IMAGE_UPDATE_ARGOCD_AUTH_TOKEN", "ARGOCD_AUTH_TOKEN")
FORGE_TOKENS = ("IMAGE_UPDATE_FORGE_TOKEN", "SYSTEM_ACCESSTOKEN")
SECRETS = (
    *GIT_SECRETS,
    *ARGO_TOKENS,
    *FORGE_TOKENS,
    "IMAGE_UPDATE_REGISTRY_PASSWORD",
    "IMAGE_UPDATE_CLOUDEVENT_TOKEN",
)

FROM_CI = "By default it comes from the CI system's variables."
WAIT_TIMEOUT = partial(
    ARGO.option,
    600,
    "How long to wait for the rollout.",
    "SECONDS",
    read=seconds,
    common=(*ROLLED_OUT, "wait"),
)


@dataclass(frozen=True)
class EventOptions:
    """The images that were just built, and what identifies their build."""

    image: tuple[str, ...] = EVENT.option(
        (),
        "Image that was just built, with its tag or digest. One value may hold several images,"
        " separated by commas, spaces or newlines, or a JSON list.",
        "REF",
        read=every_text,
        common=True,
    )
    image_digest: str = EVENT.text(
        "Digest of the image, if --image names exactly one.",
        "sha256:…",
        common=BUILDS,
    )
    tag: str = EVENT.text("Tag to write for an --image that is given by digest only.", "TAG")
    images_from: tuple[str, ...] = EVENT.lines(
        "Read the images from a file: what a builder wrote (BuildKit, kaniko, ko, Jib, Skaffold or "
        "GoReleaser), or events of registries. - is stdin.",
        "FILE",
        common=BUILDS,
    )
    images_format: str = EVENT.choice(
        "auto",
        "What the file of --images-from contains. registry is any registry's event; auto also "
        "takes builders' files and lines of our own, which are trusted.",
        "auto|builder|lines|registry|distribution|harbor|quay|docker-hub|github|ecr|google|azure|"
        "artifactory|nexus|gitea|aliyun|cdevents|cloudevents",
    )
    images_registry: str = EVENT.text(
        "How image references name the registry, if its events do not name it, or call it "
        "something else.",
        "HOST[/PATH]",
    )
    sequence: str = EVENT.text(
        "Number of this build, by which builds are ordered: the higher number is the newer build."
        f" {FROM_CI}",
        "N",
        common=BUILDS,
    )
    created: str = EVENT.text(
        "Creation time of the image, in RFC 3339 format or in seconds since 1970.", "TIME"
    )
    source_commit: str = COMMIT.option(
        "",
        f"Commit that the image was built from. {FROM_CI}",
        "SHA",
        read=commit_id,
    )


@dataclass(frozen=True)
class SourceOptions:
    """Where Applications are read: files, Git repositories, a cluster, or Argo CD."""

    applications: tuple[str, ...] = FIND.lines(
        "Read Applications from cluster, argocd, a file or folder of manifests, - (stdin), or"
        " REPO//PATH?ref=REF.",
        "SOURCE",
        common=True,
    )
    clusters: str = FIND.text(
        "YAML list of {name, server, labels, annotations}, for the clusters generator of"
        " ApplicationSets.",
        "FILE",
    )
    render: tuple[str, ...] = FIND.choices(
        "Render a source that is a Helm chart or a kustomization of Applications. The programs must"
        " be installed.",
        "helm,kustomize",
    )
    follow_apps: int = FIND.option(
        0,
        "Also read the Applications that Applications deploy from Git (app of apps), up to N levels"
        " deep.",
        "N",
        read=count,
    )
    argocd_namespace: str = FIND.option(
        "argocd",
        "Namespace of Argo CD's control plane. The name of the override file depends on it.",
        "NAME",
    )
    kubeconfig: str = ARGO.text(
        "Kubeconfig file of the cluster. By default KUBECONFIG, ~/.kube/config, or the pod's"
        " service account.",
        "FILE",
    )
    kube_context: str = ARGO.text("Context of the kubeconfig to use.", "NAME")
    argocd_server: str = ARGO.text(
        "Address of Argo CD's API server, as HOST or HOST:PORT. By default ARGOCD_SERVER or"
        " ARGOCD_OPTS.",
        "HOST",
        common=True,
    )
    argocd_auth_token_file: str = ARGO.text(
        "File with the token for Argo CD's API. IMAGE_UPDATE_ARGOCD_AUTH_TOKEN may hold it"
        " instead.",
        "FILE",
    )
    argocd_plaintext: bool = ARGO.flag("Connect to Argo CD's API over plain http.")
    argocd_insecure: bool = ARGO.flag("Do not verify the TLS certificate of Argo CD's API server.")
    argocd_ca_file: str = ARGO.text(
        "File of certificate authorities to trust for Argo CD's API.", "FILE"
    )
    argocd_root_path: str = ARGO.text("Path under which Argo CD's API is served.", "PATH")
    argocd_header: tuple[str, ...] = ARGO.lines(
        "Header to send to Argo CD's API, as NAME: VALUE. Give a secret header in the variable.",
        "HEADER",
    )


@dataclass(frozen=True)
class ScopeOptions:
    """Which Applications are considered, and the defaults for settings that have no annotation."""

    selector: str = FIND.text(
        "Consider only Applications with these labels, for example a=b,c!=d,e,!f.",
        "LABELS",
        common=(*NARROWED, "status"),
    )
    project: tuple[str, ...] = FIND.words(
        "Consider only Applications of this project; globs are allowed.", "NAME"
    )
    namespace: tuple[str, ...] = FIND.words(
        "Consider only Applications in this namespace; globs are allowed.", "NAME"
    )
    annotation_prefix: str = FIND.option(
        "argocd-image-updater.argoproj.io/",
        "Prefix of the annotations to read.",
        "PREFIX",
        read=prefix,
    )
    strategy: Strategy = RULES.choice(
        "semver",
        "Update strategy for images without an update-strategy annotation.",
        "|".join(get_args(Strategy)),
    )
    pin_digest: bool = RULES.flag(
        "Write the digest together with the tag: TAG@sha256:….",
        common=(*BUILDS, "scan"),
    )


@dataclass(frozen=True)
class RulesOptions:
    """What the rules accept."""

    allow_downgrade: bool = RULES.flag("Accept a version older than the current one.")
    require_live: bool = RULES.flag(
        "Update only Applications whose status.summary.images lists the image."
    )


@dataclass(frozen=True)
class TransportOptions:
    """How Git servers are reached."""

    allow_protocol: tuple[str, ...] = GIT.choices(
        "Allow one more Git transport besides https, ssh and http: file, which also means local"
        " paths, or git.",
        "file,git,http,https,ssh",
    )
    rewrite_url: tuple[tuple[str, str], ...] = GIT.pairs(
        "Reach repositories whose URL begins with PREFIX at REPLACEMENT. The longest prefix wins.",
        "PREFIX=REPLACEMENT",
    )
    git_config: bool = GIT.flag_on(
        "Use what the Git configuration of the user and the system says about servers: logins,"
        " URLs, proxies, certificates."
    )


@dataclass(frozen=True)
class AccessOptions:
    """The login for Git servers. `task/git/credentials.py` reads the files that are named here."""

    git_username: str = GIT.text("User name for Git over https.", "NAME", common=LOGGED_IN)
    git_password_file: str = GIT.text(
        "File with the password or token for Git over https. IMAGE_UPDATE_GIT_TOKEN may hold it"
        " instead.",
        "FILE",
        common=LOGGED_IN,
    )
    git_credentials_url: tuple[str, ...] = GIT.lines(
        "Send the user name, password or token only to URLs that begin with this.",
        "PREFIX",
        common=LOGGED_IN,
    )
    basic_auth_directory: str = GIT.text(
        "Folder with .git-credentials and .gitconfig, or with the files username and password.",
        "DIR",
    )
    github_app_id: str = GIT.text("Id of the GitHub App that pushes.", "ID")
    github_app_installation_id: str = GIT.text("Id of the GitHub App's installation.", "ID")
    github_app_key_file: str = GIT.text(
        "File with the GitHub App's private key. IMAGE_UPDATE_GITHUB_APP_KEY may hold the key"
        " itself.",
        "FILE",
    )
    ssh_key_file: str = GIT.text(
        "File with a private SSH key without a passphrase. IMAGE_UPDATE_SSH_KEY may hold the key"
        " itself.",
        "FILE",
    )
    ssh_directory: str = GIT.text(
        "Folder like ~/.ssh, with private keys, known_hosts and config.",
        "DIR",
        common=LOGGED_IN,
    )
    ssh_known_hosts_file: str = GIT.text(
        "File with the host keys of SSH servers. Only these are trusted.", "FILE"
    )
    ssh_host_key: tuple[str, ...] = GIT.lines(
        "Trust this host key as well, a line as ssh-keyscan prints it.", "LINE"
    )
    ca_file: str = GIT.text(
        "File or folder of certificate authorities to trust in addition to the system's.", "FILE"
    )


@dataclass(frozen=True)
class GitOptions:
    """How repositories are written."""

    carry_parameters: bool | None = RULES.option(
        None,
        "Copy the Application's own parameters into every override file. By default only into lists"
        " that Image Update makes.",
    )
    deadline: float = GIT.option(
        120,
        "How long to try again when others push to the same branch.",
        "SECONDS",
        read=seconds,
    )
    stall_timeout: float = GIT.option(
        60,
        "End a transfer that receives no data for this long.",
        "SECONDS",
        read=seconds,
    )
    git_cache_dir: str = GIT.text(
        "Keep what was fetched in this folder for later runs, on a volume.", "DIR"
    )
    only_repository: tuple[str, ...] = GIT.lines(
        "Write to this repository only; what belongs to other repositories is left out.", "URL"
    )
    pull_request: bool = REQUEST.flag(
        "Open or update a pull request instead of pushing to the base branch.",
        common=(*WRITERS, "plan"),
    )


@dataclass(frozen=True)
class ForgeOptions:
    """The API of the Git host, and its login."""

    forge: str = REQUEST.text(
        "Kind of Git host, if its URL does not show it: github, gitlab, gitea, bitbucket,"
        " bitbucket-server or azure. =URL adds its address.",
        "NAME[=URL]",
    )
    forge_token_file: str = REQUEST.text(
        "File with the token for the Git host's API. IMAGE_UPDATE_FORGE_TOKEN may hold the token"
        " itself.",
        "FILE",
        common=True,
    )
    forge_username: str = REQUEST.text(
        "User name that belongs to the API token, for Bitbucket.", "NAME"
    )


@dataclass(frozen=True)
class CommitOptions:
    """The commit, and the pull request that proposes it."""

    atomic: bool = COMMIT.flag("Commit nothing to a branch if one of its Applications fails.")
    git_author_name: str = COMMIT.option(
        "",
        "Name of the commit's author and committer.",
        "NAME",
        read=author_name,
        shown="image-update",
    )
    git_author_email: str = COMMIT.option(
        "",
        "E-mail address of the commit's author and committer.",
        "ADDRESS",
        read=author_email,
        shown="image-update@noreply.invalid",
    )
    commit_message_template: str = COMMIT.text(
        "File with a Go template for the commit message; the fields are those of Image Updater.",
        "FILE",
    )
    trailer: tuple[tuple[str, str], ...] = COMMIT.pairs(
        "Add a trailer to the commit message.", "KEY=VALUE"
    )
    sign_off: bool | None = COMMIT.option(
        None, "Add a Signed-off-by trailer that names the author."
    )
    signing_key: Secret = COMMIT.option(
        Secret(""),
        "Sign commits with this private key: a file, or the id of a key in the GnuPG keyring. The"
        " variable may hold the key itself.",
        "KEY",
        read=secret,
    )
    signing_format: str = COMMIT.choice(
        "",
        "Format of the signing key. By default it is detected.",
        "openpgp|ssh",
    )
    commit_through: Through = COMMIT.choice(
        "git",
        "How to commit: with git, or through GitHub's API, which signs the commit.",
        "git|github",
    )
    push_option: tuple[str, ...] = COMMIT.lines(
        "Send this text with each push of changes (git push --push-option), such as ci.skip for"
        " GitLab.",
        "TEXT",
    )
    pipeline_run: str = COMMIT.text(
        f"Link to this run of the pipeline, for the commit message. {FROM_CI}", "URL"
    )
    pull_request_label: tuple[str, ...] = REQUEST.lines("Label to put on the pull request.", "NAME")
    pull_request_reviewer: tuple[str, ...] = REQUEST.lines(
        "User or team to ask for a review; a GitHub team is given as ORG/TEAM.", "NAME"
    )
    pull_request_assignee: tuple[str, ...] = REQUEST.lines(
        "User to assign the pull request to.", "NAME"
    )
    pull_request_draft: bool | None = REQUEST.option(None, "Open the pull request as a draft.")
    auto_merge: bool | None = REQUEST.option(
        None, "Let the Git host merge the pull request once its checks have passed."
    )


@dataclass(frozen=True)
class RegistryOptions:
    """How registries are reached."""

    registries_conf: str = REGISTRY.text("The registries.conf file of Image Updater.", "FILE")
    registry_username: str = REGISTRY.text(
        "User name for the registry. Docker's config files are read too.",
        "NAME",
        common=("scan", "check"),
    )
    registry_password_file: str = REGISTRY.text(
        "File with the password or token for the registry. IMAGE_UPDATE_REGISTRY_PASSWORD may hold"
        " it instead.",
        "FILE",
        common=("scan", "check"),
    )
    registry_credentials_for: tuple[str, ...] = REGISTRY.words(
        "Registry or repository that the user name and password are for, such as ghcr.io or"
        " ghcr.io/acme.",
        "PREFIX",
    )
    registry_cache_dir: str = REGISTRY.text(
        "Keep what is known about images in this folder for later runs, on a volume.", "DIR"
    )
    allow_env: tuple[str, ...] = REGISTRY.words(
        "Let pull-secret annotations name this environment variable (env:NAME).", "NAME"
    )
    allow_exec: bool = REGISTRY.flag(
        "Let pull-secret annotations name a script to run (ext:/path)."
    )


@dataclass(frozen=True)
class VerifyOptions:
    """What must be proved about an image: a signature by a key,
    or by an identity that an issuer confirmed.
    """

    verify: str = REGISTRY.text(
        "Write only images with a cosign signature by one of the public keys in this file, and pin"
        " their digests.",
        "FILE",
    )
    verify_identity: str = REGISTRY.text(
        "Write only images with a keyless cosign signature of this identity. Needs --verify-issuer"
        " and the extra sigstore.",
        "IDENTITY",
    )
    verify_issuer: str = REGISTRY.text("OIDC issuer of the identity in --verify-identity.", "URL")
    verify_timeout: float = REGISTRY.option(
        0,
        "How long to wait for a signature or provenance that is made after the push, as Tekton"
        " Chains does.",
        "SECONDS",
        read=seconds,
    )
    trust_root: str = REGISTRY.text(
        "Check signatures without keys against the Sigstore in this trusted root, instead of the"
        " public one.",
        "FILE",
    )

    @property
    def wanted(self) -> bool:
        """Whether images need a signature."""
        return bool(self.verify or self.verify_identity)


@dataclass(frozen=True)
class HandedOptions:
    """Where a host reads the results."""

    results_dir: str = RESULTS.text(
        "Write each result to a file of its own, as Tekton and Argo expect it.", "DIR"
    )
    dotenv: str = RESULTS.text(
        "Write the results as KEY=VALUE lines, as GitLab expects them.", "FILE"
    )


@dataclass(frozen=True)
class ResultOptions(HandedOptions):
    """What is printed and written."""

    output: str = RESULTS.choice(
        "text",
        "What to print on stdout. repositories is a JSON list of the repositories that are"
        " written to.",
        "text|json|repositories",
        common=True,
        brief=("text|json", "What to print on stdout."),
    )
    report: str = RESULTS.text("Write the JSON report to this file as well.", "FILE", common=True)


@dataclass(frozen=True)
class SendOptions:
    """What a command that writes may leave out, and whom it tells."""

    dry_run: bool = RESULTS.flag(
        "Show what would be done, with the diff, and write nothing.",
        common=True,
    )
    metrics_file: str = RESULTS.text(
        "Write Prometheus metrics to this file. Its counters continue from their old values.",
        "FILE",
    )
    cloudevent_url: str = RESULTS.text(
        "Send a CloudEvent to this URL for each commit. IMAGE_UPDATE_CLOUDEVENT_TOKEN may hold a"
        " token for it.",
        "URL",
    )


@dataclass(frozen=True)
class RolloutOptions:
    """What Argo CD is asked for after a push."""

    refresh: bool = ARGO.flag_on(
        "Ask Argo CD to look at Git at once, if Applications are read from cluster or argocd."
    )
    refresh_parents: bool = ARGO.flag(
        "Also refresh the parent Applications of those that were written."
    )
    wait: bool = ARGO.flag(
        "Wait until Argo CD has synced what was written and it is healthy. Exit with 6 if that"
        " fails.",
        common=ROLLED_OUT,
    )
    wait_timeout: float = WAIT_TIMEOUT()
    expect_image: bool = ARGO.flag_on(
        "With --wait, exit with 6 if the Application runs the image, but only with other tags."
    )
    kubernetes_events: bool = ARGO.flag(
        "Write a Kubernetes Event (ImagesUpdated) for each Application, as Image Updater does."
        " Needs cluster."
    )


@dataclass(frozen=True)
class AliasOptions:
    """Which images of the named Applications are meant."""

    alias: tuple[str, ...] = FIND.words(
        "Act on this image only, named by its alias in image-list. By default all images of the"
        " Applications.",
        "ALIAS",
        common=True,
    )
    image: tuple[str, ...] = FIND.words("Old name of --alias.", "ALIAS", old_name=True)


@dataclass(frozen=True)
class HoldOptions:
    """A hold."""

    reason: str = HELD.text(
        "Why the images are held. It is shown with every update that is held back.",
        "TEXT",
        common=True,
    )
    until: str = HELD.text(
        "When the hold ends by itself: a date, an RFC 3339 time, or a duration (90m, 12h, 3d).",
        "DATE",
        common=True,
    )
    by: str = HELD.text(f"Who holds the images. {FROM_CI}", "NAME", common=True)


@dataclass(frozen=True)
class RollbackOptions:
    """A rollback."""

    to: str = HELD.text(
        "Version to go back to: a tag, TAG@DIGEST, previous, or N-back (3-back: three versions).",
        "TAG",
        common=True,
    )
    failed: str = HELD.text(
        "Go back only if Git still has this image, whose test has failed."
        " Without --to, it goes back to the last version that ran.",
        "IMAGE",
        common=True,
    )
    unknown_tag: bool = HELD.flag(
        "Accept a tag that is neither in Git's history nor in the registry.",
        common=True,
    )
    hold: bool = HELD.flag_on(
        "Hold the images at the version they are rolled back to.",
        common=True,
    )


@dataclass(frozen=True)
class PromoteOptions:
    """From which Applications versions are promoted, and to which."""

    promote_from: tuple[str, ...] = FIND.words(
        "Applications whose versions are promoted, each as NAME or NAMESPACE/NAME; globs are"
        " allowed.",
        "PATTERN",
        flag="--from",
        common=True,
    )
    from_selector: str = FIND.text(
        "Promote only from Applications with these labels.",
        "LABELS",
        common=True,
    )
    promote_to: tuple[str, ...] = FIND.words(
        "Applications to promote to; {namespace}, {name} and {project} are those of the source.",
        "PATTERN",
        flag="--to",
        common=True,
    )
    to_selector: str = FIND.text(
        "Promote only to Applications with these labels.",
        "LABELS",
        common=True,
    )
    healthy: bool = FIND.flag(
        "Promote only versions that run in the source, Synced and Healthy.",
        common=True,
    )


@dataclass(frozen=True)
class StatusOptions:
    """What `status` shows."""

    app: tuple[str, ...] = FIND.words(
        "Applications to show, each as NAME or NAMESPACE/NAME; globs are allowed. By default all.",
        "[APP...]",
        common=True,
        argument=True,
    )
    output: str = RESULTS.choice(
        "text",
        "How to print the status on stdout.",
        "text|json",
        common=True,
    )
    builds: int = RESULTS.option(
        5,
        "How many of the last builds to show of each image. 0 does not read the history.",
        "N",
        read=count,
        common=True,
    )
    newest: bool = REGISTRY.flag(
        "Also ask the registries for the newest tag that the rules of each image admit.",
        common=True,
    )

    fail_on: tuple[str, ...] = RESULTS.choices(
        "Exit with 5 if an image is behind the registry, on hold, not what runs, or in a request.",
        "behind,held,differs,waits",
        common=True,
    )
    older_than: str = RESULTS.text(
        "With --fail-on, only if it has been so for this long, such as 3d or 12h.",
        "DURATION",
        common=True,
    )

    @property
    def asks_for_newest(self) -> bool:
        """Whether the registries are asked for the newest tags."""
        return self.newest or "behind" in self.fail_on


@dataclass(frozen=True)
class WaitOptions:
    """What `wait` waits for."""

    app: tuple[str, ...] = FIND.words(
        "Applications to wait for, each as NAME or NAMESPACE/NAME; globs are allowed.",
        "APP...",
        common=True,
        argument=True,
    )
    revision: str = ARGO.text("Commit that Argo CD must have synced.", "SHA", common=True)
    repository: str = ARGO.text(
        "Repository of that commit. Other sources of the Applications may be at any commit.",
        "URL",
        common=True,
    )
    wait_timeout: float = WAIT_TIMEOUT()


@dataclass(frozen=True)
class LintOptions:
    """What `lint` checks."""

    source: tuple[str, ...] = FIND.lines(
        "Where to read Applications, as for --applications; . means this folder.",
        "[SOURCE...]",
        common=True,
        argument=True,
    )
    holds: bool = HELD.flag(
        "Also read repositories that need a login: list their holds and check the files that"
        " updates write.",
        common=True,
    )
    from_image_updater: bool = FIND.flag(
        "Show, for each Application, what Argo CD Image Updater does now and what Image Update"
        " will do.",
        common=True,
    )
    output: str = RESULTS.choice(
        "text",
        "How to print the findings on stdout. gitlab is its Code Quality report.",
        "text|json|junit|sarif|gitlab",
        common=True,
    )


@dataclass(frozen=True)
class CheckOptions(ResultOptions):
    """The change that `check` judges, and how it tells what it found."""

    output: str = RESULTS.choice(
        "text",
        "What to print on stdout. gitlab is its Code Quality report.",
        "text|json|gitlab",
        common=True,
    )

    base: str = CHANGE.text(
        f"Branch or commit that the change goes into, such as origin/main. {FROM_CI}",
        "REF",
        common=True,
    )
    head: str = CHANGE.text(
        f"Branch or commit of the change. {FROM_CI} Without them, HEAD.",
        "REF",
        common=True,
    )
    repository: str = CHANGE.text(
        "Repository of both. By default the checkout in the current folder.",
        "URL",
        common=True,
    )


@dataclass(frozen=True)
class Settings:
    """All that one call gives."""

    command: str
    # These records have the options that the same commands take.
    event: EventOptions = EventOptions()
    sources: SourceOptions = SourceOptions()
    scope: ScopeOptions = ScopeOptions()
    rules: RulesOptions = RulesOptions()
    transport: TransportOptions = TransportOptions()
    access: AccessOptions = AccessOptions()
    git: GitOptions = GitOptions()
    host: ForgeOptions = ForgeOptions()
    registry: RegistryOptions = RegistryOptions()
    verify: VerifyOptions = VerifyOptions()
    commit: CommitOptions = CommitOptions()
    results: ResultOptions = ResultOptions()
    handed: HandedOptions = HandedOptions()
    send: SendOptions = SendOptions()
    rollout: RolloutOptions = RolloutOptions()
    alias: AliasOptions = AliasOptions()
    hold: HoldOptions = HoldOptions()
    rollback: RollbackOptions = RollbackOptions()
    promote: PromoteOptions = PromoteOptions()
    status: StatusOptions = StatusOptions()
    wait: WaitOptions = WaitOptions()
    lint: LintOptions = LintOptions()
    check: CheckOptions = CheckOptions()
    # These options are each taken by other commands than the records.
    source_repository: str = COMMIT.text(
        f"Repository that holds the source commit. {FROM_CI}", "URL"
    )
    application: tuple[str, ...] = FIND.words(
        "Consider only Applications with this name, given as NAME or NAMESPACE/NAME; globs are"
        " allowed.",
        "NAME",
        common=NARROWED,
    )
    require_update: bool = RULES.flag("Exit with 5 if nothing was updated.")
    require_match: bool = RULES.flag(
        "Exit with 5 if no Application tracks one of the images.",
        common=BUILDS,
    )
    registry_check: str = REGISTRY.choice(
        "auto",
        "When to ask the registry about an image: only if a rule needs it (auto), always, or"
        " never.",
        "auto|always|never",
    )
    comment: bool = REQUEST.flag(
        "Write the plan as a comment to the pull request that the CI job runs for. Needs plan,"
        " check"
        " or --dry-run.",
        common=("plan", "check"),
    )
    deployments: bool = REQUEST.flag(
        "Show each update as a deployment of the source commit, on GitHub or GitLab. With --wait,"
        " also how its rollout ended."
    )
    on_failure: str = ARGO.choice(
        "none",
        "With --wait, what to do if the rollout fails or times out: nothing, or put back what was"
        " there and hold it.",
        "none|rollback",
        common=("run", "scan", "promote"),
    )
    minimum_age: str = RULES.text(
        "Take only versions of at least this age, such as 3d or 12h.",
        "DURATION",
        common=True,
    )
    log_level: str = RESULTS.choice(
        "info",
        "How much to log on stderr. debug shows each transfer of git and each request to a server.",
        "error|warning|info|debug",
        common=True,
    )
    log_format: str = RESULTS.choice(
        "auto",
        "Format of the log. auto means github in GitHub Actions and text everywhere else.",
        "auto|text|json|github",
    )
    app: tuple[str, ...] = HELD.words(
        "Applications, each as NAME or NAMESPACE/NAME; globs are allowed.",
        "APP...",
        common=True,
        argument=True,
    )
    discard: bool = HELD.flag("Discard the waiting build instead of writing it.", common=True)
    report_file: str = RESULTS.text(
        "The JSON report of a run, as --report or --output json wrote it; - reads stdin.",
        "FILE",
        common=True,
        argument=True,
    )
    html: str = RESULTS.text(
        "Write the report as one self-contained HTML page to this file, or to stdout if no file is"
        " given.",
        "[OUT]",
        common=True,
    )

    @property
    def dry(self) -> bool:
        """Whether nothing is written."""
        return kind_of(self.command).dry or self.send.dry_run

    @property
    def pin_digest(self) -> bool:
        """Whether the digest is written as well. What is signed is the digest."""
        return self.scope.pin_digest or self.verify.wanted

    @property
    def aliases(self) -> tuple[str, ...]:
        """The images that the command is limited to, by their aliases; () is all."""
        return self.alias.alias or self.alias.image


# What each command takes: records, and names of fields of `Settings`. What only real writers take
# is in `SendOptions`.
Taken = type | str
REACHING: tuple[Taken, ...] = (
    SourceOptions,
    "log_level",
    "log_format",
    TransportOptions,
    AccessOptions,
)
READING = (*REACHING, ScopeOptions)  # Applications
# status, plan and all that write
DECIDING = (
    *READING,
    "registry_check",
    GitOptions,
    ForgeOptions,
    RegistryOptions,
    VerifyOptions,
)
# what a commit or its plan needs
WRITING = (
    *DECIDING,
    CommitOptions,
    ResultOptions,
    RolloutOptions,
)
# run to promote
UPDATING = (
    "application",
    RulesOptions,
    "require_update",
    *WRITING,
    "on_failure",
)
BUILT = (
    EventOptions,
    "source_repository",
    "require_match",
    *UPDATING,
    "comment",
    "deployments",
)  # run and plan
TAKEN: Mapping[str, tuple[Taken, ...]] = {
    "run": (*BUILT, SendOptions),
    "plan": BUILT,
    "scan": ("minimum_age", *UPDATING, SendOptions),
    "promote": (
        PromoteOptions,
        AliasOptions,
        "minimum_age",
        "source_repository",
        "require_match",
        *UPDATING,
        "deployments",
        SendOptions,
    ),
    "rollback": ("app", AliasOptions, RollbackOptions, HoldOptions, *WRITING, SendOptions),
    "hold": ("app", AliasOptions, HoldOptions, *WRITING, SendOptions),
    "release": ("app", AliasOptions, "discard", *WRITING, SendOptions),
    "status": (
        StatusOptions,
        "html",
        EventOptions,
        "source_repository",
        "application",
        RulesOptions,
        *DECIDING,
        HandedOptions,
    ),
    "wait": (WaitOptions, *REACHING, HandedOptions),
    "lint": (LintOptions, "application", *READING, ForgeOptions, HandedOptions),
    "check": (CheckOptions, "application", *DECIDING, "comment"),
    "report": ("report_file", "html"),
}
REQUIRED = {
    "rollback": ("app",),
    "hold": ("app", "reason"),
    "release": ("app",),
    "wait": ("app", "revision"),
    "report": ("report_file",),
}


def options_of(command: str) -> tuple[tuple[Field[Any], Any, Option], ...]:
    """Return the options of a command: each with its field, and the type of its value."""
    return tuple(chain.from_iterable(map(_options_taken, TAKEN.get(command, ()))))


@cache
def _options_taken(taken: Taken) -> tuple[tuple[Field[Any], Any, Option], ...]:
    record = Settings if isinstance(taken, str) else taken
    hints = get_type_hints(record)
    found = (
        field
        for field in fields(record)
        if OPTION in field.metadata and taken in (record, field.name)
    )
    return tuple((field, hints[field.name], field.metadata[OPTION]) for field in found)


def every_option() -> tuple[tuple[Field[Any], Any, Option], ...]:
    """Return the options of all commands, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(map(options_of, TAKEN))))


def check(settings: Settings) -> None:
    """Raise `UsageError` for the first options that do not go together."""
    _check_verify(settings.verify)
    if settings.alias.alias and settings.alias.image:
        raise UsageError(
            "--alias and --image are both given",
            hint="leave out --image, the old name of --alias",
        )
    if settings.command == "rollback" and not (settings.rollback.to or settings.rollback.failed):
        hint = (
            "name the version to go back to: a tag, previous, or 3-back "
            "(--to, or the variable IMAGE_UPDATE_TO), or the image that failed (--failed)"
        )
        raise UsageError("--to is missing or empty", hint=hint)
    if settings.on_failure == "rollback":
        _check_rollback_on_failure(settings)
    for text in settings.commit.push_option:
        if not text.isprintable():
            raise UsageError(f"--push-option: {text!r} has a control character", hint="remove it")
    if settings.commit.commit_through == "github":
        _check_api(settings.commit)
    if settings.command == "promote":
        _check_sides(settings.promote)


def _check_rollback_on_failure(settings: Settings) -> None:
    if not settings.rollout.wait:
        raise UsageError(
            "--on-failure=rollback is given without --wait",
            hint="give --wait: it sees the failure",
        )
    if settings.git.pull_request and not settings.commit.auto_merge:
        hint = "give --auto-merge, or leave out --on-failure and run: image-update rollback"
        raise UsageError(
            "--on-failure=rollback does not go with a pull request that a person merges",
            hint=hint,
        )


def _check_sides(given: PromoteOptions) -> None:
    named = {
        "--from": given.promote_from or given.from_selector,
        "--to": given.promote_to or given.to_selector,
    }
    for side, apps in named.items():
        if not apps:
            hint = f"name Applications with {side}, or their labels with {side}-selector"
            raise UsageError(f"{side} is missing or empty", hint=hint)


def _check_verify(given: VerifyOptions) -> None:
    if bool(given.verify_identity) != bool(given.verify_issuer):
        hint = (
            "give --verify-identity and --verify-issuer together: who signed, and which OIDC issuer"
            " says so"
        )
        message = (
            f"{'--verify-identity' if given.verify_identity else '--verify-issuer'} is given alone"
        )
        raise UsageError(message, hint=hint)
    if given.verify and given.verify_identity:
        hint = "choose one: a public key, or an identity"
        raise UsageError("--verify and --verify-identity are both given", hint=hint)


def _check_api(given: CommitOptions) -> None:
    """Raise `UsageError` for what a commit through GitHub's API cannot have: an author,
    or our signature.
    """
    fields = (
        "signing_key",
        "signing_format",
        "sign_off",
        "push_option",
        "git_author_name",
        "git_author_email",
    )
    if named := [flag_of(field) for field in fields if getattr(given, field)]:
        raise UsageError(
            f"{', '.join(named)} and --commit-through github are {'all' if named[1:] else 'both'}"
            " given",
            hint=(
                f"leave out --commit-through, or {'the others' if named[1:] else named[0]}:"
                f" {_api_takes(named)}"
            ),
        )


def _api_takes(named: Collection[str]) -> str:
    """Return why a commit through GitHub's API cannot have these options."""
    if list(named) == [flag_of("push_option")]:
        return "GitHub's API takes no push options"
    return "GitHub signs the commit, and its author is the owner of the token"
