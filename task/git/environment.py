"""What git receives from the machine: environment variables, credentials, server configuration, and
local repositories.

Every git process runs in the machine's environment, without the variables that change git's
behavior. Only the settings about servers are taken from the user's and the system's git
configuration.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from task.errors import CredentialsError
from task.git.errors import GitFailed, quoted
from task.git.names import Address
from task.processes import basic_environment, child_environment, is_secret
from task.secret import Secret
from task.urls import origin, split

# Of the machine's GIT_* variables, keep only those that define how to reach servers. The rest would
# make git use other repositories or identities, or change its output (GIT_DIR, GIT_INDEX_FILE,
# GIT_TRACE, GIT_AUTHOR_NAME, ...).
_KEPT_VARIABLES = frozenset({
    "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_EXEC_PATH",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_HTTP_USER_AGENT", "GIT_HTTP_PROXY_AUTHMETHOD",
    "GIT_PROXY_COMMAND", "GIT_PROXY_SSL_CAINFO", "GIT_PROXY_SSL_CERT", "GIT_PROXY_SSL_KEY",
    "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY", "GIT_SSL_CERT_PASSWORD_PROTECTED",
    "GIT_SSL_NO_VERIFY", "GIT_SSL_VERSION", "GIT_SSL_CIPHER_LIST",
})  # fmt: skip
# These variables would change git's messages, or open a graphical prompt.
_DROPPED_VARIABLES = frozenset({"LANGUAGE", "SSH_ASKPASS", "DISPLAY"})
_PROGRAM_VARIABLES = ("GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND")
_SERVER_SETTINGS = (
    "credential.", "http.", "url.", "ssh.", "core.sshcommand", "core.askpass", "core.gitproxy", "safe.directory",
)  # fmt: skip
_SETTINGS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",  # git >= 2.44: a missing object is an error, instead of being fetched
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "LC_ALL": "C",
}
_NO_FILES = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
_SYSTEM_FILES = ("/etc/gitconfig", "/usr/local/etc/gitconfig", "/opt/homebrew/etc/gitconfig")
# A credential helper that needs no program: a shell function that prints two variables.
_LOGIN_HELPER = (
    '!f() {{ test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$IMAGE_UPDATE_LOGIN_USER_{0}" "$IMAGE_UPDATE_LOGIN_PASSWORD_{0}"; }}; f'
)
_HEADERS_AND_COOKIES = frozenset({"extraheader", "cookiefile", "emptyauth"})
Pairs = Sequence[tuple[str, str]]  # git's settings: (key, value)


@dataclass(frozen=True)
class Login:
    """A login, and the prefix of the URLs that it is for."""

    prefix: str  # without a trailing slash
    user: str
    password: Secret = Secret("")


def clean_environment(environ: Mapping[str, str], protocols: frozenset[str]) -> dict[str, str]:
    """Return the environment variables for git: those that it needs from the machine's environment,
    and our own. Git may use only the `protocols`.

    With these variables, git does not read the user's or the system's configuration. Settings about
    servers are passed only with transfers (`login_environment`), because they may contain a token,
    which hooks and signing programs do not need.
    """
    server_variables = {}
    for name in _KEPT_VARIABLES:
        value = environ.get(name, "")
        # Treat an empty variable as unset: for git, an empty GIT_SSL_CAINFO is an error.
        if value.strip():
            server_variables[name] = value
    return {
        **basic_environment(environ),
        **server_variables,
        **_NO_FILES,
        **_SETTINGS,
        "GIT_ALLOW_PROTOCOL": ":".join(sorted(protocols)),
    }


def variables_for_helpers(environ: Mapping[str, str], programs: Sequence[str]) -> dict[str, str]:
    """Return the variables that credential programs, such as credential helpers, may need.

    `programs` are the configured programs. Variables that would change git's own behavior are left
    out: of the GIT_* variables, only secrets such as GIT_PASSWORD remain.
    """
    programs_from_variables = [environ[name] for name in _PROGRAM_VARIABLES if name in environ]
    variables = child_environment(environ, (*programs, *programs_from_variables))
    helper_variables = {}
    for name, value in variables.items():
        changes_git = name in _DROPPED_VARIABLES or name.startswith("GIT_CONFIG_")
        is_for_programs = is_secret(name) or not name.startswith("GIT_")
        if is_for_programs and not changes_git:
            helper_variables[name] = value
    return helper_variables


def configuration_files(environ: Mapping[str, str]) -> list[str]:
    """Return the paths of the files that may contain the system's and the user's git configuration.

    The files need not exist. Later files take precedence.
    """
    files: list[str] = []
    ignores_system = environ.get("GIT_CONFIG_NOSYSTEM", "").lower() in {"1", "true", "yes", "on"}
    if not ignores_system:
        system_file = environ.get("GIT_CONFIG_SYSTEM")
        files += [system_file] if system_file else _SYSTEM_FILES
    users_file = environ.get("GIT_CONFIG_GLOBAL")
    if users_file:
        return [*files, users_file]
    home = environ.get("HOME", "")
    config_home = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return [*files, f"{config_home}/git/config", f"{home}/.gitconfig"]


def server_settings(pairs: Pairs) -> list[tuple[str, str]]:
    """Return only the server settings: credentials, URLs, http, and ssh."""
    return [(key, value) for key, value in pairs if key.lower().startswith(_SERVER_SETTINGS)]


def config_pairs(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return git's settings from the variables `GIT_CONFIG_COUNT`, `GIT_CONFIG_KEY_0`,
    `GIT_CONFIG_VALUE_0`, and so on.
    """
    count_text = environ.get("GIT_CONFIG_COUNT", "")
    count = int(count_text) if count_text.isdigit() else 0
    return [
        (environ.get(f"GIT_CONFIG_KEY_{number}", ""), environ.get(f"GIT_CONFIG_VALUE_{number}", ""))
        for number in range(count)
    ]


