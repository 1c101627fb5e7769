"""The Masterminds/sprig v3 functions for strings, in the order of its documentation.

Argo CD adds `normalize` and `slugify`, which turn a string into a name. URLs are parsed and
formatted as in Go's `net/url`.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from ipaddress import AddressValueError, IPv6Address
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import re2

from task.applicationsets.arguments import (
    boolean,
    bounded,
    joined,
    mapping,
    number,
    shown,
    text,
    texts,
)
from task.policy.version_range import parse_range, parse_version
from task.templates.go_template.functions import Builtin, named
from task.templates.go_template.printing import quote as go_quote
from task.templates.go_template.values import (
    AnyMap,
    FailedTemplate,
    GoMap,
    Printable,
    go_bytes,
    go_text,
)

_LONGEST_NAME = 253  # characters of a DNS subdomain
_LONGEST_SLUG = 50
_NOT_IN_NAMES = re.compile(r"[^-a-z0-9.]")
_LONGEST_PATTERN = 4096
_MEMORY = 4 << 20  # bytes that RE2 may use per pattern
_LONGEST_DURATION = (2**63 - 1) // 10**9  # seconds
_SECONDS = re.compile(r"[-+]?[0-9]{1,1000}", re.ASCII)
_OCTAL = re.compile(r"[-+]?0*[0-7]{1,22}", re.ASCII)
# Punctuation that Go does not escape, besides - . _ ~
_IN_PATH = "$&+,/:;=@"
_IN_USER = "$&+,;="
_IN_FRAGMENT = "!$&()*+,/:;=?@"
_IN_HOST = "!$&'()*+,;=:[]<>\""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}", re.DOTALL)
_STRANGE_IN_HOST = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]")
_ESCAPE_IN_HOST = re.compile(r"%(?!25)[0-7].")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT = re.compile(r"(?::[0-9]*)?")


def normalize(value: Any) -> str:
    """Turn a string into a DNS name: lowercase,
    with `-` for each character that is not allowed in DNS names.

    Dots are kept.
    """
    return _NOT_IN_NAMES.sub("-", text(value).lower())[:_LONGEST_NAME].strip("-.")


def slugify(*arguments: Any) -> str:
    """Run `slugify [length] [whole words] text`: turn the string into a name without dots.

    Without arguments, return "".
    """
    if not arguments:
        return ""
    *given, value = arguments
    if len(given) > 2:
        raise FailedTemplate("too many arguments")
    longest = number(given[0]) if given else _LONGEST_SLUG
    whole_words = boolean(given[1]) if len(given) > 1 else True
    cuts_words = not whole_words
    letters = unicodedata.normalize("NFKD", text(value)).encode("ascii", "ignore")
    plain = letters.decode().lower().strip()
    without_quotes = plain.replace("'", "").replace('"', "")
    slug = without_quotes.replace("&", "and").replace("@", "at")
    if cuts_words and longest > 0:
        slug = slug[:longest]
    slug = re.sub(r"[^a-z0-9-]", "-", slug)
    slug = re.sub(r"-{2,}", "-", slug).strip("-_")
    if cuts_words or longest <= 0 or len(slug) <= longest:
        return slug
    end_of_word = slug.rfind("-", 0, longest + 1)
    return slug[:end_of_word] if end_of_word >= 0 else slug[:longest]


def _trunc(length: Any, value: Any) -> str:
    """Run `trunc`, which counts bytes. A negative length keeps the end."""
    raw = go_bytes(text(value))
    size = number(length)
    if size >= 0:
        return go_text(raw[:size])
    if len(raw) <= -size:
        return text(value)
    return go_text(raw[size:])


def _substr(start: Any, end: Any, value: Any) -> str:
    """Run `substr`, which counts bytes. A negative start or end means the start or end of the
    string.
    """
    raw = go_bytes(text(value))
    first = number(start)
    last = number(end)
    if first < 0:
        return go_text(raw[: max(last, 0)])
    if last < 0 or last > len(raw):
        return go_text(raw[first:])
    return go_text(raw[first:last])


def _abbrev(left: int, width: Any, value: Any) -> str:
    """Run `abbrev` and `abbrevboth`, which count bytes.

    `left` is where the kept part starts.
    """
    raw = go_bytes(text(value))
    size = number(width)
    smallest = 7 if left > 0 else 4  # one byte, and the dots on both sides or at the end
    if size < smallest or len(raw) <= size:
        return value  # type: ignore[no-any-return]
    size_without_dots = size - len("...")
    left = min(left, len(raw) - size_without_dots)
    if left <= 4:
        return go_text(raw[:size_without_dots] + b"...")
    if left + size_without_dots < len(raw):
        return "..." + _abbrev(0, size_without_dots, go_text(raw[left:]))
    return go_text(b"..." + raw[-size_without_dots:])


def _wrap(width: Any, value: Any, end: Any = "\n", *, cut: bool = False) -> str:
    """Run `wrap` and `wrapWith`, which count bytes. With `cut`, words that are too long are cut."""
    raw = go_bytes(text(value))
    longest = max(number(width), 1)
    at = 0  # start of the next line
    lines: list[bytes] = []
    while len(raw) - at > longest:
        if raw[at] == ord(" "):
            at += 1
            continue
        space = raw.rfind(b" ", at, at + longest + 1)
        if space < 0 and cut:
            lines.append(raw[at : at + longest])
            at += longest
            continue
        if space < 0:  # the word is too long, and ends at the next space
            space = raw.find(b" ", at + longest)
        if space < 0:
            break
        lines.append(raw[at:space])
        at = space + 1
    return joined(map(go_text, [*lines, raw[at:]]), text(end) or "\n")


def _duration(value: Any) -> str:
    """Run `duration`: format whole seconds as Go does. A string that is not a number counts as
    0.
    """
    is_number = named(value) == "int" or (isinstance(value, str) and _SECONDS.fullmatch(value))
    seconds = int(value) if is_number else 0
    if abs(seconds) > _LONGEST_DURATION:
        raise FailedTemplate("a duration of more than 292 years")
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{rest}s"
    if minutes or hours:
        shown = f"{minutes}m{shown}"
    if hours:
        shown = f"{hours}h{shown}"
    return f"-{shown}" if seconds < 0 else shown


def _to_decimal(value: Any) -> int:
    """Run `toDecimal`: parse an octal number. Anything else becomes 0."""
    digits = shown(value)
    number = int(digits, 8) if _OCTAL.fullmatch(digits) else 0
    is_int64 = -(2**63) <= number < 2**63
    return number if is_int64 else 0


def _repeat(times: Any, value: Any) -> str:
    count = max(number(times), 0)
    bounded(count * len(text(value)))
    return text(value) * count


def _replace(old: Any, new: Any, value: Any) -> str:
    matches = text(value).count(text(old))
    bounded(len(value) + matches * len(text(new)))
    return str(text(value).replace(old, new))


def _indent(width: Any, value: Any) -> str:
    pad = max(number(width), 0)
    lines = text(value).count("\n") + 1
    bounded(len(value) + pad * lines)
    return " " * pad + value.replace("\n", "\n" + " " * pad)  # type: ignore[no-any-return]


def _parted(value: Any, mark: str) -> str:
    """Split words where the case changes, and at spaces, `_`, and `-`,
    but not at dots (huandu/xstrings).
    """
    split_at_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", mark, text(value))
    return re.sub(r"[\s_-]+", mark, split_at_case).lower()


def _camel(value: Any) -> str:
    parts = re.split(r"[\s_-]+", text(value))
    return "".join(part[:1].upper() + part[1:] for part in parts)


def _title(value: Any) -> str:
    """Capitalize each word.

    A letter starts a word unless it follows a letter, a digit, `_`, or `'`.
    """
    return re.sub(r"(?<![\w'])\w", lambda match: match.group().upper(), text(value))


def _join(between: Any, values: Any) -> str:
    listed = values if isinstance(values, list | tuple) else [values]
    return joined((shown(item) for item in listed if item is not None), text(between))


def _split_at(mark: Any, value: Any, most: int = -1) -> list[str]:
    if not text(mark):
        return list(text(value))
    return text(value).split(text(mark), most)


def _split_map(mark: Any, value: Any, most: int = -1) -> Mapping[str, str]:
    return GoMap({f"_{at}": part for at, part in enumerate(_split_at(mark, value, most))})


def _quote(*values: Any) -> str:
    return joined((go_quote(shown(value), '"') for value in values if value is not None), " ")


def _squote(*values: Any) -> str:
    return joined((f"'{shown(value)}'" for value in values if value is not None), " ")


def _decoded_text(decode: Callable[[bytes], bytes], value: Any) -> str:
    try:
        return go_text(decode(go_bytes(text(value))))
    except ValueError as error:
        return f"illegal base64 data: {error}"


@lru_cache(maxsize=16)
def _regex(pattern: str) -> Any:
    """Compile a pattern. Raises FailedTemplate."""
    if len(pattern) > _LONGEST_PATTERN:
        raise FailedTemplate(f"the pattern is longer than {_LONGEST_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error:
        raise FailedTemplate(f"error parsing regexp: {pattern[:80]!r}") from None
    finally:
        re2.purge()


def _find_all(pattern: Any, value: Any, most: Any) -> list[str]:
    found = [match.group() for match in _regex(text(pattern)).finditer(text(value))]
    return found if number(most) < 0 else found[:most]


def _replace_all(pattern: Any, value: Any, new: Any, *, literal: bool = False) -> str:
    """Run `regexReplaceAll` and, with `literal`, `regexReplaceAllLiteral`."""
    parts = []
    end = 0  # of the last match
    replaced_size = 0
    for match in _regex(text(pattern)).finditer(text(value)):
        replacement = text(new) if literal else _expanded(text(new), match)
        parts += [value[end : match.start()], replacement]
        replaced_size += len(replacement)
        bounded(replaced_size)
        end = match.end()
    return joined([*parts, value[end:]])


def _expanded(template: str, match: Any) -> str:
    """Expand `$1`, `${1}`, and `${name}` in a replacement. An unknown group expands to an empty
    string.
    """

    def group(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if not name:
            return "$"
        try:
            return match.group(int(name) if name.isdecimal() else name) or ""
        except (IndexError, KeyError):
            return ""

    return re.sub(r"\$(?:\{(\w+)\}|(\w+)|\$)", group, template)


def _regex_split(pattern: Any, value: Any, most: Any) -> list[str]:
    """Run `regexSplit`. `most` is the maximum number of parts; a negative number is no limit."""
    parts: list[str] = []
    end = 0  # of the last separator
    for match in _regex(text(pattern)).finditer(text(value)):
        if match.end() == 0:
            continue
        limit = number(most)
        if limit >= 0 and len(parts) >= limit - 1:
            break
        parts.append(value[end : match.start()])
        end = match.end()
    return [*parts, value[end:]]


def _found(pattern: Any, value: Any) -> str:
    match = _regex(text(pattern)).search(text(value))
    return str(match.group()) if match else ""


def _semver(value: Any) -> Printable:
    version = parse_version(value) if isinstance(value, str) else None
    if version is None:
        raise FailedTemplate("Invalid Semantic Version")
    fields = {
        "Major": version.major,
        "Minor": version.minor,
        "Patch": version.patch,
    }
    return Printable(
        str(version),
        fields | {"Prerelease": version.prerelease or "", "Metadata": version.build or ""},
    )


def _semver_compare(constraint: Any, value: Any) -> bool:
    version = parse_version(text(value))
    wanted = parse_range(text(constraint))
    if version is None:
        raise FailedTemplate("Invalid Semantic Version")
    return wanted.admits(version)


def _extension(value: Any) -> str:
    base = text(value).rpartition("/")[2]
    return base[base.rfind(".") :] if "." in base else ""


def url_parse(value: Any) -> AnyMap:
    """Run `urlParse`."""
    whole, _, fragment = text(value).partition("#")
    if _CONTROL.search(whole):
        raise _bad("invalid control character in URL")
    if whole.startswith(":"):
        raise _bad("missing protocol scheme")
    match = _SCHEME.match(whole)
    scheme = match[1].lower() if match else ""
    after_scheme = whole[match.end() :] if match else whole
    path, _, query = after_scheme.partition("?")
    user = host = opaque = ""
    if scheme and not path.startswith("/"):
        opaque = path
        path = ""
    elif not path.startswith("/") and ":" in path.partition("/")[0]:
        raise _bad("first path segment in URL cannot contain colon")
    elif path.startswith("//") and (scheme or not path.startswith("///")):
        authority, slash, rest = path.removeprefix("//").partition("/")
        encoded_user, _, encoded_host = authority.rpartition("@")
        host = _host_with_port(scheme, encoded_host)
        path = slash + rest
        user = _userinfo(encoded_user)
    colon = host.rfind(":")
    has_port = colon >= 0 and _PORT.fullmatch(host[colon:])
    hostname = host[:colon] if has_port else host
    if hostname.startswith("[") and hostname.endswith("]"):  # an IPv6 address
        hostname = hostname[1:-1]
    return AnyMap(
        scheme=scheme,
        host=host,
        hostname=hostname,
        path=_unescaped(path),
        query=query,
        opaque=opaque,
        fragment=_unescaped(fragment),
        userinfo=user,
    )


def url_join(given: Any) -> str:
    """Run `urlJoin`."""
    parts = {
        key: _url_part(mapping(given), key)
        for key in ("scheme", "host", "path", "query", "opaque", "fragment")
    }
    user = _userinfo(_url_part(mapping(given), "userinfo"))
    url = f"{parts['scheme']}:" if parts["scheme"] else ""
    url += parts["opaque"] or _place(parts, user)
    if parts["query"]:
        url += f"?{parts['query']}"
    if parts["fragment"]:
        url += f"#{_percent_escaped(parts['fragment'], _IN_FRAGMENT)}"
    return url


def _place(parts: Mapping[str, str], user: str) -> str:
    """Return a URL's authority and path, formatted as in Go's `URL.String`."""
    host = parts["host"]
    path = parts["path"] if parts["path"] == "*" else _percent_escaped(parts["path"], _IN_PATH)
    authority = ""
    if host or user or (parts["scheme"] and path):
        user_prefix = f"{user}@" if user else ""
        authority = f"//{user_prefix}{_percent_escaped(host, _IN_HOST)}"
    if host and path and not path.startswith("/"):
        path = f"/{path}"
    if not parts["scheme"] and not authority and ":" in path.partition("/")[0]:
        path = f"./{path}"  # otherwise, its first part would be read as a scheme
    return authority + path


def _bad(why: str) -> FailedTemplate:
    return FailedTemplate(f"unable to parse url: {why}")


def _url_part(given: AnyMap, key: str) -> str:
    """Return a part of the URL, or "" if it is missing. Raises FailedTemplate."""
    value = given.get(key, "")
    if not isinstance(value, str):
        raise FailedTemplate(
            f"unable to parse {key} key, must be of type string, but {named(value)} found"
        )
    return value


def _unescaped(value: str) -> str:
    invalid = _ESCAPE.search(value)
    if invalid:
        raise _bad(f'invalid URL escape "{invalid[0]}"')
    return go_text(unquote_to_bytes(go_bytes(value)))


def _percent_escaped(value: str, safe: str) -> str:
    return quote(go_bytes(value), safe=safe)


def _userinfo(value: str) -> str:
    """Return `user[:password]`, escaped as Go does."""
    if not _USER.fullmatch(value):
        raise _bad("net/url: invalid userinfo")
    name, colon, password = value.partition(":")
    return (
        _percent_escaped(_unescaped(name), _IN_USER)
        + colon
        + _percent_escaped(_unescaped(password), _IN_USER)
    )


def _host_with_port(scheme: str, host: str) -> str:
    """Return the unescaped host with its port."""
    if "[" in host:  # an IPv6 address
        port_start = host.rfind("]") + 1
    elif scheme in ("http", "https"):
        port_start = host.find(":")
    else:
        port_start = host.rfind(":")
    port = host[port_start:] if port_start >= 0 else ""
    if not _PORT.fullmatch(port):
        raise _bad(f'invalid port "{port}" after host')
    invalid = _STRANGE_IN_HOST.search(host) or _ESCAPE_IN_HOST.search(host)
    if invalid:
        raise _bad(f'invalid character "{invalid[0]}" in host name')
    plain = _unescaped(host)
    if "[" in host:
        try:
            IPv6Address(plain.partition("]")[0].removeprefix("["))
        except AddressValueError:
            raise _bad("invalid host") from None
    return plain


TEXT_FUNCTIONS: dict[str, Builtin] = {
    "normalize": Builtin(normalize, 1, 1),
    "slugify": Builtin(slugify, 0),
    "upper": Builtin(lambda value: text(value).upper(), 1, 1),
    "lower": Builtin(lambda value: text(value).lower(), 1, 1),
    "title": Builtin(_title, 1, 1),
    "untitle": Builtin(
        lambda value: re.sub(r"(?<!\S)\S", lambda match: match.group().lower(), text(value)),
        1,
        1,
    ),
    "trim": Builtin(lambda value: text(value).strip(), 1, 1),
    "trimAll": Builtin(
        lambda signs, value: text(value).strip(text(signs)) if signs else text(value),
        2,
        2,
    ),
    "trimPrefix": Builtin(lambda prefix, value: text(value).removeprefix(text(prefix)), 2, 2),
    "trimSuffix": Builtin(lambda suffix, value: text(value).removesuffix(text(suffix)), 2, 2),
    "nospace": Builtin(lambda value: re.sub(r"\s", "", text(value)), 1, 1),
    "initials": Builtin(lambda value: "".join(word[0] for word in text(value).split()), 1, 1),
    "swapcase": Builtin(lambda value: text(value).swapcase(), 1, 1),
    "camelcase": Builtin(_camel, 1, 1),
    "kebabcase": Builtin(lambda value: _parted(value, "-"), 1, 1),
    "snakecase": Builtin(lambda value: _parted(value, "_"), 1, 1),
    "trunc": Builtin(_trunc, 2, 2),
    "substr": Builtin(_substr, 3, 3),
    "abbrev": Builtin(lambda width, value: _abbrev(0, width, value), 2, 2),
    "abbrevboth": Builtin(lambda left, width, value: _abbrev(number(left), width, value), 3, 3),
    "wrap": Builtin(_wrap, 2, 2),
    "wrapWith": Builtin(lambda width, end, value: _wrap(width, value, end, cut=True), 3, 3),
    "repeat": Builtin(_repeat, 2, 2),
    "replace": Builtin(_replace, 3, 3),
    "plural": Builtin(
        lambda single, many, count: text(single) if number(count) == 1 else text(many),
        3,
        3,
    ),
    "contains": Builtin(lambda part, value: text(part) in text(value), 2, 2),
    "hasPrefix": Builtin(lambda prefix, value: text(value).startswith(text(prefix)), 2, 2),
    "hasSuffix": Builtin(lambda suffix, value: text(value).endswith(text(suffix)), 2, 2),
    "quote": Builtin(_quote, 0),
    "squote": Builtin(_squote, 0),
    "cat": Builtin(
        lambda *values: joined((shown(value) for value in values if value is not None), " "),
        0,
    ),
    "indent": Builtin(_indent, 2, 2),
    "nindent": Builtin(lambda width, value: "\n" + _indent(width, value), 2, 2),
    "join": Builtin(_join, 2, 2),
    "splitList": Builtin(_split_at, 2, 2),
    "split": Builtin(_split_map, 2, 2),
    "splitn": Builtin(
        lambda mark, most, value: _split_map(mark, value, max(number(most) - 1, 0)),
        3,
        3,
    ),
    "sortAlpha": Builtin(lambda values: sorted(texts(values), key=go_bytes), 1, 1),
    "toString": Builtin(shown, 1, 1),
    "toStrings": Builtin(lambda values: [] if values is None else texts(values), 1, 1),
    "b64enc": Builtin(lambda value: base64.b64encode(go_bytes(text(value))).decode(), 1, 1),
    "b64dec": Builtin(partial(_decoded_text, partial(base64.b64decode, validate=True)), 1, 1),
    "b32enc": Builtin(lambda value: base64.b32encode(go_bytes(text(value))).decode(), 1, 1),
    "b32dec": Builtin(partial(_decoded_text, base64.b32decode), 1, 1),
    "sha1sum": Builtin(
        lambda value: hashlib.sha1(go_bytes(text(value)), usedforsecurity=False).hexdigest(),
        1,
        1,
    ),
    "sha256sum": Builtin(lambda value: hashlib.sha256(go_bytes(text(value))).hexdigest(), 1, 1),
    "sha512sum": Builtin(lambda value: hashlib.sha512(go_bytes(text(value))).hexdigest(), 1, 1),
    "adler32sum": Builtin(lambda value: str(zlib.adler32(go_bytes(text(value)))), 1, 1),
    "regexMatch": Builtin(
        lambda pattern, value: _regex(text(pattern)).search(text(value)) is not None,
        2,
        2,
    ),
    "regexFind": Builtin(_found, 2, 2),
    "regexFindAll": Builtin(_find_all, 3, 3),
    "regexReplaceAll": Builtin(_replace_all, 3, 3),
    "regexReplaceAllLiteral": Builtin(lambda *given: _replace_all(*given, literal=True), 3, 3),
    "regexSplit": Builtin(_regex_split, 3, 3),
    "regexQuoteMeta": Builtin(
        lambda value: re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text(value)),
        1,
        1,
    ),
    "semver": Builtin(_semver, 1, 1),
    "semverCompare": Builtin(_semver_compare, 2, 2),
    "base": Builtin(
        lambda value: posixpath.basename(text(value).rstrip("/")) or ("/" if value else "."),
        1,
        1,
    ),
    "dir": Builtin(lambda value: posixpath.normpath(posixpath.dirname(text(value)) or "."), 1, 1),
    "clean": Builtin(lambda value: posixpath.normpath(text(value) or "."), 1, 1),
    "ext": Builtin(_extension, 1, 1),
    "duration": Builtin(_duration, 1, 1),
    "toDecimal": Builtin(_to_decimal, 1, 1),
    "urlParse": Builtin(url_parse, 1, 1),
    "urlJoin": Builtin(url_join, 1, 1),
    "isAbs": Builtin(lambda value: text(value).startswith("/"), 1, 1),
}
for _name in (
    "regexMatch",
    "regexFind",
    "regexFindAll",
    "regexReplaceAll",
    "regexReplaceAllLiteral",
    "regexSplit",
):
    TEXT_FUNCTIONS[f"must{_name[0].upper()}{_name[1:]}"] = TEXT_FUNCTIONS[_name]
for _name in ("base", "dir", "clean", "ext", "isAbs"):
    TEXT_FUNCTIONS[f"os{_name[0].upper()}{_name[1:]}"] = TEXT_FUNCTIONS[_name]
TEXT_FUNCTIONS["trimall"] = TEXT_FUNCTIONS["trimAll"]
