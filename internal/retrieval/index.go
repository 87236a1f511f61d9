package retrieval

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/vector"
)

// Index holds the live points of one collection and partition for searching. It is safe for concurrent use: changes are
// applied by one caller at a time, searches run in parallel and see a batch of changes wholly or not at all.
type Index struct {
	// schema, dim, kernel, graphs and scan do not change.
	schema *Schema
	dim    int
	kernel *vector.Kernel
	graphs bool // the metric is one that graphs work for
	// scan is how many bytes of codes the kernel compares as fast as it walks a graph of them. A
	// larger collection gets a graph.
	scan int64

	// mu guards in and all that it holds, except what inner says to be read without a lock.
	mu sync.RWMutex
	in *inner
}

// inner is the content of an index. Rows are only appended: a point that changes gets a new row, and its old one is no
// longer live. What a live row has never changes, so that searches read it without the lock; sets and maps do change.
type inner struct {
	view
	vectors *vector.Rows
	// graph covers the first rows; nil while there are few. BuildGraph alone grows it, without the
	// lock.
	graph *vector.Graph
	// live are the rows of the points that there are, and byID is the row of each by its id.
	live *roaring.Bitmap
	byID map[string]uint32
	// lexicon is the words of the text fields.
	lexicon *lexicon
	sets    []*sets // by field; nil where the type has no keywords
	// expiry is by field and credential; nil where the type is not credentials.
	expiry []map[string]*expiry
	// dead is how many rows are no longer live. They stay until Compact.
	dead  int
	bytes int64 // of payloads, ids and columns, about
}

// view is the rows of an index at one instant, as far as they never change.
type view struct {
	vectors  vector.View
	ids      cells[string]
	versions cells[uint64]
	payloads cells[[]byte]
	words    cells[[]occurrence] // of the text fields, by number
	lengths  cells[uint16]       // words of the text fields
	cols     []column
}

// Change is a new or changed point, or one that is gone. Version is the version of the point, which
// results return.
type Change struct {
	ID      string
	Gone    bool
	Version uint64
	Vector  []byte // float32, little-endian
	Payload []byte // kept; not changed by the caller
}

// NewIndex returns an index without points. The definition is one that the machine has taken.
func NewIndex(def *core.Collection, kernel *vector.Kernel) (*Index, error) {
	s, err := NewSchema(def.Fields)
	if err != nil {
		return nil, err
	}
	s.texts = def.Texts
	x := &Index{
		schema: s, dim: int(def.Dim), kernel: kernel, scan: kernel.ScanBytes(),
		graphs: def.Metric != core.MetricDot, // of vectors of many lengths the nearest are not neighbours of each other
	}
	x.in = x.newInner()
	return x, nil
}

// newInner returns an index without rows, with room for each field by its type.
func (x *Index) newInner() *inner {
	n := len(x.schema.fields)
	in := &inner{
		vectors: vector.NewRows(x.kernel, x.dim), live: roaring.New(), byID: make(map[string]uint32), lexicon: newLexicon(),
		sets: make([]*sets, n), expiry: make([]map[string]*expiry, n),
	}
	in.cols = make([]column, n)
	for i := range x.schema.fields {
		switch x.schema.fields[i].Type {
		case core.FieldKeyword, core.FieldKeywords:
			in.sets[i] = newSets()
		case core.FieldCredential:
			in.sets[i], in.expiry[i] = newSets(), make(map[string]*expiry)
		}
	}
	return in
}

// Schema returns the declared fields.
func (x *Index) Schema() *Schema { return x.schema }

// Apply makes changes in order, visible to searches all at once. A point whose bytes make no sense
// (the machine and the edge have checked them) is taken out, so that no search finds it, and
// reported; the others are applied. Payloads are read before the lock is taken, so that searches
// wait for the appending alone.
func (x *Index) Apply(changes []Change) error {
	rows, texts := make([][]value, len(changes)), make([]text, len(changes))
	floats := make([][]float32, len(changes))
	var fault error
	for i := range changes {
		c := &changes[i]
		if c.Gone {
			continue
		}
		// A point that cannot be read keeps nil in rows, as one that is gone does, and gets no new
		// row below.
		values, err := x.schema.parse(c.Payload)
		if err == nil && len(c.Vector) != 4*x.dim {
			err = fmt.Errorf("a vector of %d bytes, want %d", len(c.Vector), 4*x.dim)
		}
		if err != nil {
			fault = fmt.Errorf("point %s: %w", c.ID, err)
			continue
		}
		rows[i], floats[i], texts[i] = values, Floats(c.Vector), x.schema.spell(c.Payload)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		x.in.remove(x.schema, c.ID)
		if rows[i] != nil {
			x.in.append(x.schema, c, floats[i], rows[i], texts[i])
		}
	}
	return fault
}

