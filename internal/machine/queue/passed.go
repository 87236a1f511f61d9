package queue

import "bytes"

// passed is a key before which an index of times has no row; empty: nothing is known. Ticks take rows from the front, and many may be of
// one instant: without it each tick would look again at the places of all that the ticks before it took. It only saves looks.
type passed []byte

// from is where a look begins that would begin at lo.
func (p passed) from(lo []byte) []byte {
	if bytes.Compare(p, lo) > 0 {
		return p
	}
	return lo
}

// past notes that there is no row up to a key, which lies behind what was known before.
func (p *passed) past(key []byte) { *p = append(append((*p)[:0], key...), 0) }

// insert notes that there is a row of a key.
func (p *passed) insert(key []byte) {
	if bytes.Compare(key, *p) < 0 {
		*p = (*p)[:0]
	}
}

// passedAll are those of the indexes that ticks take rows from.
type passedAll struct{ timer, wall, expiry passed }

// forget is for rows that are there again.
func (p *passedAll) forget() { p.timer, p.wall, p.expiry = p.timer[:0], p.wall[:0], p.expiry[:0] }
