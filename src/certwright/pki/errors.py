"""Errors of keys, requests and certificates; `border` converts foreign exceptions.

    PkiError                    the text is one sentence for people, never with key material
    ├── BadKey                  not a usable private key
    ├── BadName                 a subject, name or address that X.509 cannot represent
    ├── BadUsage                not a key usage, or key usages that exclude each other
    ├── BadCsr                  not a signing request, or an inconsistent one
    ├── BadCertificate          not a certificate
    │   └── BadChain            certificates, but not one chain
    └── CannotSign              the request is valid, but this CA cannot sign it (expired, not a CA, …)

No other exception leaves this package: see `border`.
"""

from __future__ import annotations

import re
from types import TracebackType

# cryptography's advice to developers.
_SEE = re.compile(r" See https?://\S+ for more (?:details|information)\.")


class PkiError(Exception):
    """Base class of X.509 errors. The text is one sentence for people."""


class BadKey(PkiError):
    """Not a usable private key."""


class BadName(PkiError):
    """A subject, name or address that X.509 cannot represent."""


class BadUsage(PkiError):
    """Not a key usage, or key usages that exclude each other."""


class BadCsr(PkiError):
    """Not a certificate signing request, or an inconsistent one."""


class BadCertificate(PkiError):
    """Not a certificate."""


class BadChain(BadCertificate):
    """Certificates, but not one chain."""


class CannotSign(PkiError):
    """The request is valid, but this CA cannot sign it."""


class border:  # noqa: N801 - reads as a statement: `with border(BadCsr, "…")`
    """Convert any exception of `cryptography` inside the block into `error` with `sentence` as its text.

    A `BadKey` of the public key in a certificate or request becomes the error of that as well.

    Its documented errors are ValueError, TypeError and UnsupportedAlgorithm, but parsing hostile bytes also
    raises OverflowError, AttributeError, InvalidVersion, DuplicateExtension and, if its Rust code panics,
    a PanicException, which is not an `Exception`. Our own errors pass unchanged.

    `detail=True` appends the foreign text. It MUST NOT be used around private keys.
    """

    __slots__ = ("_detail", "_error", "_sentence")

    def __init__(self, error: type[PkiError], sentence: str, *, detail: bool = False) -> None:
        self._error = error
        self._sentence = sentence
        self._detail = detail

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not (isinstance(error, Exception) or type(error).__module__.startswith("pyo3")):
            return
        has_bad_key = isinstance(error, BadKey) and issubclass(self._error, BadCertificate | BadCsr)
        if isinstance(error, PkiError) and not has_bad_key:
            return
        detail = _SEE.sub("", str(error)) if self._detail else ""
        raise self._error(f"{self._sentence}: {detail}" if detail else self._sentence) from None
