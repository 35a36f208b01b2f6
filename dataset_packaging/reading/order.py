"""Orders that look random and are the same on every machine and version. Pure."""

import hashlib

import numpy as np
import numpy.typing as npt

_STEP = np.uint64(0x9E3779B97F4A7C15)


def seed_of(*parts: int | str) -> int:
    """Return a 64-bit seed that differs wherever any of the parts does."""
    text = "\0".join(f"{type(part).__name__} {part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def random_words(seed: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the first `count` numbers of SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        mix = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * _STEP
        mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words: npt.NDArray[np.uint64] = mix ^ (mix >> np.uint64(31))
    return words


def shuffled(seed: int, count: int) -> npt.NDArray[np.int64]:
    """Return the numbers from 0 to `count` - 1 in an order that follows from the seed."""
    return np.argsort(random_words(seed, count), kind="stable")
