"""etcds of `--etcd-servers-overrides`: which resources have their contents there."""

from __future__ import annotations

import difflib
from dataclasses import replace

from certwright.app.options import ServeOptions, StartError
from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.store.etcd.client import Access
from certwright.kube.util.clock import SystemClock
from certwright.resources.table import OUR_KINDS

_FLAG = "--etcd-servers-overrides"


def overrides_of(options: ServeOptions, main: Access) -> dict[str, Access]:
    """The etcd of each overridden bucket. `main`: that of `--store`, whose TLS files and user are used for
    all. Raises `StartError`."""
    overrides = dict[str, Access]()
    for resource, urls in options.etcd.servers_overrides:
        bucket, access = _bucket(resource), _access(resource, urls, options, main)
        for other, present in overrides.items():
            common = set(present.members) & set(access.members)
            if common and set(present.members) != set(access.members):
                where = next(url for url in urls if url.partition("://")[2] in common)
                raise StartError(
                    f"{_FLAG} {resource}: {where} is a server of {_shown(other)}, too; name the same servers"
                    " for both, because they are one etcd"
                )
            access = present if common else access
        overrides[bucket] = access
    return overrides


def _shown(bucket: str) -> str:
    return bucket if "/" in bucket else f"/{bucket}"


def _bucket(resource: str) -> str:
    """The bucket of `GROUP/RESOURCE`: a resource of this program, as with kube-apiserver."""
    bucket, known = resource.removeprefix("/"), set[str]()
    for definition in make_registry(SystemClock()).all():
        own = f"{definition.group}/{definition.plural}".removeprefix("/")
        if own == bucket and definition.bucket != bucket:
            raise StartError(f"{_FLAG} {resource}: these are stored as /{definition.bucket}; name that")
        if not definition.virtual:
            known.add(definition.bucket)
    known.update(f"{kind.group}/{kind.plural}" for kind in OUR_KINDS)
    if bucket in known:
        return bucket
    plural = bucket.rpartition("/")[2]
    near = [name for name in sorted(known) if name.rpartition("/")[2] == plural]
    near = near or difflib.get_close_matches(bucket, sorted(known), n=1, cutoff=0.8)
    shown = " or ".join(map(_shown, near))
    hint = f"did you mean {shown}?" if near else "custom resources of others stay on the etcd of --store"
    raise StartError(f"{_FLAG} {resource}: not a resource of this server; {hint}")


def _access(resource: str, urls: tuple[str, ...], options: ServeOptions, main: Access) -> Access:
    members = tuple(url.partition("://")[2] for url in urls)
    for url, member in zip(urls, members, strict=True):
        if url.startswith("https://") != main.tls:
            scheme = "https" if main.tls else "http"
            raise StartError(
                f"{_FLAG} {resource}#{url}: with --store {options.store} it has to be {scheme}://{member}"
            )
        if member in main.members:
            raise StartError(
                f"{_FLAG} {resource}#{url}: that is the etcd of --store; name another one, or leave it out"
            )
    return replace(main, members=members)
