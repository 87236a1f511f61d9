package wal_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

var rewrite = flag.Bool("rewrite", false, "write testdata again: only for a new format version")

// golden is a log with every kind of record, and what it holds.
func golden(t *testing.T) (*replogtest.Disk, model) {
	t.Helper()
	disk, clock, m := replogtest.NewDisk(), &replogtest.HandClock{}, model{}
	o := small(disk)
	o.Clock = clock
	l := open(t, o)
	do := func(b wal.Batch) {
		put(t, l, b)
		m.shard(b.Shard).put(b)
	}
	do(wal.Batch{Shard: 0, HardState: hardState(1, 0), Entries: entries(0, 1, 3, 1, 40)})
	do(wal.Batch{Shard: 2, HardState: hardState(1, 0)})
	l.Close()
	l = open(t, o) // its first group is an opening with two shards and three entries written again
	do(wal.Batch{Shard: 0, HardState: hardState(2, 2), Entries: entries(0, 3, 5, 2, 30)})
	if err := l.Cut(0, 2); err != nil {
		t.Fatal(err)
	}
	do(wal.Batch{Shard: 2, Entries: entries(2, 1, 1, 3, 25)})
	m.shard(0).cutTo(2)
	l.ResetTo(7, 1000, 4, hardState(4, 1000), nil)
	l.Step()
	m[7] = &modelShard{hard: hardState(4, 1000), cut: 1000, cutTerm: 4}
	clock.Advance(time.Second)
	l.Step()
	l.Close()
	return disk, m
}

func TestFormatIsTheOneOfTheFirstRelease(t *testing.T) {
	disk, m := golden(t)
	end := tip(t, disk).End
	for _, name := range []string{"LOG", "0000000002.wal"} {
		got, err := replogtest.ReadFile(disk, dir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		got = got[:min(len(got), int(end))]
		path := filepath.Join("testdata", "v1", name)
		if *rewrite {
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is written otherwise than in testdata:\n% x\nwant\n% x", name, got, want)
		}
	}
	old := replogtest.NewDisk()
	if err := old.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LOG", "0000000002.wal"} {
		b, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := replogtest.WriteFile(old, dir+"/"+name, b); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, small(old))
	defer l.Close()
	if d := m.diff(t, l, true); d != "" {
		t.Error(d)
	}
}
