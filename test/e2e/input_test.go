package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// stillServes makes a good call: whatever came before must not have hurt.
func stillServes(t *testing.T, r *raw, after string) {
	t.Helper()
	id := newID()
	if a := r.call(t, "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Id = id })); a.status != 0 {
		t.Fatalf("after %s a good create answers %d %s", after, a.status, a.message)
	}
	if a := r.call(t, "TaskService/Get", &millracev1.GetRequest{Id: id}); a.status != 0 {
		t.Fatalf("after %s a good get answers %d %s", after, a.status, a.message)
	}
}

// task is a create of a good task that change spoils.
func task(change func(s *millracev1.TaskSpec)) *millracev1.CreateRequest {
	s := &millracev1.TaskSpec{Id: newID(), Queue: "good", Payload: []byte("1")}
	change(s)
	return &millracev1.CreateRequest{Task: s}
}

func batch(n int) *millracev1.BatchCreateRequest {
	out := &millracev1.BatchCreateRequest{}
	for range n {
		out.Tasks = append(out.Tasks, &millracev1.TaskSpec{Queue: "good"})
	}
	return out
}

func commit(ops ...*millracev1.Op) *millracev1.CommitRequest {
	return &millracev1.CommitRequest{Ops: ops}
}

// Durations that no caller means.
var (
	negative = durationpb.New(-time.Second)
	absurd   = &durationpb.Duration{Seconds: 315_576_000_000} // ten thousand years
	broken   = &durationpb.Duration{Seconds: 1, Nanos: 2_000_000_000}
	mixed    = &durationpb.Duration{Seconds: 1, Nanos: -1}
)

