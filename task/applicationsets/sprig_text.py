"""The Masterminds/sprig v3 functions for strings, in the order of its documentation.

Argo CD adds `normalize` and `slugify`, which turn a string into a name. URLs are parsed and
formatted as by Go's `net/url`.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
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
_LONGEST_DURATION = (2**63 - 1) // 10**9  # in seconds
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
    """Return a string as a DNS name: lowercase, with `-` for each character that DNS names cannot
    contain. `My_App.v1` becomes `my-app.v1`.
    """
    return _NOT_IN_NAMES.sub("-", text(value).lower())[:_LONGEST_NAME].strip("-.")


def slugify(*arguments: Any) -> str:
    """Run `slugify [length] [whole words] text`: return the string as a name without dots:
    `salt-and-pepper` for `Salt & Pepper`.

    With whole words, a name that is too long is cut at a `-`, if it has one. Without arguments,
    returns "". A length of 0 or less means no limit.
    """
    if not arguments:
        return ""
    *options, value = arguments
    if len(options) > 2:
        raise FailedTemplate("too many arguments")
    longest = number(options[0]) if options else _LONGEST_SLUG
    whole_words = boolean(options[1]) if len(options) > 1 else True

    ascii_letters = unicodedata.normalize("NFKD", text(value)).encode("ascii", "ignore")
    lowercase = ascii_letters.decode().lower().strip()
    without_quotes = lowercase.replace("'", "").replace('"', "")
    with_words = without_quotes.replace("&", "and").replace("@", "at")
    if longest > 0 and not whole_words:
        # Argo CD's library cuts here, so the result may be shorter than `longest`.
        with_words = with_words[:longest]
    with_dashes = re.sub(r"[^a-z0-9-]", "-", with_words)
    slug = re.sub(r"-{2,}", "-", with_dashes).strip("-")

    must_end_at_word = whole_words and 0 < longest < len(slug)
    if not must_end_at_word:
        return slug
    end_of_word = slug.rfind("-", 0, longest + 1)  # the `-` may be right after `longest`
    return slug[:end_of_word] if end_of_word >= 0 else slug[:longest]


def _trunc(length: Any, value: Any) -> str:
    """Run `trunc`: return the first bytes of a string, or, for a negative length, the last ones."""
    raw = go_bytes(text(value))
    size = number(length)
    if size >= 0:
        return go_text(raw[:size])
    if len(raw) <= -size:
        return text(value)
    return go_text(raw[size:])


def _substr(start: Any, end: Any, value: Any) -> str:
    """Run `substr`: return the part of a string from `start` to `end`, both in bytes.

    A negative `start` means the start of the string, and a negative `end` means its end.
    """
    raw = go_bytes(text(value))
    start_position = number(start)
    end_position = number(end)
    if start_position < 0:
        return go_text(raw[: max(end_position, 0)])
    if end_position < 0 or end_position > len(raw):
        return go_text(raw[start_position:])
    return go_text(raw[start_position:end_position])


def _abbrev(left: int, width: Any, value: Any) -> str:
    """Run `abbrev` and `abbrevboth`: return a string shortened to `width` bytes, with each removed
    part replaced by `...`.

    The part that is kept begins at `left`, or earlier if the string ends too soon.
    """
    raw = go_bytes(text(value))
    size = number(width)
    smallest_size = 7 if left > 0 else 4  # one byte, plus the dots on both sides or at the end
    if size < smallest_size or len(raw) <= size:
        return value  # type: ignore[no-any-return]
    # The comments below show `abbrevboth left 9 "abcdefghijklmno"`.
    kept_size = size - len("...")  # with dots on one side
    start = min(left, len(raw) - kept_size)
    if start <= 4:  # too little to remove at the start: left = 4 gives `abcdef...`
        return go_text(raw[:kept_size] + b"...")
    if start + kept_size < len(raw):  # more text follows: left = 6 gives `...ghi...`
        end = start + kept_size - len("...")
        return go_text(b"..." + raw[start:end] + b"...")
    return go_text(b"..." + raw[-kept_size:])  # left = 9 or more gives `...jklmno`


def _wrap(width: Any, value: Any, end: Any = "\n", *, cut: bool = False) -> str:
    """Run `wrap` and `wrapWith`: return a string with some spaces replaced by line breaks, so that
    each line has at most `width` bytes.

    `end` is the line break. With `cut`, words that are too long are cut.
    """
    raw = go_bytes(text(value))
    longest = max(number(width), 1)
    start = 0  # start of the next line
    lines: list[bytes] = []
    while len(raw) - start > longest:
        if raw[start] == ord(" "):  # no line begins with a space
            start += 1
            continue
        last_space = raw.rfind(b" ", start, start + longest + 1)  # it may be right after the line
        if last_space >= 0:
            lines.append(raw[start:last_space])
            start = last_space + 1
        elif cut:
            lines.append(raw[start : start + longest])
            start += longest
        else:  # the word is too long, and ends at the next space
            next_space = raw.find(b" ", start + longest)
            if next_space < 0:  # this is the last word
                break
            lines.append(raw[start:next_space])
            start = next_space + 1
    last_line = raw[start:]
    return joined(map(go_text, [*lines, last_line]), text(end) or "\n")


def _duration(value: Any) -> str:
    """Run `duration`: return a whole number of seconds in Go's format, such as `1h2m3s`. Any other
    value counts as 0.
    """
    is_numeric_text = isinstance(value, str) and _SECONDS.fullmatch(value) is not None
    is_number = named(value) == "int" or is_numeric_text
    total = int(value) if is_number else 0
    if abs(total) > _LONGEST_DURATION:
        raise FailedTemplate("a duration of more than 292 years")
    minutes, seconds = divmod(abs(total), 60)
    hours, minutes = divmod(minutes, 60)
    duration = f"{seconds}s"
    if minutes or hours:
        duration = f"{minutes}m{duration}"
    if hours:
        duration = f"{hours}h{duration}"
    return f"-{duration}" if total < 0 else duration


def _to_decimal(value: Any) -> int:
    """Run `toDecimal`: return the value of an octal number, or 0 for anything else."""
    digits = shown(value)
    parsed = int(digits, 8) if _OCTAL.fullmatch(digits) else 0
    is_int64 = -(2**63) <= parsed < 2**63
    return parsed if is_int64 else 0


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


def _separate_words(value: Any, separator: str) -> str:
    """Run `kebabcase` or `snakecase`: return the words of a string in lowercase, with a separator
    between them: `my-app` for `myApp`.

    A new word begins where the case changes, and at spaces, `_`, and `-`, but not at dots
    (huandu/xstrings).
    """
    split_at_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", separator, text(value))
    return re.sub(r"[\s_-]+", separator, split_at_case).lower()


def _camel(value: Any) -> str:
    parts = re.split(r"[\s_-]+", text(value))
    return "".join(part[:1].upper() + part[1:] for part in parts)


def _title(value: Any) -> str:
    """Run `title`: return a string with each word capitalized.

    A letter starts a word unless it follows a letter, a digit, `_`, or `'`.
    """
    return re.sub(r"(?<![\w'])\w", lambda match: match.group().upper(), text(value))


def _join(separator: Any, values: Any) -> str:
    """Run `join`. A value that is not a list is treated as a one-item list."""
    items = values if isinstance(values, list | tuple) else [values]
    return joined((shown(item) for item in items if item is not None), text(separator))


def _split_at(separator: Any, value: Any, most: int = -1) -> list[str]:
    """Run `splitList`: return the parts of a string between separators.

    The string is split at most `most` times; -1 means no limit. With an empty separator, the parts
    are the characters.
    """
    if not text(separator):
        return list(text(value))
    return text(value).split(text(separator), most)


def _split_map(separator: Any, value: Any, most: int = -1) -> Mapping[str, str]:
    """Run `split`: return a map with the keys `_0`, `_1`, and so on."""
    parts = _split_at(separator, value, most)
    return GoMap({f"_{number}": part for number, part in enumerate(parts)})


def _quote(*values: Any) -> str:
    return joined((go_quote(shown(value), '"') for value in values if value is not None), " ")


def _squote(*values: Any) -> str:
    return joined((f"'{shown(value)}'" for value in values if value is not None), " ")


def _decode_text(decode: Callable[[bytes], bytes], value: Any) -> str:
    """Run `b64dec` or `b32dec`: return the decoded string or, as sprig does, the error's text."""
    try:
        return go_text(decode(go_bytes(text(value))))
    except ValueError as error:
        return f"illegal base64 data: {error}"


