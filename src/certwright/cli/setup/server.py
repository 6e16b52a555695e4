"""One server gets a certificate: the files and objects for it, and the check whether the server presents the
certificate."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from certwright.cli import lazy
from certwright.cli.access import Session
from certwright.cli.commands.create import NewCa, NewCertificate, new_ca, new_certificate
from certwright.cli.errors import Failed, report
from certwright.cli.setup import service
from certwright.cli.setup.plan import Directory, Host, Made, Record, Step, TextFile, find_program
from certwright.cli.setup.programs import Server, Site
from certwright.diagnosis import certificates as diagnosis
from certwright.diagnosis import related
from certwright.diagnosis.words import at, sentence
from certwright.kube.api import errors
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.resources import plain_kinds

Json = dict[str, Any]
DELIVERIES: Final = plain_kinds.DELIVERIES
_KINDS: Final = {
    kind.kind: kind for kind in (related.CERTIFICATES, related.ISSUERS, related.CLUSTER_ISSUERS, DELIVERIES)
}
PRIVATE_CA: Final = "internal"
"""The issuer of certificates for which none is named."""
_MANAGER: Final = "certwright-setup"
_CAPABILITIES: Final = "CAP_NET_BIND_SERVICE CAP_CHOWN CAP_FOWNER"
_FRAGMENT: Final = "apiVersion: certwright.io/v1alpha1\nkind: Configuration\n"
_EVERY_S: Final = 0.3
_PRESENTED_WITHIN_S: Final = 10.0
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a server shall present: the Certificate `name`, created for the names `dns` if missing, and the
    address where it is checked afterwards."""

    server: Server
    name: str
    namespace: str
    dns: Sequence[str] = ()
    issuer: str | None = None
    address: tuple[str, int] | None = None
    socket: Path | None = None

    @property
    def slug(self) -> str:
        """The server's name in file names, and the name of its Delivery."""
        return self.name if self.namespace == "default" else f"{self.namespace}-{self.name}"

    @property
    def reference(self) -> str:
        """The Certificate, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def tls(self) -> Path:
        """The directory of its files."""
        return self.server.tls / self.slug

    @property
    def where(self) -> str:
        """The address that is checked."""
        host, port = self.address or (_LOOPBACK, self.server.port)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def server_file(self) -> str:
        """The file with the certificate that the server presents."""
        return self.server.outputs[0].name if self.server.outputs else "tls.crt"

    def site(self, host: Host, names: Sequence[str], http01: str) -> Site:
        """What the server's files need."""
        return Site(
            slug=self.slug, names=names, tls=self.tls, config=self.server.config_on(host), http01=http01
        )


def hook(host: Host, requested: Requested) -> str:
    """The command that makes the server read its files again."""
    server = requested.server
    if requested.socket is not None:
        return f"haproxy:{requested.socket}"
    if host.has_systemd:
        return f"systemctl reload {server.unit}"
    return f"sudo -n {_reload(server)}" if find_program("sudo") else _reload(server)


def _reload(server: Server) -> str:
    program, *words = server.reload.split()
    return " ".join((find_program(program) or program, *words))


def shared_steps(host: Host, requested: Requested) -> list[Step]:
    """The steps that the server needs once, for all its certificates."""
    server = requested.server
    owners = f",owners={server.owner}" if server.owner else ""
    groups = f",groups={server.group}" if server.group else ""
    fragment = (
        f"{_FRAGMENT}deliveryRoot:\n  {server.name}: {server.tls}{owners}{groups}\n"
        f"hook:\n  {server.name}: {hook(host, requested)}\n"
        f'deployedCheckAllow:\n  - "{_LOOPBACK}:*"\n'
    )
    steps: list[Step] = [
        Directory(server.tls, 0o755, service.USER),
        TextFile(service.FRAGMENTS / f"50-{server.name}.yaml", fragment),
    ]
    if host.has_systemd:
        steps.append(TextFile(service.DROP_INS / f"50-{server.name}.conf", _drop_in(requested)))
        if requested.socket is None:
            rules = Path(f"/etc/polkit-1/rules.d/50-certwright-{server.name}.rules")
            steps.append(TextFile(rules, service.polkit_rule(server.unit), comment="//"))
    elif find_program("sudo") and requested.socket is None:
        rule = f"{service.USER} ALL=(root) NOPASSWD: {_reload(server)}\n"
        steps.append(TextFile(Path(f"/etc/sudoers.d/certwright-{server.name}"), rule, mode=0o440))
    return steps


