package place

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// vectors reads a file of proto/conformance, which the server and every other client read too.
func vectors(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "proto", "conformance", name))
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
func (v idVector) bare(t *testing.T) ID {
	t.Helper()
	low, err := strconv.ParseUint(v.Low, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ID{hi: v.MS<<16 | v.High, lo: low}
}

func TestPlacementIsAsTheVectorsSay(t *testing.T) {
	var file struct {
		Keys []struct {
			Key        string
			Bytes      []byte         `json:"key_base64"`
			Partitions map[string]int // by number of partitions
		}
		Tasks []struct {
			Tag, Key      string
			Unique        string `json:"unique_key"`
			ID            string
			Of, Partition int
		}
		TasksOfBatches []struct {
			Tag, Batch, ID string
			Of, Partition  int
		} `json:"tasks_of_batches"`
	}
	vectors(t, "placement.json", &file)
	if len(file.Keys) == 0 || len(file.Tasks) == 0 || len(file.TasksOfBatches) == 0 {
		t.Fatal("the file has no vectors")
	}
	for _, v := range file.Keys {
		key := append([]byte(v.Key), v.Bytes...)
		for text, want := range v.Partitions {
			of, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := Key(key, of), Key(string(key), of); a != want || b != want {
				t.Errorf("key %q is placed in partition %d of %d as bytes and %d as text, want %d", key, a, of, b, want)
			}
		}
	}
	for _, v := range file.Tasks {
		spec := &pb.TaskSpec{Tag: v.Tag, Key: v.Key, Id: v.ID}
		if v.Unique != "" {
			spec.Unique = &pb.Unique{Key: v.Unique}
		}
		if got, err := (Space{Partitions: v.Of}).Task(spec, -1); err != nil || got != v.Partition {
			t.Errorf("task %+v is placed in partition %d, %v", v, got, err)
		}
	}
	for _, v := range file.TasksOfBatches {
		if got, err := (Space{Partitions: v.Of}).Task(&pb.TaskSpec{Tag: v.Tag, Batch: v.Batch, Id: v.ID}, -1); err != nil || got != v.Partition {
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
		if read, ok := Parse(v.Text); !ok || read != id || id.String() != v.Text || id.Partition() != v.Partition {
			t.Errorf("%+v is written as %s, and read as %s, %v", v, id, read, ok)
		}
		for text, want := range v.PlacedIn {
			of, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := id.Home(of); got != want {
				t.Errorf("id %s is placed in partition %d of %d, want %d", id, got, of, want)
			}
		}
	}
	for _, v := range file.Placed {
		if id := v.bare(t).Placed(v.Partition, v.Of); id.String() != v.Text || id.Home(v.Of) != v.Partition {
			t.Errorf("%+v is made %s, which is placed in partition %d", v, id, id.Home(v.Of))
		}
	}
	for _, v := range file.ReadAs {
		if id, ok := Parse(v.Given); !ok || id.String() != v.Text {
			t.Errorf("%q is read as %s, %v, want %s", v.Given, id, ok, v.Text)
		}
	}
	for _, text := range file.Invalid {
		if id, ok := Parse(text); ok {
			t.Errorf("%q is read as %s", text, id)
		}
	}
}
