package vector

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Shape of a graph: fixed, for what a build costs and what a walk finds depend on it together. Nodes rarely have as many links
// as they may: the room is for those that many others are near to, which would lose ways to the rest.
const (
	upperLinks  = 16  // of a node on each layer above the lowest, and chosen by a new node
	bottomLinks = 64  // of a node on the lowest layer
	buildWidth  = 200 // candidates that a new node chooses its neighbours from
	waysIn      = 24  // nodes from which the walk of a layer begins
	maxLevel    = 15
)

// Copies are rows whose codes differ by at most a copyPart of their length, squared: less than what rounding to codes
// hides. Of the candidates of a new row, the best copyTried may be what it is a copy of.
const (
	copyPart  = 1 << 15
	copyTried = 16
)

// Together is how many rows Build adds at a time at most. Their neighbours are looked for at once.
const Together = 64

// graphChunk is how many nodes a piece of the graph has; pieces never move.
const graphChunk = 1024

// Graph links each row to some that are near it, on layers of which each has a sixteenth of the nodes of the one below,
// so that a search walks to the nearest rows without looking at most of them. Source: Malkov and Yashunin 2018,
// Hierarchical Navigable Small World graphs, with their heuristic for choosing neighbours (algorithm 4), without which
// clusters lose their connections.
//
// Rows that are copies of each other share one node, the first of them; the others hang on it as a list. As nodes of their own
// they would fill the links of their neighbours, which all lead to the same place, and nothing would lead to the rest.
//
// One call of Build at a time; searches may walk during it. A walk that meets a list of links while it is rewritten sees
// links of before and after, which all lead to nodes: nothing is locked. Rows that are no longer live stay in the graph
// as ways to others.
type Graph struct {
	// chunks are the pieces, graphChunk nodes each, by row number. The list is replaced when it
	// grows; the pieces stay.
	chunks atomic.Pointer[[]*graphPart]
	entry  atomic.Uint64 // row and level of where walks begin, plus one in the highest bit; 0: no node
	built  atomic.Uint32 // rows below are nodes, or were dead when they came up
	// nodes is how many nodes there are, and copies how many rows hang on one. Both only grow.
	nodes  atomic.Uint32
	copies atomic.Uint32 // rows that hang on a node
	// walks are idle *walk, for searches.
	walks sync.Pool
	// builders are what nodes were built with.
	builders sync.Pool
}

// graphPart is the links of some nodes: a count and then rows, for the lowest layer.
type graphPart struct {
	bottom [graphChunk * (bottomLinks + 1)]uint32
	upper  [graphChunk]atomic.Pointer[upperLayers]
	copies [graphChunk]uint32 // the next row that hangs on the same node, 0 after the last one: row 0 hangs on none
	// hung has a bit for each node on which rows hang: few bytes, which stay in the processor's cache.
	hung [graphChunk / 64]uint64
}

// upperLayers are a node's links from layer 1 on: a count and then rows, one layer after another.
type upperLayers struct{ links []uint32 }

// NewGraph returns a graph without nodes.
func NewGraph() *Graph {
	g := &Graph{
		walks:    sync.Pool{New: func() any { return new(walk) }},
		builders: sync.Pool{New: func() any { return &builder{walk: new(walk)} }},
	}
	g.chunks.Store(&[]*graphPart{})
	return g
}

// Built is how many rows, from the first on, the graph covers. Later ones have to be scanned.
func (g *Graph) Built() uint32 { return g.built.Load() }

// Bytes is about the memory that the graph takes.
func (g *Graph) Bytes() int64 {
	return int64(len(*g.chunks.Load()))*(graphChunk*(4*(bottomLinks+1)+8+4)+graphChunk/8) + int64(g.nodes.Load())*(upperLinks+1)*4/15
}

// links returns the list of a node on a layer, or nil if it is not there. Its first number is the count.
func (g *Graph) links(row uint32, layer int) []uint32 {
	parts := *g.chunks.Load()
	if int(row/graphChunk) >= len(parts) {
		return nil
	}
	p, at := parts[row/graphChunk], int(row%graphChunk)
	if layer == 0 {
		return p.bottom[at*(bottomLinks+1) : (at+1)*(bottomLinks+1)]
	}
	up := p.upper[at].Load()
	if up == nil || len(up.links) < layer*(upperLinks+1) {
		return nil
	}
	return up.links[(layer-1)*(upperLinks+1) : layer*(upperLinks+1)]
}

