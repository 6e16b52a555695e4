"""The flags of `serve` and `run` that write certificates as files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import click

from certwright.cli import lazy
from certwright.cli.flags import Decorator, directory, flag, flag_options, seconds

DEFAULT_EXPORT = Path("certwright-export")


def export_flag(default: Path | None) -> Any:
    """`--export` with that default."""
    text = "Write every certificate as files: DIR/<namespace>/<certificate>/tls.crt and so on."
    return directory("--export", text, default=default, often=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFlags:
    """The exported certificates, the directory, and the command for each changed certificate. `export` None:
    nothing is exported."""

    SECTION: ClassVar = "Files"

    export: Path | None = export_flag(None)
    export_ca_keys: bool = flag(
        "--export-ca-keys",
        "Export the private keys of CAs too; without it they are removed from DIR.",
        is_flag=True,
    )
    on_change: str | None = flag(
        "--on-change",
        "Run by /bin/sh for each certificate after its files in DIR were replaced, with "
        "CERTWRIGHT_CERTIFICATE (namespace/name) and CERTWRIGHT_DIR; repeated until it succeeds.",
        metavar="'COMMAND'",
        often=True,
    )
    on_change_timeout_s: float = seconds(
        "--on-change-timeout", "How long COMMAND may take before it is killed.", default="60s"
    )

    def __post_init__(self) -> None:
        if self.export is None and (self.on_change is not None or self.export_ca_keys):
            raise click.UsageError("--on-change and --export-ca-keys need --export DIR")

    def check_apart(self, roots: Mapping[str, lazy.app.Root]) -> None:
        """Raise `click.UsageError` where an author of Deliveries could replace exported files."""
        if self.export is None:
            return
        export = self.export.resolve()
        for name, root in roots.items():
            directory = Path(root.directory).resolve()
            if export.is_relative_to(directory) or directory.is_relative_to(export):
                raise click.UsageError(
                    f"--delivery-root {name}={root.directory} and --export {self.export} overlap: Deliveries "
                    "could replace exported files; choose directories of which none is within the other"
                )

    @property
    def settings(self) -> lazy.app.ExportSettings | None:
        """The settings; None: nothing is exported."""
        if self.export is None:
            return None
        return lazy.app.ExportSettings(
            root=self.export,
            # Without --export, processes of one working directory share it, and may have no certificate.
            reserves_late=self.export == DEFAULT_EXPORT,
            with_ca_keys=self.export_ca_keys,
            command=self.on_change,
            timeout_s=self.on_change_timeout_s,
        )


def export_options(*, default: Path | None) -> Decorator:
    """Add the flags as `export: ExportFlags`; `default` is that of `--export`."""
    return flag_options("export", ExportFlags, export=export_flag(default))
