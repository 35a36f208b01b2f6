"""How S3 URIs and keys are spelled, and which keys which client can say."""

import posixpath
import re

from dataset_packaging.errors import UnsupportedKey

SCHEME = "s3://"
LONGEST_KEY_BYTES = 1024  # https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Split `s3://bucket/key` at the first slash after the scheme; the key is verbatim and may be empty. Pure.

    Raises:
        UnsupportedKey: no bucket, more than 1,024 bytes of key, or text that has no UTF-8 form.
    """
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or _BUCKET.fullmatch(bucket) is None:
        raise UnsupportedKey(uri, f"an S3 URI is s3://bucket/key, and {bucket!r} is not a bucket")
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError as error:
        raise UnsupportedKey(uri, "the key has no UTF-8 form") from error
    if size_bytes > LONGEST_KEY_BYTES:
        raise UnsupportedKey(uri, f"the key has {size_bytes} bytes, S3 takes up to {LONGEST_KEY_BYTES}")
    return bucket, key


def split_object_uri(uri: str) -> tuple[str, str]:
    """Split the URI of one object: as `split_s3_uri`, and the key is not empty. Pure."""
    bucket, key = split_s3_uri(uri)
    if not key:
        raise UnsupportedKey(uri, "the URI names a bucket, not an object")
    return bucket, key


def folder_of(key: str) -> str:
    """Take a key up to and including its last slash; empty at the top of a bucket. Pure."""
    return key[: key.rfind("/") + 1]


def obstore_can_say(key: str) -> bool:
    """Tell whether obstore addresses exactly this key. Pure.

    It strips a leading and a trailing slash (another object is read), and refuses empty, `.` and `..` parts and ASCII
    control characters.
    """
    if any(character < " " or character == "\x7f" for character in key):
        return False
    return not any(part in ("", ".", "..") for part in key.split("/"))


def is_plain(key: str) -> bool:
    """Tell whether every store keeps this key as it is; some compatible ones fold `//`, `\\` and the like. Pure."""
    return obstore_can_say(key) and "\\" not in key


def folded_key(key: str) -> str:
    """Spell a key the way stores with folders underneath do: no empty or dot parts, slashes for backslashes. Pure."""
    return posixpath.normpath("/" + key.replace("\\", "/")).lstrip("/")


def split_output_uri(uri: str) -> tuple[str, str]:
    """Split the URI of an object to be written or deleted. Pure.

    Raises:
        UnsupportedKey: as `split_object_uri`, and for keys under which some stores would touch another object.
    """
    bucket, key = split_object_uri(uri)
    if not is_plain(key):
        raise UnsupportedKey(
            uri, "outputs have keys without empty, `.` or `..` parts, backslashes or control characters"
        )
    return bucket, key
