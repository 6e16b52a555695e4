#!/usr/bin/env sh
# Stands in for acme.sh 3.1, which is in no package registry. Written from its source (main, _initpath, _post,
# _get, the accessors of account.conf): the functions that scripts of dnsapi/ use, and no argument means help.

_err() { printf '%s\n' "$*" >&2; }

_initpath() {
  HTTP_HEADER="$LE_CONFIG_HOME/http.header"
  ACCOUNT_CONF_PATH="$LE_CONFIG_HOME/account.conf"
}

# As in the original, the same file for all runs with one LE_CONFIG_HOME.
_get() { curl -sS --dump-header "$HTTP_HEADER" -H "$_H1" "$1"; }
_post() { curl -sS --dump-header "$HTTP_HEADER" -H "$_H1" -X "${4:-POST}" -H "Content-Type: $5" -d "$1" "$2"; }
_status() { head -n 1 "$HTTP_HEADER" | cut -d ' ' -f 2; }
_saveaccountconf_mutable() { printf "SAVED_%s='%s'\n" "$1" "$2" >>"$ACCOUNT_CONF_PATH"; }

showhelp() { echo "Usage: acme.sh <command> ... [parameters ...]"; }

main() {
  [ -z "$1" ] && showhelp && return
  "$@"
}

main "$@"