def sends_header(pairs: Pairs, server: str) -> bool:
    """Return whether the settings contain `http.extraHeader` for a server.

    `server` is the server's origin, such as `https://git.example.com`; "" means any server.
    """
    for key, value in pairs:
        section, _, name = key.rpartition(".")  # "http.<url>", or "http" for any URL
        is_http = section.lower() == "http" or section.lower().startswith("http.")
        is_header = is_http and name.lower() == "extraheader"
        if not is_header or not value.strip():
            continue
        url = section[len("http.") :]  # "" for "http"
        is_for_any_server = not url or "*" in url
        if is_for_any_server or not server or origin(url) == server:
            return True
    return False


def without_credentials(pairs: Pairs) -> list[tuple[str, str]]:
    """Return a configuration without its credentials, headers, and cookies.

    Client certificates remain, because they are not secret.
    """
    other_pairs = []
    for key, value in pairs:
        lower_key = key.lower()
        _, _, name = lower_key.rpartition(".")
        is_credential = lower_key.startswith(("credential.", "core.askpass"))
        is_header_or_cookie = lower_key.startswith("http.") and name in _HEADERS_AND_COOKIES
        if not is_credential and not is_header_or_cookie:
            other_pairs.append((key, value))
    return other_pairs


def without_web(pairs: Pairs) -> list[tuple[str, str]]:
    """Return the settings without those for https and http, which may contain tokens."""
    return [
        (key, value) for key, value in pairs if not key.lower().startswith(("http.", "credential."))
    ]


def login_for(logins: Sequence[Login], url: str) -> Login | None:
    """Return the login that git would choose for a URL: the last match that has a password."""
    for login in reversed(logins):
        prefix = login.prefix
        is_same = url in {prefix, f"{prefix}.git"}
        is_below = url.startswith(f"{prefix}/")
        if login.password and (is_same or is_below):
            return login
    return None


def basic_header(login: Login, url: str) -> tuple[str, str]:
    """Return the setting that makes git send a login to this URL with the first request
    (RFC 7617).
    """
    user_and_password = f"{login.user}:{login.password.reveal()}".encode()
    encoded = base64.b64encode(user_and_password).decode()
    return f"http.{url}.extraHeader", f"Authorization: Basic {encoded}"