// badCalls has each kind of nonsense that a client can express in the contract, and what must come of it: a code, and a
// field or limit.
var badCalls = []struct {
	name, method string
	m            proto.Message
	code, says   string
}{
	{"no task", "TaskService/Create", &millracev1.CreateRequest{}, "INVALID_ARGUMENT", "task"},
	{"no queue", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Queue = "" }), "INVALID_ARGUMENT", "queue"},
	{"a queue with a NUL", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Queue = "a\x00b" }), "INVALID_ARGUMENT", "queue"},
	{"a queue with a slash", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Queue = "../x" }), "INVALID_ARGUMENT", "queue"},
	{"a long queue", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Queue = strings.Repeat("q", 129) }), "INVALID_ARGUMENT", "queue"},
	{"a bad kind", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Kind = "a b" }), "INVALID_ARGUMENT", "kind"},
	{"an id of other letters", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Id = strings.Repeat("!", 26) }), "INVALID_ARGUMENT", "id"},
	{"a payload over its limit", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Payload = make([]byte, 1<<20+1) }), "TOO_LARGE", "payload_bytes"},
	{"33 headers", "TaskService/Create", task(func(s *millracev1.TaskSpec) {
		for i := range 33 {
			s.Headers = append(s.Headers, &millracev1.Header{Name: fmt.Sprint("h", i), Value: "v"})
		}
	}), "TOO_LARGE", "headers"},
	{"headers of over 4 KiB", "TaskService/Create", task(func(s *millracev1.TaskSpec) {
		s.Headers = []*millracev1.Header{{Name: "n", Value: strings.Repeat("v", 4<<10)}}
	}), "TOO_LARGE", "header_bytes"},
	{"a header with a line break", "TaskService/Create", task(func(s *millracev1.TaskSpec) {
		s.Headers = []*millracev1.Header{{Name: "n", Value: "v\r\nx: y"}}
	}), "INVALID_ARGUMENT", "headers"},
	{"priority 10", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Priority = 10 }), "INVALID_ARGUMENT", "priority"},
	{"a negative delay", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Delay = negative }), "INVALID_ARGUMENT", "delay"},
	{"an absurd delay", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Delay = absurd }), "INVALID_ARGUMENT", "delay"},
	{"a delay that is not a duration", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Delay = broken }), "INVALID_ARGUMENT", "delay"},
	{"a delay of two signs", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Delay = mixed }), "INVALID_ARGUMENT", "delay"},
	{"a time that is none", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.RunAt = &timestamppb.Timestamp{Seconds: 1 << 60} }), "INVALID_ARGUMENT", "run_at"},
	{"a time in a century", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.RunAt = timestamppb.New(time.Now().AddDate(100, 0, 0)) }), "INVALID_ARGUMENT", "run_at"},
	{"delay and time", "TaskService/Create", task(func(s *millracev1.TaskSpec) {
		s.Delay, s.RunAt = durationpb.New(time.Second), timestamppb.Now()
	}), "INVALID_ARGUMENT", "delay"},
	{"negative attempts", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.MaxAttempts = -1 }), "INVALID_ARGUMENT", "max_attempts"},
	{"1,001 crashes", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.MaxCrashes = 1001 }), "INVALID_ARGUMENT", "max_crashes"},
	{"negative deliveries", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.MaxDeliveries = proto.Int32(-1) }), "INVALID_ARGUMENT", "max_deliveries"},
	{"a lease of a millisecond", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Lease = durationpb.New(time.Millisecond) }), "INVALID_ARGUMENT", "lease"},
	{"a lease of 25 hours", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Lease = durationpb.New(25 * time.Hour) }), "INVALID_ARGUMENT", "lease"},
	{"a negative bound of a run", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.MaxRun = negative }), "INVALID_ARGUMENT", "max_run"},
	{"a retry factor of 101", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Retry = &millracev1.Retry{Factor: 101} }), "INVALID_ARGUMENT", "retry"},
	{"an unknown backoff", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Retry = &millracev1.Retry{Backoff: 99} }), "INVALID_ARGUMENT", "retry"},
	{"an empty unique key", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Unique = &millracev1.Unique{} }), "INVALID_ARGUMENT", "unique"},
	{"a long unique key", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Unique = &millracev1.Unique{Key: strings.Repeat("k", 257)} }), "TOO_LARGE", "unique_key_bytes"},
	{"a unique window of a year", "TaskService/Create", task(func(s *millracev1.TaskSpec) {
		s.Unique = &millracev1.Unique{Key: "k", Ttl: durationpb.New(366 * 24 * time.Hour)}
	}), "INVALID_ARGUMENT", "ttl"},
	{"a key of 129 bytes", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Key = strings.Repeat("k", 129) }), "TOO_LARGE", "key"},
	{"a label without a name", "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Labels = map[string]string{"": "b"} }), "INVALID_ARGUMENT", "labels."},
	{"an empty batch", "TaskService/BatchCreate", batch(0), "INVALID_ARGUMENT", "tasks"},
	{"a batch of 513", "TaskService/BatchCreate", batch(513), "TOO_LARGE", "frame_items"},
	{"a page of 1,001", "TaskService/List", &millracev1.ListRequest{Queue: "good", State: 3, Limit: 1001}, "INVALID_ARGUMENT", "list_items"},
	{"a cursor that is none", "TaskService/List", &millracev1.ListRequest{Queue: "good", State: 3, Cursor: "made up"}, "INVALID_ARGUMENT", "cursor"},
	{"a fingerprint of a word", "TaskService/List", &millracev1.ListRequest{Fingerprint: "other"}, "INVALID_ARGUMENT", "fingerprint"},
	{"a fingerprint in capitals", "TaskService/List", &millracev1.ListRequest{Fingerprint: "6DE323C4180FB94F"}, "INVALID_ARGUMENT", "fingerprint"},
	{"errors of a queue that is none", "ErrorService/List", &millracev1.ListErrorsRequest{Queue: "a b"}, "INVALID_ARGUMENT", "queue"},
	{"errors of a negative time", "ErrorService/List", &millracev1.ListErrorsRequest{Span: negative}, "INVALID_ARGUMENT", "span"},
	{"errors of an absurd time", "ErrorService/List", &millracev1.ListErrorsRequest{Span: absurd}, "INVALID_ARGUMENT", "horizon_ms"},
	{"a history of a queue that is none", "OverviewService/History", &millracev1.HistoryRequest{Queue: "a b"}, "INVALID_ARGUMENT", "queue"},
	{"a history of a series that is none", "OverviewService/History", &millracev1.HistoryRequest{Series: "created,none"}, "INVALID_ARGUMENT", "series"},
	{"a history of another span", "OverviewService/History", &millracev1.HistoryRequest{Span: "2h"}, "INVALID_ARGUMENT", "span"},
	{"a history of a queue at a node", "OverviewService/History", &millracev1.HistoryRequest{Queue: "q", Node: 1}, "INVALID_ARGUMENT", "node"},
	{"a claim of no queue", "TaskService/Claim", &millracev1.ClaimRequest{}, "INVALID_ARGUMENT", "queues"},
	{"a claim of 65 queues", "TaskService/Claim", &millracev1.ClaimRequest{Queues: queues(65)}, "TOO_LARGE", "claim_queues"},
	{"a claim of 129 tasks", "TaskService/Claim", &millracev1.ClaimRequest{Queues: queues(1), Max: 129}, "INVALID_ARGUMENT", "claim_tasks"},
	{"a claim that waits 61 s", "TaskService/Claim", &millracev1.ClaimRequest{Queues: queues(1), Wait: durationpb.New(61 * time.Second)}, "INVALID_ARGUMENT", "claim_wait_ms"},
	{"a claim with a negative wait", "TaskService/Claim", &millracev1.ClaimRequest{Queues: queues(1), Wait: negative}, "INVALID_ARGUMENT", "wait"},
	{"a claim by a long name", "TaskService/Claim", &millracev1.ClaimRequest{Queues: queues(1), Worker: strings.Repeat("w", 129)}, "TOO_LARGE", "worker_bytes"},
	{"no settle", "TaskService/Settle", &millracev1.SettleRequest{}, "INVALID_ARGUMENT", "items"},
	{"513 settles", "TaskService/Settle", &millracev1.SettleRequest{Items: make([]*millracev1.SettleItem, 513)}, "TOO_LARGE", "frame_items"},
	{"513 heartbeats", "TaskService/Heartbeat", &millracev1.HeartbeatRequest{Items: make([]*millracev1.Hold, 513)}, "TOO_LARGE", "frame_items"},
	{"an empty commit", "CommitService/Commit", commit(), "INVALID_ARGUMENT", "ops"},
	{"a commit of 1,025 ops", "CommitService/Commit", commit(many(1025)...), "TOO_LARGE", "commit_ops"},
	{"an op that is none", "CommitService/Commit", commit(&millracev1.Op{}), "INVALID_ARGUMENT", "ops[0]"},
	{"an op that is not built", "CommitService/Commit", commit(put("k", "a", "1"), &millracev1.Op{Op: &millracev1.Op_Reserved{Reserved: &millracev1.Reserved{Op: "ref_update"}}}), "INVALID_ARGUMENT", "ops[1]"},
	{"a key twice", "CommitService/Commit", commit(put("k", "a", "1"), put("k", "a", "2")), "INVALID_ARGUMENT", "ops[1].key"},
	{"an empty key", "CommitService/Commit", commit(put("k", "", "1")), "INVALID_ARGUMENT", "key"},
	{"a key over its limit", "CommitService/Commit", commit(put("k", strings.Repeat("k", 16<<10+1), "1")), "TOO_LARGE", "key_bytes"},
	{"a value over its limit", "CommitService/Commit", commit(put("k", "a", strings.Repeat("v", 3<<19+1))), "TOO_LARGE", "value_bytes"},
	{"a keyspace that is none", "CommitService/Commit", commit(put("a:b", "k", "1")), "INVALID_ARGUMENT", "keyspace"},
	{"a request id of 15 bytes", "CommitService/Commit", &millracev1.CommitRequest{Ops: []*millracev1.Op{put("k", "a", "1")}, RequestId: make([]byte, 15)}, "INVALID_ARGUMENT", "request_id"},
	{"an empty key to read", "KVService/Get", &millracev1.KVGetRequest{Keyspace: "k"}, "INVALID_ARGUMENT", "key"},
	{"a queue's negative lease", "QueueService/Set", &millracev1.SetQueueRequest{Queue: "good", Config: &millracev1.QueueConfig{Lease: negative}}, "INVALID_ARGUMENT", "lease"},
	{"a queue's negative aging", "QueueService/Set", &millracev1.SetQueueRequest{Queue: "good", Config: &millracev1.QueueConfig{Aging: negative}}, "INVALID_ARGUMENT", "aging"},
	{"a queue's absurd retention", "QueueService/Set", &millracev1.SetQueueRequest{Queue: "good", Config: &millracev1.QueueConfig{RetainDead: absurd}}, "INVALID_ARGUMENT", "retain_dead"},
	{"a queue's payload over the limit", "QueueService/Set", &millracev1.SetQueueRequest{Queue: "good", Config: &millracev1.QueueConfig{MaxPayload: 2 << 20}}, "INVALID_ARGUMENT", "max_payload"},
	{"a namespace that is none", "QueueService/List", nil, "INVALID_ARGUMENT", "namespace"},
}

