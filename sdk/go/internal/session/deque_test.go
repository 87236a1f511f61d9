package session

import "testing"

func TestDequeKeepsOrder(t *testing.T) {
	var d deque[int]
	for i := range 40 {
		d.pushBack(i)
	}
	for i := range 20 {
		if got := d.popFront(); got != i {
			t.Fatalf("got %d, want %d", got, i)
		}
	}
	d.pushFront(19)
	d.keep(func(v int) bool { return v%2 == 1 })
	for want := 19; want < 40; want += 2 {
		if got := d.popFront(); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
	if d.len() != 0 {
		t.Errorf("%d are left", d.len())
	}
}
