#!/bin/sh
# nginx's image runs this before nginx: it waits for the first certificate, and has nginx reload each renewed one.
certificate=/tls/default/web/tls.crt
until [ -s "$certificate" ]; do sleep 1; done
seen=$(sha256sum "$certificate")
while sleep 5; do
    now=$(sha256sum "$certificate")
    if [ "$now" != "$seen" ] && nginx -s reload; then seen=$now; fi
done &
