package wal_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// BenchmarkAppend appends to the real disk, with fsync and without; each waiter has a shard and waits for its batch.
func BenchmarkAppend(b *testing.B) {
	for _, noSync := range []bool{false, true} {
		for _, waiters := range []int{1, 32} {
			b.Run(fmt.Sprintf("nosync=%v/waiters=%d", noSync, waiters), func(b *testing.B) {
				l, err := wal.Open(wal.Options{FS: replogtest.System(), Dir: b.TempDir(), NoSync: noSync})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				data := content(0, 1, 1, 1024)
				free := make(chan core.ShardID, waiters)
				last := make([]uint64, waiters)
				for s := range waiters {
					free <- core.ShardID(s)
				}
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					s := <-free
					last[s]++
					if err := l.Append(wal.Batch{
						Shard: s, Entries: []wal.Entry{{Index: last[s], Term: 1, Data: data}},
						Done: func(err error) {
							if err != nil {
								b.Error(err)
							}
							free <- s
						},
					}); err != nil {
						b.Fatal(err)
					}
					if last[s]%5000 == 0 {
						if err := l.Cut(s, last[s]-1000); err != nil {
							b.Fatal(err)
						}
					}
				}
				for range waiters {
					<-free
				}
				st := l.Stats()
				b.ReportMetric(float64(st.Entries)/float64(max(1, st.Batches)), "entries/batch")
			})
		}
	}
}
