package queue

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// looks counts the rows that scans look at, those that were deleted too.
type looks struct {
	*machinetest.Txn
	deleted [][]byte
	passed  int
}

func (l *looks) Delete(key []byte) {
	l.deleted = append(l.deleted, key)
	l.Txn.Delete(key)
}

func (l *looks) Scan(from, to []byte, fn func(key, value []byte) bool) error {
	for _, key := range l.deleted {
		if string(key) >= string(from) && (to == nil || string(key) < string(to)) {
			l.passed++
		}
	}
	return l.Txn.Scan(from, to, fn)
}

// Many tasks that are due, or expire, in one instant take many ticks. Each must begin where the last one ended: a store passes the places
// of deleted rows one by one.
func TestTicksDoNotPassWhatOthersTook(t *testing.T) {
	const tasks, each = 2_000, 50
	for name, op := range map[string]core.TaskCreate{
		"by wall clock": {RunAt: epoch + 1000},
		"by shard time": {Delay: 1000},
		"that expire":   {ExpiresAt: epoch + 1000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.loose = true
			for i := range tasks {
				create := op
				create.ID, create.Queue = numbered(i), "q"
				w.do(&create)
			}
			l := &looks{Txn: w.tx}
			w.c.Stamp += 1000
			for ticks := 0; ; ticks++ {
				w.c.Index++
				_, more, err := w.m.Tick(l, &w.c, each)
				if err == nil {
					err = w.m.End(l, &w.c)
				}
				if err != nil {
					t.Fatal(err)
				}
				if !more {
					break
				}
				if ticks > tasks {
					t.Fatal("ticks never end")
				}
			}
			if n := w.m.ReadyCount("q"); op.ExpiresAt == 0 && n != tasks {
				t.Errorf("%d tasks are ready, want %d", n, tasks)
			}
			// What a tick deletes itself lies before the bound, and a few scans of it look for what is due next.
			if most := 20 * tasks; l.passed > most {
				t.Errorf("ticks passed %d deleted rows of %d tasks, want at most %d", l.passed, tasks, most)
			}
		})
	}
}
