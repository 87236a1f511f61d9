package vector

import "math"

// ScanSum is Scan by weight times the score, plus what extra says of each row of list: for queries that rank by more than
// nearness. Extra is as long as list. Rows that nearness cannot bring among the k best are not compared.
func (v *View) ScanSum(q *Query, list []uint32, k int, weight float32, extra []float32, dst []Hit, stop func() bool) (hits []Hit, ok bool) {
	s := sumScan{view: v, query: q, list: list, extra: extra, weight: weight, stop: stop, best: newBest(dst, k)}
	if !s.run() {
		return dst, false
	}
	return s.best.sorted(), true
}

// kthLargest is the k-th largest of some numbers, or minus infinity where they are so few that it saves nothing to know.
func kthLargest(of []float32, k int) float32 {
	if len(of) <= 2*k {
		return float32(math.Inf(-1))
	}
	most := newBest(nil, k)
	for i, x := range of {
		if x > most.least {
			most.add(Hit{uint32(i), x})
		}
	}
	return most.least
}

// sumScan is a ScanSum that goes on.
type sumScan struct {
	view  *View
	query *Query
	// list and extra go together: extra[i] is added to the score of row list[i].
	list   []uint32
	extra  []float32
	weight float32
	stop   func() bool
	best   best

	compared int // rows
}

// run scores the rows in two passes. The first takes the rows with the k largest values of extra,
// which fills the list of the best. Then the worst of these is known, and the second pass takes
// only rows that could still exceed it: those whose extra, plus the largest product that any row
// can have, reaches it. A small margin covers rounding. It returns false if it was stopped.
func (s *sumScan) run() bool {
	none := float32(math.Inf(-1))
	first := kthLargest(s.extra, s.best.k)
	if !s.between(first, float32(math.Inf(1))) {
		return false
	}
	if first == none {
		return true
	}
	reach := 1.0001 * math.Abs(float64(s.weight)) * s.query.norm() * s.view.longest // no product is larger
	least := float64(s.best.least)
	return s.between(float32(least-reach-1e-6*math.Abs(least)), first)
}

// between scores the rows whose extra is from on, and below to.
func (s *sumScan) between(from, to float32) bool {
	v, q := s.view, s.query
	factor := q.scale * s.weight
	var sums [batch]int32
	var at [batch]*uint8
	var part [batch]uint32
	var more [batch]float32
	ask := 0
	for i := 0; i < len(s.list); {
		if s.stop != nil && i >= ask {
			if s.stop() {
				return false
			}
			ask = i + 1<<12
		}
		n := 0
		for ; i < len(s.list) && n < batch; i++ {
			if x := s.extra[i]; x >= from && x < to {
				part[n], more[n] = s.list[i], x
				n++
			}
		}
		if n == 0 {
			break
		}
		s.compared += n
		first := part[0]
		if last := part[n-1]; last-first == uint32(n-1) && last>>v.shift == first>>v.shift {
			begin := int(first) & (1<<v.shift - 1)
			v.kernel.rows(sums[:n], v.chunks[first>>v.shift].codes[begin*v.stride:(begin+n)*v.stride], q.codes)
		} else {
			for j, row := range part[:n] {
				at[j] = v.codes(row)
			}
			v.kernel.list(sums[:n], at[:n], q.codes)
		}
		for j, row := range part[:n] {
			s.meet(Hit{row, float32(sums[j]-q.fix)*v.scale(row)*factor + more[j]})
		}
	}
	return true
}

// meet keeps a row if it is among the best so far. Rows come in no order: of equal ones the earlier is the better.
func (s *sumScan) meet(h Hit) {
	heap := s.best.hits[s.best.from:]
	if h.Score > s.best.least || len(heap) == s.best.k && worse(heap[0], h) {
		s.best.add(h)
	}
}

// ScanExactSum is ScanSum by float32 dot products.
func (v *View) ScanExactSum(q *Query, list []uint32, k int, weight float32, extra []float32, dst []Hit, stop func() bool) (hits []Hit, ok bool) {
	best := newBest(dst, k)
	for i, row := range list {
		if stop != nil && i&1023 == 0 && stop() {
			return dst, false
		}
		if score := weight*v.Exact(q, row) + extra[i]; score > best.least {
			best.add(Hit{row, score})
		}
	}
	return best.sorted(), true
}
