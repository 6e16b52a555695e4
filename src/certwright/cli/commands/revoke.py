"""`certwright revoke`."""

from __future__ import annotations

import click

from certwright.cli import acme_flags, completion, lazy
from certwright.cli.access import USER_AGENT, session
from certwright.cli.errors import Failed
from certwright.cli.flags import single
from certwright.cli.format import echo
from certwright.cli.options import (
    ServerOptions,
    Words,
    asynchronous,
    cluster_namespace_option,
    namespaced_server_options,
)
from certwright.diagnosis.actions import REVOCATION_REASONS


@click.command(short_help="Have an ACME server revoke a certificate.")
@click.argument("name", metavar="CERTIFICATE|secret/NAME", shell_complete=completion.names_of("certificates"))
@click.option(
    "--reason",
    type=Words(REVOCATION_REASONS),
    default="unspecified",
    show_default=True,
    metavar="REASON",
    help="Why: unspecified, keyCompromise (the key has leaked), affiliationChanged, superseded, "
    "cessationOfOperation or privilegeWithdrawn (RFC 5280 §5.3.1).",
)
@cluster_namespace_option(
    text="Namespace of the Secrets of ClusterIssuers, for servers that accept the account's key only."
)
@single("allow_http_servers", acme_flags.ALLOW_HTTP_SERVERS)
@namespaced_server_options
@asynchronous
async def command(
    *,
    server: ServerOptions,
    name: str,
    reason: str,
    cluster_resource_namespace: str,
    allow_http_servers: bool,
) -> None:
    """Have the ACME server revoke the certificate in a Secret.

    The request is signed with the certificate's own key, so you only need the right to read the Secret and
    the issuer. Where the server refuses that key, the request is repeated with the account's key, if you
    may read the issuer's Secret. No object is changed: re-issue the certificate with `certwright renew`;
    after keyCompromise make sure that the key is replaced (privateKey.rotationPolicy).

    \b
    Examples:
      certwright revoke web --reason superseded
      certwright revoke secret/web-tls -n shop --reason keyCompromise
    """
    kind, _, plain = name.rpartition("/")
    if kind not in ("", "certificate", "cert", "secret"):
        raise click.UsageError("write the name of a Certificate, or secret/NAME")
    async with session(server) as here:
        try:
            revoked = await lazy.acme_commands.revoke(
                here.client,
                lazy.acme_commands.Holder(here.namespace, plain, is_secret=kind == "secret"),
                reason=reason,
                user_agent=USER_AGENT,
                cluster_resource_namespace=cluster_resource_namespace,
                rules=lazy.app.ServerRules(allow_http=allow_http_servers),
            )
        except lazy.acme_commands.CannotRevoke as error:
            raise Failed(str(error)) from error
    echo(f"certificate {revoked.serial} is revoked at {revoked.server}")
