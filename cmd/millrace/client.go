package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// connection is how a command reaches a server: flags over MILLRACE_URL, MILLRACE_TOKEN and MILLRACE_NAMESPACE.
type connection struct {
	address   string
	token     secretFlags
	namespace string
	insecure  bool
	timeout   time.Duration
}

func (a *app) connectionFlags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&a.conn.address, "server", "", "host:port of the server; default MILLRACE_URL, then 127.0.0.1:7081")
	a.conn.token.add(f, "token", "token; default MILLRACE_TOKEN")
	f.StringVar(&a.conn.namespace, "ns", "", "namespace; default MILLRACE_NAMESPACE, then default")
	spanVar(f, &a.conn.timeout, "timeout", 0, "give up after this time; default 15s, and no limit for commands that wait for a task")
	f.BoolVar(&a.conn.insecure, "insecure", false, "allow plain text to an address that is not loopback")
}

// options are what the flags say to a client.
func (c *connection) options() (opts []millrace.Option, err error) {
	if c.address != "" {
		opts = append(opts, millrace.Address(c.address))
	}
	token, err := c.token.read()
	if err == nil && token == "" {
		token, err = variableSecret("MILLRACE_TOKEN")
	}
	if err != nil {
		return nil, err
	}
	if token != "" {
		opts = append(opts, millrace.Token(token))
	}
	if c.namespace != "" {
		opts = append(opts, millrace.Namespace(c.namespace))
	}
	if c.insecure {
		opts = append(opts, millrace.Insecure())
	}
	return opts, nil
}

// dial connects. The client's own log goes to the error stream.
func (a *app) dial(ctx context.Context, more ...millrace.Option) (*millrace.Client, error) {
	opts, err := a.conn.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts, millrace.Logger(slog.New(slog.NewTextHandler(a.err, nil))))
	return millrace.Dial(ctx, append(opts, more...)...)
}

// defaultTimeout bounds a command that only asks something.
const defaultTimeout = 15 * time.Second

// with runs fn on a connected client, for as long as a command may take that waits for no task.
func (a *app) with(ctx context.Context, fn func(ctx context.Context, c *millrace.Client) error) error {
	return a.within(ctx, cmp.Or(a.conn.timeout, defaultTimeout), fn)
}

// waiting is with for a command that waits for a task: without --timeout it takes as long as that does.
func (a *app) waiting(ctx context.Context, fn func(ctx context.Context, c *millrace.Client) error) error {
	return a.within(ctx, a.conn.timeout, fn)
}

func (a *app) within(ctx context.Context, limit time.Duration, fn func(ctx context.Context, c *millrace.Client) error) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // fn's error tells what happened
	return fn(ctx, c)
}

// argument returns the text of an argument: itself, or standard input for "-".
func (a *app) argument(s string) ([]byte, error) {
	if s == "-" {
		return io.ReadAll(a.in)
	}
	return []byte(s), nil
}
