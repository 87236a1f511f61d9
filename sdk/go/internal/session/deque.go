package session

// deque is a queue that takes things back at its front.
type deque[T any] struct {
	ring []T // its length is a power of two, or zero
	// Index of the first element in ring.
	head int
	// How many elements there are.
	n int
}

// len is how many elements there are.
func (d *deque[T]) len() int { return d.n }

// at is the place of element i in ring, counted from the front.
func (d *deque[T]) at(i int) int { return (d.head + i) & (len(d.ring) - 1) }

// pushBack adds v behind the last element.
func (d *deque[T]) pushBack(v T) {
	d.grow()
	d.ring[d.at(d.n)] = v
	d.n++
}

// pushFront adds v before the first element, as what was taken off and could not be sent.
func (d *deque[T]) pushFront(v T) {
	d.grow()
	d.head = (d.head - 1) & (len(d.ring) - 1)
	d.ring[d.head] = v
	d.n++
}

// front returns the first element; the deque must hold one.
func (d *deque[T]) front() T { return d.ring[d.head] }

// popFront takes the first element off; the deque must hold one. Its place is cleared, so that the ring keeps nothing alive.
func (d *deque[T]) popFront() T {
	var zero T
	v := d.ring[d.head]
	d.ring[d.head] = zero
	d.head = d.at(1)
	d.n--
	return v
}

// keep drops the elements that ok does not hold for, in order.
func (d *deque[T]) keep(ok func(T) bool) {
	for range d.n {
		if v := d.popFront(); ok(v) {
			d.pushBack(v)
		}
	}
}

// grow makes room for one more element: the ring doubles, and begins at its front again.
func (d *deque[T]) grow() {
	if d.n < len(d.ring) {
		return
	}
	ring := make([]T, max(16, 2*len(d.ring)))
	for i := range d.n {
		ring[i] = d.ring[d.at(i)]
	}
	d.ring, d.head = ring, 0
}
