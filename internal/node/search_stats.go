package node

// SearchTotals is what the indexes of this node hold, over all collections.
type SearchTotals struct {
	Collections int
	Loading     int // of them, those whose index is still read from the store
	Points      int
	Rows        int   // with those that are no longer live
	Tail        int   // rows of large collections that their graphs do not cover yet
	Bytes       int64 // about
	Most        int64 // bytes beyond which no points are taken; 0 = no bound
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
