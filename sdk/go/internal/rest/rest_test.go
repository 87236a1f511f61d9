package rest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

func TestAWaitThatIsCutGetsShorterAndAnErrorDoesNot(t *testing.T) {
	unanswered := restUnanswered(context.Background(), "h", true, io.ErrUnexpectedEOF)
	over := &Fault{wire: &pb.Error{Code: "INVALID_ARGUMENT", Limit: "claim_wait_ms", Max: 5000}}
	for name, tc := range map[string]struct {
		err   error
		took  time.Duration
		again bool
		wait  time.Duration
	}{
		"cut":                {unanswered, 15 * time.Second, true, 7500 * time.Millisecond},
		"cut by a proxy":     {restBetween(&restAnswer{status: 504}), 10 * time.Second, true, 5 * time.Second},
		"cut at once":        {unanswered, time.Second, false, pollWait},
		"hung":               {unanswered, 60 * time.Second, false, pollWait},
		"a server's limit":   {over, 0, true, 5 * time.Second},
		"refused":            {restBetween(&restAnswer{status: 403}), 10 * time.Second, false, pollWait},
		"the caller is gone": {context.Canceled, 10 * time.Second, false, pollWait},
	} {
		p := newRESTPoll()
		if again := p.missed(tc.err, tc.took); again != tc.again || p.wait != tc.wait {
			t.Errorf("%s: again %v with a wait of %v, want %v, %v", name, again, p.wait, tc.again, tc.wait)
		}
	}
}

func TestASettleKeepsItsSlotWhereAnEffectIsRefused(t *testing.T) {
	notFound := func(op *int32) *pb.Error { return &pb.Error{Code: wire.NotFound, Op: op} }
	for name, tc := range map[string]struct {
		result *pb.SettleResult
		keeps  bool
	}{
		"applied":                {&pb.SettleResult{}, false},
		"the task is gone":       {&pb.SettleResult{Error: notFound(nil)}, false},
		"an effect":              {&pb.SettleResult{Error: notFound(new(int32))}, true},
		"an effect, and it fell": {&pb.SettleResult{Error: notFound(new(int32)), FailedInstead: true}, false},
	} {
		k := wire.Lease{ID: "a", Token: 1}
		s := &restStream{held: map[wire.Lease]*restHold{k: {settling: true}}}
		s.settled([]wire.Lease{k}, []bool{false}, []*pb.SettleResult{tc.result})
		if h := s.held[k]; (h != nil) != tc.keeps || h != nil && h.settling {
			t.Errorf("%s: held %+v", name, h)
		}
	}
}

func TestAStreamAsksAgainWhetherTheNamespaceHasMorePartitions(t *testing.T) {
	body := "" // of the namespace; without one it is not there
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/status":
			_, _ = io.WriteString(w, `{"durability":"fsync"}`)
		case r.URL.Path == "/v1/namespace" && body != "":
			_, _ = io.WriteString(w, body)
		default:
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	r := New(Options{
		Hosts: []string{strings.TrimPrefix(web.URL, "http://")}, Namespace: "default",
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		},
		Secure: func(string) bool { return false }, Token: func() string { return "" }, Partitions: func() int { return 1 },
	})
	defer r.Close()
	partitions := func() (int, error) {
		s, err := r.NewStream(t.Context(), nil, pb.QueueStream_Open_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		stream, ok := s.(*restStream)
		if !ok {
			t.Fatalf("got a %T", s)
		}
		return stream.partitions()
	}
	if n, err := partitions(); n != 1 || err != nil {
		t.Errorf("got %d, %v where the namespace is not there, want 1 as known", n, err)
	}
	body = `{"partitions":[{"partition":0},{"partition":1}]}`
	if n, err := partitions(); n != 2 || err != nil {
		t.Errorf("got %d, %v, want 2", n, err)
	}
}
