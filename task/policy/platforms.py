"""Decides which images of an index an entry accepts.

It matches platforms as Argo CD Image Updater (AIU) v0 and v1 do.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

# Go's architectures, because images are built for them.
_ARCHITECTURES = (
    "386", "amd64", "arm", "arm64", "loong64", "mips", "mipsle", "mips64", "mips64le", "ppc64", "ppc64le", "riscv64",
    "s390x", "wasm",
)  # fmt: skip
_OTHER_NAMES = {"x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "aarch64": "arm64", "i386": "386", "x86": "386"}


def accepts(wanted: Sequence[str], os: str, arch: str, variant: str = "", runtime: str = "") -> bool:
    """Tell whether an image for `os/arch[/variant]` is for one of the wanted platforms.

    A wanted platform without a variant accepts any variant, and one with a variant accepts only that. Case matters. A
    text that is not a platform accepts nothing, so that a typo never lets an image through. If no platform is wanted,
    `runtime` is (AIU uses the platform that it runs on), and if that is "" as well, any platform.
    """
    for text in wanted or ([runtime] if runtime else []):  # as in AIU, a list replaces the runtime's platform
        wanted_os, wanted_arch, wanted_variant = _parts(text)
        if wanted_os and wanted_arch and (wanted_os, wanted_arch) == (os, arch) and wanted_variant in ("", variant):
            return True
    return not wanted and not runtime


def is_platform(text: str) -> bool:
    """Tell whether the text names an operating system and an architecture."""
    os, arch, _ = _parts(text)
    return bool(os and arch)


def meant_platforms(text: str) -> tuple[str, ...]:
    """Return which platforms a text with an unknown architecture may mean.

    Empty for a known architecture, and for one that resembles none.
    """
    os, arch, _ = _parts(text)
    if arch in _ARCHITECTURES:
        return ()
    named = _OTHER_NAMES.get(arch)
    return tuple(f"{os}/{one}" for one in ([named] if named else get_close_matches(arch, _ARCHITECTURES, n=2)))


def _parts(text: str) -> tuple[str, str, str]:
    """Return the parts of `os/arch/variant`. Everything after the second slash is the variant, as in AIU."""
    os, _, rest = text.strip().partition("/")
    arch, _, variant = rest.partition("/")
    return os, arch, variant
