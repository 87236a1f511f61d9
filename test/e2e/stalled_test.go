package e2e

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	uploads     = 200
	uploadBytes = 15 << 20
)

// unfinished reads as left zeros, and has no end until it is closed.
type unfinished struct {
	left   int
	closed chan struct{}
	once   sync.Once
}

func newUnfinished(n int) *unfinished { return &unfinished{left: n, closed: make(chan struct{})} }

// Read returns the next zeros; at the last one it waits.
func (u *unfinished) Read(b []byte) (int, error) {
	if u.left == 0 {
		<-u.closed
		return 0, io.EOF
	}
	n := min(len(b), u.left)
	clear(b[:n])
	u.left -= n
	return n, nil
}

// Close ends the wait.
func (u *unfinished) Close() error {
	u.once.Do(func() { close(u.closed) })
	return nil
}

// uploadOf returns the beginning of a message's frame, after other bytes; its last byte does not come.
func uploadOf(before []byte) *unfinishedBody {
	head := binary.BigEndian.AppendUint32(append(slices.Clone(before), 0), uploadBytes)
	u := newUnfinished(uploadBytes - 1)
	return &unfinishedBody{io.MultiReader(strings.NewReader(string(head)), u), u}
}

type unfinishedBody struct {
	io.Reader
	io.Closer
}

// stalledCall begins an upload over gRPC and returns the code of its end.
func stalledCall(t *testing.T, ctx context.Context, r *raw, method string, before []byte) string {
	body := uploadOf(before)
	defer body.Close()
	resp, err := r.open(ctx, method, body)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err.Error()
	}
	return answerOf(t, resp, nil).code()
}

// stalledBody is stalledCall over REST.
func stalledBody(ctx context.Context, w web) string {
	c, err := dialFrom(strangersHost)(ctx, w.address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	go func() {
		_, _ = fmt.Fprintf(c, "PUT /v1/kv/k/keys/big HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", w.token, uploadBytes)
		_, _ = io.CopyN(c, newUnfinished(uploadBytes), uploadBytes-1) // the connection ends when the server has answered
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var said struct{ Error struct{ Code string } }
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		return fmt.Sprint(resp.StatusCode, ": ", err)
	}
	return said.Error.Code
}

// TestStalledUploadsStayWithinMemoryAndKeepNobodyOut has one token send all of many large messages but their ends.
func TestStalledUploadsStayWithinMemoryAndKeepNobodyOut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("a process's memory is read in /proc")
	}
	hello, err := proto.Marshal(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Hello{Hello: &millracev1.Hello{Version: 1, Session: []byte("sixteen bytes it")}}})
	noErr(t, err)
	larger := []string{"--limit-grpc-message", fmt.Sprint(16 << 20), "--limit-rest-body", fmt.Sprint(16 << 20)}
	calls := func(methods []string, before []byte) func(*testing.T, context.Context, *raw, web, int) string {
		return func(t *testing.T, ctx context.Context, r *raw, _ web, i int) string {
			return stalledCall(t, ctx, r, methods[i%len(methods)], before)
		}
	}
	unary := calls([]string{"KVService/Put", "TaskService/Create", "CommitService/Commit"}, nil)
	for _, c := range []struct {
		name  string
		flags []string
		begin func(t *testing.T, ctx context.Context, r *raw, w web, i int) string
	}{
		{"calls", larger, unary},
		{"calls beyond the limit", nil, unary},
		{"streams", larger, calls([]string{"QueueStream/Open", "KVStream/Open", "RefService/Session", "RefService/LoadRefs"}, nil)},
		{"streams that have begun", larger, calls([]string{"QueueStream/Open", "KVStream/Open"}, frame(hello))},
		{"REST bodies", larger, func(_ *testing.T, ctx context.Context, _ *raw, w web, _ int) string { return stalledBody(ctx, w) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: t.TempDir(), Flags: append([]string{
				"--memory", "256MiB", "--limit-grpc-receive-ms", "4000", "--limit-http-body-ms", "4000",
			}, c.flags...)}, "default", "other")
			noErr(t, err)
			begin(t, s)
			whileStalled(t, s, func(ctx context.Context, r *raw, w web, i int) string { return c.begin(t, ctx, r, w, i) })
		})
	}
}

// whileStalled begins uploads of the first token, sees that the second one is served until all have ended, and how they ended.
func whileStalled(t *testing.T, s *proc.Server, upload func(ctx context.Context, r *raw, w web, i int) string) {
	const most = 384 << 20 // of memory
	ctx := bounded(t, 90*time.Second)
	ends := make(chan string, uploads)
	var r *raw
	for i := range uploads {
		if i%10 == 0 { // a connection for a few: what is stuck on one may hold up its own
			r = newRaw(t, s.Address(), s.Tokens[0].Secret)
		}
		go func(r *raw) {
			ends <- upload(ctx, r, web{t: t, address: s.HTTP(), token: s.Tokens[0].Secret}, i)
		}(r)
	}
	others := &guests{t: t, token: s.Tokens[1].Secret, acked: map[string]string{}}
	c, err := millrace.Dial(ctx, millrace.Address(s.Address()), millrace.Insecure(), millrace.Token(others.token))
	noErr(t, err)
	defer c.Close()
	how := map[string]int{}
	for n := 0; n < uploads; {
		others.putsBy(ctx, c)
		others.requests(s.HTTP(), othersHost)
		for more := true; more; {
			select {
			case code := <-ends:
				how[code]++
				n++
			case <-time.After(20 * time.Millisecond):
				more = false
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%d of %d uploads have ended: %v", n, uploads, how)
		}
	}
	others.findAll(ctx, c)
	for code, n := range how {
		if !slices.Contains([]string{"RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "TOO_LARGE"}, code) {
			t.Errorf("%d uploads ended with %q", n, code)
		}
	}
	peak := residentPeak(t, s.PID())
	t.Logf("ends: %v; %d puts of others; %d MiB of memory at most", how, len(others.acked), peak>>20)
	if peak > most {
		t.Errorf("the server took %d MiB of memory", peak>>20)
	}
	same := &guests{t: t, token: s.Tokens[0].Secret, acked: map[string]string{}}
	same.requests(s.HTTP(), strangersHost)
	noErr(t, s.Stop())
}
