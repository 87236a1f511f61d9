package disk

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// Cut is what a power cut took, and what it left of that which was not synced. Sectors are of 512
// bytes; names are changes of directories.
type Cut struct {
	SectorsLost int `json:"sectors_lost"`
	SectorsKept int `json:"sectors_kept"`
	NamesLost   int `json:"names_lost"`
	NamesKept   int `json:"names_kept"`
}

// Cut cuts the power: sessions end, and their calls under way fail. What was not synced is gone,
// except a share of it, in percent, drawn from a seed. No process may rely on an answer that comes
// after that: processes are killed first, while Freeze keeps them from seeing what happens here.
func (d *Disk) Cut(seed uint64, share int) (c Cut, err error) {
	d.Shut()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boots++
	// Nodes are gone through in order, so that a seed always draws the same.
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

// cutNames draws which changes of names survive. A change that needs others survives only with
// them, so whole takes that back where one of them is lost. Then every directory is what the disk
// has, and names are counted again from the root.
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

// pruneAll forgets the changes of all directories that are on the disk.
func (d *Disk) pruneAll() {
	for _, n := range d.nodes {
		if n.dir != nil {
			n.prune()
		}
	}
}

// sortedNodes lists nodes in order of number, and sorted lists sectors.
func sortedNodes(of map[uint64]*node) []*node {
	return slices.SortedFunc(maps.Values(of), func(a, b *node) int { return cmp.Compare(a.id, b.id) })
}

func sorted(of map[int64]bool) []int64 { return slices.Sorted(maps.Keys(of)) }
