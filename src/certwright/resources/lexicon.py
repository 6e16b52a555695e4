"""The `lexicon` provider of `dns01`, and which options of dns-lexicon an object may set.

Objects and Secrets are written by tenants. Options that name a server, a file or a profile of the machine are
therefore the operator's alone. The tables list every option of dns-lexicon 3.25 that is a credential, or that
selects something within the account of the credentials; every other name is the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import field

from certwright.kube.api.meta import Struct, doc
from certwright.resources.references import LocalObjectReference

LEXICON_FLAG: Final = "--dns01-lexicon"
LEXICON_OPTION_FLAG: Final = "--dns01-lexicon-option"
FORBIDDEN_PROVIDERS: Final = {
    "auto": "it chooses a provider by itself",
    "localzone": "it edits files of this machine",
}
"""Providers that no flag allows, and the reason."""

_CREDENTIALS: Final = frozenset(
    [
        "api_key",
        "auth_2fa",
        "auth_access_key",
        "auth_access_secret",
        "auth_account",
        "auth_api_key",
        "auth_api_password",
        "auth_application_key",
        "auth_application_secret",
        "auth_client_id",
        "auth_client_ip",
        "auth_client_secret",
        "auth_consumer_key",
        "auth_customer_id",
        "auth_email",
        "auth_fingerprint",
        "auth_id",
        "auth_key",
        "auth_key_content",
        "auth_key_id",
        "auth_key_is_global",
        "auth_pass",
        "auth_pass_phrase",
        "auth_password",
        "auth_psw",
        "auth_sandbox",
        "auth_secret",
        "auth_secret_key",
        "auth_service_account_info",
        "auth_subid",
        "auth_subscription_id",
        "auth_subuser",
        "auth_tenancy",
        "auth_tenant_id",
        "auth_token",
        "auth_totp_secret",
        "auth_user",
        "auth_username",
        "key",
        "secret_id",
        "secret_key",
    ]
)
_SELECTIONS: Final = frozenset(
    [
        "cloud_id",
        "dns_zone_id",
        "folder_id",
        "ib_view",
        "pdns_server_id",
        "private_zone",
        "regions",
        "resource_group",
        "ttl",
        "zone_id",
    ]
)
# Providers put these into the name of a host: a dot or a slash would choose the host.
_PARTS_OF_HOSTS: Final = frozenset({"api_protocol", "auth_entrypoint", "auth_region"})
# Providers put these into a path: a slash or a question mark would choose another path.
_SELECTION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,:@+()-]*")
_PART_OF_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
# Two providers read the file that follows; see `acme/solvers/dns01/child/confine.py` for the second barrier.
_READS_A_FILE: Final = "file::"


class LexiconDNS(Struct, frozen=True, kw_only=True):
    """A provider of dns-lexicon, which the operator has to allow. Not in cert-manager."""

    provider: Annotated[str, doc("Name of the provider in dns-lexicon, e.g. hetzner.", minLength=1)]
    credentials_secret_ref: Annotated[
        LocalObjectReference | None,
        doc("The Secret whose entries are options of the provider, e.g. auth_token."),
    ] = None
    options: Annotated[
        Mapping[str, str], doc("Further options of the provider, e.g. zone_id; none that is secret.")
    ] = field(default_factory=dict)


def option_problem(provider: str, name: str, value: str) -> str:
    """Why an object may not set this option of a provider to this value; empty: it may. Quotes no value,
    because it may be secret."""
    if name in _CREDENTIALS:
        if value.startswith(_READS_A_FILE):
            return f"must not begin with {_READS_A_FILE}; give the content itself"
        return "" if value.isprintable() else "must be one line of text"
    if name in _SELECTIONS:
        return "" if _SELECTION.fullmatch(value) else "must be letters, digits and _.,:@+()- only"
    if name in _PARTS_OF_HOSTS:
        return "" if _PART_OF_HOST.fullmatch(value) else "must be letters, digits and hyphens only"
    return (
        "only the operator may set this option; leave it out, and have certwright started with "
        f"{LEXICON_OPTION_FLAG} {provider}.{name}=VALUE"
    )
