package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// holder is one row of a tokens file: who holds a token, and what it allows.
type holder struct {
	tenant  string
	role    string // producer, worker or admin
	expires string // RFC 3339; empty = never
}

// local is a server in this process, with a token for each holder.
type local struct {
	t       *testing.T
	dir     string
	tokens  []string
	reserve int64 // free bytes kept on the disk; 0: that of startAt

	grace    time.Duration // after which leases of a stream that broke end; 0: by their own time
	services []string      // whose doors are open; none: all
	program  string        // the program that serves git clients; empty: the default
	kernel   string        // of searches; empty: the fastest
	running  *server.Running
}

// startLocal starts a server that every test may have for itself: no process, no build.
func startLocal(t *testing.T, holders ...holder) *local {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole server")
	}
	l := &local{t: t, dir: t.TempDir()}
	var rows strings.Builder
	rows.WriteString("tokens:\n")
	for i, h := range holders {
		token := server.NewToken()
		fmt.Fprintf(&rows, "  - name: h%d\n    tenant: %s\n    hash: %s\n    roles: [%s]\n", i, h.tenant, server.HashToken(token), h.role)
		if h.expires != "" {
			fmt.Fprintf(&rows, "    expires: %s\n", h.expires)
		}
		l.tokens = append(l.tokens, token)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "tokens.yaml"), []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *local) start() {
	l.t.Helper()
	r, err := startAt(l.t.Context(), server.Options{
		Dir: filepath.Join(l.dir, "data"), Listen: "127.0.0.1:0", TokensFile: filepath.Join(l.dir, "tokens.yaml"),
		Memory: 128 << 20, Reserve: l.reserve, Services: l.services, Git: l.program, VectorKernel: l.kernel, DisconnectGrace: l.grace,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.running = r
}

func (l *local) stop() {
	l.t.Helper()
	if l.running == nil {
		return
	}
	if err := l.running.Close(time.Second); err != nil {
		l.t.Errorf("stop server: %v", err)
	}
	l.running = nil
}

// audit stops the server and wants its directory to be whole: counters equal a recount, every task stands in one index.
func (l *local) audit() {
	l.t.Helper()
	l.stop()
	x, err := server.Examine(filepath.Join(l.dir, "data"))
	if err != nil {
		l.t.Fatalf("examine: %v", err)
	}
	for _, f := range x.Findings {
		l.t.Errorf("finding: %s", f)
	}
}

// client connects as the holder with that number.
func (l *local) client(holder int, opts ...millrace.Option) *millrace.Client {
	l.t.Helper()
	opts = append([]millrace.Option{millrace.Address(l.running.Address), millrace.RESTAddress(l.running.HTTPAddress), millrace.Token(l.tokens[holder]), millrace.Timeout(0)}, opts...)
	c, err := millrace.Dial(l.t.Context(), opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	return c
}

func (l *local) raw(holder int) *raw { return newRaw(l.t, l.running.Address, l.tokens[holder]) }

// bounded is a context that a test must not outlive.
func bounded(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// noErr ends a test at an error that makes the rest of it pointless.
func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// got is noErr for a call that returns something.
func got[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		noErr(t, err)
		return v
	}
}

func newID() string { return millrace.NewID() }

// startAt is server.Start at an address that a server of this process has had. A program that is being started has copies of this
// process's sockets until it runs, so that an address may stay taken for a moment after its server has ended. It keeps 16 MiB of the
// disk, unless the options say otherwise: many servers share the disk.
func startAt(ctx context.Context, o server.Options) (*server.Running, error) {
	o.Reserve = cmp.Or(o.Reserve, 16<<20)
	for {
		r, err := server.Start(ctx, o)
		if !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil {
			return r, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
