package replog_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// trio is three replicas of which 1 leads, and what is on its way between them.
type trio struct {
	t    *testing.T
	all  map[uint64]*replica
	lost func(from uint64, m replog.Message) bool
}

func openTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{t: t, all: map[uint64]*replica{}, lost: func(uint64, replog.Message) bool { return false }}
	for id := range uint64(3) {
		c.all[id+1] = openReplica(t, id+1, []uint64{1, 2, 3}, replogtest.NewDisk(), nil, 0)
	}
	if err := c.all[1].core.Campaign(); err != nil {
		t.Fatal(err)
	}
	c.carry()
	if !c.all[1].core.Status().Leading {
		t.Fatal("the first does not lead")
	}
	return c
}

// carry delivers until nothing follows, news of commits too.
func (c *trio) carry() {
	c.t.Helper()
	for busy := true; busy; {
		busy = false
		for _, id := range slices.Sorted(maps.Keys(c.all)) {
			r := c.all[id]
			r.settle()
			if err := r.core.TellNews(); err != nil {
				c.t.Fatal(err)
			}
			r.settle()
			out := r.out
			r.out = nil
			for _, m := range out {
				if c.lost(id, m) {
					continue
				}
				busy = true
				if err := c.all[m.To].core.Step(m.Data); err != nil {
					c.t.Logf("%d to %d: %v", id, m.To, err)
				}
			}
		}
	}
}

func (c *trio) tick() {
	c.t.Helper()
	for _, id := range slices.Sorted(maps.Keys(c.all)) {
		if err := c.all[id].core.Tick(); err != nil {
			c.t.Fatal(err)
		}
	}
	c.carry()
}

// A leader that nothing reaches is still heard: its followers would wait for the election timeout after its last heartbeat.
func TestALeaderThatHearsNoReplicaHasAnotherStandAtOnce(t *testing.T) {
	c := openTrio(t)
	c.lost = func(_ uint64, m replog.Message) bool { return m.To == 3 && m.Bulk }
	if err := c.all[1].core.Propose([]byte("a")); err != nil {
		t.Fatal(err)
	}
	c.carry()
	c.lost = func(_ uint64, m replog.Message) bool { return m.To == 1 }
	for ticks := 0; c.all[1].core.Status().Leading; ticks++ {
		if ticks > 20 {
			t.Fatal("it leads on")
		}
		c.tick()
	}
	if !c.all[2].core.Status().Leading {
		t.Errorf("replica 2, whose log is the longest, does not lead: %+v, and 3 %+v", c.all[2].core.Status(), c.all[3].core.Status())
	}
}

