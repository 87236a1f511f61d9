package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Plan is what a run simulates. Chances are in a thousand, sizes in bytes.
type Plan struct {
	Nodes      int
	Shards     int
	Partitions int // of the namespace that most clients use
	Clients    int // that create tasks
	Writers    int // that write keys and read them
	Workers    int
	Tasks      int // that clients create
	Writes     int // of keys

	Drop   int // messages, requests and answers that are lost
	Repeat int // messages that arrive twice
	Slow   int // messages that are overtaken
	Stuck  int // tasks that are worked on beyond their lease

	Kinds      []Fault       // that may strike
	Faults     time.Duration // how long things go wrong
	FaultEvery time.Duration // at most so long between two faults
	Drain      time.Duration // how long it may take then until the last task has ended
	Lease      time.Duration // of tasks; it is never renewed
	Days       bool          // some tasks are delayed by days, and days pass
	Grace      time.Duration // after which leases of a worker whose stream broke end; 0: by their own time
	Operate    bool          // tasks are cancelled, edited, redriven and released by force, queues paused, and bulk jobs run (acts.go)
	Wait       bool          // some tasks wait for tasks that were made before them

	SegmentBytes int64  // of the log
	LogQuota     uint64 // of log that is kept for hosts that are behind: beyond it they get a snapshot; 0: all of it
	SnapshotPart int    // bytes of a snapshot in one message
	LogQueue     int64  // bytes that wait for the log
	EntryBytes   int
	Inbox        int64         // bytes of messages of peers that wait
	Proposals    int           // that wait for an entry
	Spares       int           // hosts outside of the cluster, which operators may take in
	ChangeEvery  time.Duration // at most so long between two changes of membership that operators ask for
	NoSync       bool          // logs are not synced: a control that must lose something
}

// Usual is a cluster of three nodes under faults of all kinds.
func Usual() Plan {
	return Plan{
		Nodes: 3, Shards: 2, Partitions: 2, Clients: 4, Writers: 2, Workers: 4, Tasks: 100, Writes: 60,
		Drop: 20, Repeat: 10, Slow: 20, Stuck: 15, Kinds: Faults(),
		Faults: 10 * time.Second, FaultEvery: 1200 * time.Millisecond, Drain: 2 * time.Minute, Lease: 5 * time.Second,
		SegmentBytes: 64 << 10, LogQueue: 1 << 20, EntryBytes: 64 << 10, Inbox: 1 << 20, Proposals: 1000,
	}
}

// PlanOf draws a plan from a seed: the size of the cluster, its limits, and which faults may
// happen. Only some kinds are drawn, because few kinds at a time reach states that all of them
// together hide. The order of the draws is part of what a seed means: a new draw goes to the end,
// or needs another source.
func PlanOf(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := Usual()
	p.Nodes = []int{1, 3, 3, 3, 3, 3, 3, 3, 5, 5}[r.IntN(10)]
	p.Shards = 1 + r.IntN(4)
	p.Partitions = 1 + r.IntN(5)
	p.Clients = 1 + r.IntN(8)
	if r.IntN(10) == 0 {
		p.Clients = 32
	}
	p.Writers = r.IntN(5)
	p.Workers = p.Partitions + r.IntN(4)
	p.Tasks = 30 + r.IntN(90)
	p.Writes = p.Writers * r.IntN(40)
	p.Drop, p.Repeat, p.Slow, p.Stuck = r.IntN(50), r.IntN(30), r.IntN(50), r.IntN(40)
	p.Kinds = nil
	for _, kind := range Faults() {
		if r.IntN(100) < 45 {
			p.Kinds = append(p.Kinds, kind)
		}
	}
	if len(p.Kinds) == 0 {
		p.Kinds = []Fault{Crash}
	}
	p.Faults = time.Duration(4+r.IntN(8)) * time.Second
	p.FaultEvery = time.Duration(200+r.IntN(1800)) * time.Millisecond
	p.Lease = []time.Duration{2, 5, 10}[r.IntN(3)] * time.Second
	p.Days = slices.Contains(p.Kinds, Leap)
	if r.IntN(3) == 0 { // tight limits: segments turn, queues fill and entries close early
		p.SegmentBytes, p.LogQueue, p.EntryBytes, p.Inbox, p.Proposals = 4<<10, 8<<10, 1<<10, 4<<10, 4
	}
	if r.IntN(2) == 0 { // logs are cut below what hosts that are behind need
		p.SegmentBytes = 4 << 10
		p.LogQuota = uint64(p.SegmentBytes) * uint64(2+r.IntN(8))
		p.SnapshotPart = 256 << r.IntN(6)
	}
	if r := rand.New(rand.NewPCG(seed, 3)); seed >= Restless {
		p.neverSettle(r)
	} else if r.IntN(100) < 40 {
		p.changeMembers(r)
	}
	if r := rand.New(rand.NewPCG(seed, 4)); r.IntN(2) == 0 {
		p.Operate, p.Writers, p.Writes = true, max(p.Writers, 2), max(p.Writes, 80)
		p.Grace = []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond}[r.IntN(3)]
	}
	p.Wait = rand.New(rand.NewPCG(seed, 5)).IntN(3) == 0
	return p
}

// Restless is the first seed of those whose clusters mostly change their members. No other campaign
// uses seeds that large, and results can still write them as whole numbers.
const Restless uint64 = 1 << 52

// neverSettle makes members come and go as fast as changes are done, also in clusters of even size,
// while disks are lost.
func (p *Plan) neverSettle(r *rand.Rand) {
	p.Nodes = 1 + r.IntN(5)
	p.Shards = 1 + r.IntN(3)
	p.changeMembers(r)
	p.ChangeEvery = time.Duration(100+r.IntN(400)) * time.Millisecond
	p.Faults = time.Duration(8+r.IntN(10)) * time.Second
	for _, kind := range []Fault{LoseDisk, LoseDisk, Crash, Blackout} { // the more often one is listed, the more often it strikes
		if r.IntN(3) > 0 {
			p.Kinds = append(p.Kinds, kind)
		}
	}
}

// changeMembers adds spares and operators, and hosts that lose their disks. Wall clocks then stay
// right: with changing members it would change as well which nodes form the majority with right
// clocks.
func (p *Plan) changeMembers(r *rand.Rand) {
	p.Spares = 1 + r.IntN(7-p.Nodes)
	p.ChangeEvery = time.Duration(300+r.IntN(1200)) * time.Millisecond
	p.Kinds = slices.DeleteFunc(p.Kinds, func(k Fault) bool { return k == StepClock })
	if r.IntN(2) == 0 || len(p.Kinds) == 0 {
		p.Kinds = append(p.Kinds, LoseDisk)
	}
}
