package core

import (
	"os"
	"path/filepath"
	"testing"
)

// golden holds what is encoded today to a file of testdata, and returns what the file has. With -update it writes the file first.
func golden(t *testing.T, name, got string) (want string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(b) {
		t.Errorf("the encoding of %s changed: logs and stores written before cannot be read\ngot  %s\nwant %s", name, got, b)
	}
	return string(b)
}