// Floats reads float32 numbers, little-endian.
func Floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// append adds the next row, for a point that has no live row. The caller holds the lock for
// writing, or is the only one to know the index.
func (in *inner) append(s *Schema, c *Change, vec []float32, values []value, t text) {
	row := in.vectors.Append(vec)
	in.ids.set(row, c.ID)
	in.versions.set(row, c.Version)
	in.payloads.set(row, c.Payload)
	in.byID[c.ID] = row
	words, bytes := in.lexicon.add(row, t)
	in.words.set(row, words)
	in.lengths.set(row, t.length)
	for i := range values {
		if !s.kept(i) {
			continue
		}
		t := s.fields[i].Type
		in.cols[i].put(t, in.sets[i], row, &values[i])
		if t == core.FieldCredential {
			in.addExpiry(i, row, in.cols[i].creds.at(row))
		}
	}
	in.live.Add(row)
	in.bytes += int64(len(c.Payload)+len(c.ID)+rowOverhead+16*len(values)) + bytes
}

// addExpiry notes when a row's credentials end; of one that it holds twice the later end counts.
func (in *inner) addExpiry(field int, row uint32, list []Credential) {
	for i := range list {
		if end := holdsUntil(list, list[i].ID); end != never && end == list[i].Expires {
			e := in.expiry[field][list[i].ID]
			if e == nil {
				e = &expiry{}
				in.expiry[field][list[i].ID] = e
			}
			e.add(row, end)
		}
	}
}

// holdsUntil returns the latest end of a credential in a list; below all times if it is not there.
func holdsUntil(list []Credential, id string) int64 {
	end := int64(math.MinInt64)
	for i := range list {
		if list[i].ID == id {
			end = max(end, list[i].Expires)
		}
	}
	return end
}

// rowOverhead is about how many bytes a row takes besides its values, vector and payload: id, version and map entry.
const rowOverhead = 120

// remove takes a point's row out of everything that searches begin with.
func (in *inner) remove(s *Schema, id string) {
	row, ok := in.byID[id]
	if !ok {
		return
	}
	delete(in.byID, id)
	in.live.Remove(row)
	in.lexicon.drop(in.words.at(row), in.lengths.at(row))
	for i := range in.cols {
		if in.sets[i] != nil && s.kept(i) {
			in.cols[i].drop(s.fields[i].Type, in.sets[i], row)
		}
	}
	in.dead++
}

// Stats says what an index holds.
type Stats struct {
	Points int
	Rows   int   // with those that are no longer live
	Graph  int   // rows that the graph covers; 0: there is none
	Tail   int   // rows that the graph does not cover yet, if the collection is large enough for one
	Bytes  int64 // about
}

// Stats returns the sizes now.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	in := x.in
	out := Stats{Points: len(in.byID), Rows: len(in.byID) + in.dead, Bytes: in.bytes + in.vectors.Bytes()}
	switch {
	case in.graph != nil:
		out.Graph = int(in.graph.Built())
		out.Tail = out.Rows - out.Graph
		out.Bytes += in.graph.Bytes()
	case x.large(out.Points):
		out.Tail = out.Rows
	}
	return out
}

// PointBytes is about what a point will take in memory.
func (x *Index) PointBytes(payload int) int64 {
	return vector.RowBytes(x.dim) + int64(payload+rowOverhead+16*len(x.schema.fields))
}

// Distinct returns how many keywords the fullest field has.
func (x *Index) Distinct() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := 0
	for _, s := range x.in.sets {
		if s != nil {
			n = max(n, len(s.rows))
		}
	}
	return n
}

// Point is a live point as an index holds it.
type Point struct {
	ID      string
	Version uint64
	Vector  []float32
	Payload []byte
}

// Get returns a live point.
func (x *Index) Get(id string) (Point, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	row, ok := x.in.byID[id]
	if !ok {
		return Point{}, false
	}
	v := x.in.vectors.View()
	return Point{ID: id, Version: x.in.versions.at(row), Vector: v.Floats(row), Payload: x.in.payloads.at(row)}, true
}

// snapshot returns the rows as they are; the caller holds the index for reading.
func (in *inner) snapshot() view { return in.snapshotIn(nil) }

// snapshotIn is snapshot with the columns in a slice that is used again.
func (in *inner) snapshotIn(cols []column) view {
	out := in.view
	out.vectors = in.vectors.View()
	out.cols = append(cols[:0], in.cols...)
	return out
}

// copyRow appends a row of another index's view. It cuts the texts into words again, since words
// have other numbers here.
func (in *inner) copyRow(s *Schema, from *view, row uint32) {
	values := make([]value, len(from.cols))
	for i := range values {
		if !s.kept(i) {
			continue
		}
		values[i] = from.cols[i].value(s.fields[i].Type, row)
	}
	c := Change{ID: from.ids.at(row), Version: from.versions.at(row), Payload: from.payloads.at(row)}
	in.append(s, &c, from.vectors.Floats(row), values, s.spell(c.Payload))
}
