package queue

// ranked is what a heap holds: elements in a total order that know their own place in it.
type ranked[T any] interface {
	// before must be a total order, so that no two replicas can pop in another order.
	before(other T) bool
	// place points to the index in the heap, which is -1 outside of it. The heap alone writes it.
	place() *int32
}

// heap is a binary heap whose elements can be moved and removed by their place. Because the order
// is total, what comes out does not depend on how things came in: replicas agree.
type heap[T ranked[T]] struct{ items []T }

// top returns the first element, without taking it out.
func (h *heap[T]) top() (t T, ok bool) {
	if len(h.items) == 0 {
		return t, false
	}
	return h.items[0], true
}

// second returns the element after the top: the smaller of its children.
func (h *heap[T]) second() (t T, ok bool) {
	switch len(h.items) {
	case 0, 1:
		return t, false
	case 2:
		return h.items[1], true
	}
	if h.items[2].before(h.items[1]) {
		return h.items[2], true
	}
	return h.items[1], true
}

// push puts in an element that is not in the heap.
func (h *heap[T]) push(t T) {
	h.items = append(h.items, t)
	*t.place() = int32(len(h.items) - 1)
	h.up(len(h.items) - 1)
}

// remove takes out an element that is in the heap, wherever it is.
func (h *heap[T]) remove(t T) {
	i, last := int(*t.place()), len(h.items)-1
	var zero T
	*t.place() = -1
	moved := h.items[last]
	h.items[last] = zero
	h.items = h.items[:last]
	if i == last {
		return
	}
	h.items[i] = moved
	*moved.place() = int32(i)
	h.fix(moved)
}

// fix restores the order after the rank of t changed.
func (h *heap[T]) fix(t T) {
	if i := int(*t.place()); !h.down(i) {
		h.up(i)
	}
}

// keep puts t in, takes it out, or restores the order after its rank changed. in says whether it is
// to be in the heap.
func (h *heap[T]) keep(t T, in bool) {
	switch was := *t.place() >= 0; {
	case was && in:
		h.fix(t)
	case was:
		h.remove(t)
	case in:
		h.push(t)
	}
}

// build restores the order after any number of ranks changed, in linear time.
func (h *heap[T]) build() {
	for i := len(h.items)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// up moves an element towards the top until its parent comes before it.
func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.items[i].before(h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// down moves an element away from the top until both children come after it, and reports whether it moved.
func (h *heap[T]) down(i int) (moved bool) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.items); child++ {
			if h.items[child].before(h.items[least]) {
				least = child
			}
		}
		if least == i {
			return moved
		}
		h.swap(i, least)
		i, moved = least, true
	}
}

// swap exchanges two elements and notes their places.
func (h *heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.items[i].place(), *h.items[j].place() = int32(i), int32(j)
}
