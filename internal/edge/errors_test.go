package edge

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

func TestEveryFactOfCoreHasASample(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../core/fact.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	samples := apitest.SampleFacts()
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "Code" {
			continue
		}
		name := f.Recv.List[0].Type.(*ast.Ident).Name
		if _, ok := samples[name]; !ok {
			t.Errorf("fact %s: add it to the samples of this test", name)
		}
		delete(samples, name)
	}
	if len(samples) != 0 {
		t.Errorf("samples of facts that core does not have: %v", samples)
	}
}

func TestEveryCodeHasARow(t *testing.T) {
	for _, code := range errs.Codes() {
		if r := statuses[code]; r.code != code || r.GRPC == codes.OK || r.HTTP < 300 {
			t.Errorf("code %s has the row %+v", code, r)
		}
	}
	for _, e := range exceptions {
		if r := statuses[e.code]; e.row == r || e.GRPC != r.GRPC {
			t.Errorf("exception %+v of code %s: want another status or retry class, and the same status of gRPC", e.row, e.code)
		}
	}
}

func TestFactsTellWhatAClientNeeds(t *testing.T) {
	want := map[string]string{
		"Invalid":          `code:"INVALID_ARGUMENT" reason:"r" message:"tasks[3].unique.ttl: m" field:"tasks[3].unique.ttl"`,
		"TooLarge":         `code:"TOO_LARGE" message:"f is larger than limit payload_bytes of 9" field:"f" limit:"payload_bytes" max:9`,
		"Unauthenticated":  `code:"UNAUTHENTICATED" message:"no valid token"`,
		"Denied":           `code:"PERMISSION_DENIED" message:"scope admin is missing"`,
		"NotFound":         `code:"NOT_FOUND" message:"task \"x\" not found"`,
		"AlreadyExists":    `code:"ALREADY_EXISTS" message:"task \"x\" exists with other content"`,
		"LeaseLost":        `code:"LEASE_LOST" message:"task 00000000000000000000000000: token 5 lost its lease"`,
		"WrongState":       `code:"WRONG_STATE" message:"the queue has tasks that are running" details:{key:"state" value:"running"}`,
		"SessionExpired":   `code:"WRONG_STATE" reason:"session_expired" message:"session expired"`,
		"NotMoved":         `code:"WRONG_STATE" reason:"not_moved" message:"not_moved: node 3 is behind"`,
		"FormatHeld":       `code:"WRONG_STATE" reason:"format_held" message:"format_held: format 2: the program of node 1 does not know it, the program of node 3 does not know it, node 4 is not reached" details:{key:"format" value:"2"} details:{key:"older" value:"1,3"} details:{key:"silent" value:"4"}`,
		"QueuePinned":      `code:"WRONG_PARTITION" reason:"queue_pinned" message:"queue \"mail\" is bounded or ordered as a whole: its tasks are made in partition 0" details:{key:"partition" value:"0"} details:{key:"queue" value:"mail"}`,
		"InUse":            `code:"WRONG_STATE" reason:"limiter_in_use" message:"limiter \"api\" is in use by queue mail" details:{key:"by" value:"queue mail"} details:{key:"limiter" value:"api"}`,
		"NotEmpty":         `code:"WRONG_STATE" reason:"namespace_not_empty" message:"the namespace is not empty: it has tasks, keys" details:{key:"held" value:"tasks,keys"}`,
		"WrongBatch":       `code:"WRONG_STATE" reason:"batch_closed" message:"batch 00000000000000000000000000 is sealed" details:{key:"batch" value:"00000000000000000000000000"} details:{key:"state" value:"sealed"}`,
		"WrongMembership":  `code:"WRONG_STATE" reason:"learner_behind" message:"learner_behind: node 4 is 1001 entries behind" details:{key:"lag" value:"1001"} details:{key:"node" value:"4"}`,
		"RevMismatch":      `code:"PRECONDITION_FAILED" message:"key \"\" of keyspace \"\" is at revision 8" details:{key:"rev" value:"8"} details:{key:"value" value:"now"}`,
		"WrongPartition":   `code:"WRONG_PARTITION" message:"outside the commit's partition: ops[1], ops[4]" details:{key:"ops" value:"1,4"}`,
		"RateLimited":      `code:"RATE_LIMITED" message:"rate limit creates" limit:"creates" retry_after:{seconds:1 nanos:500000000}`,
		"Exhausted":        `code:"RESOURCE_EXHAUSTED" message:"limit queues of 10 reached" limit:"queues" max:10`,
		"NotLeader":        `code:"NOT_LEADER" message:"not the leader of the shard" leader:"n2:7081"`,
		"Unavailable":      `code:"UNAVAILABLE" reason:"overload" message:"unavailable: overload" limit:"proposals" outcome:UNKNOWN`,
		"DeadlineExceeded": `code:"DEADLINE_EXCEEDED" message:"deadline exceeded" outcome:UNKNOWN`,
	}
	for name, fact := range apitest.SampleFacts() {
		got := strings.ReplaceAll(Wire(fmt.Errorf("wrapped: %w", fact), true).String(), "  ", " ")
		if got != want[name] {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want[name])
		}
	}
}

