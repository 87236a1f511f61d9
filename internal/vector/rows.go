package vector

import (
	"fmt"
	"math"
	"math/bits"
)

// chunkBytes is about how many bytes of float32 one chunk holds: small, for a collection of three points takes one
// whole chunk, and large enough that the loop over chunks costs nothing compared with the rows.
const chunkBytes = 256 << 10

// Rows holds vectors of one dimension by row number. Rows are appended and never changed. One goroutine appends at a
// time; views taken before are not disturbed by that.
type Rows struct {
	view View
}

// View is Rows at one instant. It stays as it is while rows are appended, and is safe for concurrent use.
type View struct {
	kernel *Kernel
	dim    int
	// stride is how many bytes a row's codes take, padded to a multiple of blockBytes.
	stride int
	shift  uint // a chunk has 1<<shift rows
	// n is how many rows the view has. Its last chunk may get more rows meanwhile, which the view
	// does not read.
	n      int
	chunks []*chunk
	// longest is the greatest length of a row as its codes say it.
	longest float64
}

// chunk is the memory of 1<<shift rows, allocated at once and never moved.
type chunk struct {
	codes  []uint8   // stored codes plus bias, rows one after another
	scales []float32 // per row
	fixes  []int32   // per row, see fixOf: for comparing rows with each other
	floats []float32
}

// NewRows returns Rows without a row. Dim is MinDim to MaxDim.
func NewRows(kernel *Kernel, dim int) *Rows {
	if dim < MinDim || dim > MaxDim {
		panic(fmt.Sprintf("vector: dimension %d is outside %d..%d", dim, MinDim, MaxDim)) // the schema was not checked
	}
	n := max(16, min(4096, chunkBytes/(4*dim)))
	return &Rows{view: View{kernel: kernel, dim: dim, stride: stride(dim), shift: uint(bits.Len(uint(n)) - 1)}}
}

// Append adds a row and returns its number. It copies v, which has the rows' dimension and is finite.
func (r *Rows) Append(v []float32) uint32 {
	w := &r.view
	at := w.n & (1<<w.shift - 1)
	if at == 0 {
		n := 1 << w.shift
		w.chunks = append(w.chunks, &chunk{
			codes: make([]uint8, n*w.stride), scales: make([]float32, n), fixes: make([]int32, n), floats: make([]float32, n*w.dim),
		})
	}
	c := w.chunks[len(w.chunks)-1]
	copy(c.floats[at*w.dim:(at+1)*w.dim], v)
	var codes [MaxDim]int8
	c.scales[at] = encode(codes[:w.dim], v)
	row := c.codes[at*w.stride : (at+1)*w.stride]
	for i := range row {
		row[i] = uint8(int(codes[i]) + bias)
	}
	c.fixes[at] = fixOf(codes[:w.dim])
	w.longest = max(w.longest, lengthOf(codes[:w.dim], c.scales[at]))
	w.n++
	return uint32(w.n - 1)
}

// View returns the rows as they are now. The caller keeps others from appending meanwhile.
func (r *Rows) View() View { return r.view }

// Bytes is the memory that the rows take.
func (r *Rows) Bytes() int64 {
	w := &r.view
	return int64(len(w.chunks)) << w.shift * int64(w.stride+8+4*w.dim)
}

// RowBytes is what one row of a dimension takes, for judging beforehand what a write will need.
func RowBytes(dim int) int64 { return int64(stride(dim) + 8 + 4*dim) }

// Len is the number of rows.
func (v *View) Len() int { return v.n }

// Dim is the rows' dimension.
func (v *View) Dim() int { return v.dim }

// Floats returns a row as it was given; it must not be changed.
func (v *View) Floats(row uint32) []float32 {
	c, at := v.chunks[row>>v.shift], int(row)&(1<<v.shift-1)
	return c.floats[at*v.dim : (at+1)*v.dim : (at+1)*v.dim]
}

// Exact returns the float32 dot product of the query and a row.
func (v *View) Exact(q *Query, row uint32) float32 {
	return v.kernel.DotFloats(q.floats, v.Floats(row))
}

// codes returns where a row's codes begin.
func (v *View) codes(row uint32) *uint8 {
	return &v.chunks[row>>v.shift].codes[(int(row)&(1<<v.shift-1))*v.stride]
}

