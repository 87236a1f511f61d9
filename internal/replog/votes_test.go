package replog_test

import (
	"testing"

	"github.com/millrace/millrace/internal/replog/replogtest"
)

// A candidate that is not sure of its own vote loses power once the others have let it lead, and comes back in the term before. It must not
// lead that term twice: what it proposed the first time may be in other logs.
func TestACandidateAsksForVotesOnceItsOwnIsDurable(t *testing.T) {
	ids := []uint64{1, 2, 3}
	one := openReplica(t, 1, ids, replogtest.NewDisk(), nil, 0)
	others := []*replica{openReplica(t, 2, ids, replogtest.NewDisk(), nil, 0), openReplica(t, 3, ids, replogtest.NewDisk(), nil, 0)}
	round := func() {
		one.step() // nothing that it writes is durable
		sent := one.out
		for _, other := range others {
			one.out = sent
			deliver(one, other)
			other.settle()
			deliver(other, one)
		}
	}
	if err := one.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		round()
		if one.core.Status().Leading {
			t.Fatalf("it leads term %d, and its own vote in that is not durable", one.core.Status().Term)
		}
	}
	for range 20 {
		round()
		one.sync()
	}
	if !one.core.Status().Leading {
		t.Errorf("its vote is durable: %+v", one.core.Status())
	}
}
