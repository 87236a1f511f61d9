package api

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/history"
)

// waiting is a queue with ready tasks, of which the oldest has been ready for some time.
func waiting(name string, ready uint64, since time.Duration) core.QueueStats {
	q := core.QueueStats{Queue: name, OldestReady: core.ShardTimeOf(apitest.Now.Add(-since))}
	q.States[core.Ready] = ready
	return q
}

// overviewOf reads the overview of the namespace default.
func (r *rig) overviewOf(token string) *pb.Overview {
	r.t.Helper()
	out, err := pb.NewOverviewServiceClient(r.conn).Get(apitest.As(token), &pb.GetOverviewRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// attention lists the rows of an overview, as KIND OBJECT COUNT.
func attention(o *pb.Overview) (out []string) {
	for _, a := range o.GetAttention() {
		out = append(out, a.GetKind()+" "+a.GetObject())
	}
	return out
}

func TestAnOverviewTellsWhatNeedsAttention(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Parts = 2
	if _, err := r.n.Namespace(t.Context(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	fine, lone, stuck, paused, full, bad := waiting("fine", 1, time.Second), waiting("lone", 2, time.Hour), waiting("stuck", 3, 2*time.Hour),
		waiting("paused", 4, time.Hour), waiting("full", 5, time.Second), waiting("bad", 0, 0)
	bad.OldestReady = 0
	bad.States[core.Dead] = 9
	paused.Paused = core.QueuePaused{Since: core.ShardTimeOf(apitest.Now.Add(-30 * time.Minute)), By: "bob"}
	full.Config.Limits.MaxTasks = 5
	r.n.Listed = []core.QueueStats{bad, fine, full, lone, paused, stuck}
	r.n.Known = []core.Worker{{ID: "w", Queues: []string{"fine", "stuck", "full"}, Slots: 8, Running: 3}}
	rose := apitest.Now.Add(-5 * time.Minute)
	r.n.QueueDid = map[string]history.Recent{
		"bad":  {Rise: 7, RiseSince: rose, Ended: 20, Crashed: 3, CrashedSince: rose.Add(-time.Minute)},
		"fine": {Ended: 100, Crashed: 9},
	}
	r.n.Leaders = map[uint16]string{1: "?"}
	o := r.overviewOf("acme/task:read")
	want := []string{
		"over_quota full", "partition_unled 1", "dead_rising bad", "crash_rate bad", "paused_backlog paused", "no_workers lone", "stuck stuck",
	}
	if got := attention(o); !slices.Equal(got, want) {
		t.Errorf("it tells of\n%q, want\n%q", got, want)
	}
	counts := map[string]uint64{"full": 5, "bad": 7, "paused": 8, "lone": 4, "stuck": 6} // both partitions have them
	for _, a := range o.GetAttention() {
		if n, ok := counts[a.GetObject()]; ok && a.GetKind() != "crash_rate" && a.GetCount() != n || a.GetText() == "" || a.GetSince() == nil {
			t.Errorf("a row is %v", a)
		}
	}
	if a := o.GetAttention()[4]; !strings.Contains(a.GetText(), "bob") || !a.GetSince().AsTime().Equal(apitest.Now.Add(-30*time.Minute)) {
		t.Errorf("of the paused queue it tells %v", a)
	}
	if s := o.GetSlots(); s.GetAll() != 8 || s.GetUsed() != 3 {
		t.Errorf("the slots are %v", s)
	}
	if o.GetStates().GetReady() != 30 || o.GetStates().GetDead() != 18 || o.GetQueueCount() != 6 || o.GetPausedQueues() != 1 {
		t.Errorf("in sum it has %v", o)
	}
	var names []string
	for _, q := range o.GetQueues() {
		names = append(names, q.GetQueue())
	}
	if want := []string{"lone", "stuck", "full", "bad", "paused", "fine"}; !slices.Equal(names, want) {
		t.Errorf("the queues are %q, want %q", names, want)
	}
	// When it began is kept where it is not known.
	since := o.GetAttention()[0].GetSince()
	r.clock.Advance(time.Minute)
	if o := r.overviewOf("acme/task:read"); !o.GetAttention()[len(o.GetAttention())-1].GetSince().IsValid() || !slices.ContainsFunc(o.GetAttention(), func(a *pb.Attention) bool {
		return a.GetKind() == "over_quota" && a.GetSince().AsTime().Equal(since.AsTime())
	}) {
		t.Errorf("a minute later: %v", o.GetAttention())
	}
	if len(o.GetAttention()) == 0 || o.GetFsyncUs() != nil {
		t.Errorf("without the scope cluster: %v", o)
	}
	// A token of one queue sees that one.
	o = r.overviewOf("acme/task:read/queues=lone")
	if got := attention(o); !slices.Equal(got, []string{"partition_unled 1", "no_workers lone"}) || o.GetQueueCount() != 1 || o.GetSlots() != nil {
		t.Errorf("to a token of one queue: %q, %v", got, o)
	}
}

func TestAnOverviewTellsOfNodesToOperatorsAlone(t *testing.T) {
	r := newRig(t, edge.Limits{})
	if _, err := r.n.Namespace(t.Context(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	if got := attention(r.overviewOf("acme/task:read,admin")); len(got) != 0 {
		t.Errorf("a tenant is told of %q", got)
	}
	if got := attention(r.overviewOf("acme/task:read,cluster")); !slices.Equal(got, []string{"node_down n2"}) {
		t.Errorf("an operator is told of %q", got)
	}
}

func TestAHistoryShowsGaps(t *testing.T) {
	r := newRig(t, edge.Limits{})
	if _, err := r.n.Namespace(t.Context(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	read := func(token string, in *pb.HistoryRequest) (*pb.HistoryResponse, error) {
		return pb.NewOverviewServiceClient(r.conn).History(apitest.As(token), in)
	}
	// Nothing is known: it is one gap.
	for span, steps := range map[string]int{"": 90, "15m": 90, "1h": 360, "24h": 288} {
		out, err := read("acme/task:read", &pb.HistoryRequest{Queue: "mail", Span: span})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.GetSeries()) != 7 || len(out.GetSeries()[6].GetValues()) != steps || out.GetSeries()[6].GetName() != "dead" {
			t.Errorf("%s: %d series", span, len(out.GetSeries()))
		}
		if g := out.GetGaps(); len(g) != 1 || g[0].GetFirst() != 0 || int(g[0].GetSteps()) != steps {
			t.Errorf("%s: the gaps are %v", span, g)
		}
	}
	line := func(values ...uint32) history.Line {
		l := history.Line{Step: history.Step, Last: apitest.Now, Values: make([]uint32, 360)}
		copy(l.Values[360-len(values):], values)
		return l
	}
	m := uint32(history.Missing)
	r.n.Lines = []history.Line{line(1, m, 3, m, 5, 6), line(1, 2, 3, 4, 5, 6), line(), line(), line(), line(7, 8, 9, 10, 11, 12), line()}
	out, err := read("acme/task:read", &pb.HistoryRequest{Series: "running,created"})
	if err != nil {
		t.Fatal(err)
	}
	s := out.GetSeries()
	if len(s) != 2 || s[0].GetName() != "running" || !slices.Equal(s[1].GetValues()[84:], []uint32{1, 0, 3, 0, 5, 6}) || s[0].GetValues()[89] != 12 {
		t.Errorf("the series are %v", s)
	}
	if g := out.GetGaps(); len(g) != 2 || g[0].GetFirst() != 85 || g[1].GetFirst() != 87 || g[0].GetSteps() != 1 {
		t.Errorf("the gaps are %v", g)
	}
	if from := out.GetFrom().AsTime(); !from.Equal(apitest.Now.Add(-89*history.Step)) || out.GetStep().AsDuration() != history.Step || out.GetNode() != "n1" {
		t.Errorf("it begins at %v, %v", from, out.GetStep())
	}
	if _, err := read("acme/task:read", &pb.HistoryRequest{Node: 1}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a node without the scope cluster: %v", err)
	}
	if out, err := read("acme/task:read,cluster", &pb.HistoryRequest{Node: 1, Series: "fsyncs"}); err != nil || out.GetSeries()[0].GetName() != "fsyncs" {
		t.Errorf("a node: %v, %v", out, err)
	}
	if _, err := read("acme/task:read,cluster", &pb.HistoryRequest{Node: 7}); status.Code(err) != codes.NotFound {
		t.Errorf("a node that is not there: %v", err)
	}
}
