"""Receipts are read back as they were written, or not at all."""

from dataclasses import replace

import pytest

from dataset_packaging.core.receipts import (
    MovedRow,
    RejectedRow,
    ShardReceipt,
    StoredObject,
    decode_receipt,
    encode_receipt,
)

RECEIPT = ShardReceipt(
    "photos",
    "512_1024/10000",
    3,
    "aa",
    StoredObject(10, "tag", "ff"),
    StoredObject(5, "tag", "ee"),
    3,
    1,
    8,
    1,
    "policy",
    1,
    (RejectedRow(1, "k1", "s3://b/ä", "s3://b/m", 7, "not_found", "gone"),),
    (MovedRow(2, "k2", "s3://b/2", 640, 480),),
)


def test_a_receipt_survives_the_round_trip() -> None:
    assert decode_receipt(encode_receipt(RECEIPT)) == RECEIPT
    assert RECEIPT.reject_counts == {"not_found": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        encode_receipt(RECEIPT)[:-1],
        encode_receipt(replace(RECEIPT, version=0)),
        encode_receipt(replace(RECEIPT, packed_rows=2)),
    ],
    ids=["empty", "fields missing", "cut", "other version", "does not add up"],
)
def test_a_damaged_receipt_counts_as_none(data: bytes) -> None:
    assert decode_receipt(data) is None
