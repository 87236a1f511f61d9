package vector

// ScanSum is Scan by weight times the score, plus what extra says of each row of list: for queries that rank by more than
// nearness. Extra is as long as list.
func (v *View) ScanSum(q *Query, list []uint32, k int, weight float32, extra []float32, dst []Hit, stop func() bool) (hits []Hit, ok bool) {
	best := newBest(dst, k)
	var sums [batch]int32
	var at [batch]*uint8
	factor := q.scale * weight
	for i := 0; i < len(list); {
		if stop != nil && i&(1<<12-1) < batch && stop() {
			return dst, false
		}
		n := min(batch, len(list)-i)
		part := list[i : i+n]
		first := part[0]
		if last := part[n-1]; last-first == uint32(n-1) && last>>v.shift == first>>v.shift {
			from := int(first) & (1<<v.shift - 1)
			v.kernel.rows(sums[:n], v.chunks[first>>v.shift].codes[from*v.stride:(from+n)*v.stride], q.codes)
		} else {
			for j, row := range part {
				at[j] = v.codes(row)
			}
			v.kernel.list(sums[:n], at[:n], q.codes)
		}
		for j, row := range part {
			if score := float32(sums[j]-q.fix)*v.scale(row)*factor + extra[i+j]; score > best.least {
				best.add(Hit{row, score})
			}
		}
		i += n
	}
	return best.sorted(), true
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
