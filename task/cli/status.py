"""`status`: shows each image in Git, in the cluster and in the registry, its holds and its last builds."""

from collections.abc import Mapping

import typer

from task import shutdown
from task.ci.builder_files import read_built
from task.ci.builders import with_built
from task.ci.event import event_images
from task.ci.masking import mask
from task.cli import options
from task.cli.html_page import HtmlCommand, write_page
from task.cli.records import settings_of
from task.cli.update import job_of
from task.errors import UsageError
from task.model import Image, Status
from task.output.console import stdout_console
from task.output.log import Log
from task.output.status_json import json_text
from task.output.status_text import plain, table
from task.output.stdout import say
from task.pipeline.status import Look
from task.pipeline.status import status as look_at
from task.settings import Settings
from task.wiring import SECRETS, world_of
from task.wiring.application_sources import FORGE_TOKENS

COMMAND_CLASS = HtmlCommand  # Typer creates the command with this class


def status(
    context: typer.Context,
    app: options.StatusApp = None,
    *,
    image: options.Image = None,
    image_digest: options.ImageDigest = "",
    tag: options.Tag = "",
    images_from: options.ImagesFrom = None,
    sequence: options.Sequence = "",
    created: options.Created = "",
    applications: options.Applications = None,
    clusters: options.Clusters = "",
    render: options.Render = None,
    follow_apps: options.FollowApps = 0,
    application: options.Application = None,
    selector: options.Selector = "",
    project: options.Project = None,
    namespace: options.Namespace = None,
    argocd_namespace: options.ArgocdNamespace = "argocd",
    annotation_prefix: options.AnnotationPrefix = "argocd-image-updater.argoproj.io/",
    strategy: options.Strategy = "semver",
    allow_downgrade: options.AllowDowngrade = False,
    require_live: options.RequireLive = False,
    pin_digest: options.PinDigest = False,
    carry_parameters: options.CarryParameters = True,
    source_commit: options.SourceCommit = "",
    source_repository: options.SourceRepository = "",
    pull_request: options.PullRequest = False,
    forge: options.Forge = "",
    forge_token_file: options.ForgeTokenFile = "",
    forge_username: options.ForgeUsername = "",
    output: options.StatusOutput = "text",
    html: options.Html = "",
    builds: options.Builds = 5,
    log_level: options.LogLevel = "info",
    log_format: options.LogFormat = "auto",
    deadline: options.Deadline = 120,
    stall_timeout: options.StallTimeout = 60,
    git_cache_dir: options.GitCacheDir = "",
    allow_protocol: options.AllowProtocol = None,
    rewrite_url: options.RewriteUrl = None,
    git_username: options.GitUsername = "",
    git_password_file: options.GitPasswordFile = "",
    git_credentials_url: options.GitCredentialsUrl = None,
    basic_auth_directory: options.BasicAuthDirectory = "",
    github_app_id: options.GithubAppId = "",
    github_app_installation_id: options.GithubAppInstallationId = "",
    github_app_key_file: options.GithubAppKeyFile = "",
    ssh_key_file: options.SshKeyFile = "",
    ssh_directory: options.SshDirectory = "",
    ssh_known_hosts_file: options.SshKnownHostsFile = "",
    ssh_host_key: options.SshHostKey = None,
    ca_file: options.CaFile = "",
    git_config: options.GitConfig = True,
    only_repository: options.OnlyRepository = None,
    repository_config: options.RepositoryConfig = True,
    kubeconfig: options.Kubeconfig = "",
    kube_context: options.KubeContext = "",
    argocd_server: options.ArgocdServer = "",
    argocd_auth_token_file: options.ArgocdAuthTokenFile = "",
    argocd_plaintext: options.ArgocdPlaintext = False,
    argocd_insecure: options.ArgocdInsecure = False,
    argocd_ca_file: options.ArgocdCaFile = "",
    argocd_root_path: options.ArgocdRootPath = "",
    argocd_header: options.ArgocdHeader = None,
    newest: options.Newest = False,
    registry_check: options.RegistryCheck = "auto",
    registries_conf: options.RegistriesConf = "",
    registry_username: options.RegistryUsername = "",
    registry_password_file: options.RegistryPasswordFile = "",
    registry_credentials_for: options.RegistryCredentialsFor = None,
    registry_cache_dir: options.RegistryCacheDir = "",
    allow_env: options.AllowEnv = None,
    allow_exec: options.AllowExec = False,
    verify: options.Verify = "",
    verify_identity: options.VerifyIdentity = "",
    verify_issuer: options.VerifyIssuer = "",
    verify_timeout: options.VerifyTimeout = 0,
) -> int:
    """Show each image: its version in Git and in the cluster, its holds and its last builds."""
    settings, environ, log = settings_of("status", context.params), context.obj.environ, context.obj.log
    if settings.newest and settings.check == "never":
        raise UsageError("--newest and --registry-check=never are both given", hint="leave out one of them")
    if settings.shown.html and settings.output.format == "json":
        raise UsageError("--html and --output=json are both given", hint="leave out one of them")
    if environ.get("GITHUB_ACTIONS") == "true":
        mask(SECRETS, environ)
    found = _found(settings, environ, log)
    console = stdout_console(environ)
    shown = console is not None and settings.output.format == "text" and not settings.shown.html
    for problem in found.problems:
        if not (shown and problem.application):  # the table shows these to a person already
            log.problem(problem.severity, problem.application, problem.message, problem.hint)
    if settings.shown.html:
        # Imported late: only this option needs jinja2.
        from task.output.status_page import page  # noqa: PLC0415

        write_page(page(found), settings.shown.html)
    elif settings.output.format == "json":
        say(json_text(found))
    else:
        say(table(found, console) if console else plain(found))
    return found.exit


def _found(settings: Settings, environ: Mapping[str, str], log: Log) -> Status:
    images: tuple[Image, ...] = ()
    if settings.images or settings.images_from:
        references, digest = settings.images, settings.image_digest
        if settings.images_from:
            references, digest = with_built(references, digest, read_built(settings.images_from))
        images = event_images(references, digest, settings.tag)
    job = job_of(settings, images, environ)
    token = settings.request.token_file or any(environ.get(name) for name in (*FORGE_TOKENS, "GITHUB_TOKEN"))
    world = world_of(settings, environ, log, job.scope, images)
    try:
        return look_at(job, world, Look(settings.newest, settings.builds, bool(token)))
    finally:
        with shutdown.shield():
            world.close()
