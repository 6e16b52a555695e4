"""The services of the package apprise (extra `apprise`): the digest as text, to each URL of a file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from certwright.notifications.messages import Digest, SendError
from certwright.notifications.settings import AppriseSettings

MISSING = "the package apprise is not installed: pip install 'certwright[apprise]'"


def is_installed() -> bool:
    """Whether the package can be used."""
    return find_spec("apprise") is not None


def send(settings: AppriseSettings, digest: Digest) -> None:
    """Send the digest; blocks. Raises `SendError`, which does not quote a URL, because each has a secret."""
    if not is_installed():
        raise SendError(MISSING)
    import apprise  # An optional package, of some 100 modules.

    services = apprise.Apprise()
    try:
        lines = Path(settings.urls_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SendError(f"{settings.urls_file} cannot be read: {error}") from error
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    for number, url in enumerate(urls, 1):
        if not services.add(url):
            raise SendError(f"URL {number} of {settings.urls_file} is not one that apprise knows")
    if not services.notify(title=digest.subject, body=digest.text):
        raise SendError(f"apprise could not reach every service of {settings.urls_file}")
