package rate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// tenantRate is the key of the tenant's rate in these tests, and its partition.
var (
	tenantRate = Key{Tenant: 3}
	ratedPart  = core.Partition{Tenant: 3, Namespace: 1}
)

// sharing is nodes that share a rate, on virtual time.
type sharing struct {
	nodes []*Rates
	now   time.Duration
	lead  int // the node that has the accounts; -1: none
	term  uint64
	lost  func(n int) bool // whether what a node tells, or is told, is lost
	next  []time.Duration  // when each tells
	took  []int
}

const shareStep = 10 * time.Millisecond

func newSharing(nodes int, rate core.KeyRate) *sharing {
	s := &sharing{now: time.Minute, lost: func(int) bool { return false }, took: make([]int, nodes)}
	for n := range nodes {
		s.nodes = append(s.nodes, new(Rates))
		s.next = append(s.next, s.now+time.Duration(n)*70*time.Millisecond)
	}
	s.set(rate)
	return s
}

func (s *sharing) set(rate core.KeyRate) {
	for _, r := range s.nodes {
		r.Publish(map[Key]core.KeyRate{tenantRate: rate}, len(s.nodes), s.now)
	}
}

// step lets each greedy node take what it can, and each node that is due tell what it took.
func (s *sharing) step(greedy ...int) {
	s.now += shareStep
	for _, n := range greedy {
		for s.put(n, 1) {
			s.took[n]++
		}
	}
	for n, r := range s.nodes {
		if s.now < s.next[n] {
			continue
		}
		s.next[n] += 500 * time.Millisecond
		r.Publish(*r.table.Load(), len(s.nodes), s.now)
		if s.lead < 0 || s.lost(n) {
			continue
		}
		used, ok := DecodeUsed(AppendUsed(make([]byte, 8), r.Report(s.now)))
		shared, also := DecodeShared(AppendShared(make([]byte, 8), s.nodes[s.lead].Settle(s.term, uint64(n+1), used, s.now)))
		if !ok || !also {
			panic("what was encoded is not read")
		}
		if !s.lost(n) {
			r.Learn(shared, s.now, s.now)
		}
	}
}

func (s *sharing) put(node, items int) bool {
	wait, _ := s.nodes[node].Take(ratedPart, []core.Op{&core.KVPuts{Keyspace: "ks", Items: make([]core.KVItem, items)}}, s.now)
	return wait == 0
}

func (s *sharing) all() (n int) {
	for _, took := range s.took {
		n += took
	}
	return n
}

// All nodes together let through what the rate allows, and at most two seconds' worth more, whichever nodes get the writes.
func TestARateIsThatOfAllNodesTogether(t *testing.T) {
	const rate = 1000
	for _, nodes := range []int{1, 2, 3, 7} {
		everywhere := make([]int, nodes)
		for n := range everywhere {
			everywhere[n] = n
		}
		random := rand.New(rand.NewPCG(uint64(nodes), 9))
		for name, who := range map[string]func(s *sharing, at time.Duration) []int{
			"one":              func(*sharing, time.Duration) []int { return everywhere[:1] },
			"all at once":      func(*sharing, time.Duration) []int { return everywhere },
			"one, then all":    func(_ *sharing, at time.Duration) []int { return everywhere[:1+int(at/(5*time.Second))%2*(nodes-1)] },
			"each in its turn": func(_ *sharing, at time.Duration) []int { return everywhere[int(at/time.Second)%nodes:][:1] },
			"any":              func(*sharing, time.Duration) []int { return everywhere[random.IntN(nodes):] },
			"all, and the accounts move": func(s *sharing, at time.Duration) []int {
				s.lead, s.term = int(at/(3*time.Second))%nodes, uint64(at/(3*time.Second))
				return everywhere
			},
			"all, and half is lost": func(s *sharing, _ time.Duration) []int {
				s.lost = func(int) bool { return random.IntN(2) == 0 }
				return everywhere
			},
			"all, and no node has accounts": func(s *sharing, _ time.Duration) []int {
				s.lead = -1
				return everywhere
			},
		} {
			t.Run(fmt.Sprint(name, " of ", nodes), func(t *testing.T) {
				s := newSharing(nodes, core.KeyRate{Puts: rate})
				const long = 30 * time.Second
				most := 0.0
				for at := time.Duration(0); at < long; at += shareStep {
					s.step(who(s, at)...)
					if over := float64(s.all()) - rate*(1+(at+shareStep).Seconds()); over > most {
						most = over
					}
				}
				if most > 2*rate {
					t.Errorf("%.0f puts passed beyond a rate of %d", most, rate)
				}
				least := 0.9
				switch name {
				case "each in its turn", "any", "all, and half is lost", "one, then all":
					least = 0.4
				}
				if got := float64(s.all()) / (rate * long.Seconds()); got < least {
					t.Errorf("%.2f of the rate passed", got)
				}
			})
		}
	}
}

func TestWhatPassesARateIsShownAtAllNodes(t *testing.T) {
	const rate = 1000
	s := newSharing(3, core.KeyRate{Puts: rate})
	over := uint64(0)
	for range 300 {
		s.step(0, 1, 2)
		for n := range s.nodes {
			over = max(over, s.nodes[n].Pace(tenantRate, s.now).OverPuts)
		}
	}
	if over == 0 || over > 2*rate {
		t.Errorf("at most %d puts were shown to have passed beyond the rate", over)
	}
	for range 500 {
		s.step(0)
	}
	for n, r := range s.nodes {
		if got := r.Pace(tenantRate, s.now); got.Puts < rate/2 || got.Puts > 3*rate/2 || got.OverPuts > 0 {
			t.Errorf("node %d shows %+v", n, got)
		}
	}
	for range 500 {
		s.step()
	}
	for n, r := range s.nodes {
		if got := r.Pace(tenantRate, s.now); got != (core.KeyPace{}) {
			t.Errorf("node %d shows %+v when nothing is put", n, got)
		}
	}
}