def _drop_in(requested: Requested) -> str:
    server = requested.server
    # Without the minus sign a missing directory would keep the service from starting.
    lines = ["[Service]", f"ReadWritePaths=-{server.tls}"]
    if server.owner:
        lines += [f"AmbientCapabilities={_CAPABILITIES}", f"CapabilityBoundingSet={_CAPABILITIES}"]
    group = server.group or ("haproxy" if requested.socket is not None else "")
    if group:
        lines.append(f"SupplementaryGroups={group}")
    return "\n".join(lines) + "\n"


def own_steps(requested: Requested, site: Site, *, has_site: bool) -> list[Step]:
    """What the certificate needs before it is delivered; `has_site`: the user configures the site."""
    server = requested.server
    steps: list[Step] = []
    if requested.address is not None and requested.address[0] != _LOOPBACK:
        text = f'{_FRAGMENT}deployedCheckAllow:\n  - "{requested.where}"\n'
        path = service.FRAGMENTS / f"51-{server.name}-{requested.slug}.yaml"
        steps.append(TextFile(path, text, owner=requested.slug))
    if server.snippet is not None:
        steps.append(server.snippet(site))
    before = list(server.before(site)) if site.names else []
    if has_site:
        # Without a site of ours its parts are of use: the user's includes them.
        before = [step for step in before if not step.made.owner]
    steps += before
    text = _manifest(objects(requested, site))
    # A later run without --dns knows less than the first.
    is_seed = not requested.dns
    steps.append(TextFile(manifest_path(requested), text, owner=requested.slug, is_seed=is_seed))
    return steps


def after_steps(requested: Requested, site: Site, *, has_site: bool) -> Sequence[Step]:
    """What makes the server present the certificate; empty where the user adds the lines."""
    after = requested.server.after
    needs_names = requested.server.names is not None
    return () if after is None or has_site or (needs_names and not site.names) else after(site)


def manifest_path(requested: Requested) -> Path:
    """The file of the objects."""
    return Path(f"/etc/certwright/setup/{requested.server.name}-{requested.slug}.yaml")


def objects(requested: Requested, site: Site) -> list[Json]:
    """The objects: the Certificate if names are given, with its CA if no issuer is, and the Delivery."""
    made = []
    if requested.dns:
        if requested.issuer is None:
            made += new_ca(NewCa(name=PRIVATE_CA, duration="87600h", cluster=False))
        made.append(new_certificate(_new_certificate(requested)))
    spec: Json = {
        "certificateRef": {"name": requested.name},
        "root": requested.server.name,
        "path": requested.slug,
        "hook": requested.server.name,
        "servedAt": [_served_at(requested, site)],
    }
    if requested.server.outputs:
        spec["outputs"] = [msgspec.to_builtins(output) for output in requested.server.outputs]
        for output in spec["outputs"]:
            for key in [key for key, value in output.items() if not value]:
                del output[key]
    made.append(
        {
            "apiVersion": "certwright.io/v1alpha1",
            "kind": DELIVERIES.kind,
            "metadata": {"name": f"{requested.name}-{requested.server.name}"},
            "spec": spec,
        }
    )
    for content in made:
        content["metadata"]["namespace"] = requested.namespace
    return made


