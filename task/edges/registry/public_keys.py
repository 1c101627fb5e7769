"""Signatures by keys, checked by `openssl`: every image with certificates has it, a library would be 10 MB more."""

from __future__ import annotations

import os

from task.edges import private_folder, quick_sh
from task.edges.child_environment import child_environment
from task.errors import Malformed, UsageError
from task.files import read_text
from task.parse.signature import PublicKey, Signed, public_keys

_NOT_HERE = "openssl is not installed"


class PublicKeys:
    """The keys of a file: a signature with any of them is good. Safe to use from several threads."""

    def __init__(self, path: str, temporary: str) -> None:
        """Raises `UsageError` for a file that holds no public keys."""
        self._temporary = temporary
        try:
            self._keys = public_keys(read_text(path))
        except Malformed as error:
            raise UsageError(f"--verify: {path}: {error.message}", hint=error.hint or "give cosign.pub") from None
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            hint = "name a readable file; of a key elsewhere, give what `cosign public-key --key …` prints"
            raise UsageError(f"--verify: cannot read {path!r}: {why}", hint=hint) from None
        for key in self._keys:
            if not self._asked({"key": key.pem.encode()}, "pkey", "-pubin", "-noout", "-in", "key"):
                raise UsageError(f"--verify: {path}: openssl cannot read its public key", hint="give cosign.pub")

    def objection(self, found: Signed) -> str:
        """Why the signature is not good; "" where it is."""
        for signature in found.signatures:
            if any(self._good(key, found.content, signature) for key in self._keys):
                return ""
        return "a signature is not by the key that is required"

    def _good(self, key: PublicKey, content: bytes, signature: bytes) -> bool:
        files = {"key": key.pem.encode(), "text": content, "signature": signature}
        if not key.hashes:
            argv = ("pkeyutl", "-verify", "-pubin", "-inkey", "key", "-rawin", "-in", "text", "-sigfile", "signature")
            return self._asked(files, *argv)
        return any(
            self._asked(files, "dgst", f"-{name}", "-verify", "key", "-signature", "signature", "text")
            for name in key.hashes
        )

    def _asked(self, files: dict[str, bytes], *argv: str) -> bool:
        """Whether openssl agrees; the arguments name the files, none of which is a secret."""
        sh, folder = quick_sh.load(), private_folder.make(self._temporary)
        try:
            for name, content in files.items():
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
            words = [os.path.join(folder, word) if word in files else word for word in argv]
            sh.Command("openssl")(*words, _tty_in=False, _tty_out=False, _env=child_environment(os.environ))
        except sh.CommandNotFound:
            raise UsageError(_NOT_HERE, hint="install it: signatures are checked with it") from None
        except sh.ErrorReturnCode:
            return False
        finally:
            private_folder.remove(folder)
        return True
