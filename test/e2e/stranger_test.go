package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// crowd is connections without a token. Each is held until the server closes it.
type crowd struct {
	opened atomic.Int64
	ended  atomic.Int64 // by the server
	all    chan struct{}
	stop   func()
}

// crowdOf opens n connections to an address and says the same on each. They come from the addresses of from in turn.
func crowdOf(t *testing.T, n int, to string, say []byte, from ...string) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &crowd{all: make(chan struct{})}
	var openers, held sync.WaitGroup
	c.stop = sync.OnceFunc(func() { cancel(); openers.Wait(); held.Wait() })
	t.Cleanup(c.stop)
	const at = 16 // connections that are opened at once
	for i := range at {
		openers.Go(func() {
			for j := i; j < n && ctx.Err() == nil; j += at {
				conn, err := dialFrom(from[j%len(from)])(ctx, to)
				if err != nil {
					continue // the server may refuse it
				}
				c.opened.Add(1)
				held.Go(func() {
					defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
					defer conn.Close()
					if _, err := conn.Write(say); err == nil {
						_, _ = io.Copy(io.Discard, conn) // nothing is answered
					}
					c.ended.Add(1)
				})
			}
		})
	}
	go func() { openers.Wait(); close(c.all) }()
	return c
}

// dialFrom dials from an address of loopback.
func dialFrom(host string) func(ctx context.Context, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: 20 * time.Second}
	return func(ctx context.Context, to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) }
}

// guests are clients with a token, each with a new connection. They keep in mind what was acknowledged to them.
type guests struct {
	t     *testing.T
	token string
	acked map[string]string
}

// puts has a new client, which comes from a host, put a key over gRPC and read it.
func (g *guests) puts(ctx context.Context, api, host string) {
	g.t.Helper()
	dial := dialFrom(host)
	c, err := millrace.Dial(ctx, millrace.Address(api), millrace.Insecure(), millrace.Token(g.token), millrace.Transport(millrace.TransportStream),
		millrace.Dialer(func(ctx context.Context, to string) (net.Conn, error) { return dial(ctx, to) }))
	noErr(g.t, err)
	defer c.Close()
	g.putsBy(ctx, c)
}

// putsBy has a client put a key and read it.
func (g *guests) putsBy(ctx context.Context, c *millrace.Client) {
	g.t.Helper()
	key := fmt.Sprint("k", len(g.acked))
	_, err := c.KV("guests").Put(ctx, key, key)
	noErr(g.t, err)
	g.acked[key] = key
	got, err := c.KV("guests").Get(ctx, key)
	if noErr(g.t, err); got.String() != key {
		g.t.Errorf("%s reads as %q", key, got.String())
	}
}

// requests is puts over REST. A request that finds its connection closed is sent again.
func (g *guests) requests(rest, host string) {
	g.t.Helper()
	dial := dialFrom(host)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, to string) (net.Conn, error) { return dial(ctx, to) }}
	defer transport.CloseIdleConnections()
	w := web{t: g.t, address: rest, token: g.token, client: &http.Client{Transport: transport}}
	key := fmt.Sprint("k", len(g.acked))
	if code, body := w.call(http.MethodPut, "/v1/kv/guests/keys/"+key, key); code != http.StatusOK {
		g.t.Fatalf("a put over REST from %s: %d %s", host, code, body)
	}
	g.acked[key] = key
	if code, body := w.call(http.MethodGet, "/v1/kv/guests/keys/"+key, ""); code != http.StatusOK || body != key {
		g.t.Errorf("%s reads as %d %q", key, code, body)
	}
}

// findAll reads what was acknowledged.
func (g *guests) findAll(ctx context.Context, c *millrace.Client) {
	g.t.Helper()
	for key, want := range g.acked {
		if got, err := c.KV("guests").Get(ctx, key); err != nil || got.String() != want {
			g.t.Errorf("%s was acknowledged, and reads as %q, %v", key, got.String(), err)
		}
	}
}

const (
	strangersHost = "127.0.0.1"
	othersHost    = "127.0.0.2"
	crowdSize     = 2000
)

