package retrieval

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/rules"
	"github.com/millrace/millrace/internal/vector"
)

// Gate is the hard conditions of a search. The zero value lets every row pass.
type Gate struct {
	Roles          []string // a row holds one of them
	AnyRole        bool     // roles are not asked for
	CredentialsAll []string // a row holds each, beyond ValidAt
	ValidAt        time.Time
	Client         string // is in no block list of the row; empty = none
	IDsIn          []string
	HasIDsIn       bool // IDsIn is given, be it empty
	IDsNotIn       []string
	Filter         string
	Params         map[string]any // see rules.Inputs
}

// Counts says where rows were stopped, each at the first condition that it fails.
type Counts struct {
	// Considered is how many points are live. It is the sum of all the other counts.
	Considered int
	Passed     int
	IDs        int
	Role       int
	Credential int
	Block      int
	Filter     int
}

// UnknownRole refuses a role that no row holds, and names some that are spelled alike.
type UnknownRole struct {
	Role string
	Near []string // at most 3
}

// Error names the role.
func (e *UnknownRole) Error() string { return fmt.Sprintf("no point has the role %q", e.Role) }

// ErrNoRoleField refuses roles where the schema has no field of roles.
var ErrNoRoleField = errors.New("the collection has no field with gate: role")

// ErrStopped says that a search was told to stop.
var ErrStopped = errors.New("the search was stopped")

// gated is what a gate left.
type gated struct {
	view view
	// rows are those that pass, ascending; nil while only bits are known. The two are one set, and
	// list and set make each of the other.
	rows []uint32
	bits vector.Bits
	// graph is what the search walks; nil: it scans.
	graph  *vector.Graph
	counts Counts
}

// filter compiles and binds the condition of a gate; nil if it has none.
func (s *Schema) filter(g *Gate) (*rules.BoundFilter, error) {
	if g.Filter == "" {
		return nil, rules.CheckParams(g.Params)
	}
	f, err := s.rules.Filter(g.Filter)
	if err != nil {
		return nil, err
	}
	return f.Bind(g.inputs())
}

// inputs are what expressions of this search see in addition to the row.
func (g *Gate) inputs() *rules.Inputs {
	return &rules.Inputs{
		Params: g.Params, Roles: g.Roles, Credentials: g.CredentialsAll, Client: g.Client, Now: g.ValidAt,
	}
}

// pass evaluates a gate: all but the rest of the filter by sets of rows under the lock. Rows and columns go where buf has
// room for them, and stay good until it is used again.
func (x *Index) pass(g *Gate, lex *lexical, buf *scratch, stop func() bool) (*gated, error) {
	filter, err := x.schema.filter(g)
	if err != nil {
		return nil, err
	}
	out, err := x.passSets(g, filter, lex, buf)
	if err != nil {
		return nil, err
	}
	c := &out.counts
	if filter != nil && filter.HasRest() {
		if !out.passRest(g, filter, stop) {
			return nil, ErrStopped
		}
		c.Passed = len(out.rows)
		if out.graph != nil && !x.walks(c) {
			out.graph = nil
		}
	}
	c.Filter = c.Considered - c.IDs - c.Role - c.Credential - c.Block - c.Passed
	return out, nil
}

// rowset is a set of rows that conditions make smaller. The first one copies it, for it begins as the live rows.
type rowset struct {
	rows *roaring.Bitmap
	// own says that rows is this set's own copy, which may be changed in place.
	own bool
}

// and keeps the rows that are in b too.
func (s *rowset) and(b *roaring.Bitmap) {
	if !s.own {
		s.rows, s.own = roaring.And(s.rows, b), true
		return
	}
	s.rows.And(b)
}

// andNot removes the rows that are in b.
func (s *rowset) andNot(b *roaring.Bitmap) {
	if !s.own {
		s.rows, s.own = roaring.AndNot(s.rows, b), true
		return
	}
	s.rows.AndNot(b)
}

// list appends the rows in order to buf, from its start.
func (s *rowset) list(buf []uint32) []uint32 {
	n := int(s.rows.GetCardinality())
	buf = slices.Grow(buf[:0], n)[:n]
	return buf[:s.rows.ManyIterator().NextMany(buf)]
}

