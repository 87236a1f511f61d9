package session

// deque is a queue that takes things back at its front.
type deque[T any] struct {
	ring []T // its length is a power of two, or zero
	head int
	n    int
}

func (d *deque[T]) len() int { return d.n }

func (d *deque[T]) at(i int) int { return (d.head + i) & (len(d.ring) - 1) }

func (d *deque[T]) pushBack(v T) {
	d.grow()
	d.ring[d.at(d.n)] = v
	d.n++
}

func (d *deque[T]) pushFront(v T) {
	d.grow()
	d.head = (d.head - 1) & (len(d.ring) - 1)
	d.ring[d.head] = v
	d.n++
}

// front returns the first element; the deque must hold one.
func (d *deque[T]) front() T { return d.ring[d.head] }

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
