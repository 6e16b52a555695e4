"""What the operator's flags let objects do, and what an update may keep."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.kit.outgoing import ServerRules
from certwright.resources.names import ACME_GROUP, GROUP
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.validation import validate
from support.tables import table

NOTHING = OperatorPolicy()
EVERYTHING = OperatorPolicy(
    exec_solvers={"hook": ("/usr/bin/hook", "-q")},
    webroots=("/var/www", "/srv/"),
    servers=ServerRules(allow_http=True),
)
ACCOUNT = {"privateKeySecretRef": {"name": "account"}}


def issuer(server: str = "https://ca.example/dir", *solvers: dict[str, Any], **acme: Any) -> dict[str, Any]:
    """An Issuer as it comes over the wire."""
    spec = {"acme": {"server": server, **ACCOUNT, "solvers": list(solvers), **acme}}
    return {"metadata": {"name": "i", "namespace": "default"}, "spec": spec}


def exec_(*command: str) -> dict[str, Any]:
    """A solver that runs a program."""
    return {"exec": {"command": list(command)}}


def webroot(path: str) -> dict[str, Any]:
    """A solver that writes files."""
    return {"http01": {"webroot": {"path": path}}}


def rejection_of(
    new: dict[str, Any], old: dict[str, Any] | None = None, policy: OperatorPolicy | None = NOTHING
) -> str:
    return "\n".join(map(str, validate("Issuer", GROUP, new, old, policy)))


@pytest.mark.parametrize(
    ("new", "field", "value", "flag"),
    [
        (issuer(server="http://ca.example/dir"), "spec.acme.server", "http://ca", "--allow-http-servers"),
        (
            issuer("https://ca.example/dir", exec_("/usr/bin/hook", "-v x")),
            "spec.acme.solvers[0].exec.command",
            "`/usr/bin/hook '-v x'`",
            "--exec-solver",
        ),
        (
            issuer("https://ca.example/dir", exec_("hook"), webroot("/etc/x")),
            "spec.acme.solvers[1].http01.webroot.path",
            '"/etc/x"',
            "--webroot /etc/x",
        ),
    ],
    ids=["http", "exec", "webroot"],
)
def test_a_refusal_names_field_value_and_flag(new: dict[str, Any], field: str, value: str, flag: str) -> None:
    assert all(part in rejection_of(new) for part in (field, value, flag))


def test_the_flags_allow_it() -> None:
    solvers = (exec_("hook"), exec_("/usr/bin/hook", "-q"), webroot("/var/www/site"), webroot("/srv"))
    assert rejection_of(issuer("http://ca.example/dir", *solvers), policy=EVERYTHING) == ""


@pytest.mark.parametrize(
    "path", ["/var/www/../../etc", "/var/wwwx", "/var", "var/www", "", "/", "/var/www/\0", "//etc", "/srv/.."]
)
def test_a_path_that_is_not_below_a_root(path: str) -> None:
    assert EVERYTHING.webroot_of(path) is None


def test_the_longest_root_counts_and_the_rest_is_below_it() -> None:
    policy = OperatorPolicy(webroots=("/var", "/var/www"))
    assert policy.webroot_of("/var//www/./site/a/") == ("/var/www", ("site", "a"))


def test_a_server_whose_controllers_run_elsewhere_leaves_it_to_them() -> None:
    assert rejection_of(issuer("http://ca.example/dir", exec_("x"), webroot("/x")), policy=None) == ""


@pytest.mark.parametrize(
    "server", ["file:///etc/passwd", "https://a\r\nX: y", "https://u:p@ca.example", "ftp://x"]
)
@pytest.mark.parametrize("policy", [None, EVERYTHING], ids=["no policy", "every flag"])
def test_no_flag_allows_a_url_of_no_server(server: str, policy: OperatorPolicy | None) -> None:
    assert "spec.acme.server: Invalid value" in rejection_of(issuer(server), policy=policy)


SERVERS = """
vault: {server: "http://v", path: pki/sign/x, auth: {tokenSecretRef: {name: s}}}
venafi: {zone: z, tpp: {url: "http://v", credentialsRef: {name: s}}}
venafi: {zone: z, cloud: {url: "http://v", apiTokenSecretRef: {name: s}}}
venafi: {zone: z, ngts: {url: "http://v", tsgID: t, credentialsRef: {name: s}}}
venafi: {zone: z, ngts: {tokenEndpoint: "http://v", tsgID: t, credentialsRef: {name: s}}}
acme: {server: "https://a", privateKeySecretRef: {name: account},
  solvers: [{dns01: {acmeDNS: {host: "http://v", accountSecretRef: {name: s, key: k}}}}]}
