package env_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

func TestReadFileReturnsAtMostWhatIsAskedFor(t *testing.T) {
	disk := replogtest.NewDisk()
	content := bytes.Repeat([]byte("0123456789"), 1000)
	for name, b := range map[string][]byte{"f": content, "empty": nil} {
		if err := replogtest.WriteFile(disk, name, b); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		most int64
		want []byte
	}{
		{"f", 1 << 40, content}, {"f", int64(len(content)), content}, {"f", 3, content[:3]}, {"f", 0, nil}, {"empty", 10, nil},
	} {
		got, err := env.ReadFile(disk, c.name, c.most)
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s up to %d: %d bytes, %v; want %d", c.name, c.most, len(got), err, len(c.want))
		}
	}
	if _, err := env.ReadFile(disk, "absent", 10); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestNamesOfDirectoriesOutliveAPowerCut(t *testing.T) {
	disk := replogtest.NewDisk()
	if err := errors.Join(disk.MkdirAll("begun"), disk.MkdirAll("made")); err != nil { // their maker ended before they were durable
		t.Fatal(err)
	}
	for _, dir := range []string{"begun/a/b", "made", "new/a"} {
		if err := env.MakeDirs(disk, dir); err != nil {
			t.Fatal(err)
		}
	}
	cut := disk.Crash(0, 1)
	for _, dir := range []string{"begun/a/b", "made", "new/a"} {
		if _, err := cut.List(dir); err != nil {
			t.Errorf("after a power cut: %v", err)
		}
	}
}
