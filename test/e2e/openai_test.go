package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A server whose embedder is another one's door for OpenAI's API makes the vectors that the other makes.
func TestMillraceIsAProviderOfVectorsForMillrace(t *testing.T) {
	t.Parallel()
	_, serving := serveWeb(t)
	first := serving()
	type embedded struct {
		Dim     int         `json:"dim"`
		Vectors [][]float64 `json:"vectors"`
	}
	ask := func(w web) (out embedded) {
		t.Helper()
		code, body := w.call("POST", "/v1/embed", `{"texts":["either everything happened","or nothing did"]}`)
		if err := json.Unmarshal([]byte(body), &out); code != 200 || err != nil {
			t.Fatalf("%d %s: %v", code, body, err)
		}
		return out
	}
	want := ask(first)
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "embedders.yaml")
	noErr(t, os.WriteFile(key, []byte(first.token), 0o600))
	noErr(t, os.WriteFile(file, fmt.Appendf(nil, "embedders:\n  - name: default\n    kind: openai\n    url: http://%s\n    model: default\n    dim: %d\n    key_file: %s\n",
		first.address, want.Dim, key), 0o600))
	_, serving = serveWeb(t, "--embedders", file)
	got := ask(serving())
	if got.Dim != want.Dim || len(got.Vectors) != len(want.Vectors) {
		t.Fatalf("%d vectors of %d numbers, want %d of %d", len(got.Vectors), got.Dim, len(want.Vectors), want.Dim)
	}
	for i, v := range want.Vectors {
		for k, x := range v {
			if math.Abs(x-got.Vectors[i][k]) > 1e-6 {
				t.Fatalf("number %d of vector %d is %v, want %v", k, i, got.Vectors[i][k], x)
			}
		}
	}
}
