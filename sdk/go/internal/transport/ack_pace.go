package transport

import "time"

const (
	// SlowAck parts streams whose answers come fast from the others. On a fast one, what waits for an answer is late by no
	// more than this, and a server has fewer frames to serve, which each cost it more than what is in them; on a slow one, as
	// between regions, waiting would cost more than it saves.
	SlowAck = 4 * time.Millisecond
	// ackWindow is the window of the estimate: the fastest answer of this window and of the previous one counts.
	ackWindow = 5 * time.Second
)

// AckPace estimates how fast a server answers frames, by the fastest recent answer: slower ones waited for something temporary,
// such as a disk, a processor or an election. internal/node/pace.go estimates commits in the same way; the SDK links nothing of the
// server.
type AckPace struct {
	// least is the fastest answer of the present window; 0: there is none yet.
	least  time.Duration
	before time.Duration // least of the window before; 0: nothing was answered in it
	from   time.Time     // when the window began
}

// Answered takes note of a frame that was sent then and is answered now.
func (p *AckPace) Answered(then, now time.Time) {
	if d := max(now.Sub(then), 1); p.least == 0 || d < p.least {
		p.least = d
	}
	if now.Sub(p.from) >= ackWindow {
		p.from, p.before, p.least = now, p.least, 0
	}
}

// Fast reports whether answers come fast; not before one came.
func (p *AckPace) Fast() bool {
	least := p.least
	if least == 0 || p.before > 0 && p.before < least {
		least = p.before
	}
	return least > 0 && least < SlowAck
}
