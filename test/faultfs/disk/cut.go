package disk

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// Cut is what a power cut took, and what of the rest it left.
type Cut struct {
	SectorsLost int `json:"sectors_lost"`
	SectorsKept int `json:"sectors_kept"`
	NamesLost   int `json:"names_lost"`
	NamesKept   int `json:"names_kept"`
}

// Cut cuts the power: sessions end, their calls under way fail, and what was not synced is gone but for a share of it, in
// percent, drawn from a seed. No process may rely on an answer that comes after that: processes are killed first, while Freeze
// keeps them from what happens here.
func (d *Disk) Cut(seed uint64, share int) (c Cut, err error) {
	d.Shut()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boots++
	r := rand.New(rand.NewPCG(seed, uint64(share)))
	nodes := sortedNodes(d.nodes)
	d.cutNames(nodes, r, share, &c)
	for _, n := range nodes {
		n.held = 0
		if n.file == nil {
			continue
		}
		if err := n.cut(r, share, &c); err != nil {
			return c, err
		}
	}
	d.sweep()
	return c, nil
}

func (d *Disk) cutNames(nodes []*node, r *rand.Rand, share int, c *Cut) {
	survives := map[*change]bool{}
	var all []*change
	for _, n := range nodes {
		if n.dir == nil {
			continue
		}
		for _, ch := range n.log {
			if !ch.done {
				survives[ch] = r.IntN(100) < share
				all = append(all, ch)
			}
		}
	}
	var whole func(ch *change) bool
	whole = func(ch *change) bool {
		if ch.done {
			return true
		}
		for _, b := range ch.before() {
			survives[ch] = survives[ch] && whole(b)
		}
		return survives[ch]
	}
	for _, ch := range all {
		if whole(ch) {
			c.NamesKept++
		} else {
			c.NamesLost++
		}
	}
	for _, ch := range all {
		if survives[ch] {
			ch.keep()
		}
	}
	for _, n := range nodes {
		n.names = 0
	}
	for _, n := range nodes {
		if n.dir == nil {
			continue
		}
		n.log, n.now = nil, maps.Clone(n.dir.disk)
	}
	var count func(n *node)
	count = func(n *node) {
		for _, child := range n.now {
			if child.names++; child.names == 1 && child.dir != nil {
				count(child)
			}
		}
	}
	count(d.root)
}

func (d *Disk) pruneAll() {
	for _, n := range d.nodes {
		if n.dir != nil {
			n.prune()
		}
	}
}

func sortedNodes(of map[uint64]*node) []*node {
	return slices.SortedFunc(maps.Values(of), func(a, b *node) int { return cmp.Compare(a.id, b.id) })
}

func sorted(of map[int64]bool) []int64 { return slices.Sorted(maps.Keys(of)) }