// On a link that stood still, answers to all the heartbeats of a time come at once.
func TestACrowdOfAnswersHasEntriesSentOnce(t *testing.T) {
	c := openTrio(t)
	var held []replog.Message
	c.lost = func(from uint64, m replog.Message) bool {
		if from == 3 && !m.Bulk {
			held = append(held, m)
		}
		return from == 3 || m.To == 3 && m.Bulk
	}
	for i := range 200 {
		if err := c.all[1].core.Propose(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		c.all[1].core.ReadIndex(fmt.Sprint(i))
		c.carry()
	}
	c.all[1].core.Unreachable(3)
	c.carry()
	if len(held) < 200 {
		t.Fatalf("%d answers are held: this test shows nothing", len(held))
	}
	sent := 0
	c.lost = func(_ uint64, m replog.Message) bool {
		if m.To == 3 && m.Bulk {
			sent += len(m.Data)
		}
		return m.To == 3
	}
	crowd := func() {
		t.Helper()
		for _, m := range held {
			if err := c.all[1].core.Step(m.Data); err != nil {
				t.Fatal(err)
			}
			c.carry()
		}
	}
	crowd()
	if sent < 200_000 || sent > 300_000 {
		t.Errorf("%d bytes are sent to a replica that lacks 200,000", sent)
	}
	c.tick()
	before := sent
	crowd()
	if sent < before+200_000 {
		t.Errorf("what was lost is not sent again in the next tick: %d bytes, %d before", sent, before)
	}
}

func TestOfACrowdOfHeartbeatsTheLastCounts(t *testing.T) {
	beat := func(of pb.MessageType, from, term uint64, context string) []byte {
		m := &pb.Message{Type: of.Enum(), From: &from, To: new(uint64(9)), Term: &term}
		if context != "" {
			m.Context = []byte(context)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const (
		there  = pb.MsgHeartbeat
		answer = pb.MsgHeartbeatResp
	)
	for _, tc := range []struct {
		name string
		in   [][]byte
		want []int
	}{
		{"none", nil, nil},
		{"rounds of reads", [][]byte{beat(answer, 1, 5, "a"), beat(answer, 1, 5, "b"), beat(answer, 1, 5, "c")}, []int{0, 1}},
		{"without one", [][]byte{beat(there, 1, 5, ""), beat(there, 1, 5, "")}, []int{0}},
		{"a read before one without", [][]byte{beat(answer, 1, 5, "a"), beat(answer, 1, 5, "")}, nil},
		{"reads before and behind one without", [][]byte{beat(answer, 1, 5, "a"), beat(answer, 1, 5, ""), beat(answer, 1, 5, "b")}, []int{0, 1}},
		{"one without between", [][]byte{beat(answer, 1, 5, "a"), beat(answer, 1, 5, "b"), beat(answer, 1, 5, "")}, []int{0}},
		{"another sender", [][]byte{beat(answer, 1, 5, "a"), beat(answer, 2, 5, "b")}, nil},
		{"another term", [][]byte{beat(answer, 1, 5, "a"), beat(answer, 1, 6, "b")}, nil},
		{"another kind", [][]byte{beat(there, 1, 5, "a"), beat(answer, 1, 5, "b")}, nil},
		{"votes", [][]byte{beat(pb.MsgVote, 1, 5, ""), beat(pb.MsgVote, 1, 5, "")}, nil},
		{"what is none", [][]byte{nil, []byte("no message"), beat(answer, 1, 5, "")}, nil},
	} {
		if got := slices.Sorted(maps.Keys(replog.Moot(tc.in))); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// commit has 1 propose an entry, or do something else, and carries it until 1 knows that it is committed, and has settled.
func (c *trio) commit(propose func(*replog.Core) error) {
	c.t.Helper()
	lead := c.all[1]
	if err := propose(lead.core); err != nil {
		c.t.Fatal(err)
	}
	lead.settle()
	out := lead.out
	lead.out = nil
	for _, m := range out {
		if err := c.all[m.To].core.Step(m.Data); err != nil {
			c.t.Fatal(err)
		}
	}
	for id := uint64(2); id <= 3; id++ {
		c.all[id].settle()
		for _, m := range c.all[id].out {
			if err := lead.core.Step(m.Data); err != nil {
				c.t.Logf("%d to 1: %v", id, err)
			}
		}
		c.all[id].out = nil
	}
	lead.settle()
}

func proposal(data string) func(*replog.Core) error {
	return func(k *replog.Core) error { return k.Propose([]byte(data)) }
}

// What is proposed behind an entry takes the news that it is committed along: one message to each of the others, and one answer.
func TestNewsOfACommitGoesWithTheEntryBehindIt(t *testing.T) {
	for _, next := range []bool{false, true} {
		c := openTrio(t)
		lead := c.all[1]
		c.commit(proposal("a"))
		if len(lead.out) > 0 || !lead.core.HasNews() {
			t.Errorf("before anything follows %d messages are sent, and there is news: %v", len(lead.out), lead.core.HasNews())
		}
		var err error
		if next {
			err = lead.core.Propose([]byte("b"))
		} else {
			err = lead.core.TellNews()
		}
		if err != nil {
			t.Fatal(err)
		}
		lead.settle()
		sent := map[uint64]int{}
		for _, m := range lead.out {
			sent[m.To]++
		}
		if sent[2] != 1 || sent[3] != 1 || lead.core.HasNews() {
			t.Errorf("with another entry behind it %v: replicas are sent %v messages, want one each; more is left: %v", next, sent, lead.core.HasNews())
		}
		c.carry()
		for id := uint64(2); id <= 3; id++ {
			if want := 1 + map[bool]int{true: 1}[next]; len(c.all[id].applied) != want {
				t.Errorf("with another entry behind it %v: replica %d has applied %q", next, id, c.all[id].applied)
			}
		}
	}
}

// A heartbeat tells of commits too, and is not told of again.
func TestAHeartbeatTellsTheNewsOfACommit(t *testing.T) {
	c := openTrio(t)
	c.commit(proposal("a"))
	lead := c.all[1]
	if err := lead.core.Tick(); err != nil {
		t.Fatal(err)
	}
	lead.settle()
	if lead.core.HasNews() || len(lead.out) != 2 {
		t.Errorf("after a heartbeat %d messages are sent, and there is news: %v", len(lead.out), lead.core.HasNews())
	}
}

// A replica that a change of the configuration removes is told of it while the leader is still there.
func TestNewsOfAChangeOfTheConfigurationDoesNotWait(t *testing.T) {
	c := openTrio(t)
	c.commit(proposal("a"))
	c.carry()
	lead := c.all[1]
	if err := lead.core.Reconfigure(replog.RoleChange{Replica: 3, Role: replog.Absent}); err != nil {
		t.Fatal(err)
	}
	for range 20 { // entries into the joint configuration and out of it
		c.commit(func(*replog.Core) error { return nil })
		if lead.core.HasNews() {
			t.Fatalf("news of a change waits: %+v", lead.core.Conf())
		}
	}
	if conf := lead.core.Conf(); !slices.Equal(conf.Voters, []uint64{1, 2}) {
		t.Errorf("the configuration is %+v", conf)
	}
}
