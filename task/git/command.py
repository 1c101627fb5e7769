"""Runs git with a clean environment, without prompts or a shell, and without secrets in
arguments.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any
from urllib.parse import urljoin

import sh

from task import shutdown
from task.errors import (
    CredentialsError,
    RepositoryError,
    SourceError,
    TaskError,
    UnreachableError,
    UsageError,
)
from task.files import exhausted
from task.git.credentials import Access
from task.git.environment import (
    Local,
    Login,
    UserConfig,
    basic_header,
    clean_environment,
    config_pairs,
    is_safe,
    login_environment,
    login_for,
    owned_by_another,
    sends_header,
    server_settings,
    url_login,
    variables_for_helpers,
    without_credentials,
    without_web,
)
from task.git.errors import KILLED, GitEnded, GitFailed, failure
from task.git.names import Address, address_of, rewritten
from task.git.ssh import SshSharing
from task.processes import (
    Bounds,
    CapturedOutput,
    Clock,
    Watch,
    exit_code,
    finish,
    send,
    start,
)
from task.secret import Secret
from task.text import blanked
from task.urls import as_ssh_url, local_folder, origin, split, without_login

PROTOCOLS = frozenset({"https", "ssh", "http"})
SECONDS = 900.0  # timeout in seconds, longer than any local git command takes
_TRANSFERS = frozenset({"ls-remote", "fetch", "push"})
_REFS = "/info/refs?service=git-upload-pack"  # the path of git's first request to an HTTP server
_REDIRECTED = re.compile(r"returned error: 30[12378]\b")
_REFUSED = re.compile(
    r"returned error: 40[0134]\b|Authentication failed|could not read Username|repository '.*' not"
    r" found"
)
_LOCATION = re.compile(r"(?i)<= Recv header: location: *(\S{1,4096})\s")
_PAGE = re.compile(r"(?i)<= Recv header: content-type: *text/html")
_TRACED = {
    "GIT_TRACE_CURL": "1",
    "GIT_TRACE_CURL_NO_DATA": "1",
    "GIT_TRACE_REDACT": "1",
}
_MOST_REDIRECTS = 5  # maximum number of redirects to follow for one repository
_TAIL = 64_000  # bytes of stderr to keep; the cause of an error comes last
_LAST_LINES = 3  # lines of stderr quoted in the error for a command that we stopped
_PROGRESS = re.compile(
    "(?:remote: )?(?:Enumerating|Counting|Compressing|Receiving|Resolving|Total) [^:]*[0-9:]"
)
NO_FILTER = "filtering not recognized"  # git's message about a server without partial clones
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "http_proxy")
_MOST_WARNINGS = 100  # maximum number of warnings logged in a run
_LONGEST = 1000  # maximum length of a warning, in characters


@dataclass(frozen=True)
class Ran:
    """The output of a git command, including stderr without progress messages."""

    out: bytes  # stdout
    err: str  # stderr


@dataclass(frozen=True)
class Talk:
    """A running git command that reads requests and writes responses."""

    ask: IO[bytes]  # writes to the command's stdin
    answer: IO[bytes]  # reads the command's stdout
    running: Any  # sh.RunningCommand

    def end(self) -> None:
        """Stop the command without waiting for it to exit. A signal handler may call this."""
        send(self.running, "SIGTERM")

    def close(self) -> None:
        """Close the command's input, and wait for it to exit."""
        with suppress(BrokenPipeError):
            self.ask.close()
        self.answer.close()
        finish(self.running)
        exit_code(self.running)


