"""Makes the buckets that are named on the command line where they are missing."""

import sys

import boto3
from botocore.exceptions import ClientError


def main(names: list[str]) -> None:
    """Makes them; repeating it is safe."""
    client = boto3.client("s3")
    for name in names:
        try:
            client.create_bucket(Bucket=name)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise


if __name__ == "__main__":
    main(sys.argv[1:])
