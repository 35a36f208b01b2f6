"""Places named on the command line, and the stores that reach them where no dataset says how."""

import argparse
from pathlib import Path

from dataset_packaging.config import S3Config, load_dataset
from dataset_packaging.core.uris import absolute_uri
from dataset_packaging.errors import ConfigError
from dataset_packaging.io.store import StorageConfig, Stores

_RETRIES = 4
"""Fewer than a run has: somebody waits, and a wrong address never answers."""


def require_uri(text: str) -> str:
    """Make a URI or path of the command line absolute, relative paths against the working folder.

    Raises:
        ConfigError: It is neither `s3://bucket/key` nor a path.
    """
    try:
        return absolute_uri(text, Path.cwd())
    except ValueError as error:
        raise ConfigError(str(error)) from None


def read_s3_options(args: argparse.Namespace) -> S3Config:
    """Take the `--s3-…` options; pure.

    Raises:
        ConfigError: The endpoint is no web address.
    """
    endpoint = args.s3_endpoint
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"--s3-endpoint: expected http://… or https://…, got {endpoint!r}")
    return S3Config(
        endpoint=endpoint,
        region=args.s3_region,
        profile=args.s3_profile,
        anonymous=bool(args.s3_anonymous),
        max_retries=_RETRIES,
    )


def open_stores(s3: S3Config) -> Stores:
    """Build stores that only read; nothing is opened yet."""
    return Stores(StorageConfig(s3=s3, access_grants=None, output_prefixes=()))


def load_stores(dataset_path: str) -> Stores:
    """Build the stores of a dataset file; nothing is opened yet.

    Raises:
        ConfigError: The file is wrong.
    """
    return Stores(StorageConfig.of(load_dataset(dataset_path)))