// scale returns what a row's codes are multiplied with.
func (v *View) scale(row uint32) float32 {
	return v.chunks[row>>v.shift].scales[int(row)&(1<<v.shift-1)]
}

// Hit is a row and its score, the larger the nearer.
type Hit struct {
	Row   uint32
	Score float32
}

// batch is how many rows are scored between two looks at the list of the best.
const batch = 64

// Scan returns the k best of the rows in list by their codes, best first, ties by row. List is sorted and without
// repetition, k at least 1. It appends to dst, which may be nil, and returns at most len(list) hits. Stop, which may be
// nil, is asked now and then; when it says so the scan ends with ok false.
func (v *View) Scan(q *Query, list []uint32, k int, dst []Hit, stop func() bool) (hits []Hit, ok bool) {
	best := newBest(dst, k)
	var sums [batch]int32
	var at [batch]*uint8
	for i := 0; i < len(list); {
		if stop != nil && i&(1<<12-1) < batch && stop() {
			return nil, false
		}
		n := min(batch, len(list)-i)
		part := list[i : i+n]
		first := part[0]
		if last := part[n-1]; last-first == uint32(n-1) && last>>v.shift == first>>v.shift {
			from, c := int(first)&(1<<v.shift-1), v.chunks[first>>v.shift]
			v.kernel.rows(sums[:n], c.codes[from*v.stride:(from+n)*v.stride], q.codes)
			for j, scale := range c.scales[from : from+n] {
				if score := float32(sums[j]-q.fix) * scale; score > best.least {
					best.add(Hit{first + uint32(j), score})
				}
			}
		} else {
			for j, row := range part {
				at[j] = v.codes(row)
			}
			v.kernel.list(sums[:n], at[:n], q.codes)
			for j, row := range part {
				if score := float32(sums[j]-q.fix) * v.scale(row); score > best.least {
					best.add(Hit{row, score})
				}
			}
		}
		i += n
	}
	out := best.sorted()
	for i := best.from; i < len(out); i++ {
		out[i].Score *= q.scale
	}
	return out, true
}

// ScanExact is Scan by float32 dot products: the answer that all others are held against.
func (v *View) ScanExact(q *Query, list []uint32, k int, dst []Hit, stop func() bool) (hits []Hit, ok bool) {
	best := newBest(dst, k)
	for i, row := range list {
		if stop != nil && i&1023 == 0 && stop() {
			return nil, false
		}
		if score := v.Exact(q, row); score > best.least {
			best.add(Hit{row, score})
		}
	}
	return best.sorted(), true
}

// best keeps the k best hits that were added, in a heap with the worst on top. Rows come in ascending order, so that of
// equal scores the earlier row stays.
type best struct {
	hits  []Hit
	from  int // where this heap begins in hits
	k     int
	least float32 // what a score must exceed to count
}

func newBest(dst []Hit, k int) best {
	return best{hits: dst, from: len(dst), k: max(k, 1), least: float32(math.Inf(-1))}
}

// worse says whether a ranks behind b.
func worse(a, b Hit) bool { return a.Score < b.Score || a.Score == b.Score && a.Row > b.Row }

// add takes a hit if there is room, and else puts it in the place of the worst: the caller has
// compared it with least.
func (b *best) add(h Hit) {
	heap := b.hits[b.from:]
	if len(heap) < b.k {
		b.hits = append(b.hits, h)
		heap = b.hits[b.from:]
		for i := len(heap) - 1; i > 0; {
			up := (i - 1) / 2
			if !worse(heap[i], heap[up]) {
				break
			}
			heap[i], heap[up] = heap[up], heap[i]
			i = up
		}
		if len(heap) == b.k {
			b.least = heap[0].Score
		}
		return
	}
	heap[0] = h
	sink(heap)
	b.least = heap[0].Score
}

// sink moves the top of a heap down to where it belongs.
func sink(heap []Hit) {
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(heap) {
			return
		}
		if down+1 < len(heap) && worse(heap[down+1], heap[down]) {
			down++
		}
		if !worse(heap[down], heap[i]) {
			return
		}
		heap[i], heap[down] = heap[down], heap[i]
		i = down
	}
}

// sorted returns the hits, best first. The heap is used up.
func (b *best) sorted() []Hit {
	heap := b.hits[b.from:]
	for n := len(heap) - 1; n > 0; n-- {
		heap[0], heap[n] = heap[n], heap[0]
		sink(heap[:n])
	}
	return b.hits
}
