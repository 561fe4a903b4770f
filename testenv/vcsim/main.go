// Command vcsim is a vCenter for tests: govmomi's simulator with a configurable inventory, the
// strictness of a real vCenter where the library is lenient, and an endpoint for fault injection.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "vcsim:", err)
		}
		os.Exit(2)
	}
}

// run serves until it receives a signal. When it is ready it prints one line of JSON.
func run(arguments []string) error {
	settings, err := parse(arguments[0], arguments[1:])
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	started := time.Now()
	server, err := Start(settings)
	if err != nil {
		return err
	}
	defer server.Close()
	ready := map[string]any{
		"url":         server.URL.String(),
		"control":     server.ControlURL.String(),
		"certificate": server.Certificate,
		"tunnel":      server.TunnelURL.String(), "instanceUuid": server.InstanceUUID(),
		"user": settings.User, "pid": os.Getpid(), "seconds": time.Since(started).Seconds(),
	}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	<-signals
	return nil
}