def login_environment(
    pairs: Pairs,
    logins: Sequence[Login],
    *,
    follow: bool = True,
    moved: Sequence[tuple[str, str]] = (),
) -> dict[str, str]:
    """Return the environment variables that pass the settings in `pairs` and the logins to git.
    Command arguments cannot be used, because they must not contain secrets.

    Each login is used only for its own URLs. If several logins match, the last one wins. Logins
    override the settings' own logins, and also replace their credential helpers, so that these do
    not store credentials.

    Without `follow`, git does not follow redirects. If it did, it would send `http.extraHeader`
    with all later requests to the target of the first redirect. `moved`: each moved repository's
    (old URL, new URL).
    """
    variables: dict[str, str] = {}
    settings = [*pairs]
    for number, login in enumerate(logins):
        variables[f"IMAGE_UPDATE_LOGIN_USER_{number}"] = login.user
        variables[f"IMAGE_UPDATE_LOGIN_PASSWORD_{number}"] = login.password.reveal()
        settings += _login_settings(login, _LOGIN_HELPER.format(number))
    settings += [(f"url.{new_url}.insteadOf", old_url) for old_url, new_url in moved]
    if not follow:
        # the settings may allow redirects for individual URLs: `http.<url>.followRedirects`
        settings = [
            (key, value) for key, value in settings if not key.lower().endswith(".followredirects")
        ]
        settings.append(("http.followRedirects", "false"))

    if settings:
        variables["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _login_settings(login: Login, helper: str) -> list[tuple[str, str]]:
    """Return git's settings for a login: for each of the login's URLs, the username, and the
    credential helper (`helper`) that prints the login.
    """
    # Git compares whole path segments, so add a repository's URL both with and without `.git`.
    prefixes = [login.prefix]
    path = split(login.prefix).path.lstrip("/")
    if path and not path.endswith(".git"):
        prefixes.append(f"{login.prefix}.git")
    settings = []
    for prefix in prefixes:
        settings.append((f"credential.{prefix}.username", login.user))
        if login.password:
            # the empty helper disables the helpers in the user's configuration
            settings.append((f"credential.{prefix}.helper", ""))
            settings.append((f"credential.{prefix}.helper", helper))
    return settings


def url_login(target: Address) -> tuple[Login, ...]:
    """Return the login in a repository's URL, restricted to the URL's server. Return () if the URL
    contains no login, or is not https or http.
    """
    if not target.user or target.protocol not in {"https", "http"}:
        return ()
    scheme, _, host_and_path = target.url.partition("://")
    server = f"{scheme}://{host_and_path.partition('/')[0]}"
    return (Login(server, target.user, target.password),)


class UserConfig:
    """The user's and the system's git configuration, read when a server is first contacted.

    If there is no configuration file, no process is started.
    """

    def __init__(
        self,
        run: Callable[..., bytes],
        environ: Mapping[str, str],
        extra_file: str = "",
    ) -> None:
        self._run_git = run
        self._environ = environ  # if empty, no configuration file is used
        self._extra_file = extra_file  # a configuration file for this run only

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The settings for credentials, URL rewriting, http, and ssh.

        Raises `CredentialsError` if git cannot read a file.
        """
        pairs: list[tuple[str, str]] = []
        files = configuration_files(self._environ) if self._environ else []
        for path in files:
            if os.path.isfile(path) and os.access(path, os.R_OK):
                pairs += self._pairs_in_file(path)
        if self._extra_file:  # without the configuration's credential helpers
            for key, value in self._pairs_in_file(self._extra_file):
                if not _is_helper(key):
                    pairs.append((key, value))
        return pairs

    @property
    def rewrites(self) -> bool:
        """Whether the configuration rewrites URLs, such as https to ssh."""
        return any(key.lower().startswith("url.") for key, _ in self._all_pairs)

    @property
    def rewrites_to_http(self) -> bool:
        """Whether a URL may be rewritten to plain http."""
        return any(key.lower().startswith("url.http://") for key, _ in self._all_pairs)

    @property
    def has_credentials(self) -> bool:
        """Whether the configuration provides credentials."""
        return any(
            _is_helper(key) or key.lower().endswith(".extraheader") for key, _ in self._all_pairs
        )

    @property
    def programs(self) -> list[str]:
        """The configured programs that may need credentials: credential helpers, the program that
        prompts for a password, and the ssh command.
        """
        programs = []
        for key, value in self._all_pairs:
            if value and _is_helper(key):
                # "!" starts a shell command, and "/" a path; anything else is a short name
                is_short_name = not value.startswith(("!", "/"))
                program = f"git-credential-{value}" if is_short_name else value
                programs.append(program)
            elif value and key.lower() in {"core.askpass", "core.sshcommand"}:
                programs.append(value)
        return programs

    @property
    def safe_directories(self) -> list[str]:
        """The values of `safe.directory`: local repositories of other users that git trusts."""
        return [value for key, value in self._all_pairs if key.lower() == "safe.directory"]

    @property
    def ssh_command(self) -> str:
        """The configured ssh command, or "" if there is none."""
        for key, value in reversed(self._all_pairs):  # the last one wins
            if key.lower() == "core.sshcommand":
                return value
        return ""

    @cached_property
    def _all_pairs(self) -> list[tuple[str, str]]:
        """All settings: from files, and from environment variables, which git reads itself."""
        return [*self.pairs, *config_pairs(self._environ)]

    def _pairs_in_file(self, path: str) -> list[tuple[str, str]]:
        """Return the server settings in a configuration file, and in the files that it includes."""
        argv = ("config", "--file", path, "--includes", "--null", "--list")
        try:
            output = self._run_git(*argv).decode("utf-8", "replace")
        except GitFailed as error:
            hint = "fix it, or ignore it with --no-git-config"
            raise CredentialsError(
                f"git cannot read its configuration: {quoted(error.err)}",
                hint=hint,
            ) from error
        pairs = []
        for entry in output.split("\0"):
            key, newline, value = entry.partition("\n")
            if not newline:  # a key without "=" counts as true
                value = "true"
            if entry:
                pairs.append((key, value))
        return server_settings(pairs)


def _is_helper(key: str) -> bool:
    return key.lower().startswith("credential.") and key.lower().endswith(".helper")


_GITFILE = "gitdir: "
# "": not a local repository; "ours"; "safe": another user's, but trusted
Local = Literal["", "ours", "safe"]


def owned_by_another(path: str, environ: Mapping[str, str]) -> str:
    """Return the git folder of the repository at `path` if the folder belongs to a different user.
    Return "" if the folder is ours, or if `path` is not a repository.
    """
    our_user_ids = {os.geteuid()}
    # as in git, root under sudo also counts as the user who ran sudo
    if our_user_ids == {0} and environ.get("SUDO_UID", "").isdigit():
        our_user_ids.add(int(environ["SUDO_UID"]))

    # Look for the repository in the same places as git, and skip what cannot be read.
    for candidate in (f"{path}/.git", path, f"{path}.git/.git", f"{path}.git"):
        with suppress(OSError, ValueError):
            git_dir = candidate
            owners = set()
            if os.path.isfile(candidate):  # `gitdir: path` (submodule, worktree)
                with open(candidate, encoding="utf-8") as file:
                    target = file.read(4096).removeprefix(_GITFILE).rstrip("\n")
                git_dir = os.path.join(os.path.dirname(candidate), target)
                owners.add(os.stat(candidate).st_uid)
            elif not os.path.exists(f"{git_dir}/HEAD"):
                continue  # not a repository
            owners.add(os.stat(git_dir).st_uid)
            is_ours = owners <= our_user_ids
            return "" if is_ours else os.path.realpath(git_dir)
    return ""


def is_safe(folder: str, settings: Sequence[str], home: str) -> bool:
    """Return whether the values of `safe.directory` make git trust a git folder, or the worktree to
    which the folder belongs. A value is a path, a path that ends with `/*`, or `*`.
    """
    is_trusted = False
    for value in settings:
        path = value
        if value.startswith("~/"):
            path = os.path.join(home, value.removeprefix("~/"))
        names_folder = path.rstrip("/") in (folder, folder.removesuffix("/.git"))
        names_parent = path.endswith("/*") and folder.startswith(path.removesuffix("*"))
        if not value:  # an empty value cancels the earlier ones
            is_trusted = False
        elif path == "*" or names_folder or names_parent:
            is_trusted = True
    return is_trusted
