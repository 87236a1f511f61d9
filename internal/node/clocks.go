package node

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// clocks is what a node knows of its peers' wall clocks. They decide whether shard time may step forward when a term begins, and
// what the shard is told that wall clocks show beyond shard time. Both need most nodes to agree, so that one whose clock is wrong
// moves nothing.
type clocks struct {
	// Guards the fields below.
	mu sync.Mutex
	// Boot time at which the peers are asked next.
	next time.Duration
	// The last answer of each peer, by replica.
	of map[uint64]clockSample
}

// clockSample is what a peer's wall clock showed at our boot time of its last answer. Our own wall clock is read when it is
// judged, not before: it may have been stepped since.
type clockSample struct {
	// Its time, with half of the round trip added.
	wall time.Time
	// Our boot time when the answer came.
	at time.Duration
}

const (
	// The peers are asked this often.
	clockEvery = time.Second
	clockFresh = 30 * time.Second // older samples count for nothing
	// By how much two clocks may differ that agree. A round trip that takes longer tells nothing.
	clockAgrees = time.Second
)

// ask asks the peers for their clocks, when it is time.
func (c *clocks) ask(n *Node, now time.Duration) {
	c.mu.Lock()
	due := now >= c.next
	if due {
		c.next = now + clockEvery
	}
	c.mu.Unlock()
	if !due {
		return
	}
	msg := clockMessage(n.o.Clock.Wall(), now, 0)
	n.others(func(m *core.Member) { n.send(m.Replica, 0, Control, msg) })
}

// clockMessage is a question, whose answered is 0, or the answer to one that was asked at the peer's boot time.
func clockMessage(wall time.Time, asked, answered time.Duration) []byte {
	b := append(make([]byte, 0, 25), peerClock)
	b = binary.BigEndian.AppendUint64(b, uint64(wall.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, uint64(asked))
	return binary.BigEndian.AppendUint64(b, uint64(answered))
}

// take answers a question, or notes an answer. Half of the round trip counts for the way back.
func (c *clocks) take(n *Node, from uint64, b []byte) {
	if len(b) != 24 {
		return
	}
	wall := time.UnixMilli(int64(binary.BigEndian.Uint64(b)))
	asked, answered := time.Duration(binary.BigEndian.Uint64(b[8:])), time.Duration(binary.BigEndian.Uint64(b[16:]))
	now := n.o.Clock.Boot()
	if answered == 0 {
		n.send(from, 0, Control, clockMessage(n.o.Clock.Wall(), 0, max(asked, 1)))
		return
	}
	trip := now - answered
	if trip < 0 || trip > clockAgrees {
		return // too slow to tell a second
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[uint64]clockSample)
	}
	c.of[from] = clockSample{wall: wall.Add(trip / 2), at: now}
}

// agree reports whether the wall clocks of most nodes are within a second of ours. Nodes are those that vote, those too that are being
// removed: until then a node that stays is not a majority by itself. What was heard of others counts for nothing.
func (c *clocks) agree(n *Node) bool {
	now, wall := n.o.Clock.Boot(), n.o.Clock.Wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	near, all := 1, 1
	for _, m := range n.who().list {
		if m.Replica == n.o.Replica || m.State != core.MemberVoter && m.State != core.MemberRemoving {
			continue
		}
		all++
		if s, heard := c.of[m.Replica]; heard && now-s.at <= clockFresh && s.wall.Add(now-s.at).Sub(wall).Abs() <= clockAgrees {
			near++
		}
	}
	return 2*near > all
}

// ahead is by how much shard time is before this node's wall clock; negative: behind it.
func (s *shard) ahead() time.Duration {
	return core.Millis(s.now() - core.ShardTimeOf(s.n.o.Clock.Wall())).Duration()
}

// shiftAfter is by how much what the wall clocks show beyond shard time must have changed for the shard to be told.
const shiftAfter core.Millis = 1000

// clockShift returns what the shard is to be told of the wall clocks, when they agree and show something else than it was told
// last. Times that callers name follow them; shard time itself does not.
func (s *shard) clockShift() (*core.ClockShift, bool) {
	shift := core.Millis(core.ShardTimeOf(s.n.o.Clock.Wall()) - s.now())
	by := shift - s.loop.shift
	if -shiftAfter <= by && by <= shiftAfter || s.n.Format() < core.FormatQueues || !s.n.clocks.agree(s.n) {
		return nil, false
	}
	return &core.ClockShift{Shift: shift}, true
}

// clockTold is by how much shard time and the wall clock must differ, or differ from what was told last, for the log to tell of it.
const clockTold = 5 * time.Second

// tellClock tells when shard time and the wall clock part, and when they agree again: a clock that was corrected after the start,
// or a start with one that was far ahead. Times that callers name follow the wall clock from core.FormatQueues on; before, they are
// taken as shard time, so they come that much earlier or later.
func (s *shard) tellClock() {
	by := s.ahead().Round(time.Second)
	if (by-s.loop.toldAhead).Abs() < clockTold || !s.n.clocks.agree(s.n) {
		return
	}
	s.loop.toldAhead = by
	means := "run_at and what is shown follow the wall clock; leases, delays and retention go on without a step"
	if s.n.Format() < core.FormatQueues {
		means = "run_at and created_at are off by as much until the format of the cluster is raised"
	}
	switch log := s.n.o.Logger; {
	case by.Abs() < clockTold:
		log.Info("shard time and the wall clock agree again", "shard", s.id)
	case by > 0:
		log.Warn("shard time is ahead of the wall clock: a term began when that was ahead; "+means, "shard", s.id, "by", by)
	default:
		log.Warn("shard time is behind the wall clock, which was corrected since the term began; "+means, "shard", s.id, "by", -by)
	}
}
