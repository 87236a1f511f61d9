package retrieval

import (
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/millrace/millrace/internal/core"
)

// chunkRows is how many rows a piece of a column has. Pieces never move, so that searches can read during appends.
const chunkRows = 1024

// cells is a column of T that only grows. A copy is a view of the rows that were there.
type cells[T any] struct{ chunks []*[chunkRows]T }

// set stores the value of a new row. Rows come in the order of their numbers, so at most one chunk
// is missing.
func (c *cells[T]) set(row uint32, v T) {
	if int(row/chunkRows) == len(c.chunks) {
		c.chunks = append(c.chunks, new([chunkRows]T))
	}
	c.chunks[row/chunkRows][row%chunkRows] = v
}

func (c *cells[T]) at(row uint32) T { return c.chunks[row/chunkRows][row%chunkRows] }

// missing stands for no value in columns of integers, which never hold it.
const missing = math.MinInt64

// column is one field of all rows. Only the part of its type is used. Cells are never changed once a row is visible.
type column struct {
	// ints holds int, bool as 0 and 1, and time in nanoseconds since 1970. A row without a value
	// has missing.
	ints   cells[int64]
	floats cells[float64] // NaN is missing
	// words holds the place of a keyword in dict plus 1; 0 is missing.
	words cells[uint32]
	// dict has each keyword of the column once, in the order in which they came. It only grows, so
	// that what a view has of it stays good.
	dict  []string
	lists cells[[]string] // nil is missing
	// creds are the credentials of a row, those that have ended included; nil is missing.
	creds  cells[[]Credential]
	places cells[[2]float64] // NaN is missing
}

// sets are the rows by keyword of a field. They change with the live rows.
type sets struct {
	// rows are the live rows of each keyword. A keyword that no live row has is not in the map: a
	// role counts as known while it is there.
	rows map[string]*roaring.Bitmap
	// places are the places in the column's dict, of keywords that were ever there.
	places map[string]uint32
}

func newSets() *sets {
	return &sets{rows: make(map[string]*roaring.Bitmap), places: make(map[string]uint32)}
}

// add puts a row into the set of a keyword.
func (s *sets) add(word string, row uint32) {
	b := s.rows[word]
	if b == nil {
		b = roaring.New()
		s.rows[word] = b
	}
	b.Add(row)
}

// remove takes a row out of the set of a keyword, and deletes a set that is empty.
func (s *sets) remove(word string, row uint32) {
	if b := s.rows[word]; b != nil {
		if b.Remove(row); b.IsEmpty() {
			delete(s.rows, word)
		}
	}
}

// put stores a value of a new row, and the row in the sets of its keywords.
func (c *column) put(t core.FieldType, s *sets, row uint32, v *value) {
	switch t {
	case core.FieldInt, core.FieldBool, core.FieldTime:
		if !v.has {
			v.num = missing
		}
		c.ints.set(row, v.num)
	case core.FieldFloat:
		if !v.has {
			v.float = math.NaN()
		}
		c.floats.set(row, v.float)
	case core.FieldGeo:
		if !v.has {
			v.place[0] = math.NaN()
		}
		c.places.set(row, v.place)
	case core.FieldKeyword:
		c.putWord(s, row, v)
	case core.FieldKeywords:
		var list []string
		if v.has {
			list = make([]string, len(v.list))
			for i, w := range v.list {
				list[i] = c.word(s, w)
				s.add(list[i], row)
			}
		}
		c.lists.set(row, list)
	case core.FieldCredential:
		var list []Credential
		if v.has {
			list = v.creds
			for i := range list {
				list[i].ID = c.word(s, list[i].ID)
				s.add(list[i].ID, row)
			}
		}
		c.creds.set(row, list)
	}
}

// putWord stores a keyword as its place in the dictionary, and the row in its set.
func (c *column) putWord(s *sets, row uint32, v *value) {
	if !v.has {
		c.words.set(row, 0)
		return
	}
	word := c.word(s, v.str)
	c.words.set(row, s.places[word]+1)
	s.add(word, row)
}

// word returns the one copy of a keyword that the column keeps.
func (c *column) word(s *sets, w string) string {
	if i, ok := s.places[w]; ok {
		return c.dict[i]
	}
	s.places[w] = uint32(len(c.dict))
	c.dict = append(c.dict, w)
	return w
}

// drop takes a row that is no longer live out of the sets. The column keeps the row's values: a
// search that has begun may still read them.
func (c *column) drop(t core.FieldType, s *sets, row uint32) {
	switch t {
	case core.FieldKeyword:
		if i := c.words.at(row); i > 0 {
			s.remove(c.dict[i-1], row)
		}
	case core.FieldKeywords:
		for _, w := range c.lists.at(row) {
			s.remove(w, row)
		}
	case core.FieldCredential:
		for _, k := range c.creds.at(row) {
			s.remove(k.ID, row)
		}
	}
}

// value reads a row back, to rebuild an index.
func (c *column) value(t core.FieldType, row uint32) (v value) {
	switch t {
	case core.FieldInt, core.FieldBool, core.FieldTime:
		v.num = c.ints.at(row)
		v.has = v.num != missing
	case core.FieldFloat:
		v.float = c.floats.at(row)
		v.has = v.float == v.float
	case core.FieldGeo:
		v.place = c.places.at(row)
		v.has = v.place[0] == v.place[0]
	case core.FieldKeyword:
		if i := c.words.at(row); i > 0 {
			v.has, v.str = true, c.dict[i-1]
		}
	case core.FieldKeywords:
		v.list = c.lists.at(row)
		v.has = v.list != nil
	case core.FieldCredential:
		v.creds = slices.Clone(c.creds.at(row))
		v.has = v.creds != nil
	}
	return v
}
