#!/bin/sh
# pyroute2 writes the keys of a u32 traffic filter right and reads them back four bytes beside their
# place: the mask stands where the value was, and the offset is made of the address that was asked for.
# Hurts who compares the filters in the kernel with those it wants: none is ever equal, so each look
# writes all of them again, or takes the filter of one address for that of another.
set -eu
VERSION=0.9.7
[ "$(id -u)" = 0 ] || { echo "needs root, for a network namespace of its own"; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyroute2==$VERSION
cat >"$work/look.py" <<'PY'
import socket

from pyroute2 import IPRoute

LOOPBACK = 1
with IPRoute() as route:
    route.tc("add", "htb", LOOPBACK, "1:", default=0)
    route.tc("add-class", "htb", LOOPBACK, "1:10", parent="1:", rate="1mbit")
    route.tc("add-filter", "u32", LOOPBACK, parent="1:", prio=10, protocol=socket.AF_INET,
             target="1:10", keys=["0x0a000001/0xffffffff+16"])
    for found in route.get_filters(LOOPBACK, parent="1:"):
        options = found.get_attr("TCA_OPTIONS")
        chosen = options.get_attr("TCA_U32_SEL") if options else None
        for key in chosen["keys"] if chosen else ():
            print(f"value {key['key_val']:#010x} mask {key['key_mask']:#010x} offset {key['key_off']}")
PY
read_back=$(unshare -n "$work/venv/bin/python" "$work/look.py")
echo "pyroute2 $VERSION, Linux $(uname -r)"
echo "written:   value 0x0a000001 mask 0xffffffff offset 16"
echo "read back: $read_back"
case $read_back in
    "value 0xffffffff mask "*) ;;
    *) exit 1 ;;
esac
