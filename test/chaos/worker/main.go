// Command worker is a worker process that can be paused: it takes tasks, says which, holds them until it is told to go
// on, and then completes them with effects, and tries a fenced commit of its own.
//
// It reads the server's address, token and namespace from the environment, as every client does. It prints one JSON
// line per event, {"event":"held","id":…,"token":…} and {"event":"fenced","id":…,"token":…,"code":…}, goes on when a
// line comes on its standard input, and ends when that is closed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// event is one line of output. Code is the outcome of the fenced commit.
type event struct {
	Event string `json:"event"`
	ID    string `json:"id"`
	Token uint64 `json:"token,string"`
	Code  string `json:"code,omitempty"`
}

// worker holds tasks until goOn is closed, which the first line of input does.
type worker struct {
	c    *millrace.Client
	goOn chan struct{}

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// run serves the queue that the flags name, until standard input is closed. Every worker process
// has the same name, so that only tokens tell them apart.
func run() error {
	queue := flag.String("queue", "", "queue and kind to serve")
	count := flag.Int("slots", 1, "tasks to hold at once")
	lease := flag.Duration("lease", time.Second, "lease to ask for")
	ledger := flag.String("ledger", "", "file for the ledger")
	flag.Parse()
	f, err := os.Create(*ledger)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := millrace.Dial(ctx, millrace.Ledger(f), millrace.Timeout(0))
	if err != nil {
		return err
	}
	w := &worker{c: c, goOn: make(chan struct{}), out: json.NewEncoder(os.Stdout)}
	// The first line lets the tasks go on, and the end of the input ends the process.
	go func() {
		in := bufio.NewScanner(os.Stdin)
		if in.Scan() {
			close(w.goOn)
		}
		for in.Scan() { // until the other side closes it
			continue
		}
		cancel()
	}()
	mw := c.Worker(millrace.Slots(*count), millrace.Lease(*lease), millrace.Name("shared-name"), millrace.DrainTimeout(5*time.Second))
	millrace.Job[string, string](*queue).Handle(mw, w.handle)
	return errors.Join(mw.Run(ctx), c.Close(), f.Close())
}

// handle holds the task until it is told to go on, whatever its context says, and then acts as if
// it still had the task: a fenced commit, and effects with the completion. If its lease was lost,
// none of that may have an effect.
func (w *worker) handle(_ context.Context, t *millrace.Task, _ string) (string, error) {
	w.say(event{Event: "held", ID: t.ID, Token: t.Token()})
	<-w.goOn
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := w.c.Commit(ctx, func(tx *millrace.Tx) {
		tx.Fence(t)
		tx.KV("fenced").Put(t.ID, "zombie")
	})
	// An error that is not the server's says nothing about how the commit ended.
	code := "OK"
	if err != nil {
		code = "UNKNOWN"
	}
	if e, ok := errors.AsType[*millrace.Error](err); ok {
		code = string(e.Code)
	}
	w.say(event{Event: "fenced", ID: t.ID, Token: t.Token(), Code: code})
	t.Effects().KV("owner").Put(t.ID, "zombie "+strconv.FormatUint(t.Token(), 10))
	millrace.Job[string, string]("followed").AddTx(t.Effects(), "by a zombie")
	return "zombie", nil
}

// say prints one event. Handlers of several slots call it at once.
func (w *worker) say(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(e) // a reader that is gone has ended the run
}