// passSets takes the view and the rows that pass every condition that is a set of rows, and with lex what is known of the words
// of the query.
//
// One read lock covers the view, the sets and the words, so all of them are of one instant and
// agree with each other. The conditions run in the order of Counts, and step notes how many rows
// each of them removed. Before the first condition the set is not the search's own: no row was
// removed, and no row needs to be counted.
func (x *Index) passSets(g *Gate, filter *rules.BoundFilter, lex *lexical, buf *scratch) (*gated, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	in := x.in
	if err := in.knowsRoles(x.schema, g); err != nil {
		return nil, err
	}
	out := &gated{view: in.snapshotIn(buf.cols)}
	buf.cols = out.view.cols
	if lex != nil {
		lex.capture(in)
	}
	set := &rowset{rows: in.live}
	left := len(in.byID)
	out.counts.Considered = left
	step := func(count *int) {
		if set.own {
			n := int(set.rows.GetCardinality())
			*count, left = left-n, n
		}
	}
	in.passIDs(set, g)
	step(&out.counts.IDs)
	in.passRoles(set, x.schema, g)
	step(&out.counts.Role)
	in.passCredentials(set, x.schema, g)
	step(&out.counts.Credential)
	in.passBlocks(set, x.schema, g)
	step(&out.counts.Block)
	if filter != nil {
		for _, p := range filter.Probes() {
			set.and(in.holding(p.Field, p.Words))
		}
	}
	out.counts.Passed = int(set.rows.GetCardinality())
	if in.graph != nil && x.walks(&out.counts) {
		out.graph = in.graph
	}
	if out.graph != nil && (filter == nil || !filter.HasRest()) {
		out.bits = set.rows.ToDense()
		return out, nil
	}
	out.rows = set.list(buf.rows)
	buf.rows = out.rows
	return out, nil
}

// walks says whether enough rows pass for a walk to be faster than a scan: too many for the kernel, and at least one in twenty,
// since a walk has to step over those that do not.
func (x *Index) walks(c *Counts) bool {
	return x.large(c.Passed) && 20*c.Passed >= c.Considered
}

// list makes rows of bits, for a scan.
func (x *gated) list() []uint32 {
	if x.rows == nil && x.bits != nil {
		x.rows = make([]uint32, 0, x.counts.Passed)
		for i, word := range x.bits {
			for ; word != 0; word &= word - 1 {
				x.rows = append(x.rows, uint32(i<<6+bits.TrailingZeros64(word)))
			}
		}
	}
	return x.rows
}

// set makes bits of rows, for a walk.
func (x *gated) set() vector.Bits {
	if x.bits == nil && len(x.rows) > 0 {
		x.bits = make(vector.Bits, x.rows[len(x.rows)-1]>>6+1)
		for _, row := range x.rows {
			x.bits[row>>6] |= 1 << (row & 63)
		}
	}
	return x.bits
}

// tail returns the rows from the first that the graph does not cover.
func (x *gated) tail(from uint32) (out []uint32) {
	for i := int(from >> 6); i < len(x.bits); i++ {
		word := x.bits[i]
		if i == int(from>>6) {
			word &= ^uint64(0) << (from & 63)
		}
		for ; word != 0; word &= word - 1 {
			out = append(out, uint32(i<<6+bits.TrailingZeros64(word)))
		}
	}
	return out
}

// passIDs keeps the points that the gate names, and removes those that it excludes.
func (in *inner) passIDs(set *rowset, g *Gate) {
	rowsOf := func(ids []string) *roaring.Bitmap {
		b := roaring.New()
		for _, id := range ids {
			if row, ok := in.byID[id]; ok {
				b.Add(row)
			}
		}
		return b
	}
	if g.HasIDsIn {
		set.and(rowsOf(g.IDsIn))
	}
	if len(g.IDsNotIn) > 0 {
		set.andNot(rowsOf(g.IDsNotIn))
	}
}

// knowsRoles refuses roles that no live point has.
func (in *inner) knowsRoles(s *Schema, g *Gate) error {
	if g.AnyRole || len(g.Roles) == 0 {
		return nil
	}
	fields := s.gates(core.GateRole)
	if len(fields) == 0 {
		return ErrNoRoleField
	}
	for _, role := range g.Roles {
		known := slices.ContainsFunc(fields, func(f int) bool { return in.sets[f].rows[role] != nil })
		if !known {
			return &UnknownRole{Role: role, Near: in.nearRoles(fields, role)}
		}
	}
	return nil
}

// gates returns the fields that have a part in the gate.
func (s *Schema) gates(g core.Gate) []int {
	var out []int
	for i := range s.fields {
		if s.fields[i].Gate == g {
			out = append(out, i)
		}
	}
	return out
}