def _new_certificate(requested: Requested) -> NewCertificate:
    def is_ip(name: str) -> bool:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    return NewCertificate(
        name=requested.name,
        dns=tuple(name for name in requested.dns if not is_ip(name)),
        ip=tuple(name for name in requested.dns if is_ip(name)),
        uri=(),
        email=(),
        usage=(),
        issuer=requested.issuer or PRIVATE_CA,
    )


def _served_at(requested: Requested, site: Site) -> Json:
    served = {"address": requested.where}
    if names := [name for name in site.names if "*" not in name]:
        served["serverName"] = names[0]
    if requested.server.start_tls:
        served["startTLS"] = requested.server.start_tls
    return served


def _manifest(contents: Sequence[Json]) -> str:
    return "---\n".join(lazy.yaml_writer.write_yaml(content) for content in contents)


async def names_of(here: Session, requested: Requested) -> Sequence[str]:
    """The names of the Certificate. Raises `Failed` where it is missing and shall not be created."""
    present = await related.get_or_none(
        here.client, related.CERTIFICATES, requested.name, requested.namespace
    )
    if present is None:
        if not requested.dns:
            raise Failed(
                f"certificate {requested.reference} does not exist; to have it created name what it is "
                f"for, e.g. "
                "--dns www.example.com. Nothing was changed"
            )
        return requested.dns
    spec = present.get("spec") or {}
    names = [*(spec.get("dnsNames") or ()), *(spec.get("ipAddresses") or ())]
    if requested.dns and set(requested.dns) != set(names):
        raise Failed(
            f"certificate {requested.reference} exists for {', '.join(names)}, not for "
            f"{', '.join(requested.dns)}; "
            f"leave --dns out, or change it with `certwright edit certificate {requested.name}`. Nothing "
            f"was changed"
        )
    return names


async def apply(here: Session, contents: Sequence[Json], record: Record, owner: str) -> None:
    """Create the missing objects. Existing objects stay, except the Delivery, which is applied. Raises
    `Failed`."""
    for content in contents:
        kind = _KINDS[content["kind"]]
        meta = content["metadata"]
        name, namespace = str(meta["name"]), str(meta["namespace"]) if kind.namespaced else ""
        reference = f"{kind.singular}/{name}"
        try:
            present = await related.get_or_none(here.client, kind, name, namespace)
            if present is None and kind in (related.CERTIFICATES, DELIVERIES) and not _is_ca(content):
                # The CA stays: other certificates may be from it.
                record.add(Made("object", f"{kind.resource}/{namespace}/{name}", owner))
            if kind is DELIVERIES:
                await here.client.apply(kind, content, field_manager=_MANAGER, force=True)
            elif present is None:
                await here.client.create(kind, content, strict=True)
        except errors.ApiError as error:
            raise Failed(f"{reference}: {error}") from error
        if present is None:
            report(f"create {reference}")


def _is_ca(content: Json) -> bool:
    return bool(content["spec"].get("isCA"))


async def existing_issuer(here: Session, requested: Requested, contents: Sequence[Json]) -> None:
    """Refer to a ClusterIssuer where only that has the name. Raises `Failed` where no issuer has it."""
    if not requested.dns or requested.issuer is None:
        return
    name = requested.issuer
    if await related.get_or_none(here.client, related.ISSUERS, name, requested.namespace) is not None:
        return
    if await related.get_or_none(here.client, related.CLUSTER_ISSUERS, name) is None:
        raise Failed(
            f"there is no issuer {name} in namespace {requested.namespace}; create it with `certwright "
            f"create issuer`, "
            "or leave --issuer out for a private CA"
        )
    for content in contents:
        if content["kind"] == related.CERTIFICATES.kind:
            content["spec"]["issuerRef"]["kind"] = "ClusterIssuer"


