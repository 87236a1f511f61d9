// Command goagent is the agent of the Go SDK for the scenarios of sdk/scenarios, whose README has its protocol.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// agent carries out commands.
type agent struct {
	c      *millrace.Client
	ledger *os.File

	out sync.Mutex // guards standard output, so that lines stay whole

	mu     sync.Mutex // guards the fields below
	gates  map[string]chan struct{}
	stop   context.CancelFunc // drains the worker; nil: none runs
	worked chan struct{}      // closed when the worker has returned
}

// command is one line of standard input. What a word does not have is left as it is.
type command struct {
	I  int    `json:"i"`
	Do string `json:"do"`

	Address   string `json:"address"`
	Token     string `json:"token"`
	Namespace string `json:"namespace"`
	Transport string `json:"transport"`
	Ledger    string `json:"ledger"`

	adding
	ArgsList []string `json:"-"`

	Checks []check `json:"checks"`
	Ops    []op    `json:"ops"`

	Keyspace string `json:"keyspace"`
	Key      string `json:"key"`
	Reason   string `json:"reason"`
	Force    bool   `json:"force"`
	Name     string `json:"name"`

	Jobs    []jobSpec `json:"jobs"`
	Slots   int       `json:"slots"`
	Queues  []string  `json:"queues"`
	DrainMS int64     `json:"drain_ms"`
	Renew   string    `json:"renew"`

	Weights map[string]int `json:"weights"`
	InOrder bool           `json:"in_order"`

	administering

	What    string `json:"what"`
	Tasks   int    `json:"tasks"`
	Callers int    `json:"callers"`
	// PauseMS is how long a caller rests between two calls.
	PauseMS int64 `json:"pause_ms"`
}

// adding is what says how a task is added.
type adding struct {
	Job       string            `json:"job"`
	Queue     string            `json:"queue"`
	Codec     string            `json:"codec"`
	Args      json.RawMessage   `json:"args"`
	ID        string            `json:"id"`
	IDs       []string          `json:"ids"`
	Tag       string            `json:"tag"`
	TaskKey   string            `json:"task_key"`
	Cost      int               `json:"cost"`
	Limiters  []string          `json:"limiters"`
	Batch     string            `json:"batch"`
	DelayMS   int64             `json:"delay_ms"`
	Priority  int               `json:"priority"`
	Unique    string            `json:"unique"`
	Until     string            `json:"until"`
	Conflict  string            `json:"on_conflict"`
	Headers   map[string]string `json:"headers"`
	Labels    map[string]string `json:"labels"`
	After     []after           `json:"after"`
	OnDep     string            `json:"on_dep_failure"`
	Attempts  int               `json:"attempts"`
	LeaseMS   int64             `json:"lease_ms"`
	MaxRunMS  int64             `json:"max_run_ms"`
	TimeoutMS int64             `json:"timeout_ms"`
	Retry     *struct {
		BaseMS int64 `json:"base_ms"`
		MaxMS  int64 `json:"max_ms"`
	} `json:"retry"`
}

// errUnsupported answers what the SDK, or this agent, does not have.
var errUnsupported = errors.New("not supported")

func main() {
	a := &agent{gates: map[string]chan struct{}{}}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		a.drain()
		a.end(0)
	}()
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var c command
			if err := json.Unmarshal(line, &c); err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			if c.Do == "open" { // the next commands need it
				a.carryOut(&c)
			} else {
				go a.carryOut(&c)
			}
		}
		if err != nil {
			a.end(0)
		}
	}
}

// end closes the client and ends the process.
func (a *agent) end(code int) {
	if a.c != nil {
		_ = a.c.Close()
	}
	if a.ledger != nil {
		_ = a.ledger.Close()
	}
	os.Exit(code)
}

func (a *agent) say(fields map[string]any) {
	b, err := json.Marshal(fields)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	a.out.Lock()
	defer a.out.Unlock()
	_, _ = os.Stdout.Write(append(b, '\n'))
}

// Write takes what the SDK logs, a line at a time.
func (a *agent) Write(b []byte) (int, error) {
	a.say(map[string]any{"event": "log", "text": string(bytes.TrimSpace(b))})
	return len(b), nil
}

func (a *agent) carryOut(c *command) {
	ctx := context.Background()
	if c.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	ok, err := a.do(ctx, c)
	if err != nil {
		a.say(map[string]any{"i": c.I, "err": showError(err)})
		return
	}
	a.say(map[string]any{"i": c.I, "ok": ok})
	if c.Do == "close" {
		a.end(0)
	}
}

