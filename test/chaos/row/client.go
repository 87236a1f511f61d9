package row

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// client is one SDK client with a ledger of its own, on a server that may move.
type client struct {
	*millrace.Client
	ledger *os.File
}

// dial makes a client; without a name it keeps no ledger.
func dial(ctx context.Context, e Env, s *proc.Server, token proc.Token, name string) (*client, error) {
	c := &client{}
	opts := []millrace.Option{
		millrace.Address("server.test:1"), // a mere name: Dialer finds the server
		millrace.Insecure(), millrace.Token(token.Secret), millrace.Dialer(s.Dial),
		millrace.Logger(slog.New(slog.DiscardHandler)),
	}
	if name != "" {
		f, err := os.Create(filepath.Join(e.Dir, "ledger-"+name+".jsonl"))
		if err != nil {
			return nil, fmt.Errorf("make ledger: %w", err)
		}
		c.ledger = f
		opts = append(opts, millrace.WithLedger(f))
	}
	var err error
	if c.Client, err = millrace.Dial(ctx, opts...); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return c, nil
}

func (c *client) close() error {
	err := c.Close()
	if c.ledger != nil {
		err = errors.Join(err, c.ledger.Close())
	}
	return err
}

// number reads a decimal that a key holds; an absent key is 0 at revision 0.
func number(ctx context.Context, kv millrace.KV, key string) (n int64, rev uint64, err error) {
	text, rev, err := text(ctx, kv, key)
	if err != nil || text == "" {
		return 0, rev, err
	}
	if _, err := fmt.Sscan(text, &n); err != nil {
		return 0, 0, fmt.Errorf("key %s holds %q: %w", key, text, err)
	}
	return n, rev, nil
}

// text reads what a key holds; an absent key is empty at revision 0.
func text(ctx context.Context, kv millrace.KV, key string) (value string, rev uint64, err error) {
	v, err := kv.Get(ctx, key)
	if errors.Is(err, millrace.ErrNotFound) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	return v.String(), v.Rev, nil
}