// TestBadInputIsRefusedByNameAndDoesNoHarm makes each bad call, and a good one after it.
func TestBadInputIsRefusedByNameAndDoesNoHarm(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	r := l.raw(0)
	for _, c := range badCalls {
		caller := r
		if c.m == nil {
			caller, c.m = r.with("millrace-namespace", "no/good"), &millracev1.ListQueuesRequest{}
		}
		a := caller.call(t, c.method, c.m)
		e := a.err()
		if e.GetCode() != c.code || !strings.Contains(e.GetField()+" "+e.GetLimit(), c.says) || e.GetOutcome() != millracev1.Error_REFUSED {
			t.Errorf("%s: status %d, %v; want %s and %s", c.name, a.status, e, c.code, c.says)
		}
		if strings.Contains(a.message, "/") && strings.Contains(a.message, ".go") {
			t.Errorf("%s: the answer shows the inside: %s", c.name, a.message)
		}
		stillServes(t, r, c.name)
	}
	l.audit()
}

func queues(n int) (out []*millracev1.QueueWeight) {
	for i := range n {
		out = append(out, &millracev1.QueueWeight{Name: fmt.Sprint("q", i)})
	}
	return out
}

func many(n int) (out []*millracev1.Op) {
	for i := range n {
		out = append(out, put("k", fmt.Sprint(i), "1"))
	}
	return out
}

