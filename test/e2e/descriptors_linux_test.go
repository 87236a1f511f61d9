package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// starve has a process open nothing more, neither files nor connections; what it has stays. feed ends that.
func starve(t *testing.T, pid int) (feed func()) {
	t.Helper()
	var old unix.Rlimit
	noErr(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old))
	noErr(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}, nil)) // the standard streams
	return sync.OnceFunc(func() { noErr(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil)) })
}

// asked sends a request over a connection of its own, and returns the first bytes of the answer, however long they take.
func asked(ctx context.Context, network, address, request string) <-chan string {
	out := make(chan string, 1)
	go func() {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			out <- err.Error()
			return
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		b := make([]byte, 12)
		if _, err = c.Write([]byte(request)); err == nil {
			_, err = c.Read(b)
		}
		if err != nil {
			out <- err.Error()
			return
		}
		out <- string(b)
	}()
	return out
}

// askAll asks all listeners of a server.
func askAll(ctx context.Context, s *proc.Server, socket string) map[string]<-chan string {
	const request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	return map[string]<-chan string{
		"REST":   asked(ctx, "tcp", s.HTTP(), request),
		"admin":  asked(ctx, "tcp", s.Admin(), request),
		"socket": asked(ctx, "unix", socket, request),
		"gRPC":   asked(ctx, "tcp", s.Address(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
	}
}

func largeValue(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 100<<10) }

// putLarge puts n large values.
func putLarge(ctx context.Context, k *millrace.Client, n int) error {
	for i := range n {
		if _, err := k.KV("k").Put(ctx, fmt.Sprint(i), largeValue(i)); err != nil {
			return fmt.Errorf("put %d: %w", i, err)
		}
	}
	return nil
}

// TestAServerThatMayOpenNothingMoreWaitsAndLosesNothing takes a running server all further files away: its log needs new
// segments, a backup is asked for, and clients come to all listeners.
func TestAServerThatMayOpenNothingMoreWaitsAndLosesNothing(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64<<20)        // so that segments are small
	short, err := os.MkdirTemp("", "s") // names of sockets are short
	noErr(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	socket := filepath.Join(short, "operator.sock")
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: t.TempDir(), Data: filepath.Join(disk.At, "data"), Flags: []string{
		"--admin", "127.0.0.1:0", "--disk-reserve", "1048576", "--memory", "256MiB", "--admin-socket", socket,
	}}, "default")
	noErr(t, err)
	begin(t, s)
	ctx := bounded(t, 90*time.Second)
	k, err := millrace.Dial(ctx, millrace.Address("server.test:1"), millrace.Insecure(), millrace.Token(s.Tokens[0].Secret), millrace.Dialer(s.Dial))
	noErr(t, err)
	defer k.Close()
	_, err = k.KV("k").Put(ctx, "first", "1")
	noErr(t, err)
	r := newRaw(t, s.Address(), s.Tokens[0].Secret)
	must(t, r, "QueueService/List", &pb.ListQueuesRequest{}, &pb.ListQueuesResponse{}) // its connection is there
	_, err = s.Metrics(ctx)
	noErr(t, err)

	feed := starve(t, s.PID())
	defer feed()
	const puts = 60 // to segments of 512 KiB
	put := make(chan error, 1)
	go func() { put <- putLarge(ctx, k, puts) }()
	backup := heldCall(t, ctx, r, "BackupService/Take", &pb.TakeBackupRequest{Objects: true})
	answers := askAll(ctx, s, socket)
	until(t, "an open waits", func() bool {
		m, err := s.Metrics(ctx)
		return err == nil && m["millrace_server_descriptors_short_state"] == 1
	})
	until(t, "no connection is accepted", func() bool {
		said := logOf(s)
		return strings.Contains(said, "Accept error: accept tcp "+s.Admin()) && strings.Contains(said, "Accept error: accept unix ")
	})
	for name, answer := range answers {
		select {
		case said := <-answer:
			t.Fatalf("%s answered %q without a descriptor", name, said)
		default:
		}
	}

	feed()
	if err := <-put; err != nil {
		t.Error(err)
	}
	for name, answer := range answers {
		if said := <-answer; !strings.HasPrefix(said, "HTTP/1.1 ") && (name != "gRPC" || len(said) < 4 || said[3] != 4) { // a frame of settings
			t.Errorf("%s: %q", name, said)
		}
	}
	if code := <-backup; code != "0" && code != "UNAVAILABLE" && code != "RESOURCE_EXHAUSTED" {
		t.Errorf("the backup ended with %s", code)
	}
	for i := range puts {
		if v, err := k.KV("k").Get(ctx, fmt.Sprint(i)); err != nil || !bytes.Equal(v.Bytes, largeValue(i)) {
			t.Errorf("key %d: %v", i, err)
		}
	}
	to := filepath.Join(t.TempDir(), "b")
	for _, args := range [][]string{{"backup", "--to", to, "--server", s.Address(), "--token", s.Tokens[0].Secret}, {"backup", "verify", to}} {
		if e := run(t, args...); e.code != 0 {
			t.Errorf("%v: exit %d\n%s", args[:2], e.code, e.out)
		}
	}
	noErr(t, s.Stop())
	noErr(t, s.Doctor(ctx))
}

// TestANodeThatMayOpenNothingMoreFindsItsPeersAgain takes the leader of a cluster all further connections away while another
// node restarts.
func TestANodeThatMayOpenNothingMoreFindsItsPeersAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	ctx := bounded(t, 2*time.Minute)
	c, err := proc.NewCluster(ctx, proc.ClusterOptions{Binary: program, Dir: t.TempDir(), Nodes: 3}, "default")
	noErr(t, err)
	t.Cleanup(func() { noErr(t, c.Close()) })
	noErr(t, c.Start(ctx))
	lead, err := c.Leader(ctx)
	noErr(t, err)
	k, err := millrace.Dial(ctx, millrace.Address(c.Addresses(lead.ID-1)), millrace.Insecure(), millrace.Token(c.Tokens[0].Secret))
	noErr(t, err)
	t.Cleanup(func() { k.Close() })
	g := &guests{t: t, token: c.Tokens[0].Secret, acked: map[string]string{}}
	g.putsBy(ctx, k)

	feed := starve(t, lead.PID())
	defer feed()
	other := c.Nodes[lead.ID%len(c.Nodes)]
	noErr(t, other.Stop())
	ready, err := other.Launch()
	noErr(t, err)
	for range 5 {
		g.putsBy(ctx, k)
	}
	until(t, "the leader accepts no connection", func() bool { return strings.Contains(logOf(lead.Server), "cannot accept connections of peers") })
	if lead.Ended() {
		t.Fatalf("it ended\n%s", logOf(lead.Server))
	}
	feed()
	noErr(t, <-ready)
	g.putsBy(ctx, k)
	noErr(t, c.Settle(ctx))
	g.findAll(ctx, k)
	noErr(t, c.Stop())
	for _, n := range c.Nodes {
		noErr(t, n.Doctor(ctx))
	}
}
