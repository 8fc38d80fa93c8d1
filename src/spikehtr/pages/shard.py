"""A part of a run, for job arrays: every page is in exactly one of n shards, whoever asks."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple, Self

from spikehtr.errors import SpikeHTRError


class Shard(NamedTuple):
    number: int  # from 1
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`3/16`: the third of sixteen."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip(), re.ASCII)
        number, of = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= of:
            raise SpikeHTRError(f"--shard {text!r}: give a number and how many there are, from 1/{of or 16} on")
        return cls(number, of)

    def has(self, name: str) -> bool:
        """Whether the result of this name is one of the shard's: by a digest, so that no list need be the same."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.of == self.number - 1