class Git:
    """Runs git commands, all in the same way.

    A run has one instance for each set of credentials. Several threads may share an instance.
    """

    def __init__(  # noqa: PLR0913 - all that a git process depends on
        self,
        environ: Mapping[str, str],
        *,
        protocols: frozenset[str] = frozenset(),
        rewrites: Sequence[tuple[str, str]] = (),
        log: Callable[[str], None] = lambda _sentence: None,
        access: Access | None = None,
        configured: bool = True,
        stall: float = 60,
        patience: float = 20,
        bounds: Bounds = Bounds(),
    ) -> None:
        """`environ`: the machine's variables. `protocols`: the protocols allowed in addition to
        `PROTOCOLS`. `rewrites`: (URL prefix, its replacement). `access`: the credentials.
        `configured`: whether to use the user's git configuration, too.
        """
        self.protocols = PROTOCOLS | protocols
        self.calls: list[str] = []  # the names of all git commands that were started
        self.temporary = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - names in it are random, folders private
        self.stall = stall  # seconds without a byte before a transfer is stopped
        self.bounds = bounds  # limits on the resources that a server may use
        self._process_limits = bounds.limits()
        self.patience = patience  # how many seconds to retry after a connection problem
        self._rewrites = tuple(rewrites)
        self.log = log

        # What has been learned during the run.
        self._logged_once: set[str] = set()  # warnings, and URLs warned about; not logged again
        self._new_urls: dict[str, str] = {}  # URL → where the same server redirects it
        self._redirect_counts: dict[str, int] = {}  # URL → how often it was redirected
        self._only_on_request: set[str] = set()  # URLs whose servers must ask for credentials first
        self._has_passwd_variables = False  # whether ssh was given a passwd entry

        # What git receives from the machine and from the user.
        self._environ = clean_environment(environ, self.protocols)
        self._settings_from_variables = server_settings(config_pairs(environ)) if configured else []
        self._full_environ = environ
        self._access = access or Access(environ=environ)
        self._user_config = UserConfig(
            lambda *argv: self.run(*argv).out,
            environ if configured else {},
            self._access.given.config_file,
        )
        self._sharing = SshSharing(self.temporary, self._environ)

    def url(self, repo: str) -> str:
        """Return the URL to contact for an Application's URL, without credentials.

        For plain http, log a warning once. Raises `SourceError` for a protocol that is not allowed.
        """
        target = self._address(repo)
        is_local = target.protocol == "file"
        if target.protocol not in self.protocols:
            kind = "a local path or file:// URL" if is_local else f"{target.protocol}://"
            hint = "allow it with --allow-protocol file" if is_local else "use https or ssh"
            raise SourceError(
                f"{kind} is not allowed as a repository URL",
                hint=hint,
                subject=without_login(repo),
            )
        if target.protocol == "http" and target.url not in self._logged_once:
            self._logged_once.add(target.url)
            self.log(
                f"warning: {target.url} uses plain http: traffic can be read and modified in"
                " transit"
            )
        if is_local and not target.url.startswith("file://"):
            return os.path.abspath(target.url)
        return target.url

    def _address(self, repo: str) -> Address:
        return address_of(rewritten(repo, self._rewrites))

    def local(self, url: str) -> Local:
        """Return "ours" for a repository on this machine that is ours, and "safe" for another
        user's that git is configured to trust. Return "" for a repository on a server.

        Raises `RepositoryError` if the repository is another user's and git does not trust it,
        because git would run its hooks.
        """
        if address_of(url).protocol != "file":
            return ""
        others_folder = owned_by_another(local_folder(url), self._environ)
        if not others_folder:
            return "ours"
        trusted_folders = self._user_config.safe_directories
        if is_safe(others_folder, trusted_folders, self._environ.get("HOME", "")):
            return "safe"
        message = "git does not trust this local repository: another user owns it"
        hint = (
            "run as its owner, or trust it: git config --global --add safe.directory"
            f" {blanked(others_folder)}"
        )
        raise RepositoryError(message, hint=hint, subject=url)

    def login(self, repo: str, *, at_once: bool = False) -> dict[str, str]:
        """Return the variables for a git command that contacts the server of `repo`: credentials,
        the user's git settings, and the ssh command. Credentials are sent only to their own server.

        `at_once`: send the credentials with the first request, unless an earlier command has
        `sent_too_early`. This saves a round trip, because git need not wait for a 401. Raises
        `CredentialsError` for a configuration that git cannot read, and the errors of a GitHub
        App's token.
        """
        target = self._address(repo)
        url = target.url
        rewrites = self._user_config.rewrites  # if True, git may contact any server
        is_local = target.protocol == "file" and not rewrites
        logins, settings = self._logins_and_settings(target)

        # Git also sends configured headers to a redirect's target. So if there is a header, git
        # must not follow redirects.
        server = "" if rewrites else origin(url)  # "" means any server
        follow_redirects = not sends_header(settings, server)

        # Send a login with the first request if it is certain which login the server will receive.
        may_send_at_once = (
            at_once and follow_redirects and not rewrites and url not in self._only_on_request
        )
        login = login_for(logins, url) if may_send_at_once else None
        if login:
            # Git 2.46 has http.proactiveAuth for this; Debian 12 has 2.39.
            settings.append(basic_header(login, url))
            logins = []
            follow_redirects = False

        # Turn everything into environment variables.
        moved_urls = [(url, self._new_urls[url])] if url in self._new_urls else []
        env = login_environment(settings, logins, follow=follow_redirects, moved=moved_urls)
        env |= self._access.environment()
        # a local repository's hooks do not need to log in anywhere
        may_use_helpers = not is_local and not self._access.given.alone
        if may_use_helpers:
            # Add the machine's variables for credential programs, unless they are already set.
            variables = variables_for_helpers(self._full_environ, self._user_config.programs)
            for name, value in variables.items():
                if name not in self._environ:
                    env.setdefault(name, value)
        if target.protocol == "https" and not self._user_config.rewrites_to_http:
            # Never downgrade from https to http: plain http can be read and modified in transit.
            env["GIT_ALLOW_PROTOCOL"] = ":".join(sorted(self.protocols - {"http"}))
        return env | self.ssh_environment(url)

    def _logins_and_settings(self, target: Address) -> tuple[list[Login], list[tuple[str, str]]]:
        """Return the logins and the git settings that may be used for this address."""
        logins = [*url_login(target)]
        settings = self._settings_pairs()
        if self._user_config.rewrites:  # git may contact any server
            logins += self._access.logins("", helped=self._user_config.has_credentials)
        elif target.protocol in {"https", "http"}:
            logins += self._access.logins(target.url, helped=self._user_config.has_credentials)
        else:  # ssh, or a local repository
            settings = without_web(settings)
        return logins, settings

    def _settings_pairs(self) -> list[tuple[str, str]]:
        """Return the user's git settings and ours. If only our credentials may be used (`alone`),
        leave out the user's credentials.
        """
        from_files = self._user_config.pairs
        from_variables = self._settings_from_variables
        if self._access.given.alone:
            from_files = without_credentials(from_files)
            from_variables = without_credentials(from_variables)
        return [*from_files, *self._access.pairs(), *from_variables]

    def sent_too_early(self, repo: str, error: GitFailed) -> bool:
        """Return whether a command may have failed because it sent credentials without being asked.
        If so, remember the URL, so that later commands send credentials only when the server asks.

        `error` is the command's failure. Some servers reject unknown credentials even for a public
        repository, and redirects must be followed without credentials.
        """
        url = self._address(repo).url
        if url in self._only_on_request:  # if so, the credentials were not sent too early
            return False
        was_rejected = _REDIRECTED.search(error.err) or _REFUSED.search(error.err)
        if not was_rejected:
            return False
        self._only_on_request.add(url)
        return True

    def redirected(
        self,
        repo: str,
        error: GitFailed,
        remote: str,
        git_dir: str,
        clock: Clock,
    ) -> bool:
        """Return whether to repeat the failed command because the server redirects the repository
        to a different URL on the same server. That URL is remembered.

        `error` is the command's failure, and `remote` is the command's remote in `git_dir`. This
        method is needed when git must not follow redirects itself, because git would send a header
        with a token to their targets. Raises `CredentialsError` if the redirect leads to a
        different server.
        """
        if not _REDIRECTED.search(error.err):
            return False

        # Repeat the request to find the new URL in the server's response.
        url = self._address(repo).url
        env = self.login(repo)
        output = self.run("ls-remote", "--get-url", remote, git_dir=git_dir, env=env).out
        contacted_url = output.decode().strip()
        try:
            self._trace_request(remote, git_dir, env, clock)  # raises an error with the headers
        except GitFailed as traced_error:
            if not _REDIRECTED.search(traced_error.err):
                return False
            locations = _LOCATION.findall(traced_error.err)
        else:
            return True  # the server no longer redirects, so the command may be repeated
        if not locations:
            return False

        # Remember the URL, unless it is on a different server or leads to a web page.
        display_url = without_login(repo)
        location = urljoin(f"{contacted_url}{_REFS}", locations[-1])
        if origin(location) != origin(contacted_url):
            raise _other_server(location, display_url)
        new_url = location.removesuffix(_REFS)
        leads_to_web_page = new_url == location or "?" in new_url or "#" in new_url
        if leads_to_web_page:
            return False

        self._redirect_counts[url] = self._redirect_counts.get(url, 0) + 1
        if self._redirect_counts[url] > _MOST_REDIRECTS:
            raise CredentialsError(
                "the server redirects in a loop",
                hint="check the URL",
                subject=display_url,
            )
        self._new_urls[url] = address_of(new_url).url
        self.log(
            f"warning: {display_url} has moved to {without_login(self._new_urls[url])}: set repoURL to"
            " that URL"
        )
        return True

    def is_web_page(
        self,
        remote: str,
        git_dir: str,
        env: Mapping[str, str],
        clock: Clock,
    ) -> bool:
        """Return whether a web server returns a page for the repository, such as a login page."""
        return _PAGE.search(self._trace_request(remote, git_dir, env, clock)) is not None

    def _trace_request(
        self,
        remote: str,
        git_dir: str,
        env: Mapping[str, str],
        clock: Clock,
    ) -> str:
        """Request HEAD from the server, and return git's stderr, which contains the headers of the
        server's responses.

        Never show this output: git masks the Authorization header in it, but no other headers.
        Raises `GitFailed`.
        """
        argv = ("ls-remote", remote, "HEAD")
        traced_env = {**env, **_TRACED}
        return self.run(*argv, git_dir=git_dir, env=traced_env, clock=clock).err

    def run(
        self,
        *argv: str,
        git_dir: str = "",
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = SECONDS,
        clock: Clock | None = None,
        program: str = "git",
        meanwhile: Callable[[], object] | None = None,
        stop: Callable[[str], str] | None = None,
    ) -> Ran:
        """Run a command, and return its output.

        `timeout`: in seconds, unless a `clock` keeps the time left for several commands. `program`:
        a different program to run in the same environment. `meanwhile`: a function to call while
        the command runs. `stop`: a function that receives the stderr output so far, and returns the
        reason to stop the command, or "" to let it run. Raises `GitFailed`, `GitEnded` if we
        stopped the command, or `UnreachableError` if someone else killed it.
        """
        shutdown.check()  # raises an error if a signal has arrived
        name = _command_name(argv)
        is_transfer = name in _TRANSFERS
        subject = ""
        too_late = f"timed out after {timeout:.0f} seconds"
        if clock:
            subject = clock.subject
            timeout = clock.left()
            too_late = clock.why

        with (
            shutdown.shield(),
            _explain_open_files(),
            _unnamed_file(git_dir or self.temporary) as stdin_file,
            closing(CapturedOutput()) as out,
            closing(CapturedOutput(_TAIL)) as err,
        ):
            raw_stdin = stdin.encode() if isinstance(stdin, str) else stdin
            stdin_file.write(raw_stdin)
            stdin_file.seek(0)
            running = self._start(argv, git_dir, env, (stdin_file, out.sink, err.sink), program)
            out.sink.close()  # so that the outputs end when the child process closes them
            err.sink.close()
            watch = Watch(
                running,
                limits=(timeout, too_late, self.stall if is_transfer else 0),
                outputs=(out, err),
                bounds=self.bounds,
                git_dir=git_dir if is_transfer else "",
                stop=stop,
            )
            code = self._exit_code_of(running, watch, meanwhile)
        output = out.text()
        messages = err.text().decode("utf-8", "replace")
        if "--progress" in argv:
            messages = _without_progress(messages)

        why_stopped = watch.why
        if code and not why_stopped and program == "git":
            why_stopped = self.bounds.passed(messages)  # git hit a limit that we set
        if why_stopped:
            self._sharing.end()
            last_lines = "\n".join(messages.splitlines()[-_LAST_LINES:])
            raise GitEnded(name, code, output, f"{last_lines}\n{why_stopped}")

        if code == 0:
            self._log_warnings(messages, subject)
            return Ran(output, messages)
        shutdown.check()  # the command may have failed because of the signal
        if code < 0:
            raise _killed(argv, program, -code).about(subject)
        raise GitFailed(name, code, output, messages)

    def _log_warnings(self, messages: str, subject: str) -> None:
        """Log each warning in git's messages once per run, but at most `_MOST_WARNINGS` in all."""
        for line in messages.splitlines():
            if not line.startswith("warning:") or line in self._logged_once:
                continue
            if len(self._logged_once) >= _MOST_WARNINGS:
                return
            self._logged_once.add(line)
            # Users need not know this: without partial clones, we fetch the files in another way.
            text = line.removeprefix("warning: ") if NO_FILTER in line else line
            about = f" ({subject})" if subject else ""
            self.log(f"git: {text[:_LONGEST]}{about}")

    def talk(self, *argv: str, git_dir: str, env: Mapping[str, str] | None = None) -> Talk:
        """Start a git command that reads requests and writes responses until it is closed, such as
        `git cat-file --batch`.
        """
        shutdown.check()  # raises an error if a signal has arrived
        with shutdown.shield(), _explain_open_files():
            stdin_end, request_end = os.pipe()
            response_end, stdout_end = os.pipe()
            with (
                open(stdin_end, "rb") as child_stdin,
                open(stdout_end, "wb") as child_stdout,
                open(os.devnull, "wb") as child_stderr,
            ):
                running = self._start(argv, git_dir, env, (child_stdin, child_stdout, child_stderr))
            return Talk(open(request_end, "wb"), open(response_end, "rb"), running)

    def failure(self, repo: str, messages: str, subject: str) -> TaskError:
        """Return the error for git's `messages` about the repository `repo`. The hint may depend on
        the configured credentials. `subject` names the repository in the error.
        """
        address = self._address(repo)
        credentials = self._access.given
        logins = [*url_login(address), *credentials.spare, *credentials.logins]
        login = login_for(logins, address.url)  # the login that git would send
        configured_prefixes = dict.fromkeys(login.prefix for login in credentials.logins)
        return failure(
            messages,
            subject,
            scopes=tuple(configured_prefixes),
            token=login.password if login else Secret(""),
            host=split(address.url).host,
            proxied=any(self._environ.get(variable) for variable in _PROXIES),
        )

    def ssh_environment(self, url: str) -> dict[str, str]:
        """Return the variables that make git run ssh without prompts.

        The ssh command is from the options, else from the user's git configuration, else our
        default. Return {} if ssh is not used, or if the machine's variables set the ssh command.
        """
        may_use_ssh = address_of(url).protocol == "ssh" or self._user_config.rewrites
        if not may_use_ssh:
            return {}
        # ssh refuses to run without a passwd entry, so git's environment provides one
        if not self._has_passwd_variables:
            self._has_passwd_variables = True
            self._environ |= self._access.passwd_variables()
        command, is_from_options = self._access.ssh()
        if not is_from_options:
            if "GIT_SSH_COMMAND" in self._environ or "GIT_SSH" in self._environ:
                return {}
            if self._user_config.ssh_command:
                return {"GIT_SSH_COMMAND": self._user_config.ssh_command}
        parts = split(as_ssh_url(url))
        server = f"{parts.login}@{parts.authority}"
        return {
            "GIT_SSH_COMMAND": command + self._sharing.options(command, server),
            "GIT_SSH_VARIANT": "ssh",
        }

    def close(self) -> None:
        """Close the shared connections, and remove the copied keys."""
        with shutdown.shield():
            self._sharing.close()
            self._access.close()

    def _start(
        self,
        argv: Sequence[str],
        git_dir: str,
        env: Mapping[str, str] | None,
        files: Sequence[IO[bytes]],
        name: str = "git",
    ) -> Any:
        """Start the program `name` with these files as stdin, stdout, and stderr.

        Raises `UsageError` if it is not installed.
        """
        self.calls.append(_command_name(argv))
        folders = self._environ.get("PATH", os.defpath).split(os.pathsep)
        try:
            program = sh.Command(name, folders)
        except sh.CommandNotFound as error:
            requirement = "git 2.31 or newer" if name == "git" else name
            raise UsageError(f"{name} is not installed", hint=f"install {requirement}") from error
        # GIT_DIR is always set, because a step may start in a folder with a broken or malicious
        # `.git/config`.
        environ = {
            **self._environ,
            **(env or {}),
            "GIT_DIR": git_dir or os.devnull,
        }
        limit = self._process_limits if name == "git" else None
        try:
            return start(program, argv, environ, files, limit)
        except ValueError as error:  # the child process did not report to sh
            raise _killed(argv, name, signal.SIGKILL) from error

    @staticmethod
    def _exit_code_of(running: Any, watch: Watch, meanwhile: Callable[[], object] | None) -> int:
        """Call `meanwhile`, wait for the process to exit, and return its exit code. If the call or
        the wait is interrupted, stop the process, too.
        """
        try:
            with shutdown.ending(watch.end):
                if meanwhile:
                    meanwhile()
                watch.wait()
        except BaseException:
            finish(running)
            raise
        finally:
            code = exit_code(running)
        return code


