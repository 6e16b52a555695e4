"""The trust stores of this machine: the system's, NSS databases (Firefox, Chromium) and Java's.

A CA is stored under a name with its fingerprint, so that exactly the added CA is removed. Sources:
update-ca-certificates(8), update-ca-trust(8), certutil(1) of NSS, keytool(1) of the JDK.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from certwright.cli.access import Session
from certwright.cli.errors import Failed
from certwright.cli.resource_args import fetch, one_object
from certwright.diagnosis import related
from certwright.diagnosis.words import at
from certwright.kube.api.core import SECRETS
from certwright.kube.util.encoding import in_words
from certwright.pki import certificates
from certwright.pki.certificates import CertificateFacts
from certwright.pki.errors import PkiError

JAVA_DEFAULT: Final = "changeit"
"""The documented password of the JDK's own store, which contains no secret."""
_TIMEOUT_S = 120


class Ca(msgspec.Struct, frozen=True):
    """A CA certificate: its PEM, the hexadecimal SHA-256 of its DER, and a file with the PEM."""

    pem: bytes
    fingerprint: str
    path: Path

    @property
    def name(self) -> str:
        """The name in every store: file name without suffix, nickname, alias."""
        return name_of(self.fingerprint)


def name_of(fingerprint: str) -> str:
    """The name in every store of the CA with that SHA-256 fingerprint."""
    return f"certwright-{fingerprint[:32]}"


class Command(msgspec.Struct, frozen=True):
    """A program to run with its arguments, as an argument list."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.words)

    def run(self) -> None:
        """Run the command. Raises `Failed` with the last line of its output."""
        done = _run(self.words)
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            reason = lines[-1] if lines else f"exit status {done.returncode}"
            raise Failed(f"`{self}` failed: {reason}")


class Store(Protocol):
    """A trust store."""

    @property
    def title(self) -> str:
        """The kind and the place, for messages."""

    @property
    def place(self) -> Path:
        """The file or folder that changes; its access rights decide."""

    def has(self, name: str) -> bool:
        """Whether the store contains that name; needs no rights but reading."""

    def install(self, ca: Ca) -> list[Command]:
        """The commands that add the CA."""

    def uninstall(self, name: str) -> list[Command]:
        """The commands that remove the CA that `install` added under that name."""


class SystemStore(msgspec.Struct, frozen=True):
    """A folder of PEM files, and the commands that build the bundles of the system from it."""

    place: Path
    update: tuple[str, ...]
    rebuild: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"system ({self.place})"

    def has(self, name: str) -> bool:
        return self._path(name).exists()

    def install(self, ca: Ca) -> list[Command]:
        copy = ("install", "-D", "-m", "0644", str(ca.path), str(self._path(ca.name)))
        return [Command(copy), Command(self.update)]

    def uninstall(self, name: str) -> list[Command]:
        return [Command(("rm", "-f", str(self._path(name)))), Command(self.rebuild)]

    def _path(self, name: str) -> Path:
        return self.place / f"{name}.crt"


class NssStore(msgspec.Struct, frozen=True):
    """A database of NSS (`cert9.db`), e.g. of Chromium or of a profile of Firefox."""

    place: Path

    @property
    def title(self) -> str:
        return f"NSS ({self.place})"

    def has(self, name: str) -> bool:
        return _run(self._certutil("-L", "-n", name)).returncode == 0

    def install(self, ca: Ca) -> list[Command]:
        return [Command(self._certutil("-A", "-a", "-t", "C,,", "-n", ca.name, "-i", str(ca.path)))]

    def uninstall(self, name: str) -> list[Command]:
        return [Command(self._certutil("-D", "-n", name))]

    def _certutil(self, *words: str) -> tuple[str, ...]:
        return ("certutil", "-d", f"sql:{self.place}", *words)


class JavaStore(msgspec.Struct, frozen=True):
    """A keystore of Java. The password is in a file, or the default."""

    place: Path
    password_file: Path | None = None

    @property
    def title(self) -> str:
        return f"Java ({self.place})"

    def has(self, name: str) -> bool:
        return self.place.exists() and _run(self._keytool("-list", "-alias", name)).returncode == 0

    def install(self, ca: Ca) -> list[Command]:
        words = ("-noprompt", "-alias", ca.name, "-file", str(ca.path))
        return [Command(self._keytool("-importcert", *words))]

    def uninstall(self, name: str) -> list[Command]:
        return [Command(self._keytool("-delete", "-alias", name))]

    def _keytool(self, verb: str, *words: str) -> tuple[str, ...]:
        password = (
            ("-storepass", JAVA_DEFAULT)
            if self.password_file is None
            else ("-storepass:file", str(self.password_file))
        )
        return ("keytool", verb, "-keystore", str(self.place), *password, *words)


def system_store(root: Path | None) -> SystemStore | None:
    """The store of this system, or of the Debian system in the folder `root`; None for an unknown system."""
    debian = Path("usr/local/share/ca-certificates")
    if root is not None:
        update = (
            *("update-ca-certificates", "--localcertsdir", str(root / debian)),
            *("--certsdir", str(root / "usr/share/ca-certificates")),
            *("--certsconf", str(root / "etc/ca-certificates.conf")),
            *("--etccertsdir", str(root / "etc/ssl/certs")),
            *("--hooksdir", str(root / "etc/ca-certificates/update.d")),
        )
        return SystemStore(root / debian, update, (*update, "--fresh"))
    if shutil.which("update-ca-certificates"):  # Debian, Ubuntu, Alpine, SUSE
        return SystemStore("/" / debian, ("update-ca-certificates",), ("update-ca-certificates", "--fresh"))
    for folder in ("/etc/pki/ca-trust/source/anchors", "/etc/ca-certificates/trust-source/anchors"):
        if shutil.which("update-ca-trust") and Path(folder).is_dir():  # Fedora and RHEL; Arch
            return SystemStore(Path(folder), ("update-ca-trust",), ("update-ca-trust",))
    return None


def nss_databases(home: Path) -> list[Path]:
    """The databases of the user: Chromium's and the profiles of Firefox."""
    patterns = (
        ".pki/nssdb/cert9.db",
        ".mozilla/firefox/*/cert9.db",
        "snap/firefox/common/.mozilla/firefox/*/cert9.db",
    )
    return sorted(path.parent for pattern in patterns for path in home.glob(pattern))