// TestBytesThatAreNoMessageAreRefused sends what no client library can: frames cut, too long, compressed, of other types.
func TestBytesThatAreNoMessageAreRefused(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	r := l.raw(0)
	good, err := proto.Marshal(task(func(*millracev1.TaskSpec) {}))
	noErr(t, err)
	unknown := protowire.AppendBytes(protowire.AppendTag(bytes.Clone(good), 999, protowire.BytesType), []byte("from the future"))
	for _, c := range []struct {
		name string
		b    []byte
		ok   bool
	}{
		{"nothing", nil, false},
		{"half a prefix", []byte{0, 0}, false},
		{"a prefix that promises more", []byte{0, 0, 0, 1, 0, 'x'}, false},
		{"a prefix that promises 4 GiB", []byte{0, 0xff, 0xff, 0xff, 0xff}, false},
		{"a prefix just over the limit", append([]byte{0, 0, 0x40, 0, 1}, make([]byte, 4<<20+1)...), false},
		{"compressed by nothing", append([]byte{1}, frame(good)[1:]...), false},
		{"noise", frame(bytes.Repeat([]byte{0xff}, 100)), false},
		{"half a message", frame(good[:len(good)-3]), false},
		{"a group that does not end", frame([]byte{0x0b}), false},
		{"a length beyond the message", frame([]byte{0x0a, 0xff, 0xff, 0xff, 0x7f}), false},
		{"text that is no UTF-8", frame([]byte{0x0a, 0x04, 0x12, 0x02, 0xff, 0xfe}), false},
		{"two messages", append(frame(good), frame(good)...), false},
		{"a field from the future", frame(unknown), true},
	} {
		a := r.send(t, "TaskService/Create", c.b)
		if c.ok && a.status != 0 && a.code() != "INVALID_ARGUMENT" {
			t.Errorf("%s: status %d %s", c.name, a.status, a.message)
		}
		if !c.ok && a.status == 0 && a.http == 200 {
			t.Errorf("%s: it was taken for a message", c.name)
		}
		stillServes(t, r, c.name)
	}
	for _, method := range []string{"TaskService/Nothing", "NoService/Get", "TaskService", "../TaskService/Get"} {
		if a := r.send(t, method, frame(good)); a.status == 0 {
			t.Errorf("%s was served", method)
		}
	}
	stillServes(t, r, "methods that do not exist")
}

