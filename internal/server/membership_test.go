package server

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestEachRefusalOfAChangeOfMembershipHasItsCodeItsTextAndItsCount(t *testing.T) {
	counted := map[string]uint64{}
	var refused refusedChanges
	for _, c := range []struct {
		fact   core.Fact
		status int
		text   string
	}{
		{core.NotFound{Kind: "node", ID: "4"}, http.StatusNotFound, `NOT_FOUND node "4" not found`},
		{core.AlreadyExists{Kind: "node", ID: "4"}, http.StatusConflict, "ALREADY_EXISTS node 4 is taken"},
		{core.AlreadyExists{Kind: "address", ID: "h:7082"}, http.StatusConflict, "ALREADY_EXISTS address h:7082 is taken"},
		{core.WrongMembership{Reason: "quorum_loss", Node: 4}, http.StatusConflict, "WRONG_STATE quorum_loss: without node 4 the nodes that are reached are not a majority"},
		{core.WrongMembership{Reason: "not_learner", Node: 4}, http.StatusConflict, "WRONG_STATE not_learner: node 4"},
		{core.WrongMembership{Reason: "learner_behind", Node: 4, Lag: 1001}, http.StatusConflict, "WRONG_STATE learner_behind: node 4 is 1001 entries behind"},
		{core.WrongMembership{Reason: "learner_behind", Node: 4, Lag: math.MaxUint64}, http.StatusConflict, "WRONG_STATE learner_behind: node 4 was not heard of lately"},
		{core.WrongMembership{Reason: "job_running"}, http.StatusConflict, "WRONG_STATE job_running: another change of membership is under way"},
		{core.Exhausted{Limit: "voters", Max: 7}, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED limit voters of 7 reached"},
		{core.Exhausted{Limit: "learners", Max: 4}, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED limit learners of 4 reached"},
		{core.Invalid{Field: "to", Message: "must be a member"}, http.StatusBadRequest, "INVALID_ARGUMENT to: must be a member"},
		{core.TooLarge{Field: "name", Limit: "member_text", Max: 255}, http.StatusRequestEntityTooLarge, "TOO_LARGE name is larger than limit member_text of 255"},
		{core.Unavailable{Reason: "no_leader"}, http.StatusServiceUnavailable, "UNAVAILABLE unavailable: no_leader"},
		{core.Unavailable{Reason: "no_leader", Unknown: true}, http.StatusServiceUnavailable, "UNAVAILABLE unavailable: no_leader; whether the change was made is not known: look at the status"},
		{core.DeadlineExceeded{}, http.StatusServiceUnavailable, "DEADLINE_EXCEEDED whether the change was made is not known: look at the status"},
	} {
		status, text := refusedChange(c.fact)
		if status != c.status || text != c.text {
			t.Errorf("%#v is told as %d %q, want %d %q", c.fact, status, text, c.status, c.text)
		}
		refused.count(text)
		code, _, _ := strings.Cut(c.text, " ")
		counted[code]++
	}
	for i, code := range changeCodes {
		if got := refused[i].Load(); got != counted[code] || got == 0 {
			t.Errorf("%s is counted %d times, want %d", code, got, counted[code])
		}
	}
}

func TestARefusedChangeOfMembershipIsInTheMetrics(t *testing.T) {
	r := startForAdmin(t, Options{Durability: None, AdminSocket: socketFor(t)})
	got := operate(t, r, "POST", "/cluster/members/remove?node=1")
	if got.code != http.StatusConflict || !strings.HasPrefix(got.body, "WRONG_STATE ") {
		t.Fatalf("%d %s", got.code, got.body)
	}
	if v := scrape(t, r)[`millrace_server_refused_changes_total{code="WRONG_STATE"}`]; v != 1 {
		t.Errorf("%v are counted", v)
	}
}

func TestAChangeThatWasNotAnsweredIsNotReportedAsRefused(t *testing.T) {
	silent := refusal{text: "node 2 gave no answer", silent: true}
	taken := core.AlreadyExists{Kind: "node", ID: "3"}
	leaderless := core.Unavailable{Reason: "no_leader"}
	wrong := refusal{text: "not a change of membership", wrong: true}
	for _, x := range []struct {
		name    string
		answers []error // the last one again and again
		tries   int
		unknown bool
		want    error // where it is known
	}{
		{"decided at once", []error{nil}, 1, false, nil},
		{"refused at once", []error{taken}, 1, false, taken},
		{"not understood by the leader's node", []error{wrong}, 1, false, wrong},
		{"after an election", []error{leaderless, core.NotLeader{}, nil}, 3, false, nil},
		{"refused after an election", []error{leaderless, taken}, 2, false, taken},
		{"no node leads", []error{leaderless}, changeTries + 1, false, leaderless},
		{"an answer is lost and it was not made", []error{silent, nil}, 2, false, nil},
		{"an answer is lost and it was made perhaps", []error{silent, leaderless, taken}, 3, true, nil},
		{"no answer ever", []error{silent}, changeTries + 1, true, nil},
		{"the leader does not know", []error{core.Unavailable{Reason: "no_leader", Unknown: true}}, 1, true, nil},
	} {
		tries := 0
		_, err := changeUntil(func() (core.Directory, error) {
			tries++
			return core.Directory{}, x.answers[min(tries, len(x.answers))-1]
		}, func() bool { return true })
		fact, _ := errors.AsType[core.Fact](err)
		unknown := fact != nil && core.OutcomeUnknown(fact)
		if tries != x.tries || unknown != x.unknown || !unknown && !errors.Is(err, x.want) {
			t.Errorf("%s: %v after %d tries (unknown: %v), want %v after %d (%v)", x.name, err, tries, unknown, x.want, x.tries, x.unknown)
		}
	}
}

// A node of another version may send what this one does not understand: that is told as such, and not tried again.
func TestAChangeThatIsNotUnderstoodIsRefusedByTheNodeThatLeads(t *testing.T) {
	entry := func(commits ...core.Commit) []byte {
		return core.AppendEntry(nil, &core.Entry{Format: core.NewestFormat(), Commits: commits})
	}
	put := &core.KVPut{Keyspace: "thumbs", Key: []byte("7")}
	for name, x := range map[string]struct {
		entry []byte
		want  string
	}{
		"no entry":     {[]byte("nonsense"), "not one change of membership"},
		"no change":    {entry(), "not one change of membership"},
		"two changes":  {entry(core.Commit{Ops: []core.Op{put, put}}), "not one change of membership"},
		"another kind": {entry(core.Commit{Ops: []core.Op{put}}), "not a change of membership"},
	} {
		if got := new(coordinator).answerChange(2, x.entry); !got.Wrong || got.Error != x.want || got.Fact != nil || got.Dir != nil {
			t.Errorf("%s is answered by %+v, want %q", name, got, x.want)
		}
	}
}

func TestATransferFollowsALeaderThatChangesMeanwhile(t *testing.T) {
	moved := refusal{text: "node 2 does not lead shard 1 now", moved: true}
	unreached := refusal{text: "node 3 is not reached"}
	for _, x := range []struct {
		name    string
		answers []error // the last one again and again
		tries   int
		want    error
	}{
		{"at once", []error{nil}, 1, nil},
		{"refused at once", []error{unreached}, 1, unreached},
		{"after an election", []error{moved, moved, nil}, 3, nil},
		{"refused after an election", []error{moved, unreached}, 2, unreached},
		{"no time is left", []error{moved}, 5, moved},
	} {
		tries := 0
		err := moveUntil(func() error {
			tries++
			return x.answers[min(tries, len(x.answers))-1]
		}, func() bool { return tries < 5 })
		if tries != x.tries || !errors.Is(err, x.want) {
			t.Errorf("%s: %v after %d tries, want %v after %d", x.name, err, tries, x.want, x.tries)
		}
	}
}

// A node that is asked to give away a shard which it does not lead says so, apart from all other refusals: it is asked elsewhere then.
func TestANodeThatDoesNotLeadSaysThatTheShardMoved(t *testing.T) {
	for _, x := range []struct {
		err   error
		moved bool
	}{
		{core.NotLeader{Leader: "n1.example:1"}, true},
		{core.Unavailable{Reason: "no_leader"}, true},
		{core.Unavailable{Reason: "node_unreached"}, false},
		{core.Unavailable{Reason: "not_taken_over"}, false},
		{core.Invalid{Field: "to", Message: "the node is drained"}, false},
	} {
		if got := notMoved(x.err, 1, 2, 3); got.moved != x.moved {
			t.Errorf("%v: moved is %v, want %v", x.err, got.moved, x.moved)
		}
	}
}
