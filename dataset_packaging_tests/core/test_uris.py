"""S3-01 and S3-06: no URL parser touches a key."""

from pathlib import Path

import pytest

from dataset_packaging.core.uris import absolute_uri, glob_matches


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("s3://b/a b#1?x=%20+.jsonl", "s3://b/a b#1?x=%20+.jsonl"),
        ("s3a://b/k", "s3://b/k"),
        ("s3://b//x//y/", "s3://b//x//y/"),
        ("file:///a/ä", "file:///a/ä"),
        ("x/../y*", "file:///data/y*"),
        ("./", "file:///data/"),
        ("//x", "file:///x"),
    ],
)
def test_uris_stay_verbatim(text: str, uri: str) -> None:
    assert absolute_uri(text, Path("/data")) == uri


@pytest.mark.parametrize("text", ["s3://", "s3:///k", "file://a", "http://x/y", "~/x", "a\nb", "gs://b/k"])
def test_places_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|write|control"):
        absolute_uri(text, Path("/data"))


@pytest.mark.parametrize(
    ("pattern", "uri", "matches"),
    [
        ("s3://b/e-*.jsonl", "s3://b/e-1.jsonl", True),
        ("s3://b/e-*.jsonl", "s3://b/e-1/x.jsonl", False),
        ("s3://b/**/e.jsonl", "s3://b/e.jsonl", True),
        ("s3://b/**/e.jsonl", "s3://b/x/y/e.jsonl", True),
        ("s3://b/e-[0-2].jsonl", "s3://b/e-2.jsonl", True),
        ("s3://b/e-[!0-2].jsonl", "s3://b/e-2.jsonl", False),
        ("s3://b/e-?.jsonl", "s3://b/e-2.jsonl", True),
        ("s3://b/e-?.jsonl", "s3://b/e-/.jsonl", False),
        ("s3://b/a+(1).jsonl", "s3://b/a+(1).jsonl", True),
        ("s3://b/a.jsonl", "s3://b/aXjsonl", False),
        ("s3://[b/k", "s3://[b/k", True),
    ],
)
def test_globs(pattern: str, uri: str, matches: bool) -> None:
    assert glob_matches(pattern, uri) is matches
