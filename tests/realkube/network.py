"""A pod network for pods that speak to nobody: a namespace with an address and no way out.

The plugin is a shell script, so no bridge, no address and no rule of the machine is touched, and no
package has to be fetched. It answers what CNI 1.0.0 asks of ADD, CHECK and DEL.
"""

from __future__ import annotations

import json
from pathlib import Path

_PLUGIN = """#!/bin/sh
# Named after the namespace, so that two pods do not have the same address.
cat >/dev/null
case "$CNI_COMMAND" in
ADD)
    sum=$(printf %s "$CNI_CONTAINERID" | cksum | cut -d ' ' -f 1)
    address=198.18.$((sum / 250 % 250)).$((sum % 250 + 2))/15
    printf '{"cniVersion":"1.0.0","interfaces":[{"name":"%s","sandbox":"%s"}],' \\
        "$CNI_IFNAME" "$CNI_NETNS"
    printf '"ips":[{"address":"%s","interface":0}]}' "$address"
    ;;
VERSION) printf '{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]}' ;;
esac
"""


def install(directory: Path) -> None:
    """Below ``directory``, where a containerd of ``tests.runtime`` looks."""
    programs = directory / "bin"
    programs.mkdir(parents=True)
    for name in ("nowhere", "loopback"):
        (programs / name).write_text(_PLUGIN)
        (programs / name).chmod(0o755)
    network = {"cniVersion": "1.0.0", "name": "nowhere", "plugins": [{"type": "nowhere"}]}
    (directory / "10-nowhere.conflist").write_text(json.dumps(network))