def java_keystore() -> Path | None:
    """The store of the installed JDK or JRE (`cacerts`), or None."""
    keytool = shutil.which("keytool")
    if keytool is None:
        return None
    path = Path(keytool).resolve().parent.parent / "lib/security/cacerts"
    return path.resolve() if path.exists() else None


def may_change(store: Store) -> bool:
    """Whether this process has the rights to change the store."""
    place = store.place
    while not place.exists() and place != place.parent:
        place = place.parent
    return os.access(place, os.W_OK)


def instruction(platform: str, ca: str, *, remove: bool) -> str | None:
    """What to run by hand on macOS and Windows (`platform` as `sys.platform`), or None elsewhere."""
    match platform, remove:
        case "darwin", False:
            keychain = "/Library/Keychains/System.keychain"
            return f"sudo security add-trusted-cert -d -r trustRoot -k {keychain} {ca}"
        case "darwin", True:
            return f"sudo security remove-trusted-cert -d {ca}"
        case "win32", False:
            return f"certutil -addstore -f Root {ca}"
        case "win32", True:
            return "certutil -delstore Root SERIAL (`certwright trust show` prints the serial number)"
    return None


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_S,
        )
    except OSError as error:
        raise Failed(f"`{words[0]}` cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"`{shlex.join(words)}` took longer than {_TIMEOUT_S} s") from error


KINDS = (related.CERTIFICATES, related.SECRETS, related.ISSUERS, related.CLUSTER_ISSUERS)
_LARGEST = 1 << 20
"""Bytes of a file; a certificate has 1 to 10 kB."""


def of_file(path: Path) -> CertificateFacts:
    """The CA certificate in a file. Raises `Failed`."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except OSError as error:
        raise Failed(f"{path}: {in_words(error)}") from error
    return only_ca(content, str(path))


async def of_object(here: Session, words: tuple[str, ...], secrets_in: str) -> CertificateFacts:
    """The CA certificate of a Certificate, Secret, Issuer or ClusterIssuer. Raises `Failed`.

    `secrets_in` is the namespace of the Secrets of ClusterIssuers.
    """
    kind, name = one_object(words, KINDS, default=related.CERTIFICATES)
    namespace = here.namespace
    secret = name
    if kind is related.CERTIFICATES:
        certificate = await fetch(here, related.CERTIFICATES, name)
        secret = str((certificate.get("spec") or {}).get("secretName", ""))
    elif kind is not related.SECRETS:
        secret = _of_ca_issuer(await fetch(here, kind, name), f"{kind.kind} {name}")
        namespace = secrets_in if kind is related.CLUSTER_ISSUERS else namespace
    stored = await fetch(Session(here.client, namespace), SECRETS, secret)
    title = f"secret {namespace}/{secret}"
    if pem := stored.data.get("ca.crt"):
        return only_ca(pem, f"ca.crt of {title}")
    if pem := stored.data.get("tls.crt"):
        return only_ca(pem, f"tls.crt of {title} (it has no ca.crt)")
    raise Failed(f"{title} has neither ca.crt nor tls.crt")


def _of_ca_issuer(issuer: dict[str, Any], title: str) -> str:
    name = ((issuer.get("spec") or {}).get("ca") or {}).get("secretName")
    if not name:
        raise Failed(
            f"{title} has no CA Secret (spec.ca is missing); name a Certificate or a Secret, or use --file"
        )
    return str(name)


def only_ca(pem: bytes, title: str) -> CertificateFacts:
    """The certificate of a PEM text with only one, which must be a CA's. Raises `Failed`."""
    try:
        chain = certificates.read_chain(pem)
    except PkiError as error:
        raise Failed(f"{title}: {error}") from error
    if not chain[0].is_ca:
        raise Failed(
            f"{title} is the certificate of {chain[0].subject_text or '(no subject)'}, which is not a CA; "
            "only CA certificates can be trusted"
        )
    if len(chain) > 1:
        raise Failed(f"{title} has {len(chain)} certificates; save the CA's alone, and use --file")
    return chain[0]


def check_dates(ca: CertificateFacts, now: datetime) -> None:
    """Raise `Failed` for a CA that has expired."""
    if ca.not_after <= now:
        raise Failed(f"the CA {ca.subject_text} expired at {at(ca.not_after)}; trust its successor instead")