@lru_cache(maxsize=16)
def _regex(pattern: str) -> Any:
    """Return a compiled RE2 pattern. Raises `FailedTemplate` if it is invalid or too long."""
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
        # the library's own cache would keep more patterns than ours, each with up to `_MEMORY`
        re2.purge()


def _matches(pattern: Any, value: Any) -> Iterator[Any]:
    """Return an iterator over the matches that Go finds, which never include an empty match right
    after another match.

    In "baac", `a*` matches "" before the b, "aa", and "" at the end, but not "" before the c.
    """
    end = -1  # end of the last match
    for match in _regex(text(pattern)).finditer(text(value)):
        is_empty = match.start() == match.end()
        follows_another = match.start() == end
        if not (is_empty and follows_another):
            yield match
        end = match.end()


def _find_all(pattern: Any, value: Any, most: Any) -> list[str]:
    matches = [match.group() for match in _matches(pattern, value)]
    return matches if number(most) < 0 else matches[:most]


def _replace_all(pattern: Any, value: Any, new: Any, *, literal: bool = False) -> str:
    """Run `regexReplaceAll`: return a string with each match replaced with `new`, in which `$1`
    stands for a group of the match.

    With `literal`, run `regexReplaceAllLiteral`, which leaves `$1` in `new` unchanged.
    """
    parts = []
    end = 0  # end of the last match
    replaced_size = 0
    for match in _matches(pattern, value):
        replacement = text(new) if literal else _expand_groups(text(new), match)
        parts.append(value[end : match.start()])
        parts.append(replacement)
        replaced_size += len(replacement)
        bounded(replaced_size)
        end = match.end()
    parts.append(value[end:])
    return joined(parts)


