#!/usr/bin/env sh
# A script in the form of acme.sh's dnsapi/, for PowerDNS and the zone example.org. Written for these tests.

dns_small_add() {
  _saveaccountconf_mutable SMALL_Token "$SMALL_Token"
  _change "$1" "$(_others "$1" "$2")\\\"$2\\\""
}

dns_small_rm() {
  _change "$1" "$(_others "$1" "$2")"
}

_zone() { echo "$SMALL_Url/api/v1/servers/localhost/zones/example.org."; }

# The values at a name but one, each followed by a blank.
_others() {
  export _H1="X-API-Key: $SMALL_Token"
  _get "$(_zone)?rrset_type=TXT&rrset_name=$1." | grep -o '"content": *"\\"[^\\]*' | grep -o '[^"]*$' |
    grep -v -x -F "$2" | sed 's/.*/\\"&\\" /' | tr -d '\n'
}

_change() {
  export _H1="X-API-Key: $SMALL_Token"
  records=""
  for content in $2; do
    records="$records${records:+,}{\"content\": \"$content\", \"disabled\": false}"
  done
  type=REPLACE
  [ -n "$records" ] || type=DELETE
  body="{\"rrsets\": [{\"name\": \"$1.\", \"type\": \"TXT\", \"ttl\": 60, \"changetype\": \"$type\", \"records\": [$records]}]}"
  _post "$body" "$(_zone)" "" PATCH application/json >/dev/null
  if [ "$(_status)" != 204 ]; then
    _err "PowerDNS answered with status $(_status)"
    return 1
  fi
}
