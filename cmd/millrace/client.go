package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// connection is how a command reaches a server: flags over MILLRACE_URL, MILLRACE_TOKEN and MILLRACE_NAMESPACE.
type connection struct {
	address   string
	token     string
	namespace string
	insecure  bool
}

func (a *app) connectionFlags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&a.conn.address, "server", "", "host:port of the server; default MILLRACE_URL, then 127.0.0.1:7081")
	f.StringVar(&a.conn.token, "token", "", "token; default MILLRACE_TOKEN")
	f.StringVar(&a.conn.namespace, "ns", "", "namespace; default MILLRACE_NAMESPACE, then default")
	f.BoolVar(&a.conn.insecure, "insecure", false, "plain text to an address that is not loopback")
}

// dial connects. The client's own log goes to the error stream.
func (a *app) dial(ctx context.Context, more ...millrace.Option) (*millrace.Client, error) {
	opts := []millrace.Option{millrace.Logger(slog.New(slog.NewTextHandler(a.err, nil)))}
	if a.conn.address != "" {
		opts = append(opts, millrace.Address(a.conn.address))
	}
	if a.conn.token != "" {
		opts = append(opts, millrace.Token(a.conn.token))
	}
	if a.conn.namespace != "" {
		opts = append(opts, millrace.Namespace(a.conn.namespace))
	}
	if a.conn.insecure {
		opts = append(opts, millrace.Insecure())
	}
	return millrace.Dial(ctx, append(opts, more...)...)
}

// with runs fn on a connected client.
func (a *app) with(ctx context.Context, fn func(c *millrace.Client) error) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // fn's error tells what happened
	return fn(c)
}

// argument returns the text of an argument: itself, or standard input for "-".
func (a *app) argument(s string) ([]byte, error) {
	if s == "-" {
		return io.ReadAll(a.in)
	}
	return []byte(s), nil
}
