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

// hurryWait is how long a command that gives its work back may take for it after the second signal.
// Then the process exits.
const hurryWait = 5 * time.Second

// interrupts are what tells a command to end: the first SIGINT or SIGTERM cancels ctx, the second
// one cancels hurry.
type interrupts struct {
	ctx   context.Context
	hurry context.Context
	// Set by a command that ends by itself soon after hurry was cancelled. Any other command is
	// ended by the second signal at once.
	patient atomic.Bool
}

// heedSignals makes the first SIGINT or SIGTERM end the process in order, and the second one at
// once, with exit code 128 plus the signal's number.
//
// SIGHUP and SIGPIPE end nothing: a closed terminal, or a reader of the output that is gone, must
// not stop a server or leave a task to its lease. They are caught and not ignored, because programs
// that this one starts inherit ignored signals but not caught ones. A SIGHUP that was ignored from
// the start, as under nohup, stays ignored.
//
// stop ends the watching and cancels ctx.
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
	// This goroutine waits for the first signal, then for the second one. The end of the process
	// ends it, or stop.
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

// checked is the output of a command. It keeps the first error of a write: a command whose output
// was not written has not done its work.
type checked struct {
	// w is what the output goes to, and err the first error of it.
	w   io.Writer
	err error
}

// Write passes p on and keeps the first error.
func (c *checked) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}
