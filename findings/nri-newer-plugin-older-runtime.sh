#!/bin/sh
# An NRI plugin that is built with a newer library and handles one event more loses its whole
# connection to a runtime with an older one, though the runtime's events are a subset of its own.
# Hurts whoever adds UpdatePodSandbox (NRI 0.10) to a plugin for containerd 2.2: on nodes with
# containerd 2.0 and 2.1 (NRI 0.8) it no longer hears of any container.
set -eu
OLD=v0.8.0 NEW=v0.10.0
work=$(mktemp -d)
trap 'kill $runtime 2>/dev/null || true; chmod -R u+w "$work"; rm -rf "$work"' EXIT
runtime=
mkdir "$work/runtime" "$work/plugin" "$work/plugins" "$work/conf"

cat >"$work/runtime/main.go" <<'GO'
package main

import (
	"context"
	"os"
	"time"

	nri "github.com/containerd/nri/pkg/adaptation"
)

func main() {
	sync := func(ctx context.Context, tell nri.SyncCB) error {
		_, err := tell(ctx, nil, nil)
		return err
	}
	update := func(context.Context, []*nri.ContainerUpdate) ([]*nri.ContainerUpdate, error) {
		return nil, nil
	}
	dir := os.Args[1]
	side, err := nri.New("runtime", "1.0.0", sync, update, nri.WithSocketPath(dir+"/nri.sock"),
		nri.WithPluginPath(dir+"/plugins"), nri.WithPluginConfigPath(dir+"/conf"))
	if err != nil {
		panic(err)
	}
	if err := side.Start(); err != nil {
		panic(err)
	}
	time.Sleep(time.Minute)
}
GO

cat >"$work/plugin/main.go" <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type plain struct{}

func (plain) RunPodSandbox(context.Context, *api.PodSandbox) error { return nil }

type resizing struct{ plain }

func (resizing) UpdatePodSandbox(_ context.Context, _ *api.PodSandbox, _, _ *api.LinuxResources) error {
	return nil
}

func main() {
	var handlers any = plain{}
	if os.Args[2] == "resizing" {
		handlers = resizing{}
	}
	lost := make(chan struct{})
	made, err := stub.New(handlers, stub.WithPluginName(os.Args[2]), stub.WithPluginIdx("10"),
		stub.WithSocketPath(os.Args[1]+"/nri.sock"), stub.WithOnClose(func() { close(lost) }))
	if err != nil {
		panic(err)
	}
	if err := made.Start(context.Background()); err != nil {
		fmt.Println("RESULT", os.Args[2], "refused:", err)
		return
	}
	select {
	case <-lost:
		fmt.Println("RESULT", os.Args[2], "started without an error, then the connection was closed")
	case <-time.After(5 * time.Second):
		fmt.Println("RESULT", os.Args[2], "connected")
	}
}
GO

export GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPATH="${GOPATH:-$work/go}"
build() {
    (
        cd "$work/$1"
        go mod init example.test/"$1"
        go get github.com/containerd/nri@"$2"
        go build -o ../"$1".bin .
    ) >"$work/$1.log" 2>&1 || { tail -n 20 "$work/$1.log"; exit 2; }
}
build runtime $OLD
build plugin $NEW

"$work/runtime.bin" "$work" 2>"$work/runtime.out" &
runtime=$!
for _ in $(seq 100); do [ -S "$work/nri.sock" ] && break; sleep 0.1; done
found=$(for kind in plain resizing; do "$work/plugin.bin" "$work" $kind 2>/dev/null; done)
said=$(grep -o 'invalid plugin events: 0x[0-9a-f]*' "$work/runtime.out" || true)

echo "runtime: github.com/containerd/nri $OLD, plugin: $NEW, $(go version | cut -d' ' -f3)"
echo "$found"
echo "the runtime's log: ${said:-nothing}"
echo "$found" | grep -q '^RESULT plain connected$'
echo "$found" | grep -q '^RESULT resizing started without an error, then the connection was closed$'
[ "$said" = "invalid plugin events: 0x800" ]