// copyAfter returns the next row of a node's list of copies, 0 if there is none. The list begins at the node. Parts are
// those of the graph as they were read; a row of a later part came meanwhile, and they are read again.
func (g *Graph) copyAfter(parts *[]*graphPart, row uint32) uint32 {
	if int(row/graphChunk) >= len(*parts) {
		*parts = *g.chunks.Load()
	}
	return atomic.LoadUint32(&(*parts)[row/graphChunk].copies[row%graphChunk])
}

// hasCopies reports whether rows hang on a node.
func (g *Graph) hasCopies(parts []*graphPart, row uint32) bool {
	if int(row/graphChunk) >= len(parts) {
		return true // it came meanwhile: its list says so
	}
	return atomic.LoadUint64(&parts[row/graphChunk].hung[row%graphChunk/64])&(1<<(row%64)) != 0
}

// hang adds a copy to a node's list, at its beginning: a walk through the list meanwhile meets it or does not.
func (g *Graph) hang(row, node uint32) {
	g.room(row, 0)
	parts := *g.chunks.Load()
	first := &parts[node/graphChunk].copies[node%graphChunk]
	atomic.StoreUint32(&parts[row/graphChunk].copies[row%graphChunk], atomic.LoadUint32(first))
	atomic.StoreUint32(first, row)
	atomic.OrUint64(&parts[node/graphChunk].hung[node%graphChunk/64], 1<<(node%64))
	g.copies.Add(1)
}

// neighbours copies a list.
func neighbours(list []uint32, to []uint32) []uint32 {
	if list == nil {
		return to[:0]
	}
	n := min(int(atomic.LoadUint32(&list[0])), len(list)-1)
	to = to[:n]
	for i := range to {
		to[i] = atomic.LoadUint32(&list[i+1])
	}
	return to
}

// write replaces a list. Its rows become visible before its count grows.
func write(list []uint32, rows []Hit) {
	for i, h := range rows {
		atomic.StoreUint32(&list[i+1], h.Row)
	}
	atomic.StoreUint32(&list[0], uint32(len(rows)))
}

// levelOf is the highest layer of a node: a sixteenth of all keys reaches each next one.
func levelOf(key uint64) int { return min(bits.TrailingZeros64(key)/4, maxLevel) }

// Build adds at most limit of the view's next rows, and no more than Together, and returns how many it went over. Key is a hash
// of the row's id, which decides its level; live says whether the row is still wanted. Each calls do for every number below n and
// returns when all are done, in any order or at once: the graph is the same.
func (g *Graph) Build(v *View, limit int, key func(row uint32) uint64, live func(row uint32) bool, each func(n int, do func(i int))) int {
	first := g.built.Load()
	done := min(limit, Together, v.n-int(first))
	if done <= 0 {
		return 0
	}
	b := &batchBuild{graph: g, view: v}
	for row := first; row < first+uint32(done); row++ {
		if live(row) {
			b.rows = append(b.rows, newNode{row: row, level: levelOf(key(row))})
		}
	}
	if len(b.rows) > 0 {
		b.add(each)
	}
	g.built.Store(first + uint32(done))
	return done
}

// room makes place for a node.
func (g *Graph) room(row uint32, level int) {
	parts := *g.chunks.Load()
	for int(row/graphChunk) >= len(parts) {
		grown := append(parts[:len(parts):len(parts)], new(graphPart))
		g.chunks.Store(&grown)
		parts = grown
	}
	if level > 0 {
		parts[row/graphChunk].upper[row%graphChunk].Store(&upperLayers{make([]uint32, level*(upperLinks+1))})
	}
}

// entrySet is set in every entry, which tells row 0 on layer 0 from an entry that is not there.
const entrySet = 1 << 63

// packEntry makes one number of a node and its highest layer, so that a walk reads both at once.
func packEntry(row uint32, level int) uint64 { return entrySet | uint64(level)<<32 | uint64(row) }

// start returns the node where walks begin and its highest layer. ok is false while there are no
// nodes.
func (g *Graph) start() (row uint32, level int, ok bool) {
	e := g.entry.Load()
	return uint32(e), int(e &^ entrySet >> 32), e != 0
}

// batchBuild adds some rows: it looks for the neighbours of all of them in the graph as it is, and among those of them that come
// before, and links them then, one after another.
type batchBuild struct {
	graph *Graph
	view  *View
	// rows are the live rows of this call in ascending order, at most Together.
	rows []newNode
}

// newNode is a row that becomes a node, and the neighbours that it chose, by layer; or a copy.
type newNode struct {
	row   uint32
	level int
	// near are the neighbours that it chose, by layer from the lowest, at most upperLinks on each.
	near   [][]Hit
	copies bool   // the row hangs on a node
	of     uint32 // that node
}

