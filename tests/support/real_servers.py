"""Real Git servers on loopback, with throwaway keys: sshd, nginx with git's http-backend, and git's
own daemon.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from support import needs

USER, PASSWORD = "ci", "s3cret-pass/w@rd"
READER = "ro"


class Sshd(NamedTuple):
    """An SSH server that serves all repositories on this machine to the owner of `key`."""

    port: int
    key: Path
    stranger: Path  # a key without access
    locked: Path  # a key with a passphrase
    host_key: str  # as a line of known_hosts
    log: Path

    def url(self, repo: Path) -> str:
        """Return the URL of a repository."""
        return f"ssh://{_me()}@127.0.0.1:{self.port}{repo}"


class Nginx(NamedTuple):
    """An nginx server for the repositories in a folder. All ports require a login."""

    tls: int
    plain: int
    client: int  # the port that also requires a client certificate
    thief: int  # the thief's port, which records the credentials it receives, and serves nothing
    ca: Path
    certificate: Path  # a client's certificate
    certificate_key: Path
    told: Path  # the Authorization headers that the thief received
    door: "subprocess.Popen[bytes]"  # the nginx process
    backend: "subprocess.Popen[bytes]"  # the process that runs git, with all its children

    def url(self, name: str, scheme: str = "https") -> str:
        """Return the URL of a repository. The prefix `moved/` redirects to the thief, and `broken/`
        returns a 503.
        """
        return f"{scheme}://localhost:{self.tls if scheme == 'https' else self.plain}/{name}"

    def kill(self) -> None:
        """Kill all of the server's processes."""
        end(self.door)
        end(self.backend)


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Run an SSH server for the user who runs the tests."""
    program = needs("sshd")
    needs("ssh")
    for name, words in (("host", ""), ("id", ""), ("stranger", ""), ("locked", "a passphrase")):
        _call(
            "ssh-keygen", "-q", "-t", "ed25519", "-N", words, "-C", name, "-f", str(folder / name)
        )
    (folder / "authorized").write_text((folder / "id.pub").read_text())
    port = free_port()
    (folder / "sshd_config").write_text(f"""
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
MaxStartups 100:30:200
""")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    log, public = folder / "sshd.log", (folder / "host.pub").read_text().split()
    argv = [*program, "-D", "-e", "-f", str(folder / "sshd_config")]
    with started(argv, port, log):
        line = f"[127.0.0.1]:{port} {public[0]} {public[1]}"
        yield Sshd(port, folder / "id", folder / "stranger", folder / "locked", line, log)


@contextmanager
def nginx(folder: Path, repos: Path, *, tomorrow: bool = False) -> Iterator[Nginx]:
    """Run an HTTPS and HTTP server with Basic authentication. With `tomorrow`, its certificate
    becomes valid only tomorrow.
    """
    program, wrapper = needs("nginx"), needs("fcgiwrap")
    _certificates(folder)
    if tomorrow:
        _valid_from_tomorrow(folder)
    digest = _call("openssl", "passwd", "-apr1", PASSWORD)
    (folder / "htpasswd").write_text(f"{USER}:{digest}{READER}:{digest}")
    tls, plain, client, thief = ports = tuple(free_port() for _ in range(4))
    (folder / "nginx.conf").write_text(_nginx_conf(folder, repos, ports))
    at = folder / "fcgi"
    with started([*wrapper, "-c", "8", "-s", f"unix:{at}"], at, folder / "fcgiwrap.log") as backend:
        argv = [*program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        with started(argv, thief, folder / "nginx.log") as door:
            ca, certificate, key, told = (
                folder / name for name in ("ca.pem", "client.pem", "client.key", "told")
            )
            yield Nginx(tls, plain, client, thief, ca, certificate, key, told, door, backend)


@contextmanager
def git_daemon(repos: Path, log: Path) -> Iterator[int]:
    """Run a server without logins for the duration of the block, and yield its port."""
    core = Path(_call("git", "--exec-path").strip())
    port = free_port()
    base = [
        "--export-all",
        "--reuseaddr",
        "--listen=127.0.0.1",
        f"--port={port}",
        f"--base-path={repos}",
    ]
    with started([str(core / "git-daemon"), *base, "--enable=receive-pack", str(repos)], port, log):
        yield port


@contextmanager
def started(
    argv: Sequence[str], where: int | Path, log: Path
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a program that listens on a port or socket for the duration of the block. Then stop the
    program and its children.
    """
    with log.open("wb") as said:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
    try:
        _wait_for(process, where, log)
        yield process
    finally:
        end(process, signal.SIGTERM)


