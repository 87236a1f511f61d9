package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// A stream has sessions, a caller of claims has none.
func taker(id string, running int, kinds ...string) core.Worker {
	return core.Worker{ID: id, Queues: []string{"mail"}, Kinds: kinds, Slots: 2, Running: running, Sessions: []core.SessionID{{1}}}
}

func TestWhyNamesWhatOfTheServerHoldsATaskUp(t *testing.T) {
	r := newRig(t, edge.Limits{})
	made, err := pb.NewTaskServiceClient(r.conn).Create(apitest.As("acme/task:create"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "mail"}})
	if err != nil {
		t.Fatal(err)
	}
	id, p := apitest.MustID(t, made.GetId()), r.n.Proposed()[0].Partition
	r.n.Mu.Lock()
	r.n.Stored[p] = map[core.TaskID]core.Task{id: {ID: id}}
	r.n.Mu.Unlock()
	quiet := taker("q", 0)
	quiet.Quiet = true
	claims := taker("c", 9)
	claims.Sessions = nil
	var many []core.Worker
	for i := range 12 {
		many = append(many, taker(fmt.Sprintf("w%02d", i), 2))
	}
	long := make([]string, 33)
	for i := range long {
		long[i] = strings.Repeat("x", 124) + fmt.Sprint(100+i)
	}
	next, paused := core.WhyReason{Code: core.WhyNext, Object: "mail"}, core.WhyReason{Code: core.WhyPaused, Object: "mail", HeldBy: []string{"ada"}}
	running := core.WhyReason{Code: core.WhyRunning, Object: "w", HeldBy: []string{"w"}}
	for what, c := range map[string]struct {
		state   core.State
		reasons []core.WhyReason
		workers []core.Worker
		leader  string // of the partition; "?": none, empty: this node
		full    bool
		want    []string
	}{
		"no worker":                {core.Ready, []core.WhyReason{next}, nil, "", false, []string{"no_worker mail 0 []", "next mail 0 []"}},
		"workers of other queues":  {core.Ready, []core.WhyReason{next}, []core.Worker{{ID: "o", Queues: []string{"other"}}}, "", false, []string{"no_worker mail 0 []", "next mail 0 []"}},
		"quiet workers":            {core.Ready, []core.WhyReason{next}, []core.Worker{quiet}, "", false, []string{"no_worker mail 0 [q]", "next mail 0 []"}},
		"a pause first":            {core.Ready, []core.WhyReason{paused, next}, nil, "", false, []string{"paused mail 0 [ada]", "no_worker mail 0 []", "next mail 0 []"}},
		"no handler":               {core.Ready, []core.WhyReason{next}, []core.Worker{taker("a", 0, "other"), quiet}, "", false, []string{"no_handler mail.send 0 [a]", "next mail 0 []"}},
		"a handler":                {core.Ready, []core.WhyReason{next}, []core.Worker{taker("a", 2, "other"), taker("b", 1, "mail.send")}, "", false, []string{"next mail 0 []"}},
		"handlers of any kind":     {core.Ready, []core.WhyReason{next}, []core.Worker{taker("a", 0)}, "", false, []string{"next mail 0 []"}},
		"kinds that were cut":      {core.Ready, []core.WhyReason{next}, []core.Worker{taker("a", 0, long...)}, "", false, []string{"next mail 0 []"}},
		"no slot":                  {core.Ready, []core.WhyReason{next}, []core.Worker{taker("a", 2), taker("b", 3), taker("o", 0, "other")}, "", false, []string{"no_slot mail 4 [a b]", "next mail 0 []"}},
		"slots of many":            {core.Ready, []core.WhyReason{next}, many, "", false, []string{"no_slot mail 24 [w00 w01 w02 w03 w04 w05 w06 w07 w08 w09]", "next mail 0 []"}},
		"one that claims":          {core.Ready, []core.WhyReason{next}, []core.Worker{taker("a", 2), claims}, "", false, []string{"next mail 0 []"}},
		"no leader":                {core.Ready, []core.WhyReason{next}, nil, "?", false, []string{"partition_unled 0 0 []", "next mail 0 []"}},
		"no leader, a running one": {core.Running, []core.WhyReason{running}, nil, "?", true, []string{"partition_unled 0 0 []", "running w 0 [w]"}},
		"a full disk":              {core.Running, []core.WhyReason{running}, nil, "", true, []string{"running w 0 [w]", "disk_full n1 0 []"}},
		"a full disk elsewhere":    {core.Running, []core.WhyReason{running}, nil, "b", true, []string{"running w 0 [w]"}},
		"a full disk, a ready one": {core.Ready, []core.WhyReason{next}, []core.Worker{taker("a", 0)}, "", true, []string{"next mail 0 []"}},
		"an ended one":             {core.Dead, []core.WhyReason{{Code: core.WhyEnded}}, nil, "?", true, []string{"ended  0 []"}},
	} {
		r.n.Mu.Lock()
		r.n.Waits = &core.Why{Queue: "mail", Kind: "mail.send", State: c.state, Exact: true, Reasons: c.reasons}
		r.n.Known, r.n.Full, r.n.Leaders = c.workers, c.full, map[uint16]string{0: c.leader}
		r.n.Mu.Unlock()
		out, err := pb.NewTaskServiceClient(r.conn).Why(apitest.As("acme/task:read"), &pb.WhyRequest{Id: made.GetId()})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var got []string
		for _, one := range out.GetReasons() {
			got = append(got, fmt.Sprintf("%s %s %d %v", one.GetCode(), one.GetObject(), one.GetLimit(), one.GetHeldBy()))
			if one.GetText() == "" {
				t.Errorf("%s: %s has no text", what, one.GetCode())
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}
