package api

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

func TestATenantIsBoundedByWhoMayAndReadByItsAdmin(t *testing.T) {
	r := newRESTRig(t, Limits{})
	tenants := pb.NewTenantServiceClient(r.conn)
	set := func(token string, in *pb.SetTenantRequest) error {
		_, err := tenants.Set(as(token), in)
		return err
	}
	bounds := &pb.TenantConfig{KeyBytes: 50, KeyWritesPerSecond: 6, KeyBytesPerSecond: 7}
	expectCode(t, "an admin", set("acme/admin", &pb.SetTenantRequest{Tenant: "acme", Config: bounds}), codes.PermissionDenied)
	expectCode(t, "one who may", set("acme/all", &pb.SetTenantRequest{Tenant: "rival", Config: bounds}), codes.OK)
	expectCode(t, "the version before", set("acme/all", &pb.SetTenantRequest{Tenant: "rival", IfVersion: proto.Uint64(0)}), codes.FailedPrecondition)
	expectCode(t, "no name", set("acme/all", &pb.SetTenantRequest{}), codes.InvalidArgument)
	err := set("acme/all", &pb.SetTenantRequest{Tenant: "rival", Config: &pb.TenantConfig{KeyBytesPerSecond: -1}})
	if e := errorOf(t, err); e.GetField() != "config.key_bytes_per_second" {
		t.Errorf("a negative bound: %v", e)
	}
	got, err := tenants.Get(as("rival/admin"), &pb.GetTenantRequest{})
	if err != nil || got.GetTenant() != "rival" || got.GetConfig().GetKeyBytes() != 50 || got.GetMeasuredKeyBytes() != 60 || !got.GetOverKeyBytes() {
		t.Errorf("its own: %v, %v", got, err)
	}
	for what, c := range map[string]struct {
		token, name string
		want        codes.Code
	}{
		"another's, by an admin": {"acme/admin", "rival", codes.PermissionDenied}, "an unknown one, by an admin": {"acme/admin", "unknown", codes.PermissionDenied},
		"another's": {"acme/all", "rival", codes.OK}, "an unknown one": {"acme/all", "unknown", codes.NotFound},
		"its own, without a configuration": {"acme/admin", "", codes.OK}, "by a worker": {"rival/work", "", codes.PermissionDenied},
	} {
		_, err := tenants.Get(as(c.token), &pb.GetTenantRequest{Tenant: c.name})
		expectCode(t, what, err, c.want)
	}
	a := r.do("PUT", "/v1/tenants/acme", `{"key_bytes":80,"key_writes_per_second":3}`).expect(t, "over REST", http.StatusOK)
	if want := `{"version":"1"}` + "\n"; a.body != want {
		t.Errorf("%s", a.body)
	}
	r.do("PUT", "/v1/tenants/acme", `{"key_byte":80}`).expect(t, "an unknown field", http.StatusBadRequest)
	for _, path := range []string{"/v1/tenant", "/v1/tenants/acme"} {
		a := r.do("GET", path, "").expect(t, path, http.StatusOK)
		want := `{"tenant":"acme","version":"1","key_bytes":80,"key_writes_per_second":3,"namespaces":2,"measured_key_bytes":60,"over_key_bytes":false,` +
			`"recent_key_writes_per_second":3,"recent_key_bytes_per_second":30,"overshoot_key_writes":1,"overshoot_key_bytes_written":10}` + "\n"
		if a.body != want {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// Whatever carries puts is held to their rate: effects of completions are refused, to be sent again, and what has a number
// waits, so that it stays in order.
func TestPutsOfEffectsAndOfCommitsOnStreamsAreHeldToRates(t *testing.T) {
	put := func(key string) *pb.Op {
		return &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte(key)}}}
	}
	r := newRig(t, Limits{})
	r.n.rates[0].Store(2)
	ws, _ := r.greet(as("acme/all"), 1)
	item := doneItem(1, 3)
	item.Effects = &pb.Effects{Ops: []*pb.Op{put("a"), put("b"), put("c")}} // more than a second's worth: in debt
	ws.send(settleFrame(1, item))
	if a := ws.ack(); a.GetSettled()[0].GetError() != nil {
		t.Fatalf("the first effects: %v", a)
	}
	plain, other := doneItem(3, 3), doneItem(2, 3)
	other.Effects = &pb.Effects{Ops: []*pb.Op{put("a")}}
	ws.send(settleFrame(2, other, plain))
	settled := ws.ack().GetSettled()
	if e := settled[0].GetError(); e.GetCode() != "RATE_LIMITED" || e.GetLimit() != "writes_per_second" || e.GetRetryAfter().AsDuration() <= 0 || e.Op != nil || settled[1].GetError() != nil {
		t.Errorf("the next: %v", settled)
	}
	_, err := pb.NewTaskServiceClient(r.conn).Settle(as("acme/all"), &pb.SettleRequest{Items: []*pb.SettleItem{other}})
	if err != nil {
		t.Errorf("settles of a call: %v", err)
	}
	commit := &pb.CommitRequest{Ops: []*pb.Op{put("z")}}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 3, Commit: commit}))
	if e := ws.ack().GetError(); e.GetCode() != "RATE_LIMITED" {
		t.Errorf("a commit without a number: %v", e)
	}
	before := len(r.n.proposed())
	ws.send(commitFrame(&pb.CommitFrame{Seq: 4, Commit: commit, CommitSeq: 1}))
	throttle := ws.recv().GetThrottle()
	if throttle.GetLimit() != "writes_per_second" || len(r.n.proposed()) != before {
		t.Errorf("a commit with a number: %v", throttle)
	}
	eventually(t, "it waits", func() bool { return r.clock.armed() > int(r.s.Stats().Streams)+1 }) // each stream has a timer of its own
	r.clock.advance(2 * time.Second)
	if a := ws.ack(); a.GetSeq() != 4 || a.GetError() != nil {
		t.Errorf("after the wait: %v", a)
	}
}
