"""TLS without certificate verification: for peers that are verified by their answer, or not at all."""

from __future__ import annotations

import ssl


def unverified_tls() -> ssl.SSLContext:
    """A client context that accepts any certificate.

    Not derived from the default context: loading the system's CAs takes 45 ms, and this context never uses
    them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