// passRoles keeps rows that hold one of the roles in one of the fields of roles.
func (in *inner) passRoles(set *rowset, s *Schema, g *Gate) {
	if g.AnyRole || len(g.Roles) == 0 {
		return
	}
	fields := s.gates(core.GateRole)
	if len(fields) == 1 {
		set.and(in.holding(fields[0], g.Roles))
		return
	}
	any := roaring.New()
	for _, f := range fields {
		any.Or(in.holding(f, g.Roles))
	}
	set.and(any)
}

// holding returns the rows whose field has one of the words; it must not be changed.
func (in *inner) holding(field int, words []string) *roaring.Bitmap {
	var one *roaring.Bitmap
	for i, w := range words {
		b := in.sets[field].rows[w]
		switch {
		case b == nil || slices.Contains(words[:i], w):
		case one == nil && len(words) == 1:
			return b
		case one == nil:
			one = b.Clone()
		default:
			one.Or(b)
		}
	}
	if one == nil {
		return roaring.New()
	}
	return one
}

// passCredentials keeps rows that hold each of the credentials beyond the instant of the search. Of
// several fields of credentials, one that holds it is enough.
func (in *inner) passCredentials(set *rowset, s *Schema, g *Gate) {
	fields := s.gates(core.GateCredential)
	at := g.ValidAt.UnixNano()
	for _, id := range g.CredentialsAll {
		var any *roaring.Bitmap
		for _, f := range fields {
			holds := in.sets[f].rows[id]
			if holds == nil {
				continue
			}
			valid := roaring.And(set.rows, holds)
			if e := in.expiry[f][id]; e != nil {
				e.strike(valid, at)
			}
			if any == nil {
				any = valid
			} else {
				any.Or(valid)
			}
		}
		if any == nil {
			any = roaring.New()
		}
		set.rows, set.own = any, true
	}
}

// passBlocks removes rows whose block list names the client.
func (in *inner) passBlocks(set *rowset, s *Schema, g *Gate) {
	if g.Client == "" {
		return
	}
	for _, f := range s.gates(core.GateBlock) {
		if b := in.sets[f].rows[g.Client]; b != nil {
			set.andNot(b)
		}
	}
}

// passRest evaluates, row by row, the parts of the filter that are not precomputed row sets. It
// asks stop every 16 rows, and returns false if it was stopped; rows is of no use then.
func (x *gated) passRest(g *Gate, filter *rules.BoundFilter, stop func() bool) bool {
	row := &cursor{view: &x.view, now: g.ValidAt.UnixNano()}
	kept := x.rows[:0]
	for i, r := range x.rows {
		if i&15 == 15 && stop != nil && stop() {
			return false
		}
		row.row = r
		if filter.Rest(row) {
			kept = append(kept, r)
		}
	}
	x.rows = kept
	return true
}

// cursor is one row as rules read it.
type cursor struct {
	view *view
	row  uint32
	// now is the instant of the search, in nanoseconds since 1970: credentials that end by then are
	// not held.
	now int64
	// held is the list that the last Strings of a field of credentials returned. It is used again.
	held []string
}

// Int reads int, bool and time.
func (c *cursor) Int(f int) (int64, bool) {
	v := c.view.cols[f].ints.at(c.row)
	return v, v != missing
}

// Float reads float.
func (c *cursor) Float(f int) (float64, bool) {
	v := c.view.cols[f].floats.at(c.row)
	return v, v == v
}

// String reads keyword.
func (c *cursor) String(f int) (string, bool) {
	col := &c.view.cols[f]
	i := col.words.at(c.row)
	if i == 0 {
		return "", false
	}
	return col.dict[i-1], true
}

// Strings reads keywords, and the credentials that have not ended.
func (c *cursor) Strings(f int) ([]string, bool) {
	col := &c.view.cols[f]
	if col.lists.chunks != nil {
		v := col.lists.at(c.row)
		return v, v != nil
	}
	list := col.creds.at(c.row)
	c.held = c.held[:0]
	for i := range list {
		if list[i].Expires > c.now {
			c.held = append(c.held, list[i].ID)
		}
	}
	return c.held, list != nil
}

// Geo reads a place.
func (c *cursor) Geo(f int) ([2]float64, bool) {
	v := c.view.cols[f].places.at(c.row)
	return v, v[0] == v[0]
}

// Count evaluates a gate and returns its counts alone.
func (x *Index) Count(g *Gate, stop func() bool) (Counts, error) {
	buf := scratches.Get().(*scratch)
	defer buf.release()
	out, err := x.pass(g, nil, buf, stop)
	if err != nil {
		return Counts{}, err
	}
	return out.counts, nil
}