def _expand_groups(template: str, match: Any) -> str:
    """Return a replacement in which `$1`, `${1}`, and `${name}` are replaced by the groups of a
    match.

    `$$` becomes `$`, and an unknown group an empty string.
    """

    def text_of_reference(reference: re.Match[str]) -> str:
        """Return the text for a reference, such as `${name}`."""
        in_braces, bare = reference.groups()
        name = in_braces or bare
        if not name:  # `$$`, or a single `$`
            return "$"
        group = int(name) if name.isdecimal() else name
        try:
            return match.group(group) or ""
        except (IndexError, KeyError):
            return ""

    return re.sub(r"\$(?:\{(\w+)\}|(\w+)|\$)", text_of_reference, template)


def _regex_split(pattern: Any, value: Any, most: Any) -> list[str]:
    """Run `regexSplit`: return the parts of a string between matches of a pattern.

    `most` is the maximum number of parts; a negative number means no limit.
    """
    limit = number(most)
    if limit == 0:
        return []
    parts: list[str] = []
    end = 0  # end of the last separator
    whole = text(value)
    for separator in _matches(pattern, value):
        if separator.end() == 0:  # an empty match at the start
            continue
        is_last_part = limit > 0 and len(parts) == limit - 1
        is_empty_at_end = separator.start() == len(whole) == separator.end()
        if is_last_part or is_empty_at_end:
            break
        parts.append(whole[end : separator.start()])
        end = separator.end()
    return [*parts, whole[end:]]


