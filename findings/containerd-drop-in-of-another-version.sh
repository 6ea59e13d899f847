#!/bin/sh
# A drop-in of `version = 3` makes containerd 2 read the main file, which says `version = 2`, by the
# rules of version 3: sections that were renamed in between lose their settings, with one line in
# the log. Hurts who adds a small drop-in in the current format (NRI, a mirror) to a node whose main
# file came with containerd 1.7: the pause image and the rest of `cri` silently become defaults.
set -eu
VERSION=v2.1.9
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0 GOPATH="${GOPATH:-$work/go}"
mkdir "$work/build" "$work/conf.d"
cat >"$work/build/tools.go" <<'GO'
//go:build tools

package tools

import _ "github.com/containerd/containerd/v2/cmd/containerd"
GO
(
    cd "$work/build"
    go mod init example.test/build
    go get github.com/containerd/containerd/v2/cmd/containerd@$VERSION
    go build -tags "no_btrfs no_zfs no_devmapper" -o "$work/containerd" \
        github.com/containerd/containerd/v2/cmd/containerd
) >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 2; }

cat >"$work/main.toml" <<TOML
version = 2
imports = ["$work/conf.d/*.toml"]
root = "$work/root"
state = "$work/state"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "example.test/pause:1"
TOML

pause_image() { # VERSION OF THE DROP-IN
    cat >"$work/conf.d/nri.toml" <<TOML
version = $1
[plugins."io.containerd.nri.v1.nri"]
disable = false
TOML
    "$work/containerd" --config "$work/main.toml" config dump 2>"$work/said" |
        sed -n "s/^ *sandbox = '\(.*\)'$/\1/p"
}

echo "containerd $VERSION, main file of version 2 with sandbox_image = example.test/pause:1"
same=$(pause_image 2)
echo "drop-in of version 2 about NRI alone: sandbox = $same"
other=$(pause_image 3)
echo "drop-in of version 3 about NRI alone: sandbox = $other"
echo "its log: $(grep -o 'msg="[^"]*"' "$work/said" | head -n 1)"
[ "$same" = example.test/pause:1 ]
[ -n "$other" ] && [ "$other" != example.test/pause:1 ]