// builder is what one goroutine looks for neighbours with, or links nodes.
type builder struct {
	graph *Graph
	view  *View
	walk  *walk
	codes [MaxDim]int8 // of the row whose neighbours are compared
	other [MaxDim]int8
	// Room that is used again: found has the candidates of a layer, links what a row is compared
	// with (its mates, or the links of an older node), chose the result of the last choose.
	found []Hit
	links []Hit
	chose []Hit
	near  [bottomLinks + 1]uint32
}

// load makes a row's codes the query of comparisons.
func (v *View) load(row uint32, to *[MaxDim]int8) side {
	c := v.chunks[row>>v.shift]
	at := int(row) & (1<<v.shift - 1)
	from, out := c.codes[at*v.stride:(at+1)*v.stride], to[:v.stride]
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), v.stride)
	for i := 0; i < v.stride; i += 8 { // the stride is a multiple of 64
		const biases = 0x8080808080808080
		binary.LittleEndian.PutUint64(bytes[i:], binary.LittleEndian.Uint64(from[i:])^biases)
	}
	return side{codes: out, scale: c.scales[at], fix: c.fixes[at]}
}

// side is what rows are compared with: a query or another row.
type side struct {
	codes []int8
	scale float32
	fix   int32
}

func (q *Query) side() side { return side{q.codes, q.scale, q.fix} }

// square is the sum of the squares of the codes.
func (s side) square() int64 { return squareOf(s.codes) }

// builder takes a builder from the pool; done gives it back.
func (b *batchBuild) builder() *builder {
	w := b.graph.builders.Get().(*builder)
	w.graph, w.view = b.graph, b.view
	return w
}

// done returns w to the pool. It holds on to no graph or view.
func (b *batchBuild) done(w *builder) {
	w.graph, w.view = nil, nil
	b.graph.builders.Put(w)
}

// add works in two phases. First each row looks for its neighbours, in parallel, and nothing
// changes. Then the rows are settled and linked one after another, in the order of their numbers.
// So the graph does not depend on how the first phase is spread over goroutines.
func (b *batchBuild) add(each func(n int, do func(i int))) {
	from, top, ok := b.graph.start()
	each(len(b.rows), func(i int) {
		w := b.builder()
		defer b.done(w)
		if !ok {
			w.seek(b.rows, i, 0, -1)
		} else {
			w.seek(b.rows, i, from, top)
		}
	})
	w := b.builder()
	defer b.done(w)
	for i := range b.rows {
		n := &b.rows[i]
		w.settle(b.rows[:i], n)
		if n.copies {
			b.graph.hang(n.row, n.of)
		} else {
			w.insert(n)
		}
	}
}

// seek chooses the neighbours of rows[i]. Walks begin at a node whose highest layer is top; −1: there is none.
func (b *builder) seek(rows []newNode, i int, from uint32, top int) {
	n := &rows[i]
	n.near = make([][]Hit, n.level+1)
	me := b.view.load(n.row, &b.codes)
	mates := b.mates(rows[:i], me)
	var at []Hit
	if top >= 0 {
		at = b.walk.descend(b.graph, b.view, me, from, top, n.level)
	}
	for layer := n.level; layer >= 0; layer-- {
		b.found = b.found[:0]
		if layer <= top {
			b.found = b.walk.layer(b.graph, b.view, me, at, layer, buildWidth, nil, b.found)
			at = append(at[:0], b.found...)
		}
		known := len(b.found)
		for j, h := range mates {
			if rows[j].level >= layer {
				b.found = append(b.found, h)
			}
		}
		if len(b.found) > known {
			slices.SortFunc(b.found, nearestFirst)
		}
		n.near[layer] = slices.Clone(b.choose(b.found[:min(len(b.found), buildWidth)], upperLinks))
	}
	n.of, n.copies = b.original(b.found, me)
}

// original finds, among candidates of the lowest layer, best first, one that a row is a copy of.
func (b *builder) original(candidates []Hit, me side) (row uint32, ok bool) {
	n := 0
	self := me.square()
	least := float32(self-self/64) * me.scale * me.scale // a copy is not farther, at any length that it may have
	for n < min(copyTried, len(candidates)) && candidates[n].Score >= least {
		n++
	}
	for _, c := range candidates[:n] {
		if b.copyOf(me, self, c.Row) {
			return c.Row, true
		}
	}
	return 0, false
}

// copyOf says whether a row, the square of whose codes is self, is a copy of another one.
func (b *builder) copyOf(me side, self int64, row uint32) bool {
	other := b.view.load(row, &b.other)
	if apart := me.scale - other.scale; max(apart, -apart)*128 > me.scale {
		return false
	}
	var sum [1]int32
	at := [1]*uint8{b.view.codes(row)}
	b.view.kernel.list(sum[:], at[:], me.codes)
	apart := self + other.square() - 2*int64(sum[0]-me.fix)
	return apart*copyPart <= self
}

