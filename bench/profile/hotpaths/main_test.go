package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/pprof/profile"
)

// write makes a profile of one function that was seen n times, in a program at a path.
func write(t *testing.T, path string, address uint64, n int64) {
	t.Helper()
	fn := &profile.Function{ID: 1, Name: "pkg.Hot", Filename: "pkg/hot.go"}
	m := &profile.Mapping{ID: 1, Start: 1, Limit: 1 << 20, File: "/home/me/millrace"}
	l := &profile.Location{ID: 1, Mapping: m, Address: address, Line: []profile.Line{{Function: fn, Line: 7}}}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}}, PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1,
		Sample:  []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{n}, Label: map[string][]string{"stage": {"gate"}}}},
		Mapping: []*profile.Mapping{m}, Location: []*profile.Location{l}, Function: []*profile.Function{fn}, TimeNanos: 5, DurationNanos: 6,
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestProfilesBecomeOneWithoutWhatBelongsToAMachine(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "server-1", profileName), 100, 3)
	write(t, filepath.Join(dir, "b", "driver", profileName), 200, 4)
	out := filepath.Join(dir, "out.pgo")
	if err := run(out, []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}); err != nil {
		t.Fatal(err)
	}
	got, err := read(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Sample) != 1 || got.Sample[0].Value[0] != 7 || got.Sample[0].Location[0].Line[0].Line != 7 {
		t.Errorf("%v", got)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	if text := raw.String(); bytes.Contains([]byte(text), []byte("/home/me")) || bytes.Contains([]byte(text), []byte("stage")) {
		t.Errorf("it tells of the machine: %s", text)
	}
}

func TestNoProfileIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := run(filepath.Join(dir, "out.pgo"), []string{dir}); err == nil {
		t.Error("a build would be optimised by nothing")
	}
	if err := os.WriteFile(filepath.Join(dir, profileName), []byte("no profile"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(filepath.Join(dir, "out.pgo"), []string{dir}); err == nil {
		t.Error("what cannot be read was passed over")
	}
}
