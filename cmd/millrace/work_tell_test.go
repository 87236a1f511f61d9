package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// What a worker lacked for a moment, such as descriptors, is tried again: a first try leaves nothing in the way of the second.
func TestPipesAreMadeAgainAfterATryThatFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := &runner{a: &app{err: io.Discard}}
	if err := os.WriteFile(filepath.Join(dir, "progress"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tell(new(millrace.Task), dir); err == nil {
		t.Fatal("a pipe was made where a file is")
	}
	_ = os.Remove(filepath.Join(dir, "progress")) // whether or not the first try has
	told, err := r.tell(new(millrace.Task), dir)
	if err != nil {
		t.Fatal(err)
	}
	told.end(true)
}
