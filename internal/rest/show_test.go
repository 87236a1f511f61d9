package rest

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
)

// fill gives every field of a message a value that is not its zero one, the first of each oneof.
func fill(m protoreflect.Message) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() && m.WhichOneof(o) != nil {
			continue
		}
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOf("k").MapKey(), protoreflect.ValueOf("v"))
		case f.IsList() && f.Message() != nil:
			fill(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(sampleValue(f))
		case f.Message() != nil && f.Message().FullName() == "google.protobuf.Timestamp":
			m.Set(f, protoreflect.ValueOf(timestamppb.New(apitest.Now).ProtoReflect()))
		case f.Message() != nil && f.Message().FullName() == "google.protobuf.Duration":
			m.Set(f, protoreflect.ValueOf((&durationpb.Duration{Seconds: 90, Nanos: 5e8}).ProtoReflect()))
		case f.Message() != nil:
			fill(m.Mutable(f).Message())
		default:
			m.Set(f, sampleValue(f))
		}
	}
}

func sampleValue(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		switch f.Name() { // these have forms where they are shown
		case "fingerprint":
			return protoreflect.ValueOf("6de323c4180fb94f")
		case "batch":
			return protoreflect.ValueOf("01ARZ3NDEKTSV4RRFFQ69G5FAV")
		}
		return protoreflect.ValueOf("text")
	case protoreflect.BytesKind:
		return protoreflect.ValueOf([]byte(`{"a":1}`))
	case protoreflect.BoolKind:
		return protoreflect.ValueOf(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOf(protoreflect.EnumNumber(1))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOf(int32(7))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOf(int64(7))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOf(uint32(7))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOf(1.5)
	case protoreflect.FloatKind:
		return protoreflect.ValueOf(float32(1.5))
	default:
		return protoreflect.ValueOf(uint64(7))
	}
}

func full[T proto.Message](m T) T {
	fill(m.ProtoReflect())
	return m
}

