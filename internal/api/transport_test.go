package api

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestAClientThatPingsTooOftenIsToldToGo(t *testing.T) {
	r := newRig(t, edge.Limits{})
	p := apitest.NewPeer(r.t, r.lis)
	for range 10 {
		if err := p.WritePing(false, [8]byte{1}); err != nil {
			break // it has been closed meanwhile
		}
	}
	if f := p.Goaway(); f.ErrCode != http2.ErrCodeEnhanceYourCalm || !strings.Contains(string(f.DebugData()), "ping") {
		t.Errorf("%v %s", f, f.DebugData())
	}
	if err := createOf(func(*pb.TaskSpec) {})(r); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

// TestAConnectionIsToldToGoAfterAnHour so that clients spread over servers again. It is an hour, give or take a tenth.
func TestAConnectionIsToldToGoAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, edge.Limits{GRPCIdleMs: 10 * hour})
		p := apitest.NewPeer(r.t, r.lis)
		begin := time.Now()
		f := p.Goaway()
		if age := time.Since(begin); f.ErrCode != http2.ErrCodeNo || age < 53*time.Minute || age > 67*time.Minute {
			t.Errorf("after %s: %v", age, f)
		}
		if err := createOf(func(*pb.TaskSpec) {})(r); err != nil {
			t.Errorf("another connection: %v", err)
		}
	})
}

func TestAnIdleConnectionIsToldToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, edge.Limits{})
		p := apitest.NewPeer(r.t, r.lis)
		begin := time.Now()
		if f := p.Goaway(); f.ErrCode != http2.ErrCodeNo || time.Since(begin) < 10*time.Minute || time.Since(begin) > 11*time.Minute {
			t.Errorf("after %s: %v", time.Since(begin), f)
		}
	})
}

// TestAConnectionThatSaysNothingIsClosed and does not count against the limits for long.
func TestAConnectionThatSaysNothingIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, edge.Limits{ConnectionsNode: 2})
		conn, err := r.lis.Dial()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, _ = io.ReadAll(conn) // how it ends is the transport's business
		if waited := time.Since(begin); waited > handshakeWait {
			t.Errorf("closed after %s", waited)
		}
		if err := createOf(func(*pb.TaskSpec) {})(r); err != nil {
			t.Errorf("another connection: %v", err)
		}
	})
}

func TestACallWithTooMuchMetadataIsRefused(t *testing.T) {
	r := newRig(t, edge.Limits{})
	get := func(bytes int) error {
		_, err := pb.NewKVServiceClient(r.conn).Get(apitest.As("acme/all", "x-long", strings.Repeat("v", bytes)), &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
		return err
	}
	if err := get(headerListBytes); err == nil {
		t.Error("metadata beyond the limit was taken")
	}
	if err := get(headerListBytes / 2); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