func TestOnlyUnavailableAndDeadlineCanBeUnknown(t *testing.T) {
	for name, fact := range apitest.SampleFacts() {
		e := Wire(fact, true)
		may := e.GetCode() == "UNAVAILABLE" || e.GetCode() == "DEADLINE_EXCEEDED"
		if got := e.GetOutcome() == pb.Error_UNKNOWN; got != may {
			t.Errorf("%s: unknown = %v", name, got)
		}
	}
}

func TestWhatIsNoFactIsInternalAndSaysNothing(t *testing.T) {
	for want, err := range map[string]error{
		"INTERNAL":  errors.New("open /data/secret: no"),
		"DATA_LOSS": fmt.Errorf("apply: %w", errs.Corruptf("key of tenant rival")),
	} {
		e := Wire(err, true)
		if e.GetCode() != want || strings.Contains(e.String(), "secret") || strings.Contains(e.String(), "rival") {
			t.Errorf("got %v, want %s without a word of the cause", e, want)
		}
	}
}

func TestAValueIsShownOnlyToWhoMayRead(t *testing.T) {
	f := core.RevMismatch{Rev: 3, Value: []byte("secret")}
	if got := Wire(f, false).GetDetails(); got["value"] != "" || got["rev"] != "3" {
		t.Errorf("without the scope: %v", got)
	}
	f.Value = []byte{0xff}
	if _, ok := Wire(f, true).GetDetails()["value"]; ok {
		t.Error("a value that is not text was put into a text")
	}
	f.Value = make([]byte, shownValueBytes+1)
	if _, ok := Wire(f, true).GetDetails()["value"]; ok {
		t.Error("a long value was put into a header")
	}
}

func TestLongMessagesAreCutAtARune(t *testing.T) {
	e := Wire(core.NotFound{Kind: "queue", ID: strings.Repeat("é", 4000)}, false)
	if len(e.GetMessage()) > messageBytes || !strings.HasPrefix(e.GetMessage(), `queue "é`) {
		t.Errorf("%d bytes: %.20q", len(e.GetMessage()), e.GetMessage())
	}
	if got := core.Cut("aé", 2); got != "a" {
		t.Errorf("cut in the middle of a rune: %q", got)
	}
}

func TestFullDiskHasItsOwnHTTPStatus(t *testing.T) {
	if got := RowOf(core.Exhausted{Limit: "disk"}).HTTP; got != 507 {
		t.Errorf("disk: %d", got)
	}
	if got := RowOf(core.Exhausted{Limit: "queues"}).HTTP; got != 429 {
		t.Errorf("queues: %d", got)
	}
}

func TestARefusedEffectIsCountedFromTheCallersOwnOps(t *testing.T) {
	for _, tc := range []struct {
		op, shift int
		field     string
		want      *int32
		wantField string
	}{
		{op: 2, shift: 1, field: "ops[2].key", want: new(int32(1)), wantField: "effects.ops[1].key"},
		{op: 0, shift: 1, want: nil},
		{op: core.FenceOp, shift: 0, want: new(int32(-1))},
		{op: core.ConditionOp - 3, shift: 1, want: new(int32(-5))},
		{op: 4, shift: 0, field: "ops[4].key", want: new(int32(4)), wantField: "ops[4].key"},
	} {
		r := Refusal{&core.Refusal{Op: tc.op, Fact: core.Invalid{Field: tc.field, Message: "is odd"}}, tc.shift}
		e := r.wire(false)
		if tc.field != "" && e.GetMessage() != tc.wantField+": is odd" {
			t.Errorf("op %d shift %d: got message %q", tc.op, tc.shift, e.GetMessage())
		}
		if (e.Op == nil) != (tc.want == nil) || e.Op != nil && *e.Op != *tc.want || e.GetField() != tc.wantField {
			t.Errorf("op %d shift %d: got op %v field %q", tc.op, tc.shift, e.Op, e.GetField())
		}
	}
}
