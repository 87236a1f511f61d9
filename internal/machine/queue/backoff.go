package queue

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/internal/core"
)

// backoff is how long the task waits after its n-th failure, or crash, from 1. Chance is a hash of task and
// attempt: replicas agree on it, and two tasks that failed together do not come back together.
func (r *run) backoff(n uint32) core.Millis {
	p := r.retry()
	d := p.delay(n)
	switch p.Backoff {
	case core.BackoffFullJitter:
		return core.Millis(r.draw() % uint64(d+1))
	case core.BackoffEqualJitter:
		return d/2 + core.Millis(r.draw()%uint64(d-d/2+1))
	}
	return d
}

// draw is a number that looks random and is the same on every replica. It differs from attempt to attempt.
func (r *run) draw() uint64 {
	var b [20]byte
	copy(b[:], r.id[:])
	binary.BigEndian.PutUint32(b[16:], r.rec.attempt)
	return hash(b[:])
}

// retry is a policy of waits with every default filled in.
type retry core.Retry

// retry is the task's policy. What that leaves open is the queue's, and what both leave open is the default.
func (r *run) retry() retry {
	own, queue := r.settings.retry, r.queue.config.Retry
	p := retry{
		Backoff: own.Backoff, Base: orDefault(own.Base, orDefault(queue.Base, defaultBase)),
		FactorPercent: orDefault(own.FactorPercent, orDefault(queue.FactorPercent, defaultFactor)),
		Max:           orDefault(own.Max, orDefault(queue.Max, defaultBackoffMax)),
	}
	if p.Backoff == core.BackoffUnset {
		p.Backoff = queue.Backoff
	}
	if p.Backoff == core.BackoffUnset {
		p.Backoff = core.BackoffFullJitter
	}
	p.Base, p.Max = max(p.Base, 0), min(max(p.Max, 0), maxDelay)
	return p
}

// delay is the wait after the n-th failure before chance. It saturates at Max, and stops early
// where a factor no longer changes it, so that a large n costs no more than a small one.
func (p retry) delay(n uint32) core.Millis {
	limit, d := uint64(p.Max), uint64(p.Base)
	switch p.Backoff {
	case core.BackoffFixed:
	case core.BackoffLinear:
		hi, lo := bits.Mul64(d, uint64(n))
		if d = lo; hi != 0 {
			d = limit
		}
	default:
		if p.FactorPercent == 100 {
			break
		}
		for ; n > 1 && d > 0 && d < limit; n-- {
			hi, lo := bits.Mul64(d, uint64(p.FactorPercent))
			if hi >= 100 {
				d = limit
				break
			}
			grown, _ := bits.Div64(hi, lo, 100)
			if grown <= d {
				break // a factor that grows nothing at this size never will
			}
			d = grown
		}
	}
	return core.Millis(min(d, limit))
}
