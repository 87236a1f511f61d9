package wal

import (
	"encoding/binary"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// FuzzReplay reads a segment whose checksums are right and whose records say anything.
func FuzzReplay(f *testing.F) {
	record := func(b []byte, shard, kind, flags byte, payload []byte) []byte {
		return append(append(b, shard, kind, flags, byte(len(payload))), payload...)
	}
	good := record(nil, 0, kindOpening, flagOpening|flagMore, appendOpening(nil, opening{}))
	good = record(good, 1, kindShard, flagOpening, appendShard(nil, ShardState{CutIndex: 3, Last: 9, HardState: []byte("h")}))
	good = record(good, 1, kindEntry, flagMore, appendEntry(nil, Entry{Index: 10, Term: 2, Data: []byte("data")}))
	good = record(good, 1, kindHardState, 0, []byte("h"))
	good = record(good, 1, kindCut, 0, appendPair(nil, 9, 2))
	good = record(good, 1, kindRewrite, 0, appendEntry(nil, Entry{Index: 10, Term: 2, Data: []byte("data")}))
	good = record(good, 2, kindReset, 0, appendPair(nil, 7, 1))
	good = record(good, 0, kindSeal, 0, nil)
	f.Add(good)
	f.Add(record(nil, 0, kindOpening, flagOpening, binary.LittleEndian.AppendUint64(nil, 1<<63)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var m mark
		e := encoder{segment: 1, batch: 1}
		b := appendSegmentHeader(nil, 1, m.salt)
		for len(in) >= 4 {
			n := min(int(in[3]), len(in)-4)
			e.flags = in[2] & (flagMore | flagOpening)
			e.buf = e.buf[:0]
			e.begin(n, core.ShardID(in[0]), in[1], false)
			e.buf = append(e.buf, in[4:4+n]...)
			finish(e.buf, m.salt.seed())
			b = append(b, e.buf...)
			in = in[4+n:]
			e.batch, e.synced = e.batch+1, e.batch
		}
		disk := replogtest.NewDisk()
		if err := disk.MkdirAll("/wal"); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{markName: m.encode(), segmentName(1): b} {
			if err := replogtest.WriteFile(disk, "/wal/"+name, content); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Check(disk, "/wal"); err != nil {
			t.Fatal(err)
		}
		o := Options{FS: disk, Dir: "/wal", Clock: &replogtest.HandClock{}, SegmentBytes: minSegmentBytes, Manual: true}
		l, err := Open(o)
		if err != nil {
			return // refused
		}
		for _, s := range l.Shards() {
			st := l.State(s)
			if st.Last < st.CutIndex || st.First != st.CutIndex+1 {
				t.Fatalf("shard %d: %+v", s, st)
			}
			if st.Last >= st.First {
				if _, err := l.Entries(s, st.First, st.Last+1, 1<<20); err != nil {
					t.Fatalf("shard %d: %v", s, err)
				}
			}
		}
		_ = l.Close()
		if l, err = Open(o); err != nil {
			t.Fatalf("opened once and then not: %v", err)
		}
		_ = l.Close()
	})
}
