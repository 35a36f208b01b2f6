"""Damage as storage and networks do it to image files: cut, zeroed, dropped, overwritten. Pure, seeded."""

import random

DAMAGES = (
    (".jpg", "cut_half"),
    (".jpg", "zeroed_4k"),
    (".jpg", "dropped_1k"),
    (".jpg", "cut_tail"),
    (".jpg", "overwritten"),
    (".jpg", "zeroed_4k"),
    (".png", "cut_half"),
    (".png", "bad_crc"),
    (".png", "overwritten"),
    (".png", "dropped_1k"),
    (".webp", "cut_half"),
    (".webp", "cut_tail"),
)
"""Suffix of the file and kind of damage, in turn."""


def damage(data: bytes, family: str, kind: str, seed: int) -> bytes:
    """Returns a damaged copy; the damage lies within the pixel data."""
    chance = random.Random(seed)
    middle = len(data) // 2
    if kind == "cut_half":
        return data[:middle]
    if kind == "cut_tail":
        return data[: len(data) * 9 // 10]
    if kind == "dropped_1k":
        return data[:middle] + data[middle + 1024 :]
    if kind == "zeroed_4k":
        return data[:middle] + bytes(4096) + data[middle + 4096 :]
    if kind == "bad_crc":
        return _with_bad_crc(data)
    changed = bytearray(data)
    for _ in range(10):
        changed[chance.randrange(middle // 2, middle)] = chance.randrange(256)
    return bytes(changed)


def _with_bad_crc(png: bytes) -> bytes:
    start = png.index(b"IDAT")
    end = start + 4 + int.from_bytes(png[start - 4 : start], "big")
    changed = bytearray(png)
    changed[end] ^= 1
    return bytes(changed)
