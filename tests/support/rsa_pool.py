"""RSA keys of one module of tests serve those of the next: to generate one takes as long as most tests."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric import rsa

_generate = rsa.generate_private_key
_pools: defaultdict[int, list[rsa.RSAPrivateKey]] = defaultdict(list)


@contextmanager
def rsa_keys_shared() -> Iterator[None]:
    """Generate only those keys that no earlier block has; within one block all keys differ."""
    numbers: defaultdict[int, itertools.count[int]] = defaultdict(itertools.count)

    def generate(public_exponent: int, key_size: int, backend: object = None) -> rsa.RSAPrivateKey:
        number, pool = next(numbers[key_size]), _pools[key_size]
        while len(pool) <= number:
            pool.append(_generate(public_exponent, key_size, backend))
        return pool[number]

    setattr(rsa, "generate_private_key", generate)  # noqa: B010 - mypy takes the name for a function's
    try:
        yield
    finally:
        setattr(rsa, "generate_private_key", _generate)  # noqa: B010 - see above
