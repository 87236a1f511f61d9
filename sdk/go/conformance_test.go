package millrace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// vectors reads a file of proto/conformance, which the server and every other client read too.
func vectors(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "proto", "conformance", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// idVector is a task id and what it is made of.
type idVector struct {
	Text      string
	MS        uint64
	Partition int
	Low       string         `json:"random_low_hex"`
	High      uint64         `json:"random_high"`
	PlacedIn  map[string]int `json:"placed_in"` // by number of partitions
	Of        int
}

// bare is the id with its partition bits open.
func (v idVector) bare(t *testing.T) taskID {
	t.Helper()
	low, err := strconv.ParseUint(v.Low, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return taskID{hi: v.MS<<16 | v.High, lo: low}
}

func TestPlacementIsAsTheVectorsSay(t *testing.T) {
	var file struct {
		Keys []struct {
			Key        string
			Bytes      []byte         `json:"key_base64"`
			Partitions map[string]int // by number of partitions
		}
		Tasks []struct {
			Tag           string
			Unique        string `json:"unique_key"`
			ID            string
			Of, Partition int
		}
	}
	vectors(t, "placement.json", &file)
	if len(file.Keys) == 0 || len(file.Tasks) == 0 {
		t.Fatal("the file has no vectors")
	}
	for _, v := range file.Keys {
		key := append([]byte(v.Key), v.Bytes...)
		for text, want := range v.Partitions {
			of, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := placeKey(key, of), placeKey(string(key), of); a != want || b != want {
				t.Errorf("key %q is placed in partition %d of %d as bytes and %d as text, want %d", key, a, of, b, want)
			}
		}
	}
	for _, v := range file.Tasks {
		spec := &pb.TaskSpec{Tag: v.Tag, Id: v.ID}
		if v.Unique != "" {
			spec.Unique = &pb.Unique{Key: v.Unique}
		}
		if got, err := placeTask(spec, v.Of, -1); err != nil || got != v.Partition {
			t.Errorf("task %+v is placed in partition %d, %v", v, got, err)
		}
	}
}

func TestTaskIDsAreAsTheVectorsSay(t *testing.T) {
	var file struct {
		IDs, Placed []idVector
		ReadAs      []struct{ Given, Text string } `json:"read_as"`
		Invalid     []string
	}
	vectors(t, "task_ids.json", &file)
	if len(file.IDs) == 0 || len(file.Placed) == 0 || len(file.ReadAs) == 0 || len(file.Invalid) == 0 {
		t.Fatal("the file lacks vectors")
	}
	for _, v := range file.IDs {
		id := v.bare(t).with(v.Partition)
		if read, ok := parseID(v.Text); !ok || read != id || id.String() != v.Text || id.partition() != v.Partition {
			t.Errorf("%+v is written as %s, and read as %s, %v", v, id, read, ok)
		}
		for text, want := range v.PlacedIn {
			of, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := id.place(of); got != want {
				t.Errorf("id %s is placed in partition %d of %d, want %d", id, got, of, want)
			}
		}
	}
	for _, v := range file.Placed {
		if id := v.bare(t).placed(v.Partition, v.Of); id.String() != v.Text || id.place(v.Of) != v.Partition {
			t.Errorf("%+v is made %s, which is placed in partition %d", v, id, id.place(v.Of))
		}
	}
	for _, v := range file.ReadAs {
		if id, ok := parseID(v.Given); !ok || id.String() != v.Text {
			t.Errorf("%q is read as %s, %v, want %s", v.Given, id, ok, v.Text)
		}
	}
	for _, text := range file.Invalid {
		if id, ok := parseID(text); ok {
			t.Errorf("%q is read as %s", text, id)
		}
	}
}

func TestNamesOfRefsAreJudgedAsTheVectorsSay(t *testing.T) {
	var file struct {
		Names []struct {
			Name  string
			Bytes []byte `json:"name_base64"`
			Times int    // how often the name is repeated after Prefix; 0: it is the name
			Rule  string // that it breaks; empty: it is a name of a ref

			Prefix string
		}
	}
	vectors(t, "ref_names.json", &file)
	if len(file.Names) == 0 {
		t.Fatal("the file has no vectors")
	}
	for _, v := range file.Names {
		name := v.Name + string(v.Bytes)
		for range max(v.Times-1, 0) {
			name += v.Name
		}
		name = v.Prefix + name
		if got := RefNameRule(name); got != v.Rule {
			t.Errorf("%.80q: %q, want %q", name, got, v.Rule)
		}
	}
}

func TestCallsAreRepeatedAsTheVectorsSay(t *testing.T) {
	var file struct {
		Codes []struct {
			Code    Code
			Seconds int `json:"repeat_seconds"`
		}
		Never []string `json:"no_repeat_reasons"`
	}
	vectors(t, "errors.json", &file)
	known := map[Code]bool{
		CodeInvalidArgument: true, CodeTooLarge: true, CodeUnauthenticated: true, CodePermissionDenied: true, CodeNotFound: true,
		CodeAlreadyExists: true, CodeLeaseLost: true, CodeWrongState: true, CodePreconditionFailed: true, CodeWrongPartition: true,
		CodeRateLimited: true, CodeResourceExhausted: true, CodeNotLeader: true, CodeUnavailable: true, CodeDeadlineExceeded: true,
		CodeInternal: true, CodeDataLoss: true,
	}
	for _, v := range file.Codes {
		if !known[v.Code] {
			t.Errorf("code %s has no constant", v.Code)
		}
		delete(known, v.Code)
		if got := (&Error{Code: v.Code}).patience(); got != time.Duration(v.Seconds)*time.Second {
			t.Errorf("after %s a call is repeated for %v, want %d s", v.Code, got, v.Seconds)
		}
		for _, reason := range file.Never {
			if got := (&Error{Code: v.Code, Reason: reason}).patience(); got > retry.RefusedFor {
				t.Errorf("after %s, %s, a call is repeated for %v", v.Code, reason, got)
			}
		}
	}
	if len(known) > 0 {
		t.Errorf("the vectors lack codes: %v", known)
	}
}
