"""S3-01 and S3-06: no URL parser touches a key."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.core.uris import absolute_uri, glob_matches, normalize_path


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


@pytest.mark.parametrize(
    "key",
    [
        "a#1.jpg",
        "a?x=1.jpg",
        "a b+c%20d;e.jpg",
        "/x//y.jpg",
        "ä.jpg",
        "a\u0308.jpg",
        " ",
        ".",
        "../x",
        "x/",
        "a\tb\n",
        "%",
    ],
)
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3"])
def test_keys_of_s3_uris_stay_verbatim(scheme: str, key: str) -> None:
    """S3-01: for every key; NFC and NFD are two objects."""
    assert normalize_path(f"{scheme}://b/{key}", "s3://other/") == f"s3://b/{key}"


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("https://b.s3.amazonaws.com/a%20b%2Bc/d.jpg", "s3://b/a b+c/d.jpg"),
        ("https://b.s3.amazonaws.com/a+b", "s3://b/a+b"),
        ("https://b.s3.amazonaws.com/%C3%A4", "s3://b/ä"),
        ("https://b.s3.amazonaws.com/a%cc%88", "s3://b/a\u0308"),
        ("https://b.s3.amazonaws.com//x//y", "s3://b//x//y"),
        ("https://b.s3.amazonaws.com/a%23b%3Fc", "s3://b/a#b?c"),
        ("https://b.s3.amazonaws.com/50%.jpg", "s3://b/50%.jpg"),
        ("https://b.s3.amazonaws.com/k?X-Amz-Signature=1&X-Amz-Expires=5#top", "s3://b/k"),
        ("HTTPS://B.S3.AmazonAWS.com/K", "s3://b/K"),
        ("http://b.s3.amazonaws.com:80/k", "s3://b/k"),
        ("https://my.bucket.s3.eu-west-1.amazonaws.com/k", "s3://my.bucket/k"),
        ("https://b.s3-eu-west-1.amazonaws.com/k", "s3://b/k"),
        ("https://b.s3.us-gov-west-1.amazonaws.com/k", "s3://b/k"),
        ("https://b.s3.dualstack.us-east-1.amazonaws.com/k", "s3://b/k"),
        ("https://b.s3-fips.us-east-1.amazonaws.com/k", "s3://b/k"),
        ("https://b.s3-fips.dualstack.us-east-1.amazonaws.com/k", "s3://b/k"),
        ("https://b.s3-accelerate.amazonaws.com/k", "s3://b/k"),
        ("https://b.s3-accelerate.dualstack.amazonaws.com/k", "s3://b/k"),
        ("https://b.s3.cn-north-1.amazonaws.com.cn/k", "s3://b/k"),
        ("https://s3.amazonaws.com/b/k/x%20y", "s3://b/k/x y"),
        ("https://s3.ap-southeast-2.amazonaws.com/b/k", "s3://b/k"),
        ("https://s3-us-west-2.amazonaws.com/b/k", "s3://b/k"),
        ("https://s3.dualstack.us-east-1.amazonaws.com/b/k", "s3://b/k"),
    ],
)
def test_s3s_own_addresses_become_uris(address: str, uri: str) -> None:
    """Virtual-host and path style, with and without region; addresses are encoded, so that they are decoded."""
    assert normalize_path(address, None) == uri


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://example.com/x.jpg",
        "http://localhost:9000/b/k",
        "https://b.s3.amazonaws.com",
        "https://b.s3.amazonaws.com/",
        "https://s3.amazonaws.com/b",
        "https://s3.amazonaws.com//k",
        "https://b.s3-website-us-east-1.amazonaws.com/k",
        "https://b.s3.amazonaws.com.example.com/k",
        "https://user@b.s3.amazonaws.com/k",
        "https://example.com/b.s3.amazonaws.com/k",
        "https://b.s3.amazonaws.com/%ff",
        "https://b.s3.amazonaws.com/k?versionId=1",
        "s3://",
        "s3://b",
        "s3://b/",
        "s3:///k",
        "s3://[b/k",
        "s3://b c/k",
        "gs://b/k",
        "ftp://h/x",
        "file://host/x",
        "data:image/png;base64,AAAA",
        "/a\0b",
        "file:///a\0b",
    ],
)
def test_what_names_no_place_is_none(text: str) -> None:
    assert normalize_path(text, "s3://base/") is None


@pytest.mark.parametrize(
    ("text", "base_uri", "uri"),
    [
        ("x/y z#1.jpg", "s3://b/p/", "s3://b/p/x/y z#1.jpg"),
        ("./x", "s3://b/p/", "s3://b/p/./x"),
        ("a:b.jpg", "s3://b/", "s3://b/a:b.jpg"),
        ("x.jpg", "file:///data/", "file:///data/x.jpg"),
        ("x\0", "file:///data/", None),
        ("x.jpg", None, None),
        ("/abs/x#1.jpg", "s3://b/", "file:///abs/x#1.jpg"),
        ("file:///abs/%20.jpg", "s3://b/", "file:///abs/%20.jpg"),
    ],
)
def test_other_paths_are_local_or_relative(text: str, base_uri: str | None, uri: str | None) -> None:
    assert normalize_path(text, base_uri) == uri


@given(st.text(), st.sampled_from([None, "s3://b/"]))
def test_normalizing_never_raises_and_is_stable(text: str, base_uri: str | None) -> None:
    uri = normalize_path(text, base_uri)
    assert uri is None or normalize_path(uri, base_uri) == uri


@given(st.text(min_size=1))
def test_any_key_survives(key: str) -> None:
    assert normalize_path(f"s3://b/{key}", None) == f"s3://b/{key}"
