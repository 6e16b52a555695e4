"""What the options say becomes the etcd of each bucket."""

from __future__ import annotations

from pathlib import Path

from certwright.app.etcd_overrides import overrides_of
from certwright.app.options import EtcdOptions, ServeOptions
from certwright.kube.store.etcd.client import Access


def test_tls_files_and_user_are_those_of_the_main_etcd() -> None:
    main = Access(
        ("e1:2379",),
        tls=True,
        ca_file=Path("ca"),
        cert_file=Path("c"),
        key_file=Path("k"),
        user="u",
        password="p",
    )
    given = (
        ("/secrets", ("https://e4:2379", "https://e5:2379")),
        ("acme.cert-manager.io/orders", ("https://e5:2379", "https://e4:2379")),
    )
    options = ServeOptions(data_dir=Path(), store="etcds://e1", etcd=EtcdOptions(servers_overrides=given))
    overrides = overrides_of(options, main)
    assert set(overrides) == {"secrets", "acme.cert-manager.io/orders"}
    secrets = overrides["secrets"]
    assert secrets.members == ("e4:2379", "e5:2379")
    assert (secrets.tls, secrets.files, secrets.user, secrets.password) == (True, main.files, "u", "p")
    # The same servers in another order are one etcd.
    assert overrides["acme.cert-manager.io/orders"] == secrets
