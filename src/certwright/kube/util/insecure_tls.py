"""TLS to somebody whose certificate proves nothing: what is answered does, or nothing has to."""

from __future__ import annotations

import ssl


def unverified_tls() -> ssl.SSLContext:
    """A client's context that takes any certificate.

    Not made from the default one: to load the system's CAs takes 45 ms, and nobody asks them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
