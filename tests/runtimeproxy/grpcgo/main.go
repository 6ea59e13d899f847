// Callers of grpc-go on one socket, as many as asked for, until standard input ends. Each call has
// a message of its own; how the calls ended is printed as JSON, by status.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { return nil }
func (raw) Name() string                       { return "proto" }

// A RunPodSandboxRequest with only its runtime_handler (number 2), or a VersionRequest with only
// its version (number 1).
func message(number int64) (string, []byte) {
	text := fmt.Sprintf("call %d", number)
	if number%2 == 1 {
		return "RunPodSandbox", append([]byte{0x12, byte(len(text))}, text...)
	}
	return "Version", append([]byte{0x0a, byte(len(text))}, text...)
}

func main() {
	callers, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	connection, err := grpc.NewClient("unix://"+os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.WaitForReady(true)))
	if err != nil {
		panic(err)
	}
	var next atomic.Int64
	var stopped atomic.Bool
	var lock sync.Mutex
	var running sync.WaitGroup
	ended := map[string]int{}
	for range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for !stopped.Load() {
				method, request := message(next.Add(1))
				var answer []byte
				err := connection.Invoke(context.Background(),
					"/runtime.v1.RuntimeService/"+method, request, &answer)
				if err != nil && connection.GetState() == connectivity.TransientFailure {
					connection.ResetConnectBackoff()
				}
				lock.Lock()
				ended[status.Code(err).String()]++
				lock.Unlock()
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	stopped.Store(true)
	running.Wait()
	json.NewEncoder(os.Stdout).Encode(ended)
}
