package live

import (
	"strconv"

	"github.com/millrace/millrace/internal/strictjson"
)

// frame returns the event that leads from a tick to now. Each is encoded once, however many get it. The hub's mutex is held.
func (t *topic) frame(node string, from uint64) Frame {
	// Rows that were gone before floor are not known: who has an older state gets a whole one.
	if from <= t.floor {
		from = 0
	}
	f, ok := t.frames[from]
	if !ok {
		f = Frame{Topic: t.key.Name, tick: t.tick, Bytes: t.encode(node, from)}
		t.frames[from] = f
	}
	return f
}

// encode writes an event: all rows where from is 0, else those that have changed since.
func (t *topic) encode(node string, from uint64) []byte {
	var w strictjson.Writer
	w.B = append(w.B, "id: "+node+"-"...)
	w.B = strconv.AppendUint(w.B, t.tick, 10)
	w.B = append(w.B, "\nevent: "+t.key.Name+"\ndata: "...)
	w.Open('{')
	w.Str("topic", t.key.Name)
	w.Time("stamp", t.last.Stamp)
	w.List("at", len(t.last.At), func(i int) {
		at := t.last.At[i]
		w.Open('{')
		w.Count("partition", uint64(at.Partition))
		w.Exact("index", at.Index)
		w.Close('}')
	})
	w.OptBool("whole", from == 0)
	w.OptBool("partial", t.last.Partial)
	var rows [][]byte
	for _, r := range t.last.Rows {
		if t.rows[r.ID].tick > from {
			rows = append(rows, r.JSON)
		}
	}
	w.List("rows", len(rows), func(i int) { w.Raw(rows[i]) })
	if from > 0 {
		if gone := t.goneSince(from); len(gone) > 0 {
			w.Strings("gone", gone)
		}
	}
	w.Close('}')
	return append(w.B, "\n\n"...)
}
