package millrace

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

var update = flag.Bool("update", false, "write the vectors again")

// checkVectors holds a file of proto/conformance to what this package makes of the cases: with -update it is written.
func checkVectors(t *testing.T, name, about string, parts map[string][]any) {
	t.Helper()
	var b bytes.Buffer
	line := func(v any) {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteString("{\n  \"about\": ")
	line(about)
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		b.WriteString(",\n  \"" + part + "\": [")
		for i, v := range parts[part] {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString("\n    ")
			line(v)
		}
		b.WriteString("\n  ]")
	}
	b.WriteString("\n}\n")
	path := filepath.Join("..", "..", "proto", "conformance", name)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s differs from what the tests make: run this test with -update, and look at what has changed", name)
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
		if got := (&Error{Code: v.Code}).fault().Patience(); got != time.Duration(v.Seconds)*time.Second {
			t.Errorf("after %s a call is repeated for %v, want %d s", v.Code, got, v.Seconds)
		}
		for _, reason := range file.Never {
			if got := (&Error{Code: v.Code, Reason: reason}).fault().Patience(); got > retry.RefusedFor {
				t.Errorf("after %s, %s, a call is repeated for %v", v.Code, reason, got)
			}
		}
	}
	if len(known) > 0 {
		t.Errorf("the vectors lack codes: %v", known)
	}
}
