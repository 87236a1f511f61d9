package rest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
)

func TestStatusesAreAsTheVectorsSay(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "proto", "conformance", "errors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Codes []struct {
			Code string
			GRPC codes.Code
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Codes) != len(restStatuses) {
		t.Errorf("there are vectors for %d codes, want %d", len(file.Codes), len(restStatuses))
	}
	for _, v := range file.Codes {
		if got, ok := restStatuses[v.Code]; !ok || got != v.GRPC {
			t.Errorf("%s has the status %v, want %v", v.Code, got, v.GRPC)
		}
	}
}
