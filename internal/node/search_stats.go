package node

// SearchTotals is what the indexes of this node hold, over all collections.
type SearchTotals struct {
	// Collections of all partitions that this node has.
	Collections int
	// Those of them whose index is still read from the store.
	Loading int
	// Points that searches can find.
	Points int
	// Rows of the indexes, with those that are no longer live.
	Rows int
	// Rows of large collections that their graphs do not cover yet.
	Tail int
	// Memory of the indexes, about.
	Bytes int64
	// Bytes beyond which no points are taken; 0 = no bound.
	Most int64
}

// SearchTotals adds up the indexes of this node.
func (n *Node) SearchTotals() SearchTotals {
	out := SearchTotals{Most: n.o.SearchBytes}
	for _, s := range n.shards {
		for _, c := range s.points.all() {
			st := c.index.Stats()
			out.Collections++
			if !c.loaded.Load() {
				out.Loading++
			}
			out.Points += st.Points
			out.Rows += st.Rows
			out.Tail += st.Tail
			out.Bytes += c.bytes()
		}
	}
	return out
}
