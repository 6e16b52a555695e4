"""Rules of a Delivery that hold whatever its operator allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from certwright.kube.api.errors import FieldError, forbidden, invalid, required
from certwright.resources import checks
from certwright.resources.delivery import (
    FILE_NAME,
    HAVE_KEY,
    HAVE_PASSWORD,
    MOST_OUTPUTS,
    Delivery,
    DeliveryOutput,
    DeliverySpec,
    Format,
)

_FILE_NAME: Final = re.compile(FILE_NAME)
_LONGEST_NAME: Final = 253
_LONGEST_PATH: Final = 1024
_MODE: Final = re.compile(r"0[0-7]{3}")
_NAME_RULE: Final = "write letters, digits and . _ @ + -, not beginning with a dot"


def validate(delivery: Delivery) -> list[FieldError]:
    """All errors in the object on its own."""
    spec = delivery.spec
    errors = [*_sources(spec), *_path(spec.path)]
    for number, output in enumerate(spec.outputs):
        errors += _output(output, f"spec.outputs[{number}]")
    names = [output.name for output in spec.outputs]
    if repeated := {name for name in names if names.count(name) > 1}:
        errors.append(invalid("spec.outputs", ", ".join(sorted(repeated)), "give each file its own name"))
    if len(names) > MOST_OUTPUTS:
        errors.append(invalid("spec.outputs", len(names), f"at most {MOST_OUTPUTS} files"))
    for number, served in enumerate(spec.served_at):
        if parse_address(served.address) is None:
            path = f"spec.servedAt[{number}].address"
            errors.append(invalid(path, served.address, "write HOST:PORT, e.g. www.example.com:443"))
    return errors


def path_parts(path: str) -> Sequence[str] | None:
    """The components of a relative path; None if it could leave the root or is not in its plain form."""
    parts = path.split("/")
    return parts if len(path) <= _LONGEST_PATH and all(map(_is_file_name, parts)) else None


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT` or `[IPV6]:PORT`; None for anything else."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    return (host, int(port)) if host and host.isascii() and host.isprintable() and " " not in host else None


def _is_file_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _FILE_NAME.fullmatch(name) is not None


def _sources(spec: DeliverySpec) -> Iterator[FieldError]:
    given = [ref for ref in (spec.certificate_ref, spec.secret_ref) if ref is not None]
    if not given:
        yield required("spec.certificateRef", "name the Certificate, or a Secret in spec.secretRef")
    if len(given) > 1:
        yield forbidden("spec.secretRef", "there is a certificateRef already; keep one")
    if not spec.root:
        yield required("spec.root", "name a root directory of the operator (--delivery-root)")


def _path(path: str) -> Iterator[FieldError]:
    if path_parts(path) is None:
        why = f"must be a relative path such as nginx/web without `.`, `..` and empty parts; {_NAME_RULE}"
        yield invalid("spec.path", path, why)


def _output(output: DeliveryOutput, path: str) -> Iterator[FieldError]:
    if not _is_file_name(output.name):
        yield invalid(f"{path}.name", output.name, f"must be a file name; {_NAME_RULE}")
    yield from checks.check_one_of(output.format, f"{path}.format", tuple(item.value for item in Format))
    if output.format in HAVE_PASSWORD:
        if output.password_secret_ref is None:
            yield required(f"{path}.passwordSecretRef", "name the Secret with the password of the key store")
        yield from checks.check_secret_key(output.password_secret_ref, f"{path}.passwordSecretRef")
    elif output.password_secret_ref is not None:
        yield forbidden(
            f"{path}.passwordSecretRef", f"only PKCS12 and JKS have a password, not {output.format}"
        )
    if not output.mode:
        return
    if not _MODE.fullmatch(output.mode):
        yield invalid(f"{path}.mode", output.mode, "must be four octal digits that begin with 0, e.g. 0640")
    elif output.format in HAVE_KEY and int(output.mode, 8) & 0o007:
        yield invalid(
            f"{path}.mode", output.mode, "must not let all users read a private key; write e.g. 0640"
        )
