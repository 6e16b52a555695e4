"""The messages of etcd's API that we use, declared here: no generated code, and no entry in the descriptor
pool that all libraries of a process share (two packages with etcd's messages in it cannot be loaded
together).

Unused fields are left out, and enumerations are plain numbers: on the wire that is the same.
Source: etcd, `api/etcdserverpb/rpc.proto` and `api/mvccpb/kv.proto` (3.4 to 3.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from certwright.kube.util.decoders import protobuf_messages

# Name of the message: its fields as `name type number`, `*` before a repeated type.
_MESSAGES = {
    "Header": "cluster_id int64 1, revision int64 3",
    "KeyValue": "key bytes 1, create_revision int64 2, mod_revision int64 3, version int64 4, value bytes 5",
    "RangeRequest": "key bytes 1, range_end bytes 2, limit int64 3, revision int64 4, keys_only bool 8, "
    "count_only bool 9",
    "RangeResponse": "header Header 1, kvs *KeyValue 2, more bool 3, count int64 4",
    "PutRequest": "key bytes 1, value bytes 2",
    "PutResponse": "header Header 1",
    "DeleteRequest": "key bytes 1, range_end bytes 2",
    "DeleteResponse": "header Header 1, deleted int64 2",
    "RequestOp": "request_range RangeRequest 1, request_put PutRequest 2, "
    "request_delete_range DeleteRequest 3",
    "ResponseOp": "response_range RangeResponse 1, response_put PutResponse 2, "
    "response_delete_range DeleteResponse 3",
    "Compare": "result int32 1, target int32 2, key bytes 3, version int64 4, mod_revision int64 6",
    "TxnRequest": "compare *Compare 1, success *RequestOp 2, failure *RequestOp 3",
    "TxnResponse": "header Header 1, succeeded bool 2, responses *ResponseOp 3",
    "CompactionRequest": "revision int64 1",
    "CompactionResponse": "header Header 1",
    "WatchCreateRequest": "key bytes 1, range_end bytes 2, start_revision int64 3, prev_kv bool 6, "
    "fragment bool 8",
    "WatchRequest": "create_request WatchCreateRequest 1",
    "Event": "type int32 1, kv KeyValue 2, prev_kv KeyValue 3",
    "WatchResponse": "header Header 1, created bool 3, canceled bool 4, compact_revision int64 5, "
    "cancel_reason string 6, fragment bool 7, events *Event 11",
    "AuthenticateRequest": "name string 1, password string 2",
    "AuthenticateResponse": "header Header 1, token string 2",
    "StatusRequest": "",
    "StatusResponse": "header Header 1, version string 2, db_size int64 3, errors *string 8, "
    "db_size_in_use int64 9, db_size_quota int64 13",
}


# Made at run time, so for the type checker they are `Any`.
_CLASSES = protobuf_messages("certwright.etcd", _MESSAGES)
RangeRequest: Any = _CLASSES["RangeRequest"]
PutRequest: Any = _CLASSES["PutRequest"]
DeleteRequest: Any = _CLASSES["DeleteRequest"]
RequestOp: Any = _CLASSES["RequestOp"]
Compare: Any = _CLASSES["Compare"]
TxnRequest: Any = _CLASSES["TxnRequest"]
CompactionRequest: Any = _CLASSES["CompactionRequest"]
WatchCreateRequest: Any = _CLASSES["WatchCreateRequest"]
WatchRequest: Any = _CLASSES["WatchRequest"]
AuthenticateRequest: Any = _CLASSES["AuthenticateRequest"]
StatusRequest: Any = _CLASSES["StatusRequest"]

# Numbers of enumerations.
EQUAL, GREATER = 0, 1
TARGET_VERSION, TARGET_MOD = 0, 2
EVENT_DELETE = 1

MOST_OPERATIONS = 100
"""Operations that we put into one transaction; etcd's limit is 128 (`--max-txn-ops`)."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of etcd's API; `response` is the class of its response."""

    path: str
    response: Any


RANGE = Method("/etcdserverpb.KV/Range", _CLASSES["RangeResponse"])
TXN = Method("/etcdserverpb.KV/Txn", _CLASSES["TxnResponse"])
COMPACT = Method("/etcdserverpb.KV/Compact", _CLASSES["CompactionResponse"])
WATCH = Method("/etcdserverpb.Watch/Watch", _CLASSES["WatchResponse"])
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", _CLASSES["AuthenticateResponse"])
STATUS = Method("/etcdserverpb.Maintenance/Status", _CLASSES["StatusResponse"])


def read_op(key: bytes, range_end: bytes = b"", *, limit: int = 0, revision: int = 0) -> Any:
    """A read as part of a transaction; `limit` and `revision` 0: none, and now."""
    request = RangeRequest(key=key, range_end=range_end, limit=limit, revision=revision)
    return RequestOp(request_range=request)


def count_op(key: bytes, range_end: bytes, *, revision: int = 0) -> Any:
    """A count as part of a transaction; `revision` 0: now."""
    request = RangeRequest(key=key, range_end=range_end, count_only=True, revision=revision)
    return RequestOp(request_range=request)


def put_op(key: bytes, value: bytes) -> Any:
    """A write as part of a transaction."""
    return RequestOp(request_put=PutRequest(key=key, value=value))


def delete_op(key: bytes, range_end: bytes = b"") -> Any:
    """A deletion as part of a transaction."""
    return RequestOp(request_delete_range=DeleteRequest(key=key, range_end=range_end))


def at_revision(key: bytes, revision: int) -> Any:
    """The condition that a key was last written at a revision; 0: that it does not exist."""
    return Compare(result=EQUAL, target=TARGET_MOD, key=key, mod_revision=revision)


def at_version(key: bytes, version: int) -> Any:
    """The condition that a key has this version, the number of writes since its creation; 0: the key does not
    exist."""
    return Compare(result=EQUAL, target=TARGET_VERSION, key=key, version=version)


def exists(key: bytes) -> Any:
    """The condition that a key exists."""
    return Compare(result=GREATER, target=TARGET_VERSION, key=key, version=0)
