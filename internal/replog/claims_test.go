package replog_test

import (
	"testing"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

func TestVotesAndAcknowledgementsAreReadFromMessages(t *testing.T) {
	voters := []uint64{1, 2, 3}
	var all []*replica
	for _, id := range voters {
		all = append(all, openReplica(t, id, voters, replogtest.NewDisk(), nil, 0))
	}
	if err := all[0].core.Campaign(); err != nil {
		t.Fatal(err)
	}
	votes, has := 0, uint64(0)
	for range 20 {
		var sent []replog.Message
		for _, r := range all {
			r.step()
			r.sync()
			r.step()
			for _, m := range r.out {
				c, err := replog.ClaimsOf(m.Data)
				if err != nil {
					t.Fatal(err)
				}
				if c.Vote != 0 {
					votes++
					term, vote, err := replog.DurableVote(r.log, 0)
					if err != nil || term != c.Term || vote != c.Vote {
						t.Errorf("a message votes for %d in term %d, the log has %d in %d, %v", c.Vote, c.Term, vote, term, err)
					}
				}
				if r != all[0] {
					has = max(has, c.Has)
				}
			}
			sent = append(sent, r.out...)
			r.out = nil
		}
		for _, m := range sent {
			if err := all[m.To-1].core.Step(m.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if votes == 0 || has != replog.FirstIndex+1 {
		t.Errorf("%d votes, acknowledged up to %d", votes, has)
	}
	if _, err := replog.ClaimsOf([]byte{0xff}); err == nil {
		t.Error("bytes that are not a message were read")
	}
}
