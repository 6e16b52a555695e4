"""CAA records: the relevant ones are found, and say which CA may issue (RFC 8659, RFC 8657)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from certwright.acme.solvers import names
from certwright.acme.solvers.caa import Record, forbids, relevant_records
from certwright.acme.solvers.names import LookupFailed, NameServers
from support.bind import Bind, running_bind

ACCOUNT = "https://ca.example/acct/1"


def issue(value: str, tag: str = "issue", flags: int = 0) -> Record:
    return Record(flags, tag, value)


@pytest.mark.parametrize(
    ("records", "is_wildcard", "forbidden"),
    [
        pytest.param([], False, False, id="no records forbid nothing"),
        pytest.param([issue("ca.example")], False, False, id="the CA is named"),
        pytest.param([issue("CA.Example. ; ")], False, False, id="in any case, with blanks"),
        pytest.param([issue("other.example")], False, True, id="another CA is named"),
        pytest.param([issue("other.example"), issue("ca.example")], False, False, id="both are named"),
        pytest.param([issue(";")], False, True, id="no CA may issue"),
        pytest.param([issue("")], False, True, id="an empty value authorizes no CA"),
        pytest.param([issue("ca.example; nonsense")], False, True, id="a malformed value authorizes none"),
        pytest.param([issue("mailto:a@b", "iodef")], False, False, id="only a contact"),
        pytest.param([issue("other.example", "issuewild")], False, False, id="issuewild is for wildcards"),
        pytest.param([issue("other.example", "issuewild")], True, True, id="and forbids them to others"),
        pytest.param(
            [issue("other.example")], True, True, id="without issuewild, issue is for wildcards too"
        ),
        pytest.param(
            [issue(";"), issue("ca.example", "issuewild")], True, False, id="issuewild has precedence"
        ),
        pytest.param([issue("x", "future", 128)], False, True, id="an unknown critical property"),
        pytest.param([issue("x", "future")], False, False, id="an unknown property that is not critical"),
        pytest.param([issue(f"ca.example; accounturi={ACCOUNT}")], False, False, id="this account"),
        pytest.param([issue(f"ca.example; accounturi={ACCOUNT}0")], False, True, id="another account"),
    ],
)
def test_the_records_say_whether_the_ca_may_issue(
    records: Sequence[Record], is_wildcard: bool, forbidden: bool
) -> None:
    assert forbids(records, ["ca.example"], is_wildcard=is_wildcard, account=ACCOUNT) is forbidden


def test_a_ca_that_names_no_identity_and_an_account_that_is_unknown_are_given_the_benefit_of_the_doubt() -> (
    None
):
    assert not forbids([issue(";")], [], is_wildcard=False)
    assert not forbids([issue(f"ca.example; accounturi={ACCOUNT}")], ["ca.example"], is_wildcard=False)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("a.b.example.org", "b"), ("b.example.org", "b"), ("c.example.org", "top"), ("other.test", "")],
)
async def test_the_nearest_name_above_with_records_counts(name: str, nearest: str) -> None:
    zone: Mapping[str, Sequence[Record]] = {
        "b.example.org": [issue("b")],
        "example.org": [issue("top")],
    }

    async def records_of(owner: str) -> Sequence[Record]:
        return zone.get(owner, ())

    assert [record.value for record in await relevant_records(name, records_of)] == (
        [nearest] if nearest else []
    )


@pytest.fixture(scope="module")
def bind() -> Iterator[Bind]:
    """Records, an alias, and a name that is none."""
    records = """\
        @ CAA 0 issue "ca.example"
        strict CAA 128 issue "other.example; accounturi=https://other.example/1"
        strict CAA 0 issuewild ";"
        alias CNAME strict
        """
    text = "\n".join(line.strip() for line in records.splitlines())
    with running_bind(["example.org"], records={"example.org": text}) as running:
        yield running


async def test_records_are_read_from_a_name_server(bind: Bind) -> None:
    servers = NameServers((bind.address,))
    strict = {
        Record(128, "issue", "other.example; accounturi=https://other.example/1"),
        Record(0, "issuewild", ";"),
    }
    assert set(await servers.caa("strict.example.org")) == strict
    assert set(await servers.caa("alias.example.org")) == strict
    assert await servers.caa("else.example.org") == ()
    assert await relevant_records("x.else.example.org", servers.caa) == (Record(0, "issue", "ca.example"),)


async def test_a_failed_lookup_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_TIMEOUT_S", 0.5)
    with pytest.raises(LookupFailed):
        await NameServers(("127.0.0.1:1",)).caa("example.org")
