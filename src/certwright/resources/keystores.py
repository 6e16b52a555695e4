"""Key stores of a Certificate: its key and chain for programs that do not read PEM.

Source: cert-manager `pkg/apis/certmanager/v1/types_certificate.go`; field texts are ours.
"""

from __future__ import annotations

from typing import Annotated, Final

from certwright.kube.api.docs import doc
from certwright.kube.api.meta import Struct
from certwright.resources.references import SecretKeySelector

PKCS12_PROFILES: Final = ("LegacyRC2", "LegacyDES", "Modern2023", "Modern2026")


class JKSKeystore(Struct, frozen=True, kw_only=True):
    """A Java keystore beside the PEM files."""

    create: Annotated[bool, doc("Whether keystore.jks (and truststore.jks, if the CA is known) is written.")]
    alias: Annotated[str | None, doc("Alias of the key's entry; `certificate` when it is left out.")] = None
    password_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the keystore's password is found; or give it in `password`.")
    ] = None
    password: Annotated[
        str | None, doc("The keystore's password in plain text; better is `passwordSecretRef`.")
    ] = None

    @property
    def alias_or_default(self) -> str:
        """The alias, `certificate` by default."""
        return self.alias or "certificate"


class PKCS12Keystore(Struct, frozen=True, kw_only=True):
    """A PKCS#12 keystore beside the PEM files."""

    create: Annotated[bool, doc("Whether keystore.p12 (and truststore.p12, if the CA is known) is written.")]
    profile: Annotated[
        str,
        doc(
            "Encryption of the keystore: LegacyRC2 (the default, readable by old programs), LegacyDES, or "
            "the secure Modern2023 and Modern2026.",
            enum=PKCS12_PROFILES,
        ),
    ] = ""
    password_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the keystore's password is found; or give it in `password`.")
    ] = None
    password: Annotated[
        str | None, doc("The keystore's password in plain text; better is `passwordSecretRef`.")
    ] = None

    @property
    def profile_or_default(self) -> str:
        """The profile, `LegacyRC2` by default."""
        return self.profile or "LegacyRC2"


class Keystores(Struct, frozen=True, kw_only=True):
    """Further forms of key and certificate for programs that do not read PEM."""

    jks: Annotated[JKSKeystore | None, doc("Java keystore.")] = None
    pkcs12: Annotated[PKCS12Keystore | None, doc("PKCS#12 keystore.")] = None
