#!/bin/sh
# cgroup v2 weights are made of CPU requests by another curve since opencontainers/cgroups v0.0.3
# (runc 1.3.2), and nothing converts those that are in force: halving the request of a container
# that was made before the upgrade raises its weight, and its share beside older ones nearly doubles.
# Hurts nodes whose runtime is upgraded under running pods, and who compares weights with requests.
set -eu
OLD=v0.0.2 NEW=v0.0.3
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPATH="${GOPATH:-$work/go}"

weight() { # VERSION SHARES: cpu.weight for these cpu.shares
    if [ ! -x "$work/$1.bin" ]; then
        mkdir "$work/$1"
        cat >"$work/$1/main.go" <<'GO'
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/opencontainers/cgroups"
)

func main() {
	shares, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		panic(err)
	}
	fmt.Print(cgroups.ConvertCPUSharesToCgroupV2Value(shares))
}
GO
        (
            cd "$work/$1"
            go mod init example.test/weight
            go get github.com/opencontainers/cgroups@"$1"
            go build -o "../$1.bin" .
        ) >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 2; }
    fi
    "$work/$1.bin" "$2"
}

before=$(weight $OLD 512) same=$(weight $NEW 512) halved=$(weight $NEW 256)
echo "github.com/opencontainers/cgroups $OLD and $NEW, $(go version | cut -d' ' -f3)"
echo "request 500m (512 shares), made by $OLD: cpu.weight $before"
echo "request 500m (512 shares), made by $NEW: cpu.weight $same"
echo "the first one, resized to 250m (256 shares) by $NEW: cpu.weight $halved"
[ "$before $same $halved" = "20 59 35" ]
