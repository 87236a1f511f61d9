package row

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// client is one client of the SDK, with a ledger of its own.
type client struct {
	*millrace.Client
	// ledger gets a line for each call, from the SDK; nil for a client that keeps none.
	ledger *os.File
	// log gets what the SDK tells no caller.
	log *os.File
}

// dial makes the i-th client of a system; i decides which address it tries first. name is part of
// its ledger's name; without one it keeps no ledger.
func dial(ctx context.Context, e Env, s system, i int, token proc.Token, name string) (*client, error) {
	c := &client{}
	var err error
	c.log, err = os.OpenFile(filepath.Join(e.Dir, "clients.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of clients: %w", err)
	}
	logger := slog.New(slog.NewTextHandler(c.log, nil)).With("client", cmp.Or(name, "quiet"), "place", i)
	opts := append(s.reach(i), millrace.Token(token.Secret), millrace.Logger(logger), millrace.Timeout(0))
	if name != "" {
		f, err := os.Create(filepath.Join(e.Dir, "ledger-"+name+".jsonl"))
		if err != nil {
			return nil, fmt.Errorf("make ledger: %w", err)
		}
		c.ledger = f
		opts = append(opts, millrace.Ledger(f))
	}
	if c.Client, err = millrace.Dial(ctx, opts...); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return c, nil
}

// close ends the client, and then closes its files.
func (c *client) close() error {
	err := c.Close()
	if c.ledger != nil {
		err = errors.Join(err, c.ledger.Close())
	}
	return errors.Join(err, c.log.Close())
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
