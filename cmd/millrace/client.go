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

// connection is how a command reaches a server. A flag wins over MILLRACE_URL, MILLRACE_TOKEN and
// MILLRACE_NAMESPACE; an empty field leaves the choice to the SDK, which reads these variables
// itself.
type connection struct {
	// host:port of the server.
	address string
	// token is where the token comes from; namespace is empty for that of the token.
	token     secretFlags
	namespace string
	// Allows plain text to an address that is not loopback.
	insecure bool
	// Limit of the whole command; 0: the default of the command.
	timeout time.Duration
}

// connectionFlags adds the flags of the connection to c and to all commands below it. All of them
// fill the one connection of a, as only one command runs per process.
func (a *app) connectionFlags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&a.conn.address, "server", "", "host:port of the server; default MILLRACE_URL, then 127.0.0.1:7081")
	a.conn.token.add(f, "token", "token; default MILLRACE_TOKEN")
	f.StringVar(&a.conn.namespace, "ns", "", "namespace; default MILLRACE_NAMESPACE, then default")
	spanVar(f, &a.conn.timeout, "timeout", 0, "give up after this time; default 15s, and no limit for commands that wait for a task")
	f.BoolVar(&a.conn.insecure, "insecure", false, "allow plain text to an address that is not loopback")
}

// options returns the SDK's options for what the flags say. The token is read here, because a token
// in a file or in the environment is cleaned and checked first; it returns a usageError if that
// fails.
func (c *connection) options() (opts []millrace.Option, err error) {
	if c.address != "" {
		opts = append(opts, millrace.Address(c.address))
	}
	token, err := c.secret()
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

// secret returns the token of the flags or, without one, that of the environment; empty: there is none.
func (c *connection) secret() (string, error) {
	token, err := c.token.read()
	if err == nil && token == "" {
		token, err = variableSecret("MILLRACE_TOKEN")
	}
	return token, err
}

// dial connects to the server that the flags name. The SDK's log goes to the error stream. The
// caller closes the client.
func (a *app) dial(ctx context.Context, more ...millrace.Option) (*millrace.Client, error) {
	opts, err := a.conn.options()
	if err != nil {
		return nil, err
	}
	// The log of the SDK tells of lost connections and retries; it must not mix with the output.
	// Commands bound their calls themselves; those that last go on through any outage.
	opts = append(opts, millrace.Logger(slog.New(slog.NewTextHandler(a.err, nil))), millrace.Timeout(0))
	return millrace.Dial(ctx, append(opts, more...)...)
}

// defaultTimeout bounds a command that sends one request and does not wait for a task.
const defaultTimeout = 15 * time.Second

// with connects, runs fn and closes the client, all within --timeout or defaultTimeout. It is for
// commands that do not wait for a task.
func (a *app) with(ctx context.Context, fn func(ctx context.Context, c *millrace.Client) error) error {
	return a.within(ctx, cmp.Or(a.conn.timeout, defaultTimeout), fn)
}

// waiting is like with, for a command that waits for a task or sends a long input: without
// --timeout it has no limit.
func (a *app) waiting(ctx context.Context, fn func(ctx context.Context, c *millrace.Client) error) error {
	return a.within(ctx, a.conn.timeout, fn)
}

// within runs fn on a connected client. limit bounds dialing and fn together; 0 means no limit.
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

// argument returns the bytes that an argument stands for: all of standard input for "-", else the
// argument itself.
func (a *app) argument(s string) ([]byte, error) {
	if s == "-" {
		return io.ReadAll(a.in)
	}
	return []byte(s), nil
}