// A frame may be larger than a second's worth. Its node is in debt then; that is not held against it, or the others, twice.
func TestAFrameBeyondARateIsMadeGoodOnce(t *testing.T) {
	s := newSharing(3, core.KeyRate{Puts: 50})
	frames := 0
	for range 100 * 60 {
		s.step()
		if s.put(0, 500) {
			frames++
		}
	}
	if frames < 6 || frames > 7 {
		t.Errorf("%d frames of 500 puts passed in 60 s at 50 puts in a second", frames)
	}
}

// A rate of few puts is reached however often it is tried.
func TestASmallRateIsReachedByWhoTriesOften(t *testing.T) {
	s := newSharing(1, core.KeyRate{Puts: 5})
	for range 100 * 20 {
		s.step(0)
	}
	if got := s.all(); got < 100 || got > 106 {
		t.Errorf("%d puts passed in 20 s at 5 in a second", got)
	}
}

// What was put when there was no bound is not owed when there is one.
func TestARateThatIsSetLaterOwesNothing(t *testing.T) {
	s := newSharing(1, core.KeyRate{Puts: 1 << 40})
	for range 10 {
		s.step()
		s.nodes[0].Take(ratedPart, []core.Op{&core.KVPut{Keyspace: "ks", Key: make([]byte, 1<<20)}}, s.now)
	}
	s.set(core.KeyRate{Puts: 1 << 40, Bytes: 1000})
	passed := false
	for range 20 {
		s.step()
		wait, _ := s.nodes[0].Take(ratedPart, []core.Op{&core.KVPut{Keyspace: "ks", Key: []byte("k")}}, s.now)
		passed = passed || wait == 0
	}
	if !passed {
		t.Error("a small put still waits for large ones from before the rate")
	}
}

func TestWhatIsRefusedForARateTakesNothingFromAnother(t *testing.T) {
	r := new(Rates)
	rate := core.KeyRate{Puts: 5}
	r.Publish(map[Key]core.KeyRate{
		{ratedPart.Tenant, ratedPart.Namespace, "full"}: rate, {ratedPart.Tenant, ratedPart.Namespace, "other"}: rate,
	}, 1, time.Minute)
	puts := func(keyspace string, n int) []core.Op {
		return []core.Op{&core.KVPuts{Keyspace: keyspace, Items: make([]core.KVItem, n)}}
	}
	if wait, _ := r.Take(ratedPart, puts("full", 9), time.Minute); wait != 0 {
		t.Fatalf("the first must wait %v", wait)
	}
	for range 10 {
		if wait, by := r.Take(ratedPart, append(puts("other", 3), puts("full", 1)...), time.Minute); wait == 0 || by.Limit != "writes_per_second" {
			t.Fatal("more than the rate is taken")
		}
	}
	if wait, _ := r.Take(ratedPart, puts("other", 5), time.Minute); wait != 0 {
		t.Errorf("the other waits %v for what was refused", wait)
	}
	for _, op := range []core.Op{&core.KVDelete{Keyspace: "full", Key: []byte("k")}, &core.KVDeleteRange{Keyspace: "full"}, &core.KVPut{Keyspace: "third"}} {
		if wait, _ := r.Take(ratedPart, []core.Op{op}, time.Minute); wait != 0 {
			t.Errorf("%T must wait %v", op, wait)
		}
	}
}

func TestReportsOfRatesAreReadAsTheyWereWrittenAndNothingElseIs(t *testing.T) {
	used := []Used{
		{key: Key{1, 2, "ks"}, age: 3, taken: [2]uint64{4, 5}, debt: [2]uint64{6, 7}, want: [2]bool{true, false}},
		{key: Key{Tenant: math.MaxUint32}, want: [2]bool{false, true}},
	}
	shared := []Shared{
		{key: Key{1, 2, "ks"}, rate: load{0.25, 3}, pace: core.KeyPace{Puts: 4, Bytes: 5, OverPuts: 6, OverBytes: 7}}, {key: Key{Tenant: 9}},
	}
	first, second := AppendUsed(make([]byte, 8), used), AppendShared(make([]byte, 8), shared)
	if got, ok := DecodeUsed(first); !ok || !reflect.DeepEqual(got, used) {
		t.Errorf("%+v, %t", got, ok)
	}
	if got, ok := DecodeShared(second); !ok || !reflect.DeepEqual(got, shared) {
		t.Errorf("%+v, %t", got, ok)
	}
	wholes := map[int]bool{8: true, len(AppendUsed(make([]byte, 8), used[:1])): true, len(AppendShared(make([]byte, 8), shared[:1])): true}
	for name, b := range map[string][]byte{"used": first, "shared": second} {
		for n := range b {
			_, a := DecodeUsed(b[:n])
			_, s := DecodeShared(b[:n])
			if (name == "used" && a || name == "shared" && s) && !wholes[n] {
				t.Errorf("%d of %d bytes of what is %s are read", n, len(b), name)
			}
		}
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(-1)} {
		if got, ok := DecodeShared(AppendShared(make([]byte, 8), []Shared{{rate: load{bad, 1}}})); ok {
			t.Errorf("a share of %v is read: %+v", bad, got)
		}
	}
}
