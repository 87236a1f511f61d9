package vector

import "unsafe"

// Bits is a set of rows, one bit for each.
type Bits []uint64

// Has says whether a row is in the set.
func (b Bits) Has(row uint32) bool {
	return int(row>>6) < len(b) && b[row>>6]>>(row&63)&1 == 1
}

// walk is what one walk works in, used again by later ones.
type walk struct {
	// seen has a bit for each row that was met on the current layer.
	seen []uint64
	pool pool
	// rows holds the nodes that were found and their copies, best first.
	rows pool
	// open are the keys of rows that do not pass, from which the walk may still go on: a heap with
	// the best on top.
	open []uint64
	// at and ways hold the nodes from which the next layer begins.
	at   []Hit
	ways []Hit
	// near, list, scales and sums are one node's neighbours: their rows, where their codes begin,
	// their scales and their raw sums.
	near   [bottomLinks]uint32
	list   [bottomLinks]*uint8
	scales [bottomLinks]float32
	sums   [bottomLinks]int32
}

// begin makes all rows unmet.
func (w *walk) begin(n int) {
	words := (n + 63) / 64
	if cap(w.seen) < words {
		w.seen = make([]uint64, words+words/8)
	}
	w.seen = w.seen[:words]
	clear(w.seen)
}

// meet reports whether a row is met for the first time.
func (w *walk) meet(row uint32) bool {
	word, bit := &w.seen[row>>6], uint64(1)<<(row&63)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// Search walks the graph and returns about the ef nearest nodes of the view that pass, best first, fewer where it finds
// fewer. Rows that do not pass are walked over and not returned. Rows that the graph does not cover are not looked at. It
// appends to dst.
func (g *Graph) Search(v *View, q *Query, ef int, pass Bits, dst []Hit) []Hit {
	from, top, ok := g.start()
	if !ok || int(from) >= v.n {
		return dst // the view is older than the first node of the top layer: the caller scans
	}
	w := g.walks.Get().(*walk)
	defer g.walks.Put(w)
	me := q.side()
	at := w.descend(g, v, me, from, top, 0)
	if g.copies.Load() == 0 {
		return w.layer(g, v, me, at, 0, ef, pass, dst)
	}
	w.walk(g, v, me, at, 0, ef, pass)
	return w.withCopies(g, v, me, ef, pass, dst)
}

// withCopies appends the ef best of the nodes that the walk found and of their copies, best first. Copies are as near
// as their node, so that none is looked at of a node that is behind all that are wanted.
func (w *walk) withCopies(g *Graph, v *View, me side, ef int, pass Bits, dst []Hit) []Hit {
	parts, alone := *g.chunks.Load(), 0
	for alone < len(w.pool.keys) && !g.hasCopies(parts, rowOf(w.pool.keys[alone])) {
		alone++
	}
	if alone == len(w.pool.keys) {
		return w.pool.hits(dst)
	}
	w.rows.begin(ef)
	w.rows.keys = append(w.rows.keys, w.pool.keys[:alone]...)
	for _, key := range w.pool.keys[alone:] {
		if key &^= marked; key < w.rows.least {
			break
		}
		node := rowOf(key)
		if pass == nil || pass.Has(node) {
			w.rows.addLater(key)
		}
		if !g.hasCopies(parts, node) {
			continue
		}
		for row, n := g.copyAfter(&parts, node), 0; row != 0; n = 0 {
			for ; row != 0 && n < len(w.near); row = g.copyAfter(&parts, row) {
				if int(row) < v.n && (pass == nil || pass.Has(row)) {
					w.near[n], w.list[n], w.scales[n] = row, v.codes(row), v.scale(row)
					fetch(w.list[n], v.stride/blockBytes)
					n++
				}
			}
			v.kernel.list(w.sums[:n], w.list[:n], me.codes)
			for i, row := range w.near[:n] {
				if key := keyOf(row, float32(w.sums[i]-me.fix)*me.scale*w.scales[i]); key > w.rows.least {
					w.rows.addLater(key)
				}
			}
		}
	}
	return w.rows.hits(dst)
}

// copyPasses says whether a copy that hangs on a node is in a set.
func (g *Graph) copyPasses(node uint32, pass Bits) bool {
	if g.copies.Load() == 0 {
		return false
	}
	parts := *g.chunks.Load()
	if !g.hasCopies(parts, node) {
		return false
	}
	for row := g.copyAfter(&parts, node); row != 0; row = g.copyAfter(&parts, row) {
		if pass.Has(row) {
			return true
		}
	}
	return false
}

// one scores a single row.
func (w *walk) one(v *View, me side, row uint32) Hit {
	var sum [1]int32
	w.list[0] = v.codes(row)
	v.kernel.list(sum[:], w.list[:1], me.codes)
	return Hit{row, float32(sum[0]-me.fix) * me.scale * v.scale(row)}
}

// descend goes from the entry to the best node that it meets on each layer above the given one, and on the last of those to some
// more: a query that is like no row has its nearest in several places, of which one way leads to one.
func (w *walk) descend(g *Graph, v *View, me side, from uint32, top, to int) []Hit {
	best := w.one(v, me, from)
	for layer := top; layer > to+1; layer-- {
		for moved := true; moved; {
			moved = false
			near := w.score(g, v, me, best.Row, layer, false)
			for i, row := range near {
				if h := (Hit{row, float32(w.sums[i]-me.fix) * me.scale * w.scales[i]}); h.Score > best.Score {
					best, moved = h, true
				}
			}
		}
	}
	w.at = append(w.at[:0], best)
	if top <= to {
		return w.at
	}
	w.ways = w.layer(g, v, me, w.at, to+1, waysIn, nil, w.ways[:0])
	return w.ways
}

// score computes the raw sums of a node's neighbours that the view has; with fresh only of those not met before. Nearly all of
// the time of a walk is waiting for memory, so what will be read is asked for before it is needed: rows while the list is gone
// through, and the links of the node that will be next unless a neighbour is nearer.
func (w *walk) score(g *Graph, v *View, me side, row uint32, layer int, fresh bool) []uint32 {
	near := neighbours(g.links(row, layer), w.near[:])
	n := 0
	for _, r := range near {
		if int(r) >= v.n || fresh && !w.meet(r) {
			continue
		}
		near[n], w.list[n], w.scales[n] = r, v.codes(r), v.scale(r)
		fetch(w.list[n], v.stride/blockBytes)
		n++
	}
	if key := w.next(); fresh && key != 0 {
		if next := g.links(rowOf(key), layer); next != nil {
			fetch((*uint8)(unsafe.Pointer(&next[0])), (4*len(next)+blockBytes-1)/blockBytes)
		}
	}
	v.kernel.list(w.sums[:n], w.list[:n], me.codes)
	return near[:n]
}

// layer walks one layer and appends the nodes that it found to dst, best first.
func (w *walk) layer(g *Graph, v *View, me side, from []Hit, layer, ef int, pass Bits, dst []Hit) []Hit {
	w.walk(g, v, me, from, layer, ef, pass)
	return w.pool.hits(dst)
}

// walk walks one layer from some nodes until nothing near is left that could be better than the ef best nodes that pass, or have
// copies that do. Those are in the pool then.
func (w *walk) walk(g *Graph, v *View, me side, from []Hit, layer, ef int, pass Bits) {
	w.begin(v.n)
	w.pool.begin(ef)
	w.open = w.open[:0]
	meet := func(row uint32, score float32) {
		switch key := keyOf(row, score); {
		case key < w.pool.least:
		case pass == nil || pass.Has(row) || g.copyPasses(row, pass):
			w.pool.add(key)
		default:
			w.push(key)
		}
	}
	for _, h := range from {
		if w.meet(h.Row) {
			meet(h.Row, h.Score)
		}
	}
	for {
		key := w.next()
		if key == 0 {
			return
		}
		w.take(key)
		near := w.score(g, v, me, rowOf(key), layer, true)
		for i, row := range near {
			meet(row, float32(w.sums[i]-me.fix)*me.scale*w.scales[i])
		}
	}
}

// next is the key of the best node that the walk has met and not gone on from, zero if none is left that could be near one that
// is wanted.
func (w *walk) next() uint64 {
	key := w.pool.best()
	if len(w.open) > 0 && w.open[0] > key && w.open[0] > w.pool.least {
		return w.open[0]
	}
	return key
}

// take has the walk go on from what next says.
func (w *walk) take(key uint64) {
	if key == w.pool.best() {
		w.pool.take()
		return
	}
	w.pop()
}

// push and pop keep open a heap.
func (w *walk) push(key uint64) {
	w.open = append(w.open, key)
	for i := len(w.open) - 1; i > 0; {
		up := (i - 1) / 2
		if w.open[up] > w.open[i] {
			break
		}
		w.open[i], w.open[up] = w.open[up], w.open[i]
		i = up
	}
}

func (w *walk) pop() {
	n := len(w.open) - 1
	w.open[0] = w.open[n]
	w.open = w.open[:n]
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			return
		}
		if down+1 < n && w.open[down+1] > w.open[down] {
			down++
		}
		if w.open[i] > w.open[down] {
			return
		}
		w.open[i], w.open[down] = w.open[down], w.open[i]
		i = down
	}
}
