package node

import (
	"fmt"
	"testing"
	"time"
)

// Parts of four shards come one after the other over a link of some speed, all of them twice that are asked for twice.
func TestANarrowLinkCarriesEachPartOfASnapshotAboutOnce(t *testing.T) {
	const shards, parts, tick = 4, 50, 100 * time.Millisecond
	for _, each := range []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 2500 * time.Millisecond} {
		t.Run(fmt.Sprint(each, " a part"), func(t *testing.T) {
			type part struct{ shard, n int }
			var (
				wire   []part
				free   time.Duration // when the first on the wire has come
				waits  [shards]await
				got    [shards]int
				copies int
			)
			for i := range waits {
				waits[i] = newAwait()
			}
			ask := func(i int, now time.Duration) {
				waits[i].ask(now)
				if len(wire) == 0 {
					free = now + each
				}
				wire = append(wire, part{i, got[i]})
				copies++
			}
			for now := tick; ; now += tick {
				for len(wire) > 0 && free <= now {
					p, at := wire[0], free
					wire, free = wire[1:], free+each
					if p.n != got[p.shard] {
						continue
					}
					waits[p.shard].came(at)
					if got[p.shard]++; got[p.shard] < parts {
						ask(p.shard, at)
					}
				}
				left := false
				for i := range waits {
					if left = left || got[i] < parts; got[i] < parts && waits[i].due(now) {
						ask(i, now)
					}
				}
				if !left {
					break
				}
				if copies > 10*shards*parts {
					t.Fatalf("%d parts were sent, of %d, and %d came", copies, shards*parts, got)
				}
			}
			if most := shards * parts * 11 / 10; copies > most {
				t.Errorf("%d parts were sent for %d", copies, shards*parts)
			}
		})
	}
}

func TestAPartThatIsLostIsAskedForAgain(t *testing.T) {
	a := newAwait()
	now := 100 * time.Millisecond
	if !a.due(now) {
		t.Fatal("a part that was not asked for yet is not due")
	}
	a.ask(now)
	a.came(now + time.Millisecond)
	a.ask(now + time.Millisecond)
	asked := 0
	for d := range 400 {
		if at := now + time.Duration(d)*100*time.Millisecond; a.due(at) {
			a.ask(at)
			asked++
		}
	}
	if asked < 5 || asked > 7 { // after 1, 2, 4, 8, 16 and 32 seconds
		t.Errorf("a part that does not come was asked for %d times in 40 s", asked)
	}
}
