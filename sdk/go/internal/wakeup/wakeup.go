// Package wakeup lets one goroutine sleep until others have changed something.
package wakeup

// Wakeup makes one goroutine look again at what others have changed. It holds one token, so that poking it never blocks.
type Wakeup chan struct{}

// New makes a Wakeup that holds no token.
func New() Wakeup { return make(Wakeup, 1) }

// Poke wakes the goroutine that receives from w, or makes its next receive return at once.
func (w Wakeup) Poke() {
	select {
	case w <- struct{}{}:
	default:
	}
}
