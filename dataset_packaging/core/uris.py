"""Places as text: URIs and globs, taken apart without a URL parser.

A generic parser would drop what follows `#` or `?`, decode `%20` or trim blanks; keys of objects may hold all of these.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from urllib.parse import unquote


def absolute_uri(text: str, folder: Path | None) -> str:
    """Return `s3://bucket/key` or `file:///path` for a URI or a path, relative ones against a folder.

    Pure. Characters stay as they are: nothing is decoded or encoded. `s3a` and `s3n` become `s3`; `.` and `..` of local
    paths are resolved by name.

    Raises:
        ValueError: another scheme, no bucket, or a relative path without a folder.
    """
    if any(ord(character) < 32 for character in text):
        raise ValueError(f"control characters in {text!r}")
    scheme, found, rest = text.partition("://")
    if found and scheme.lower() in ("s3", "s3a", "s3n"):
        if not rest or rest.startswith("/"):
            raise ValueError(f"{text!r} names no bucket: expected s3://bucket/key")
        return f"s3://{rest}"
    if found and scheme.lower() == "file":
        if not rest.startswith("/"):
            raise ValueError(f"{text!r} is no absolute path: expected file:///path")
        return f"file://{rest}"
    if found and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise ValueError(f"{text!r}: expected s3://bucket/key, file:///path or a path")
    if text.startswith("~"):
        raise ValueError(f"{text!r}: write the folder out, ~ is not replaced")
    if folder is None and not text.startswith("/"):
        raise ValueError(f"{text!r} is relative: expected s3://bucket/key, file:///path or an absolute path")
    path = os.path.normpath(os.path.join(folder or "", text))  # noqa: PTH118  (Path() would drop what a glob needs)
    return f"file:///{path.lstrip('/')}" + ("/" if text.endswith("/") else "")


def is_below(uri: str, prefix: str) -> bool:
    """Return whether a URI is a prefix's own or below it; pure."""
    return f"{uri}/".startswith(f"{prefix}/")


def glob_matches(pattern: str, uri: str) -> bool:
    """Return whether a glob URI matches a URI.

    Pure. `*` and `?` stay within one level, `**` crosses levels, `[...]` is a set of characters; all else is verbatim.
    """
    return re.fullmatch(glob_expression(pattern), uri, re.DOTALL) is not None


def glob_expression(pattern: str) -> str:
    """Return the regular expression of a glob URI, see `glob_matches`; pure."""
    expression, rest = "", pattern
    while rest:
        if rest.startswith("**/"):
            expression, rest = expression + "(?:.*/)?", rest[3:]
        elif rest.startswith("**"):
            expression, rest = expression + ".*", rest[2:]
        elif rest[0] in "*?":
            expression, rest = expression + ("[^/]*" if rest[0] == "*" else "[^/]"), rest[1:]
        elif match := re.match(r"\[(!?)([^\[\]/]+)\]", rest):
            characters = re.sub(r"([\\^&~|])", r"\\\1", match.group(2))
            expression += f"[{'^/' if match.group(1) else ''}{characters}]"
            rest = rest[match.end() :]
        else:
            expression, rest = expression + re.escape(rest[0]), rest[1:]
    return expression


is_normal_s3_uri = re.compile(r"s3://[A-Za-z0-9._-]+/.", re.DOTALL).match
"""Matches a text that `normalize_path` returns as it is; far from all of them."""

_S3_URI = re.compile(r"s3[an]?://([A-Za-z0-9._-]+)/(.+)", re.DOTALL | re.IGNORECASE)
_HTTP_URI = re.compile(r"https?://([^/?#]*)/?([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL | re.IGNORECASE)
_S3_HOST = re.compile(
    r"(?:(?P<bucket>[a-z0-9._-]+)\.)?"
    r"s3(?:-fips|-accelerate)?(?:\.dualstack)?(?:[.-](?:[a-z]{2}(?:-[a-z]+)+-[0-9]+|external-1))?"
    r"\.amazonaws\.com(?:\.cn)?(?::443|:80)?"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|data:")


def normalize_path(text: str, base_uri: str | None) -> str | None:
    """Return the URI of an image as `s3://bucket/key` or `file:///path`, None if it names no place that can be read.

    Pure, and never raises. Keys stay verbatim (`#`, `?`, `%20`, `//`, blanks, NFC and NFD). S3's own http(s) addresses,
    virtual-host and path style, become `s3://`, their path percent-decoded, since addresses are encoded; a signature in
    the query is dropped, a version of an object is refused.

    Args:
        text: an URI, an absolute local path, or a path relative to `base_uri`.
        base_uri: ends in `/`; without it relative paths name no place.
    """
    if is_normal_s3_uri(text):
        return text
    if match := _S3_URI.fullmatch(text):
        return f"s3://{match.group(1)}/{match.group(2)}"
    if match := _HTTP_URI.fullmatch(text):
        return _s3_uri_of_address(match)
    if text.startswith("file:///"):
        return None if "\0" in text else text
    if not text or _SCHEME.match(text):
        return None
    if text.startswith("/"):
        return None if "\0" in text else f"file://{text}"
    if base_uri is None or (base_uri.startswith("file:") and "\0" in text):
        return None
    return base_uri + text


def _s3_uri_of_address(match: re.Match[str]) -> str | None:
    host, path, query = match.groups()
    s3_host = _S3_HOST.fullmatch(host.lower())
    if s3_host is None or "versionid=" in (query or "").lower():
        return None
    bucket, key = s3_host.group("bucket"), path
    if bucket is None:
        bucket, _, key = path.partition("/")
    try:
        uri = f"s3://{bucket}/{unquote(key, errors='strict')}"
    except UnicodeDecodeError:
        return None
    return uri if is_normal_s3_uri(uri) else None