def _regex_find(pattern: Any, value: Any) -> str:
    """Run `regexFind`: return the first match, or ""."""
    match = _regex(text(pattern)).search(text(value))
    return str(match.group()) if match else ""


def _semver(value: Any) -> Printable:
    """Run `semver`: return a version, with its parts as fields, such as `.Major`."""
    version = parse_version(value) if isinstance(value, str) else None
    if version is None:
        raise FailedTemplate("Invalid Semantic Version")
    fields = {
        "Major": version.major,
        "Minor": version.minor,
        "Patch": version.patch,
        "Prerelease": version.prerelease or "",
        "Metadata": version.build or "",
    }
    return Printable(str(version), fields)


def _semver_compare(constraint: Any, value: Any) -> bool:
    version = parse_version(text(value))
    version_range = parse_range(text(constraint))
    if version is None:
        raise FailedTemplate("Invalid Semantic Version")
    return version_range.admits(version)


def _extension(value: Any) -> str:
    base = text(value).rpartition("/")[2]
    return base[base.rfind(".") :] if "." in base else ""


def url_parse(value: Any) -> AnyMap:
    """Run `urlParse`: return a map of a URL's parts, such as `host`, as Go's `url.Parse` does.

    Raises `FailedTemplate` for an invalid URL.
    """
    before_fragment, _, fragment = text(value).partition("#")
    if _CONTROL.search(before_fragment):
        raise _bad_url("invalid control character in URL")
    if before_fragment.startswith(":"):
        raise _bad_url("missing protocol scheme")
    match = _SCHEME.match(before_fragment)
    scheme = match.group(1).lower() if match else ""
    after_scheme = before_fragment[match.end() :] if match else before_fragment
    before_query, _, query = after_scheme.partition("?")

    user = ""
    host = ""
    opaque = ""
    path = before_query
    # Without a scheme, `///a` is a path. With one, as in `file:///a`, the host is "".
    may_have_authority = bool(scheme) or not before_query.startswith("///")
    if before_query.startswith("//") and may_have_authority:  # //user@host/path
        authority, slash, after_slash = before_query.removeprefix("//").partition("/")
        encoded_user, _, encoded_host = authority.rpartition("@")
        host = _host_with_port(scheme, encoded_host)
        path = slash + after_slash
        user = _userinfo(encoded_user)
    elif scheme and not before_query.startswith("/"):  # such as mailto:person@example.com
        opaque = before_query
        path = ""
    elif _begins_like_scheme(before_query):
        raise _bad_url("first path segment in URL cannot contain colon")
    return AnyMap(
        scheme=scheme,
        host=host,
        hostname=_hostname(host),
        path=_unescape(path),
        query=query,
        opaque=opaque,
        fragment=_unescape(fragment),
        userinfo=user,
    )


def _begins_like_scheme(path: str) -> bool:
    """Return whether a path would be read as a URL with a scheme: `a:b/c`."""
    first_part, _, _ = path.partition("/")
    return ":" in first_part


def _hostname(host: str) -> str:
    """Return a host without its port. An IPv6 address is returned without its brackets."""
    colon = host.rfind(":")
    has_port = colon >= 0 and _PORT.fullmatch(host[colon:]) is not None
    hostname = host[:colon] if has_port else host
    if hostname.startswith("[") and hostname.endswith("]"):
        return hostname[1:-1]
    return hostname


def url_join(parts: Any) -> str:
    """Run `urlJoin`: return the URL with these parts, as Go's `URL.String` does.

    `parts` is a map with the keys that `urlParse` returns. A missing part is "".
    """
    scheme, host, path, query, opaque, fragment = (
        _url_part(mapping(parts), key)
        for key in ("scheme", "host", "path", "query", "opaque", "fragment")
    )
    user = _userinfo(_url_part(mapping(parts), "userinfo"))
    url = f"{scheme}:" if scheme else ""
    url += opaque or _authority_and_path(scheme, user, host, path)
    if query:
        url += f"?{query}"
    if fragment:
        url += f"#{_percent_escape(fragment, _IN_FRAGMENT)}"
    return url