// TestEveryFieldOfTheDocumentIsWritten writes messages with all their fields, so that none is forgotten.
func TestEveryFieldOfTheDocumentIsWritten(t *testing.T) {
	c := readContract(t)
	task := full(new(pb.Task))
	task.ContentType, task.ResultType = "application/json", "application/json"
	given := full(new(pb.Assignment))
	given.ContentType = "application/json"
	created, settled := full(new(pb.CreateResult)), full(new(pb.SettleResult))
	created.Error, settled.Error = nil, nil
	for name, sample := range map[string]struct {
		write func(w *jsonWriter)
		less  []string // not of this writer, or not of this sample
	}{
		"Task":                  {func(w *jsonWriter) { writeTask(w, task) }, nil},
		"Assignment":            {func(w *jsonWriter) { writeAssignment(w, given) }, nil},
		"Result":                {func(w *jsonWriter) { writeResult(w, task) }, []string{"index"}},
		"Attempt":               {func(w *jsonWriter) { writeAttempt(w, full(new(pb.Attempt))) }, nil},
		"Error":                 {func(w *jsonWriter) { writeError(w, full(new(pb.Error))) }, nil},
		"CreateResult":          {func(w *jsonWriter) { writeCreateResult(w, created) }, []string{"error"}},
		"SettleResult":          {func(w *jsonWriter) { writeSettleResult(w, settled) }, []string{"error"}},
		"HeartbeatResult":       {func(w *jsonWriter) { writeHeartbeatResult(w, full(new(pb.HeartbeatResult))) }, nil},
		"OpResult":              {func(w *jsonWriter) { writeOpResult(w, full(new(pb.OpResult))) }, nil},
		"QueueStats":            {func(w *jsonWriter) { writeQueueStats(w, full(new(pb.QueueStats))) }, nil},
		"QueueRates":            {func(w *jsonWriter) { writeQueueRates(w, full(new(pb.QueueRates))) }, nil},
		"QueueLimits":           {func(w *jsonWriter) { writeQueueLimits(w, full(new(pb.QueueLimits))) }, nil},
		"QueueConfig":           {func(w *jsonWriter) { writeQueueConfig(w, full(new(pb.QueueConfig))) }, nil},
		"KeyspaceStats":         {func(w *jsonWriter) { writeKeyspaceStats(w, full(new(pb.KeyspaceStats))) }, nil},
		"KeyspaceConfig":        {func(w *jsonWriter) { writeKeyspaceConfig(w, full(new(pb.KeyspaceConfig))) }, nil},
		"KeyspaceQuota":         {func(w *jsonWriter) { writeKeyspaceQuota(w, full(new(pb.KeyspaceQuota))) }, nil},
		"NamespaceConfig":       {func(w *jsonWriter) { writeNamespaceConfig(w, full(new(pb.NamespaceConfig))) }, nil},
		"ClusterStatusResponse": {func(w *jsonWriter) { writeClusterStatusResponse(w, full(new(pb.ClusterStatusResponse))) }, nil},
		"ClusterNode":           {func(w *jsonWriter) { writeClusterNode(w, full(new(pb.ClusterNode))) }, nil},
		"ClusterShard":          {func(w *jsonWriter) { writeClusterShard(w, full(new(pb.ClusterShard))) }, nil},
		"Overview":              {func(w *jsonWriter) { writeOverview(w, full(new(pb.Overview))) }, nil},
		"Attention":             {func(w *jsonWriter) { writeAttention(w, full(new(pb.Attention))) }, nil},
		"HistoryResponse":       {func(w *jsonWriter) { writeHistoryResponse(w, full(new(pb.HistoryResponse))) }, nil},
		"ClusterMember":         {func(w *jsonWriter) { writeClusterMember(w, full(new(pb.ClusterMember))) }, nil},
		"MemberJob":             {func(w *jsonWriter) { writeMemberJob(w, full(new(pb.MemberJob))) }, nil},
		"StatusResponse":        {func(w *jsonWriter) { writeStatusResponse(w, full(new(pb.StatusResponse))) }, nil},
	} {
		w := &jsonWriter{l: defaultLimits(t)}
		w.Open('{')
		sample.write(w)
		w.Close('}')
		got := make(map[string]json.RawMessage)
		if err := json.Unmarshal(w.B, &got); err != nil {
			t.Fatalf("%s: %s: %v", name, w.B, err)
		}
		for field := range c.Components.Schemas[name].Properties {
			_, written := got[field]
			other := slices.Contains(sample.less, field) || len(field) > 7 && field[len(field)-7:] == "_base64"
			if !written && !other {
				t.Errorf("%s: %s is in the document, and not written", name, field)
			}
		}
		for field := range maps.Keys(got) {
			if _, ok := c.Components.Schemas[name].Properties[field]; !ok {
				t.Errorf("%s: %s is written, and not in the document", name, field)
			}
		}
	}
}

func TestWhatIsNoJSONIsShownAsBase64(t *testing.T) {
	for _, c := range []struct{ content, contentType, want string }{
		{`{"b":1, "a":2}`, "application/json", `{"payload":{"b":1, "a":2}}`},
		{`12345678901234567890`, "", `{"payload":12345678901234567890}`},
		{`{"a":1}`, "text/plain", `{"payload_base64":"eyJhIjoxfQ=="}`},
		{`{"a":`, "application/json", `{"payload_base64":"eyJhIjo="}`},
		{`{"a":1} `, "application/json", `{"payload_base64":"eyJhIjoxfSA="}`}, // its last byte would be lost
		{"\n1", "application/json", `{"payload_base64":"CjE="}`},
		{`1 2`, "application/json", `{"payload_base64":"MSAy"}`},
		{"\"\xff\"", "application/json", `{"payload_base64":"Iv8i"}`},
		{"", "application/json", `{"payload_base64":""}`},
	} {
		w := &jsonWriter{l: defaultLimits(t)}
		w.Open('{')
		w.content("payload", []byte(c.content), c.contentType)
		w.Close('}')
		if string(w.B) != c.want {
			t.Errorf("%q of %q: %s, want %s", c.content, c.contentType, w.B, c.want)
		}
	}
}
