package core

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// vectors reads a file of proto/conformance, which every client reads too.
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
	MS        int64
	Partition uint16
	Low       string         `json:"random_low_hex"`
	High      byte           `json:"random_high"`
	PlacedIn  map[string]int `json:"placed_in"` // by number of partitions
	Of        int
}

func (v idVector) random(t *testing.T) (out [9]byte) {
	t.Helper()
	if n, err := hex.Decode(out[:8], []byte(v.Low)); err != nil || n != 8 {
		t.Fatalf("%s: %d bytes of %q, %v", v.Text, n, v.Low, err)
	}
	out[8] = v.High
	return out
}

// What is placed somewhere stays there for ever: these are the same in every client.
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
			if got := PlaceKey(key, of); int(got) != want {
				t.Errorf("key %q is placed in partition %d of %d, want %d", key, got, of, want)
			}
		}
	}
	for _, v := range file.Tasks {
		id, err := ParseTaskID(v.ID)
		if err != nil {
			t.Fatal(err)
		}
		op := TaskCreate{ID: id, Tag: v.Tag, Key: v.Key, Unique: Unique{Key: v.Unique}}
		if got := op.Place(v.Of); int(got) != v.Partition {
			t.Errorf("task %+v is placed in partition %d", v, got)
		}
	}
	for _, v := range file.TasksOfBatches {
		id, err := ParseTaskID(v.ID)
		batch, wrong := ParseTaskID(v.Batch)
		op := TaskCreate{ID: id, Tag: v.Tag, Batch: batch}
		if got := op.Place(v.Of); err != nil || wrong != nil || int(got) != v.Partition {
			t.Errorf("task %+v is placed in partition %d, %v, %v", v, got, err, wrong)
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
		id := NewTaskID(v.MS, v.Partition, v.random(t))
		if read, err := ParseTaskID(v.Text); err != nil || read != id || id.String() != v.Text || id.Partition() != v.Partition || id.Millis() != v.MS {
			t.Errorf("%+v is written as %s, and read as %s, %v", v, id, read, err)
		}
		for text, want := range v.PlacedIn {
			of, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := PlaceID(id, of); int(got) != want {
				t.Errorf("id %s is placed in partition %d of %d, want %d", id, got, of, want)
			}
		}
	}
	for _, v := range file.Placed {
		if id := PlacedID(v.MS, v.Partition, v.Of, v.random(t)); id.String() != v.Text || PlaceID(id, v.Of) != v.Partition {
			t.Errorf("%+v is made %s, which is placed in partition %d", v, id, PlaceID(id, v.Of))
		}
	}
	for _, v := range file.ReadAs {
		if id, err := ParseTaskID(v.Given); err != nil || id.String() != v.Text {
			t.Errorf("%q is read as %s, %v, want %s", v.Given, id, err, v.Text)
		}
	}
	for _, text := range file.Invalid {
		if id, err := ParseTaskID(text); err == nil {
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
		if got := CheckRefName(name); got != v.Rule {
			t.Errorf("%.80q: %q, want %q", name, got, v.Rule)
		}
	}
}
