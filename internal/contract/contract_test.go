package contract_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/contract"
)

// compiled is the contract as this binary has it, after change has had its files.
func compiled(t *testing.T, change func(name string, f *descriptorpb.FileDescriptorProto)) ([]byte, error) {
	t.Helper()
	set := new(descriptorpb.FileDescriptorSet)
	for _, m := range []proto.Message{
		new(descriptorpb.FileOptions), new(restpb.Route), new(durationpb.Duration), new(timestamppb.Timestamp), new(pb.RefChange), new(pb.Point),
		new(pb.Task), new(pb.KVGetRequest), new(pb.StatusRequest), new(pb.Repo), new(pb.Collection), new(pb.GetOverviewRequest), new(pb.ClusterStatusRequest), new(pb.TenantConfig),
	} {
		f := protodesc.ToFileDescriptorProto(m.ProtoReflect().Descriptor().ParentFile())
		change(f.GetName(), f)
		set.File = append(set.File, f)
	}
	return proto.Marshal(set)
}

func linked(t *testing.T) *contract.Contract {
	t.Helper()
	c, err := contract.Linked()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func names(parts []contract.Part) string {
	var out []string
	for _, p := range parts {
		for _, f := range p.Fields {
			out = append(out, string(p.Message.Name())+"."+string(f.Name()))
		}
	}
	return strings.Join(out, " ")
}

func TestSchemasAreMadeOfWhatNeitherThePathNorAParameterHas(t *testing.T) {
	c := linked(t)
	for name, want := range map[string]string{
		"UpdateRepoBody":    "UpdateRepoRequest.config UpdateRepoRequest.default_branch",
		"BatchGetRefsBody":  "BatchGetRefsRequest.names BatchGetRefsRequest.peel",
		"KVBatchGetRequest": "KVBatchGetRequest.keys KVBatchGetRequest.stale KVBatchGetRequest.max_staleness",
		"Configured":        "SetQueueResponse.version SetQueueResponse.at",
		"KeyspaceFound":     "KeyspaceStats.keyspace KeyspaceStats.config KeyspaceStats.keys KeyspaceStats.more_keys KeyspaceStats.bytes KeyspaceStats.measured_bytes KeyspaceStats.over_quota GetKeyspaceResponse.at",
		"FailOne":           "SettleItem.token Fail.error Fail.fatal Fail.retry_after",
		"Hold":              "Hold.id Hold.token",
	} {
		s, err := c.Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(s.Parts); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if _, err := c.Schema("Nothing"); err == nil {
		t.Error("a schema of no message was made")
	}
}

func TestARouteNamesFieldsThatThereAre(t *testing.T) {
	for want, path := range map[string]string{"has no field nothing": "/v1/queues/{nothing}", "a route needs a path": ""} {
		b, err := compiled(t, func(name string, f *descriptorpb.FileDescriptorProto) {
			if name != "millrace/v1/task.proto" {
				return
			}
			route := &restpb.Route{Get: path, Doc: "Read nothing."}
			for _, s := range f.GetService() {
				if s.GetName() == "QueueService" {
					s.Method[0].Options = new(descriptorpb.MethodOptions)
					proto.SetExtension(s.Method[0].Options, restpb.E_Route, []*restpb.Route{route})
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := contract.Read(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the path %q: %v, want %s", path, err, want)
		}
	}
}

func TestWordsOfAnEnumerationAreItsNamesWithoutItsOwn(t *testing.T) {
	for _, one := range []struct {
		enum protoreflect.EnumDescriptor
		want []string
	}{
		{pb.Outcome(0).Descriptor(), []string{"", "completed", "failed", "timeout", "crashed", "snoozed", "released", "cancelled"}},
		{pb.FieldType(0).Descriptor(), []string{"", "keyword", "keywords", "int", "float", "bool", "time", "geo", "text", "credentials"}},
		{pb.Unique_Until(0).Descriptor(), []string{"ttl", "start", "terminal"}},
	} {
		if got := contract.Words(one.enum); !slices.Equal(got, one.want) {
			t.Errorf("%s: %q, want %q", one.enum.FullName(), got, one.want)
		}
	}
}

func TestWhatIsNotAContractIsRefused(t *testing.T) {
	for name, in := range map[string][]byte{"nothing": nil, "no protobuf": []byte("\xff\xff")} {
		if _, err := contract.Read(bytes.NewReader(in)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