def _authority_and_path(scheme: str, user: str, host: str, path: str) -> str:
    """Return the part of a URL between the scheme and the query: `//user@host/path`.

    `user` is already escaped; the host and the path are escaped here.
    """
    if path != "*":  # Go leaves `*` unescaped, because it is the path in the request `OPTIONS *`
        path = _percent_escape(path, _IN_PATH)
    authority = ""
    needs_authority = bool(host or user or (scheme and path))  # it is empty in `file:///path`
    if needs_authority:
        user_prefix = f"{user}@" if user else ""
        authority = f"//{user_prefix}{_percent_escape(host, _IN_HOST)}"
    if host and path and not path.startswith("/"):
        path = f"/{path}"
    is_only_path = not scheme and not authority
    if is_only_path and _begins_like_scheme(path):  # `a:b` would be read as a URL with a scheme
        path = f"./{path}"
    return authority + path


def _bad_url(why: str) -> FailedTemplate:
    """Return the error for a string that is not a URL."""
    return FailedTemplate(f"unable to parse url: {why}")


def _url_part(parts: AnyMap, key: str) -> str:
    """Return a part of the URL, or "" if it is missing. Raises FailedTemplate."""
    value = parts.get(key, "")
    if not isinstance(value, str):
        raise FailedTemplate(
            f"unable to parse {key} key, must be of type string, but {named(value)} found"
        )
    return value


def _unescape(value: str) -> str:
    """Return a part of a URL with its `%` escapes replaced. Raises `FailedTemplate`."""
    invalid = _ESCAPE.search(value)
    if invalid:
        raise _bad_url(f'invalid URL escape "{invalid.group()}"')
    return go_text(unquote_to_bytes(go_bytes(value)))


def _percent_escape(value: str, safe: str) -> str:
    return quote(go_bytes(value), safe=safe)


def _userinfo(value: str) -> str:
    """Return `user[:password]`, escaped as Go does."""
    if not _USER.fullmatch(value):
        raise _bad_url("net/url: invalid userinfo")
    name, colon, password = value.partition(":")
    escaped_name = _percent_escape(_unescape(name), _IN_USER)
    escaped_password = _percent_escape(_unescape(password), _IN_USER)
    return escaped_name + colon + escaped_password


def _host_with_port(scheme: str, host: str) -> str:
    """Return the unescaped host with its port. Raises `FailedTemplate` if either is invalid."""
    is_ipv6 = "[" in host
    if is_ipv6:
        # if there is no `]`, the port is the whole host, which is invalid
        port_start = host.rfind("]") + 1
    elif scheme in ("http", "https"):
        port_start = host.find(":")  # in URLs with these schemes, Go does not allow a second `:`
    else:
        port_start = host.rfind(":")
    port = host[port_start:] if port_start >= 0 else ""  # including the `:`
    if not _PORT.fullmatch(port):
        raise _bad_url(f'invalid port "{port}" after host')
    invalid = _STRANGE_IN_HOST.search(host) or _ESCAPE_IN_HOST.search(host)
    if invalid:
        raise _bad_url(f'invalid character "{invalid.group()}" in host name')
    plain_host = _unescape(host)
    if is_ipv6:
        address = plain_host.partition("]")[0].removeprefix("[")
        try:
            IPv6Address(address)
        except AddressValueError:
            raise _bad_url("invalid host") from None
    return plain_host


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
    "kebabcase": Builtin(lambda value: _separate_words(value, "-"), 1, 1),
    "snakecase": Builtin(lambda value: _separate_words(value, "_"), 1, 1),
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
    "b64dec": Builtin(partial(_decode_text, partial(base64.b64decode, validate=True)), 1, 1),
    "b32enc": Builtin(lambda value: base64.b32encode(go_bytes(text(value))).decode(), 1, 1),
    "b32dec": Builtin(partial(_decode_text, base64.b32decode), 1, 1),
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
    "regexFind": Builtin(_regex_find, 2, 2),
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
