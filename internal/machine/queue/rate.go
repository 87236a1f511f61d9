package queue

import (
	"math"
	"math/bits"

	"github.com/millrace/millrace/internal/core"
)

// rateState says how much of a rate is used up: the time, in nanoseconds of shard time, at which all of the burst is free again. So
// what a rate allows is a function of the stamp and of one number, and nothing is to be done while time passes.
type rateState int64

// nanos is a stamp in nanoseconds.
func nanos(t core.ShardTime) int64 { return int64(t) * 1_000_000 }

// span is how long a rate takes for what has a cost, in nanoseconds.
func span(r *core.Rate, cost int64) int64 {
	hi, lo := bits.Mul64(uint64(cost), uint64(r.Per)*1_000_000)
	if hi >= uint64(r.Limit) {
		return int64(core.MaxRatePer) * 1_000_000 * 1000 // longer than any time that is waited for
	}
	n, _ := bits.Div64(hi, lo, uint64(r.Limit))
	return int64(min(n, uint64(core.MaxRatePer)*1_000_000*1000))
}

// burst is how much a rate lets begin at once.
func burst(r *core.Rate) int64 { return orDefault(r.Burst, r.Limit) }

// slack is how far beyond the stamp a rate may be used up for something of a cost to begin. What costs more than the burst begins
// when the whole burst is free.
func slack(r *core.Rate, cost int64) int64 {
	return max(span(r, burst(r))-span(r, cost), 0)
}

// from returns the first stamp at which something of a cost may begin; a time in the past is now.
func (s rateState) from(r *core.Rate, cost uint32) core.ShardTime {
	if r.Limit == 0 {
		return 0
	}
	at := int64(s) - slack(r, int64(cost))
	return core.ShardTime((at + 999_999) / 1_000_000)
}

// room is how much may begin at a stamp, in units of cost, at most most.
func (s rateState) room(r *core.Rate, stamp core.ShardTime, most uint32) uint32 {
	if r.Limit == 0 {
		return most
	}
	free := span(r, burst(r)) - max(int64(s)-nanos(stamp), 0)
	if free <= 0 {
		return 0
	}
	one := max(span(r, 1), 1)
	return uint32(min(int64(most), max(free/one, 1)))
}

// used is how much of the burst of a rate is taken up at a stamp, in units of cost. Parts of a unit count as one.
func (s rateState) used(r *core.Rate, stamp core.ShardTime) int64 {
	left := int64(s) - nanos(stamp)
	if r.Limit == 0 || left <= 0 {
		return 0
	}
	per := uint64(r.Per) * 1_000_000
	hi, lo := bits.Mul64(uint64(left), uint64(r.Limit))
	lo, carry := bits.Add64(lo, per-1, 0)
	if hi += carry; hi >= per {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, per)
	return int64(min(n, math.MaxInt64))
}

// under returns the state at a stamp under another rate, which counts the same cost as used up.
func (s rateState) under(was, is *core.Rate, stamp core.ShardTime) rateState {
	left := int64(s) - nanos(stamp)
	if left <= 0 || was.Limit == 0 || is.Limit == 0 {
		return 0
	}
	const many = 1000 // units, so that little is lost by rounding
	hi, lo := bits.Mul64(uint64(left), uint64(max(span(is, many), 1)))
	per := uint64(max(span(was, many), 1))
	if hi >= per {
		return s
	}
	n, _ := bits.Div64(hi, lo, per)
	return rateState(nanos(stamp) + int64(min(n, uint64(1)<<60)))
}

// use returns the state after something of a cost began at a stamp.
func (s rateState) use(r *core.Rate, stamp core.ShardTime, cost uint32) rateState {
	if r.Limit == 0 {
		return s
	}
	return rateState(max(int64(s), nanos(stamp)) + span(r, int64(cost)))
}