func (a *agent) do(ctx context.Context, c *command) (any, error) {
	none := map[string]any{}
	switch c.Do {
	case "open":
		return none, a.open(ctx, c)
	case "add":
		return a.add(ctx, &c.adding)
	case "add_many", "add_all":
		return a.addMany(ctx, c)
	case "wait":
		return a.wait(ctx, c)
	case "get":
		t, err := a.c.Task(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"state": t.State.String(), "reason": t.Reason, "attempt": t.Attempt, "failures": t.Failures, "crashes": t.Crashes,
			"snoozes": t.Snoozes, "task_code": t.ErrorCode, "message": t.ErrorMessage, "limiters": texts(t.Limiters), "batch": t.Batch,
		}, nil
	case "commit":
		return a.commit(ctx, c, nil)
	case "kv_get":
		v, err := a.c.KV(c.Keyspace).Get(ctx, c.Key)
		if errors.Is(err, millrace.ErrNotFound) {
			return nil, nil
		}
		var writer any
		if v.Writer != nil {
			writer = map[string]any{"task": v.Writer.Task, "token": strconv.FormatUint(v.Writer.Token, 10)}
		}
		return map[string]any{
			"value_base64": base64.StdEncoding.EncodeToString(v.Bytes), "rev": strconv.FormatUint(v.Rev, 10), "writer": writer,
		}, err
	case "cancel":
		opts := []millrace.CancelOption{millrace.CancelReason(c.Reason)}
		if c.Force {
			opts = append(opts, millrace.ForceCancel())
		}
		_, err := a.c.Cancel(ctx, c.ID, opts...)
		return none, err
	case "set_token":
		a.c.SetToken(c.Token)
		return none, nil
	case "worker":
		return none, a.work(c)
	case "bench":
		return a.bench(ctx, c)
	case "gate":
		close(a.gate(c.Name))
		return none, nil
	case "stop":
		a.drain()
		return none, nil
	case "close":
		return none, nil
	}
	return a.administer(ctx, c)
}

// gate is a channel that the command gate closes.
func (a *agent) gate(name string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gates[name] == nil {
		a.gates[name] = make(chan struct{})
	}
	return a.gates[name]
}

func (a *agent) open(ctx context.Context, c *command) (err error) {
	opts := []millrace.Option{
		millrace.Address(c.Address), millrace.Insecure(), millrace.Token(c.Token), millrace.Namespace(c.Namespace),
		millrace.Logger(slog.New(slog.NewTextHandler(a, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	}
	switch c.Transport {
	case "grpc":
		opts = append(opts, millrace.Transport(millrace.TransportStream))
	case "rest":
		opts = append(opts, millrace.Transport(millrace.TransportREST))
	}
	if c.TimeoutMS > 0 {
		opts = append(opts, millrace.Timeout(time.Duration(c.TimeoutMS)*time.Millisecond))
	}
	if c.Ledger != "" {
		if a.ledger, err = os.OpenFile(c.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		opts = append(opts, millrace.Ledger(io.Writer(a.ledger)))
	}
	a.c, err = millrace.Dial(ctx, opts...)
	return err
}

// showError shows an error as the protocol has it.
func showError(err error) map[string]any {
	if errors.Is(err, errUnsupported) {
		return map[string]any{"code": "UNSUPPORTED", "outcome": "refused"}
	}
	if t, ok := errors.AsType[*millrace.TaskError](err); ok {
		return map[string]any{
			"code": "TASK_FAILED", "outcome": "ok", "state": t.State.String(), "reason": t.Reason, "task_code": t.Code, "message": t.Message,
		}
	}
	out := map[string]any{"code": "UNKNOWN", "message": err.Error(), "outcome": millrace.OutcomeOf(err).String()}
	e, ok := errors.AsType[*millrace.Error](err)
	if !ok {
		return out
	}
	out["code"], out["message"] = string(e.Code), e.Message
	for name, v := range map[string]string{"reason": e.Reason, "field": e.Field, "limit": e.Limit} {
		if v != "" {
			out[name] = v
		}
	}
	if e.Op != millrace.OpNone {
		out["op"] = e.Op
	}
	if len(e.Details) > 0 {
		out["details"] = e.Details
	}
	return out
}
