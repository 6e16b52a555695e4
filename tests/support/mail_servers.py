"""Debian's Postfix and Dovecot on loopback, with STARTTLS. Both change users, so they need root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.real import missing, require
from support.tls_servers import running


@contextmanager
def running_postfix(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """Postfix with the pair in `tls`; its queue is in `folder`."""
    _require_root()
    require("postfix")
    config = folder / "postfix"
    for name in ("", "queue", "queue/pid", "queue/private", "queue/public", "data"):
        (config / name).mkdir()
    for name in ("data", "queue/private", "queue/public"):
        shutil.chown(config / name, "postfix")
    (config / "main.cf").write_text(f"""
compatibility_level = 3.6
queue_directory = {config}/queue
data_directory = {config}/data
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = localhost
mydestination =
alias_maps =
smtpd_tls_security_level = may
smtpd_tls_cert_file = {tls}/tls.crt
smtpd_tls_key_file = {tls}/tls.key
""")
    (config / "master.cf").write_text(f"""
127.0.0.1:{port} inet n - n - - smtpd
tlsmgr unix - - n 1000? 1 tlsmgr
anvil unix - - n - 1 anvil
rewrite unix - - n - - trivial-rewrite
proxymap unix - - n - - proxymap
""")
    # `postfix start` checks the whole installation first, for seconds.
    command = ["/usr/lib/postfix/sbin/master", "-d", "-c", str(config)]
    with running(command, env={"MAIL_CONFIG": str(config)}):
        yield


@contextmanager
def running_dovecot(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """Dovecot with the pair in `tls`. By default it ends all sessions 5 s after a reload."""
    _require_root()
    program, config, home = require("dovecot"), folder / "dovecot.conf", folder / "mail"
    home.mkdir()
    shutil.chown(home, "nobody", "nogroup")
    config.write_text(f"""
base_dir = {folder}/dovecot
state_dir = {folder}/dovecot-state
log_path = {folder}/dovecot.log
protocols = imap
shutdown_clients = no
listen = 127.0.0.1
ssl = yes
ssl_cert = <{tls}/tls.crt
ssl_key = <{tls}/tls.key
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = static
  args = nopassword=y
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={folder}/mail
}}
mail_location = maildir:~/mail
first_valid_uid = 1
first_valid_gid = 1
""")
    with running([program, "-F", "-c", str(config)]):
        yield


def _require_root() -> None:
    if os.geteuid() != 0:
        missing("Postfix and Dovecot are started by root only")
