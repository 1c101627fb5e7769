"""Decides which images of an index an entry takes, as Argo CD Image Updater (AIU) v0 and v1 match platforms."""

from __future__ import annotations

from collections.abc import Sequence


def accepts(wanted: Sequence[str], os: str, arch: str, variant: str = "", runtime: str = "") -> bool:
    """Whether an image for `os/arch[/variant]` is for one of the wanted platforms.

    A wanted platform without a variant takes any variant; one with a variant takes that variant only. Case matters. A
    text that is no platform takes nothing, so that a typo never lets an image through. Where no platform is wanted,
    `runtime` is (AIU takes the platform that it runs on itself), and without that any platform.
    """
    for text in wanted or ([runtime] if runtime else []):  # a wanted list replaces the runtime's platform, as in AIU
        wanted_os, wanted_arch, wanted_variant = _parts(text)
        if wanted_os and wanted_arch and (wanted_os, wanted_arch) == (os, arch) and wanted_variant in ("", variant):
            return True
    return not wanted and not runtime


def is_platform(text: str) -> bool:
    """Whether the text names an operating system and an architecture."""
    os, arch, _ = _parts(text)
    return bool(os and arch)


def _parts(text: str) -> tuple[str, str, str]:
    """The parts of `os/arch/variant`. All after the second slash is the variant, as in AIU."""
    os, _, rest = text.strip().partition("/")
    arch, _, variant = rest.partition("/")
    return os, arch, variant