// TestAStrangerKeepsNoClientOutAndEndsNoServer has connections without a token, many more than descriptors.
func TestAStrangerKeepsNoClientOutAndEndsNoServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for _, c := range []struct {
		name string
		to   func(s *proc.Server) string
		say  string
	}{
		{"half requests", (*proc.Server).HTTP, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"},
		{"silent gRPC", (*proc.Server).Address, preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
		{"prefaces alone", (*proc.Server).Address, preface},
	} {
		for _, files := range []int{256, 1024} {
			if c.name == "prefaces alone" && files > 256 {
				continue // the others show that
			}
			t.Run(fmt.Sprintf("%s, %d files", c.name, files), func(t *testing.T) {
				t.Parallel()
				o := proc.Options{Binary: program, Dir: t.TempDir(), OpenFiles: files, Flags: []string{
					"--memory", "256MiB", "--grace", "2m", // Stop waits for less
				}}
				s, err := proc.New(t.Context(), o, "default")
				noErr(t, err)
				begin(t, s)
				strangersAtTheDoor(t, s, c.to(s), []byte(c.say))
			})
		}
	}
}

// begin starts a server and ends it with the test.
func begin(t *testing.T, s *proc.Server) {
	t.Helper()
	t.Cleanup(func() { s.Kill() })
	if _, err := s.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
}

func strangersAtTheDoor(t *testing.T, s *proc.Server, to string, say []byte) {
	ctx := bounded(t, 90*time.Second)
	g := &guests{t: t, token: s.Tokens[0].Secret, acked: map[string]string{}}
	old, err := millrace.Dial(ctx, millrace.Address("server.test:1"), millrace.Insecure(), millrace.Token(g.token), millrace.Dialer(s.Dial))
	noErr(t, err)
	t.Cleanup(func() { old.Close() })
	g.putsBy(ctx, old)

	all := crowdOf(t, crowdSize, to, say, strangersHost)
	for opening := true; opening; {
		select {
		case <-all.all:
			opening = false // and once more
		default:
		}
		g.requests(s.HTTP(), othersHost)
		g.puts(ctx, s.Address(), othersHost)
		g.putsBy(ctx, old)
	}
	if n := all.opened.Load(); n < crowdSize {
		t.Errorf("%d connections were opened", n)
	}
	for range 3 { // where the strangers come from
		g.requests(s.HTTP(), strangersHost)
		g.puts(ctx, s.Address(), strangersHost)
	}
	g.findAll(ctx, old)
	t.Logf("%d connections, of which the server ended %d; %d puts", all.opened.Load(), all.ended.Load(), len(g.acked))
	if err := s.Stop(); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	begin(t, s)
	g.findAll(ctx, old)
}

// TestStrangersAtThePortOfPeersKeepNoNodeApart has empty connections at a node of a cluster, from where the others are too.
func TestStrangersAtThePortOfPeersKeepNoNodeApart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	for _, files := range []int{256, 1024} {
		t.Run(fmt.Sprint(files, " files"), func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t, 2*time.Minute)
			c, err := proc.NewCluster(ctx, proc.ClusterOptions{
				Binary: program, Dir: t.TempDir(), Nodes: 3, OpenFiles: files, Flags: []string{"--grace", "2m"},
			}, "default")
			noErr(t, err)
			t.Cleanup(func() { noErr(t, c.Close()) })
			noErr(t, c.Start(ctx))
			lead, err := c.Leader(ctx)
			noErr(t, err)
			k, err := millrace.Dial(ctx, millrace.Address(c.Addresses(0)), millrace.Insecure(), millrace.Token(c.Tokens[0].Secret))
			noErr(t, err)
			t.Cleanup(func() { k.Close() })
			g := &guests{t: t, token: c.Tokens[0].Secret, acked: map[string]string{}}
			g.putsBy(ctx, k)

			all := crowdOf(t, crowdSize, lead.Peers(), nil, strangersHost, "127.0.0.3")
			for opening := true; opening; {
				select {
				case <-all.all:
					opening = false
				default:
				}
				g.putsBy(ctx, k)
			}
			other := c.Nodes[lead.ID%len(c.Nodes)] // one that comes back meanwhile
			noErr(t, other.Stop())
			_, err = other.Start(ctx)
			noErr(t, err)
			noErr(t, c.Settle(ctx))
			g.findAll(ctx, k)
			t.Logf("%d connections, of which the node ended %d; %d puts", all.opened.Load(), all.ended.Load(), len(g.acked))
			noErr(t, c.Stop())
			noErr(t, c.Start(ctx))
			g.findAll(ctx, k)
		})
	}
}