"""


@pytest.mark.parametrize("spec", table(SERVERS))
def test_every_field_that_names_a_server_is_checked(spec: dict[str, Any]) -> None:
    new = {"metadata": {"name": "i", "namespace": "default"}, "spec": spec}
    assert "--allow-http-servers" in rejection_of(new)


BEFORE = issuer("http://ca.example/dir", exec_("/bin/a"), webroot("/var/a"))


def test_an_update_that_leaves_the_field_alone_is_not_refused() -> None:
    after = issuer("http://ca.example/dir", webroot("/var/a"), exec_("/bin/a"), email="a@example.com")
    assert rejection_of(after, BEFORE) == ""
    labelled = {**BEFORE, "metadata": {**BEFORE["metadata"], "labels": {"a": "b"}}}
    assert rejection_of(labelled, BEFORE) == ""
    assert rejection_of({**BEFORE, "status": {"conditions": []}}, BEFORE) == ""


@pytest.mark.parametrize(
    "after",
    [
        issuer("http://other.example/dir", exec_("/bin/a"), webroot("/var/a")),
        issuer("http://ca.example/dir", exec_("/bin/a", "-x"), webroot("/var/a")),
        issuer("http://ca.example/dir", exec_("/bin/a"), webroot("/var/b")),
        issuer("http://ca.example/dir", exec_("/bin/a"), exec_("/bin/b")),
    ],
)
def test_an_update_that_brings_another_one_is_refused(after: dict[str, Any]) -> None:
    assert rejection_of(after, BEFORE)


def test_an_update_may_take_it_away() -> None:
    assert rejection_of(issuer(), BEFORE) == ""


def test_a_challenge_is_judged_by_its_own_solver() -> None:
    spec = {
        "url": "https://a",
        "authorizationURL": "https://a",
        "dnsName": "a",
        "type": "HTTP-01",
        "token": "t",
        "key": "k",
        "issuerRef": {"name": "i"},
        "solver": webroot("/etc"),
    }
    new = {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}
    (error,) = validate("Challenge", ACME_GROUP, new, None, NOTHING)
    assert error.field == "spec.solver.http01.webroot.path"
    assert validate("Challenge", ACME_GROUP, new, None, None) == []


ML_DSA = {"secretName": "web", "issuerRef": {"name": "ca"}, "dnsNames": ["a.example"]}


def certificate(**key: str) -> dict[str, Any]:
    """A Certificate with that private key."""
    return {"metadata": {"name": "web"}, "spec": {**ML_DSA, "privateKey": key}}


@pytest.mark.parametrize("algorithm", ["ML-DSA", "MLDSA44"])
def test_an_ml_dsa_key_needs_the_feature_gate(algorithm: str) -> None:
    new = certificate(algorithm=algorithm)
    (error,) = validate("Certificate", "cert-manager.io", new, None, OperatorPolicy())
    assert str(error) == (
        "spec.privateKey.algorithm: Forbidden: ML-DSA is an alpha feature; have certwright started with "
        "--feature-gates PostQuantum=true, or write RSA, ECDSA or Ed25519"
    )
    for policy in (OperatorPolicy(post_quantum=True), None):
        assert validate("Certificate", "cert-manager.io", new, None, policy) == []
    existing = certificate(algorithm="ML-DSA")
    assert validate("Certificate", "cert-manager.io", new, existing, OperatorPolicy()) == (
        [] if algorithm == "ML-DSA" else [error]
    )