async def wait_delivered(here: Session, requested: Requested, timeout_s: float) -> str:
    """Wait until the files contain the certificate, and print each state once. Returns why the hook fails,
    or an
    empty text. Raises `Failed` with the reason."""
    name = f"{requested.name}-{requested.server.name}"
    message = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                delivery = await here.client.get(DELIVERIES, name, requested.namespace)
                delivered = diagnosis.condition(delivery, "Delivered")
                if delivered.get("status") == "True":
                    return ""
                if delivered.get("reason") == "HookFailed":
                    return sentence(str(delivered.get("message", "")))
                state = await _state(here, requested, delivered)
                if state != message:
                    message = state
                    report(f"wait: {message}")
                await asyncio.sleep(_EVERY_S)
    except TimeoutError:
        raise Failed(
            f"{requested.reference} was not delivered within {timeout_s:g} s: {message}. What was made "
            f"stays; running "
            "this again completes it"
        ) from None


async def wait_hook(here: Session, requested: Requested) -> str:
    """Wait a moment until the hook that has failed succeeds, as the server may have started only now. Returns
    why it fails, or an empty text."""
    problem = ""
    for _ in range(int(_PRESENTED_WITHIN_S / _EVERY_S)):
        problem = await wait_delivered(here, requested, _PRESENTED_WITHIN_S)
        if not problem:
            break
        await asyncio.sleep(_EVERY_S)
    return problem


async def _state(here: Session, requested: Requested, delivered: diagnosis.Json) -> str:
    certificate = await related.get_or_none(
        here.client, related.CERTIFICATES, requested.name, requested.namespace
    )
    if certificate is None:
        return f"certificate {requested.reference} does not exist"
    if not diagnosis.is_true(certificate, "Ready"):
        context = await related.read_related(here.client, certificate)
        return f"{requested.reference}: {diagnosis.diagnose(context, datetime.now(UTC))}"
    if reason := sentence(str(delivered.get("message", ""))):
        return f"{requested.reference}: {reason}"
    return f"{requested.reference} is ready, and its files are being written"


async def check_presented(host: Host, requested: Requested, site: Site) -> str:
    """Connect to the server until it presents the certificate of the files; returns a sentence. Raises
    `Failed`."""
    served = _served_at(requested, site)
    hostname, _, port = requested.where.rpartition(":")
    address = lazy.tls_scan.TlsAddress(
        host=hostname.strip("[]"),
        port=int(port),
        server_name=served.get("serverName", ""),
        protocol=requested.server.start_tls or "tls",
    )
    file = host.at(requested.tls) / requested.server_file
    problem = ""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PRESENTED_WITHIN_S
    while True:
        try:
            expected = read_certificate(file.read_bytes())
            der = await lazy.tls_scan.presented_certificate(address, timeout_s=5.0)
            if der == expected.der:
                return f"{address} presents {requested.reference}, valid until {at(expected.not_after)}"
            problem = f"{address} presents another certificate than {requested.reference}"
        except (lazy.tls_scan.ScanFailed, PkiError) as error:
            problem = str(error)
        except OSError as error:
            problem = f"{file}: {error.strerror}"
        if loop.time() >= until:
            raise Failed(problem)
        await asyncio.sleep(_EVERY_S)


async def wait_deployed(here: Session, requested: Requested) -> None:
    """Wait a moment until the Delivery, too, has seen what the server presents."""
    name = f"{requested.name}-{requested.server.name}"
    for _ in range(int(_PRESENTED_WITHIN_S / _EVERY_S)):
        delivery = await here.client.get(DELIVERIES, name, requested.namespace)
        if diagnosis.is_true(delivery, "Deployed"):
            return
        await asyncio.sleep(_EVERY_S)


async def delete(here: Session, made: Made) -> None:
    """Delete an object that was created here. Raises `Failed`."""
    resource, namespace, name = made.what.split("/")
    kind = next(kind for kind in _KINDS.values() if kind.resource == resource)
    try:
        await here.client.delete(kind, name, namespace)
    except errors.NotFound:
        return
    except errors.ApiError as error:
        raise Failed(f"{kind.singular}/{name}: {error}") from error
    report(f"delete {kind.singular}/{name}")
