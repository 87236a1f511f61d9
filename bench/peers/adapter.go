package main

import (
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace/bench"
)

// adapter is what every broker has. It is set when the broker is opened and does not change afterwards, so any
// goroutine may read it.
type adapter struct {
	// address is where the server listens, as host:port: the processes whose CPU and memory are measured are found by
	// it.
	address string
	// report is what the result says of the peer.
	report bench.PeerReport
}

// about returns the report, which broker promises.
func (a *adapter) about() bench.PeerReport { return a.report }

// server returns the address of the server, which broker promises.
func (a *adapter) server() string { return a.address }

// seen is the settle of a broker whose left sees all tasks.
type seen struct{}

func (seen) settle() (uint64, error) { return 0, nil }

// acknowledged is the settled of a broker that acknowledges completions: those are counted.
type acknowledged struct{}

func (acknowledged) settled(context.Context) (uint64, bool, error) { return 0, false, nil }

// unsynced is the fsyncs of a broker whose server does not tell how often it synced.
type unsynced struct{}

func (unsynced) fsyncs(context.Context) (float64, error) { return -1, nil }

// hangUp closes all connections.
func hangUp[C io.Closer](conns ...C) error {
	var all []error
	for _, c := range conns {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}
