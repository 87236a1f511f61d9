package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// outputs are the generated files, by the argument that makes them.
var outputs = map[string]string{"client": "../../sdk/go/internal/rest/contract_gen.go", "server": "../rest/contract_gen.go"}

func TestTheGeneratedCodeIsUpToDate(t *testing.T) {
	for side, path := range outputs {
		var want bytes.Buffer
		if err := run(side, &want); err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want.Bytes()) {
			t.Errorf("%s is not what the contract says: make generate", path)
		}
	}
}

func TestAnUnknownSideIsRefused(t *testing.T) {
	if err := run("both", new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "neither server nor client") {
		t.Errorf("got %v", err)
	}
}

func TestNamesAreThoseOfTheGeneratedMessages(t *testing.T) {
	for name, want := range map[string]string{"KVPut": "kvPut", "TaskSpec": "taskSpec", "Op": "op", "EmbedRequest": "embedRequest"} {
		if got := lower(name); got != want {
			t.Errorf("lower(%s) is %s, want %s", name, got, want)
		}
	}
	spec := new(pb.TaskSpec).ProtoReflect().Descriptor()
	if got := goName(spec.Fields().ByName("max_deliveries")); got != "MaxDeliveries" {
		t.Errorf("the field max_deliveries is %s", got)
	}
	until := pb.Unique_Until(0).Descriptor()
	if typeName(until) != "Unique_Until" || wordsName(until) != "uniqueUntilWords" {
		t.Errorf("the enumeration is %s, its words %s", typeName(until), wordsName(until))
	}
}

// lines are what a function of a generator wrote.
func lines(t *testing.T, write func(g *generator) error) string {
	t.Helper()
	g := new(generator)
	if err := write(g); err != nil {
		t.Fatal(err)
	}
	return g.b.String()
}

func TestAFieldIsReadAndWrittenAsItsOptionsSay(t *testing.T) {
	field := func(m protoreflect.ProtoMessage, name protoreflect.Name) protoreflect.FieldDescriptor {
		return m.ProtoReflect().Descriptor().Fields().ByName(name)
	}
	for _, tc := range []struct {
		field protoreflect.FieldDescriptor
		read  string
	}{
		{field(new(pb.TaskSpec), "kind"), `m.Kind = d.Filled()`},
		{field(new(pb.TaskError), "message"), `m.Message = d.AnyText()`},
		{field(new(pb.Hold), "token"), `m.Token = d.Unsigned()`},
		{field(new(pb.KeyspaceQuota), "bytes"), `m.Bytes = d.Integer(0, 4611686018427387904)`},
		{field(new(pb.KVAdd), "floor"), `m.Floor = new(d.Integer(math.MinInt64, math.MaxInt64))`},
		{field(new(pb.SettleItem), "fail"), `d.only(m.Outcome != nil, "outcome")`},
		{field(new(pb.HeartbeatRequest), "items"), `d.Array("frame_items", d.l.FrameItems,`},
		{field(new(pb.RepoConfig), "rules"), `d.Array("rules", 64,`},
		{field(new(pb.KVPut), "value"), `{"value_base64", func(d *jsonReader, m *pb.X) { d.anyBytes(&m.Value, true) }}`},
	} {
		if got := lines(t, func(g *generator) error { return g.readField("pb.X", tc.field) }); !strings.Contains(got, tc.read) {
			t.Errorf("%s is read as\n%swant %s", tc.field.FullName(), got, tc.read)
		}
	}
	for _, tc := range []struct {
		field protoreflect.FieldDescriptor
		write string
	}{
		{field(new(pb.Task), "reason"), `w.OptStr("reason", m.GetReason())`},
		{field(new(pb.OpResult), "sum"), "if m.GetSum() != 0 {\nw.exactInt(\"sum\", m.GetSum())"},
		{field(new(pb.Assignment), "lease_ms"), `w.Key("lease")`},
		{field(new(pb.Error), "retry_after"), `w.Int("retry_after_ms", d.AsDuration().Milliseconds())`},
		{field(new(pb.KVRead), "rev"), "if m.GetFound() {\nw.AnyBytes(\"value\", m.GetValue())\nw.Exact(\"rev\", m.GetRev())\n}"},
		{field(new(pb.Task), "result"), "if !w.lean && m.GetHasResult() {\nw.content(\"result\", m.GetResult(), m.GetResultType())"},
		{field(new(pb.GetTenantResponse), "config"), "writeTenantConfig(w, m.GetConfig())"},
		{field(new(pb.GetTenantResponse), "overshoot_key_writes"), "if m.GetConfig().GetKeyWritesPerSecond() != 0 || m.GetConfig().GetKeyBytesPerSecond() != 0 {"},
		{field(new(pb.CreateResult), "replayed"), "if m.GetError() == nil {"},
	} {
		m, ok := tc.field.Parent().(protoreflect.MessageDescriptor)
		if got := lines(t, func(g *generator) error { return g.writer(m) }); !ok || !strings.Contains(got, tc.write) {
			t.Errorf("%s is written as\n%swant %s", tc.field.FullName(), got, tc.write)
		}
	}
}