// TestAStreamOfNonsenseEndsAndDoesNoHarm breaks the rules of a stream in every way that a client could.
func TestAStreamOfNonsenseEndsAndDoesNoHarm(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	r := l.raw(0)
	create := func(seq uint64, n int) *millracev1.ClientFrame {
		return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Create{Create: &millracev1.CreateFrame{Seq: seq, Tasks: batch(n).Tasks}}}
	}
	hello := func(h *millracev1.Hello) *millracev1.ClientFrame {
		return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Hello{Hello: h}}
	}
	session := bytes.Repeat([]byte{9}, 16)
	for name, c := range map[string]func(s *stream){
		"no hello":             func(s *stream) { s.send(create(1, 1)) },
		"an empty frame first": func(s *stream) { s.send(&millracev1.ClientFrame{}) },
		"noise first":          func(s *stream) { s.write(frame([]byte{0xff, 0xff})) },
		"another version":      func(s *stream) { s.send(hello(&millracev1.Hello{Version: 99, Session: session})) },
		"a short session":      func(s *stream) { s.send(hello(&millracev1.Hello{Version: 1, Session: []byte("short")})) },
		"no session":           func(s *stream) { s.send(hello(&millracev1.Hello{Version: 1})) },
		"a bad namespace": func(s *stream) {
			s.send(hello(&millracev1.Hello{Version: 1, Session: session, Namespace: "no/good"}))
		},
		"hello twice":      func(s *stream) { s.hello(1); s.hello(1) },
		"an empty frame":   func(s *stream) { s.hello(2); s.send(&millracev1.ClientFrame{}) },
		"noise":            func(s *stream) { s.hello(3); s.write(frame([]byte{0xff, 0xff, 0xff})) },
		"a frame of 4 GiB": func(s *stream) { s.hello(4); s.write([]byte{0, 0xff, 0xff, 0xff, 0xff}) },
		"a wrong new token": func(s *stream) {
			s.hello(5)
			s.send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Auth{Auth: &millracev1.AuthFrame{Token: "x"}}})
		},
	} {
		s := r.openStream(t)
		c(s)
		if a := s.ended(); a.status == 0 {
			t.Errorf("%s: the stream ended well", name)
		} else if a.status == 13 || a.status == 2 {
			t.Errorf("%s: status %d %s", name, a.status, a.message)
		}
		s.close()
		stillServes(t, r, name)
	}

	s := r.openStream(t)
	s.hello(7)
	for seq, n := range []int{0, 513} { // refused as a whole, and the stream goes on
		s.send(create(uint64(seq+1), n))
		if k := s.ack(uint64(seq + 1)); k.Error == nil {
			t.Errorf("a frame of %d tasks was taken", n)
		}
	}
	s.send(create(3, 512))
	if k := s.ack(3); k.Error != nil || len(k.Created) != 512 {
		t.Errorf("a frame of 512 tasks: %v, %d created", k.Error, len(k.Created))
	}
	s.send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Commit{Commit: &millracev1.CommitFrame{Seq: 4, Commit: commit(many(1025)...)}}})
	if k := s.ack(4); k.Error.GetLimit() != "commit_ops" {
		t.Errorf("a commit of 1,025 ops: %v", k.Error)
	}
	s.close()
	l.audit()
}