def end(process: "subprocess.Popen[bytes]", number: int = signal.SIGKILL) -> None:
    """Stop a server and its children, unless the server has already exited."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    process.wait(10)


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(process: subprocess.Popen[bytes], where: int | Path, log: Path) -> None:
    for _ in range(200):
        kind, address = (
            (socket.AF_UNIX, str(where)) if isinstance(where, Path) else (socket.AF_INET, where)
        )
        with socket.socket(kind) as probe:
            if (
                probe.connect_ex(address if isinstance(address, str) else ("127.0.0.1", address))
                == 0
            ):
                return
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _certificates(folder: Path) -> None:
    """Create a CA, a certificate for this machine's server, and a certificate for a client."""
    # Creating RSA keys would take half a second of CPU time.
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    new = ("req", "-x509", *key, "-days", "2")
    out = ("-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem"))
    _call("openssl", *new, "-subj", "/CN=Tests", *out)
    for name, extra in (
        ("server", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("client", "extendedKeyUsage=clientAuth"),
    ):
        signed = ("-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key"), "-addext", extra)
        out = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"))
        _call("openssl", *new, "-subj", f"/CN={name}", *signed, *out)


def _valid_from_tomorrow(folder: Path) -> None:
    """Sign the server's certificate again so that it is not valid yet, as it would appear on a
    machine whose clock is slow.
    """
    now = datetime.now(tz=UTC)
    start, stop = ((now + timedelta(days=days)).strftime("%Y%m%d%H%M%SZ") for days in (1, 3))
    (folder / "index").touch()
    (folder / "serial").write_text("01")
    (folder / "ca.conf").write_text(f"""
[ca]
default_ca = this
[this]
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = DNS:localhost,IP:127.0.0.1
""")
    asked = (
        "req",
        "-new",
        "-key",
        str(folder / "server.key"),
        "-subj",
        "/CN=server",
        "-out",
        str(folder / "server.csr"),
    )
    _call("openssl", *asked)
    authority = (
        "-cert",
        str(folder / "ca.pem"),
        "-keyfile",
        str(folder / "ca.key"),
        "-in",
        str(folder / "server.csr"),
    )
    when = ("-startdate", start, "-enddate", stop, "-out", str(folder / "server.pem"))
    _call(
        "openssl", "ca", "-batch", "-notext", "-config", str(folder / "ca.conf"), *authority, *when
    )


def _nginx_conf(folder: Path, repos: Path, ports: Sequence[int]) -> str:
    tls, plain, client, thief = ports
    secure = f"ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;"
    temporary = "".join(
        f"{kind}_temp_path {folder}/tmp-{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = f"user {_me()};" if os.getuid() == 0 else ""
    backend = Path(_call("git", "--exec-path").strip(), "git-http-backend")
    serve = f"""
      auth_basic git; auth_basic_user_file {folder}/htpasswd;
      location /moved/ {{ auth_basic off; rewrite ^/moved/(.*)$ https://127.0.0.1:{thief}/$1 redirect; }}
      location /broken/ {{ return 503; }}
      location / {{
        set $who $remote_user;
        if ($request_uri ~ receive-pack) {{ set $who "$remote_user writes"; }}
        if ($who = "{READER} writes") {{ return 403; }}
        fastcgi_param SCRIPT_FILENAME {backend}; fastcgi_param GIT_PROJECT_ROOT {repos};
        fastcgi_param GIT_HTTP_EXPORT_ALL 1; fastcgi_param PATH_INFO $uri; fastcgi_param QUERY_STRING $query_string;
        fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_TYPE $content_type;
        fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param REMOTE_USER $remote_user;
        fastcgi_param GIT_PROTOCOL $http_git_protocol; fastcgi_param HOME {folder};
        fastcgi_pass unix:{folder}/fcgi;
      }}"""
    return f"""
{user} daemon off; pid {folder}/nginx.pid; worker_processes 1;
events {{}}
http {{
  {temporary} access_log {folder}/access.log; client_max_body_size 0;
  log_format told '$request [$http_authorization]';
  server {{ listen 127.0.0.1:{tls} ssl; {secure} {serve} }}
  server {{ listen 127.0.0.1:{plain}; {serve} }}
  server {{ listen 127.0.0.1:{client} ssl; {secure}
    ssl_client_certificate {folder}/ca.pem; ssl_verify_client on; {serve} }}
  server {{ listen 127.0.0.1:{thief} ssl; {secure}
    access_log {folder}/told told; add_header WWW-Authenticate 'Basic realm="thief"' always; return 401; }}
}}
"""


def _me() -> str:
    return _call("id", "-un").strip()


def _call(program: str, *argv: str) -> str:
    found = shutil.which(program)
    return subprocess.run(
        [found or program, *argv], capture_output=True, check=True, text=True
    ).stdout