def _command_name(argv: Sequence[str]) -> str:
    """Return the git command's name: the first word that is not an option or an option's value."""
    words = iter(argv)
    for word in words:
        if word in {"-c", "-C", "--git-dir", "--work-tree"}:
            next(words, None)  # skip the option's value
        elif not word.startswith("-"):
            return word
    return ""


def _other_server(location: str, subject: str) -> CredentialsError:
    """Return the error for a redirect to a different server."""
    why_not_followed = (
        ", and a token sent as a header (http.extraHeader, bearerToken) is sent only"
        " to its own server"
    )
    return CredentialsError(
        f"the server redirects to {blanked(origin(location))[:200]}{why_not_followed}",
        hint=(
            "if the repository has moved, set repoURL to its new URL, and add credentials for"
            " that server"
        ),
        subject=subject,
    )


def _killed(argv: Sequence[str], program: str, number: int) -> TaskError:
    """Return the error for a command that someone else killed.

    A killed push may nevertheless have reached the server.
    """
    name = f"git {_command_name(argv)}" if program == "git" else program
    return UnreachableError(f"{name} was killed by signal {number}", hint=KILLED)


@contextmanager
def _explain_open_files() -> Iterator[None]:
    """Turn an error about too many open files inside the block into our own error.

    Starting a process briefly takes a dozen open files.
    """
    try:
        yield
    except OSError as error:
        too_many_files = exhausted(error)
        if too_many_files:
            raise too_many_files from error
        raise


def _unnamed_file(folder: str) -> IO[bytes]:
    """Open an empty file without a name, so that nothing is left behind.

    Only on systems without memory files does the file use space in the temporary folder. Raises
    `ExhaustedError` or `UnreachableError` if it cannot be created.
    """
    try:
        if hasattr(os, "memfd_create"):
            return open(os.memfd_create("git"), "w+b", buffering=0)
        return TemporaryFile("w+b", buffering=0, dir=folder)
    except OSError as error:
        message = f"cannot create a temporary file: {error.strerror}"
        hint = "free some space, then run it again"
        raise exhausted(error) or UnreachableError(message, hint=hint) from error


def _without_progress(messages: str) -> str:
    """Return stderr without git's progress messages."""
    lines = messages.splitlines(keepends=True)
    return "".join(line for line in lines if not _PROGRESS.match(line))
