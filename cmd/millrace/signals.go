package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// hurryWait is how long a command that gives work back may take for that once it was told to end a second time.
const hurryWait = 5 * time.Second

// interrupts are what tells a command to end. The first signal ends ctx, the second one hurry.
type interrupts struct {
	ctx   context.Context
	hurry context.Context
	// patient is set by a command that ends by itself once hurry has ended; any other is ended by the second signal.
	patient atomic.Bool
}

// heedSignals has SIGINT and SIGTERM end the process in an orderly way, and the second of them at once. SIGHUP and SIGPIPE
// end nothing: a terminal that is closed, or a reader that is gone, must not stop a server or leave a task to its
// lease. They are caught, not ignored, so that programs that are started by this one have them as they are by default.
func heedSignals() (i *interrupts, stop func()) {
	nothing := make(chan os.Signal, 1) // never read
	signal.Notify(nothing, syscall.SIGPIPE)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(nothing, syscall.SIGHUP)
	}
	told := make(chan os.Signal, 2)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	hurry, hasten := context.WithCancel(context.Background())
	i = &interrupts{ctx: ctx, hurry: hurry}
	over := make(chan struct{})
	go func() {
		select {
		case <-told:
			cancel()
		case <-over:
			return
		}
		select {
		case again := <-told:
			hasten()
			if i.patient.Load() {
				time.Sleep(hurryWait)
			}
			os.Exit(128 + int(again.(syscall.Signal)))
		case <-over:
		}
	}()
	return i, func() {
		close(over)
		signal.Stop(told)
		cancel()
	}
}

// checked is where a command writes what it was asked for. It keeps the first error: such a command has not done its work.
type checked struct {
	w   io.Writer
	err error
}

// Write writes on.
func (c *checked) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}
