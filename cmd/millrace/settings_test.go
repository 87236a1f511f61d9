package main

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/reference/config.md again")

// TestTheReferenceListsEverySetting holds docs/reference/config.md to what the binary prints.
func TestTheReferenceListsEverySetting(t *testing.T) {
	const file = "../../docs/reference/config.md"
	var out, errOut bytes.Buffer
	if code := execute(&interrupts{ctx: t.Context()}, []string{"serve", "--settings"}, nil, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(have, out.Bytes()) {
		t.Errorf("%s is not what millrace serve --settings prints (err %v): go test ./cmd/millrace -run TestTheReference -update", file, err)
	}
	a := &app{}
	a.serveCmd().Flags().VisitAll(func(f *pflag.Flag) {
		if (!f.Hidden || f.Name == "limit-grpc-message") && !bytes.Contains(have, []byte("`--"+f.Name+"`")) &&
			f.Name != "config" && f.Name != "limits" && f.Name != "settings" {
			t.Errorf("--%s is not in %s", f.Name, file)
		}
	})
}