// settle decides what a new row is, now that those before it are settled: copies hang on nodes, and links lead to nodes.
func (b *builder) settle(before []newNode, n *newNode) {
	if n.copies {
		if mate := settled(before, n.of); mate != nil && mate.copies {
			me := b.view.load(n.row, &b.codes)
			n.of = mate.of
			n.copies = b.copyOf(me, me.square(), n.of)
		}
	}
	if n.copies {
		return
	}
	for layer, near := range n.near {
		kept := near[:0]
		for _, h := range near {
			if mate := settled(before, h.Row); mate != nil && mate.copies {
				if h.Row = mate.of; layer > 0 {
					continue // which need not be there
				}
			}
			if !slices.ContainsFunc(kept, func(other Hit) bool { return other.Row == h.Row }) {
				kept = append(kept, h)
			}
		}
		n.near[layer] = kept
	}
}

// settled finds a row among those that are added together.
func settled(rows []newNode, row uint32) *newNode {
	at, ok := slices.BinarySearchFunc(rows, row, func(n newNode, row uint32) int { return cmp.Compare(n.row, row) })
	if !ok {
		return nil
	}
	return &rows[at]
}

// mates compares a row with those that are added together with it, before it.
func (b *builder) mates(rows []newNode, me side) []Hit {
	var at [Together]*uint8
	var sums [Together]int32
	for i := range rows {
		at[i] = b.view.codes(rows[i].row)
	}
	b.view.kernel.list(sums[:len(rows)], at[:len(rows)], me.codes)
	b.links = b.links[:0]
	for i := range rows {
		b.links = append(b.links, Hit{rows[i].row, float32(sums[i]-me.fix) * me.scale * b.view.scale(rows[i].row)})
	}
	return b.links
}

// nearestFirst orders hits for sorting: higher scores first, and of equal ones the earlier row.
func nearestFirst(a, b Hit) int {
	switch {
	case worse(a, b):
		return 1
	case worse(b, a):
		return -1
	}
	return 0
}

// insert makes a row a node whose neighbours are chosen.
func (b *builder) insert(n *newNode) {
	g := b.graph
	g.room(n.row, n.level)
	g.nodes.Add(1)
	for layer, near := range n.near {
		write(g.links(n.row, layer), near)
		for _, h := range near {
			b.connect(h.Row, Hit{Row: n.row, Score: h.Score}, layer)
		}
	}
	if _, top, ok := g.start(); !ok || n.level > top {
		g.entry.Store(packEntry(n.row, n.level))
	}
}

// choose takes of candidates, best first, at most limit of which none is nearer to one that was taken than to the node:
// so links lead in all directions.
func (b *builder) choose(candidates []Hit, limit int) []Hit {
	b.chose = b.chose[:0]
	var at [bottomLinks]*uint8
	var sums [bottomLinks]int32
	for _, c := range candidates {
		if len(b.chose) == limit {
			break
		}
		n := len(b.chose)
		c2 := b.view.load(c.Row, &b.other)
		b.view.kernel.list(sums[:n], at[:n], c2.codes)
		taken := true
		for i := range n {
			if float32(sums[i]-c2.fix)*c2.scale*b.view.scale(b.chose[i].Row) > c.Score {
				taken = false
				break
			}
		}
		if taken {
			at[n] = b.view.codes(c.Row)
			b.chose = append(b.chose, c)
		}
	}
	return b.chose
}

// connect links an older node back to a new one. If the older node has no room, it chooses again among its links.
func (b *builder) connect(row uint32, to Hit, layer int) {
	list := b.graph.links(row, layer)
	if list == nil {
		return
	}
	room := len(list) - 1
	near := neighbours(list, b.near[:])
	if len(near) < room {
		atomic.StoreUint32(&list[len(near)+1], to.Row)
		atomic.StoreUint32(&list[0], uint32(len(near)+1))
		return
	}
	var at [bottomLinks]*uint8
	var sums [bottomLinks]int32
	me := b.view.load(row, &b.codes)
	for i, n := range near {
		at[i] = b.view.codes(n)
	}
	b.view.kernel.list(sums[:len(near)], at[:len(near)], me.codes)
	all := newBest(b.links[:0], room+1)
	all.add(to)
	for i, n := range near {
		all.add(Hit{n, float32(sums[i]-me.fix) * me.scale * b.view.scale(n)})
	}
	b.links = all.sorted()
	write(list, b.choose(b.links, room))
}
