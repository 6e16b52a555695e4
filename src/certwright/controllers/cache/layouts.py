"""Packed layouts of objects that are cached in large numbers: lossless, except for what `transforms.py`
strips.

PEM is base64, which hides common substrings from the compressor, so the decoded bytes are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from certwright.controllers.cache import transforms
from certwright.controllers.cache.transforms import UnsignedRequest, WithheldCertificate, WithheldKey
from certwright.kube.api.core import Secret
from certwright.kube.api.meta import Struct
from certwright.kube.client.compressed import Packing
from certwright.kube.util.decoders import json_decoder, msgpack_decoder
from certwright.pki import pem
from certwright.resources import names
from certwright.resources.request import CertificateRequest

S = TypeVar("S", bound=Struct)

_PLAIN, _BLOCKS = b"\x00", b"\x01"
# Stands for bytes that are not cached.
_KEY, _DIGEST, _UNSIGNED = b"\x02", b"\x03", b"\x04"

_LONG_CA = 8192

_Change = Callable[[bytes], bytes]
_blocks: msgspec.msgpack.Decoder[list[pem.Block]] = msgpack_decoder(list[pem.Block])
_Parts = tuple[bytes, dict[str, bytes]]
_parts: msgspec.msgpack.Decoder[_Parts] = msgpack_decoder(_Parts)

_unsigned: msgspec.msgpack.Decoder[tuple[bytes, bytes]] = msgpack_decoder(tuple[bytes, bytes])


def never(_: object) -> bool:
    """Objects of this kind are never idle, so that nothing is stripped."""
    return False


def short(text: bytes) -> bytes:
    """The bytes that a PEM text encodes; any other text, or a placeholder, unchanged."""
    match text:
        case WithheldKey():
            return _KEY + text
        case WithheldCertificate():
            return _DIGEST + text
        case UnsignedRequest():
            return _UNSIGNED + msgspec.msgpack.encode((text.der, text.key_digest))
    blocks = pem.blocks(text)
    return _BLOCKS + msgspec.msgpack.encode(blocks) if blocks else _PLAIN + text


def long(packed: bytes) -> bytes:
    """The inverse of `short`. The certificate beside a stripped key says whose it is: see `secrets`."""
    match packed[:1]:
        case b"\x00":
            return packed[1:]
        case b"\x03":
            return WithheldCertificate(packed[1:])
        case b"\x04":
            return UnsignedRequest.of(*_unsigned.decode(memoryview(packed)[1:]))
    return pem.join(_blocks.decode(memoryview(packed)[1:]))


# CA certificates are the same few in all that they have signed. Others are not worth caching.
_remembered_short, _remembered_long = lru_cache(256)(short), lru_cache(256)(long)


def _short_ca(text: bytes) -> bytes:
    return _remembered_short(text) if len(text) < _LONG_CA else short(text)


def _long_ca(packed: bytes) -> bytes:
    return _remembered_long(packed) if len(packed) < _LONG_CA else long(packed)


def plain(type_: type[S]) -> Packing[S]:
    """The packing of objects with little or no PEM."""
    return Packing(msgspec.msgpack.encode, msgpack_decoder(type_).decode)


def requests(is_at_rest: Callable[[CertificateRequest], bool] = never) -> Packing[CertificateRequest]:
    """The packing of CertificateRequests: signing request, certificate and CA are PEM. Idle ones lose what
    `transforms.without_answer` strips."""
    decode = msgpack_decoder(CertificateRequest).decode

    def pack(request: CertificateRequest) -> bytes:
        kept = transforms.without_answer(request) if is_at_rest(request) else request
        return msgspec.msgpack.encode(_with(kept, short, _short_ca))

    def unpack(packed: bytes) -> CertificateRequest:
        return _with(decode(packed), long, _long_ca)

    return Packing(pack, unpack)


def secrets(is_at_rest: Callable[[Secret], bool] = never) -> Packing[Secret]:
    """The packing of Secrets. All but the data is packed as JSON, because the managed fields are. Idle ones
    lose their private key (see `transforms.without_key`)."""
    decode = json_decoder(Secret).decode

    def pack(secret: Secret) -> bytes:
        kept = transforms.without_key(secret) if is_at_rest(secret) else secret
        about = msgspec.json.encode(replace(kept, data={}))
        return msgspec.msgpack.encode((about, _each(kept.data, short, _short_ca)))

    def unpack(packed: bytes) -> Secret:
        about, data = _parts.decode(packed)
        return replace(decode(about), data=_data(data))

    def is_sample(secret: Secret) -> bool:
        # A private key must not outlive its Secret in the dictionary.
        return is_at_rest(secret) and not transforms.is_complete(transforms.without_key(secret))

    return Packing(pack, unpack, is_sample=is_sample)


def _data(packed: Mapping[str, bytes]) -> dict[str, bytes]:
    key = packed.get(names.TLS_PRIVATE_KEY_KEY, b"")
    if not key.startswith(_KEY):
        return _each(packed, long, _long_ca)
    unpacked = _each({**packed, names.TLS_PRIVATE_KEY_KEY: _PLAIN}, long, _long_ca)
    return {
        **unpacked,
        names.TLS_PRIVATE_KEY_KEY: WithheldKey.of(unpacked[names.TLS_CERT_KEY], key[1:].decode()),
    }


def _with(request: CertificateRequest, change: _Change, change_ca: _Change) -> CertificateRequest:
    spec, status = request.spec, request.status
    return replace(
        request,
        spec=replace(spec, request=change(spec.request)),
        status=replace(status, certificate=change(status.certificate), ca=change_ca(status.ca)),
    )


def _each(data: Mapping[str, bytes], change: _Change, change_ca: _Change) -> dict[str, bytes]:
    return {
        name: change_ca(value) if name == names.CA_CERT_KEY else change(value) for name, value in data.items()
    }
