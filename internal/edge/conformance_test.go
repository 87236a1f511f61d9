package edge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
)

// TestStatusesAreAsTheVectorsSay holds the table of statuses against the file that every client reads too.
func TestStatusesAreAsTheVectorsSay(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "proto", "conformance", "errors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Codes []struct {
			Code string
			GRPC codes.Code
			HTTP int
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	type status struct {
		grpc codes.Code
		http int
	}
	want := map[string]status{}
	for _, v := range file.Codes {
		want[v.Code] = status{v.GRPC, v.HTTP}
	}
	n := 0
	for _, r := range statuses {
		if r.code == 0 {
			continue
		}
		n++
		if got := (status{r.GRPC, r.HTTP}); got != want[r.code.String()] {
			t.Errorf("%s leaves with %v, want %v", r.code, got, want[r.code.String()])
		}
	}
	if n != len(want) {
		t.Errorf("there are %d codes and vectors for %d", n, len(want))
	}
}
