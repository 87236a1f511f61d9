package embed

import (
	"testing"
	"time"
)

// A provider is left alone if half of its last 20 calls failed within 10 s, even if no five failed in a row. It is not left
// alone if the failures lie further apart. One call then tries again, and each failure of that call starts another wait.
func TestHalfOfTheLastCallsLeaveAProviderAlone(t *testing.T) {
	play := func(b *breaker, from, apart time.Duration, failed func(i int) bool) (n int, at time.Duration) {
		for i := range 200 {
			at = from + time.Duration(i)*apart
			if _, ok := b.allow(at); !ok {
				return i, at
			}
			b.done(at, failed(i))
		}
		return 200, at
	}
	everyOther := func(i int) bool { return i%2 == 0 }
	var b breaker
	n, at := play(&b, time.Second, 100*time.Millisecond, everyOther)
	if n != windowCalls && n != windowCalls+1 || b.opened != 1 {
		t.Errorf("left alone after %d calls, %d times", n, b.opened)
	}
	for _, c := range []struct {
		name   string
		apart  time.Duration
		failed func(i int) bool
	}{
		{"over a longer time", time.Second, everyOther},
		{"a third of them", 100 * time.Millisecond, func(i int) bool { return i%3 == 0 }},
	} {
		var b breaker
		if n, _ := play(&b, time.Second, c.apart, c.failed); n != 200 {
			t.Errorf("%s: left alone after %d calls", c.name, n)
		}
	}

	for range 3 {
		after, ok := b.allow(at)
		if ok || after <= 0 || after > probeEvery {
			t.Fatalf("right after: %v, %v", after, ok)
		}
		at += after
		if _, ok := b.allow(at); !ok {
			t.Fatal("no call may try again")
		}
		if _, ok := b.allow(at); ok {
			t.Fatal("two calls may try at once")
		}
		b.done(at, true)
	}
	at += probeEvery
	if _, ok := b.allow(at); !ok {
		t.Fatal("no call may try again")
	}
	b.done(at, false)
	if _, ok := b.allow(at); !ok || b.open {
		t.Error("it is left alone though it answered")
	}
}
