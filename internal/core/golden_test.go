package core

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"strings"
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

// goldenEntry holds the encoding of an entry of one commit to a golden file, what that reads as, and the bound of its size.
func goldenEntry(t *testing.T, name string, e *Entry) {
	t.Helper()
	raw, err := hex.DecodeString(strings.TrimSpace(golden(t, name, hex.EncodeToString(AppendEntry(nil, e))+"\n")))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeEntry(raw); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("entry reads as %+v, %v", got, err)
	}
	if size := e.Commits[0].EncodedSize(); size < len(raw)-40 || size > 8*len(raw) {
		t.Errorf("the commit is bounded by %d bytes, and the entry has %d", size, len(raw))
	}
}
