package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/strictjson"
)

const (
	// overviewQueues is how many queues an overview adds up: the first ones by name. It is as many as a namespace is meant to have.
	overviewQueues = sortedQueues
	// worstQueues is how many queues an overview shows.
	worstQueues = 10
)

// OverviewService shows a namespace at a glance, and what its queues and the node did.
type OverviewService struct {
	pb.UnimplementedOverviewServiceServer
	s *Server // what all services share
}

// Overviews is the service of overviews.
func (s *Server) Overviews() *OverviewService { return &OverviewService{s: s} }

// Sight is what somebody may see besides the tasks of their tenant.
type Sight uint8

// The parts of a Sight.
const (
	SeesCluster Sight = 1 << iota // figures of nodes
	SeesTokens                    // names and ends of the tenant's tokens
	SeesKeys                      // names of keyspaces
)

// SightOf is what a token with some scopes sees.
func SightOf(scopes auth.Scopes) (s Sight) {
	for _, x := range [...]struct {
		scope auth.Scopes
		sight Sight
	}{{auth.Cluster, SeesCluster}, {auth.Admin, SeesTokens}, {auth.KVRead, SeesKeys}} {
		if scopes.Has(x.scope) {
			s |= x.sight
		}
	}
	return s
}

// Get shows the namespace of the call at a glance.
func (os *OverviewService) Get(ctx context.Context, _ *pb.GetOverviewRequest) (*pb.Overview, error) {
	who, name, fact := os.s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	o, at, err := os.s.LiveOverview(ctx, Space{Tenant: who.Tenant, Name: name}, SightOf(who.Scopes), &who.Principal)
	if err != nil {
		return nil, err
	}
	o.Stamp, o.At = timestamppb.New(os.s.LiveStamp(at)), make([]*pb.At, len(at))
	for i := range at {
		o.At[i] = ShowAt(at[i])
	}
	return o, nil
}

// LiveStamp is the age of the oldest of some parts that were read.
func (s *Server) LiveStamp(at []core.At) time.Time {
	stamp := s.Clock.Wall()
	for i := range at {
		if one := TimeOf(at[i].Stamp); one != nil && one.AsTime().Before(stamp) {
			stamp = one.AsTime()
		}
	}
	return stamp
}

// LiveOverview shows a namespace at a glance, by this node's replica. One that is not there has nothing. To a token of some queues it is of
// these; who is nil where it is of all.
func (s *Server) LiveOverview(ctx context.Context, in Space, sight Sight, who *auth.Principal) (*pb.Overview, []core.At, error) {
	n := &notices{s: s, in: in}
	c, all, at, err := s.liveQueues(ctx, in, overviewQueues, n.bounds)
	if err != nil {
		return nil, nil, err
	}
	whole := who == nil || who.AllQueues()
	if !whole {
		all = slices.DeleteFunc(all, func(q core.QueueStats) bool { return !who.ReachesQueue(q.Queue) })
	}
	var sums core.QueueStats
	out := &pb.Overview{QueueCount: uint64(len(all))}
	for i := range all {
		if all[i].Paused.Since != 0 {
			out.PausedQueues++
		}
		sum(&sums, &all[i])
	}
	out.OldestReady, out.States = TimeOf(sums.OldestReady), &pb.TaskCounts{
		Blocked: sums.States[core.Blocked], Scheduled: sums.States[core.Scheduled], Ready: sums.States[core.Ready],
		Running: sums.States[core.Running], Completed: sums.States[core.Completed], Dead: sums.States[core.Dead],
		Cancelled: sums.States[core.Cancelled],
	}
	if c != nil {
		rates, spark, ok := c.queueRates("")
		if ok && whole {
			out.Rates = showRates(rates)
		}
		if whole {
			out.Spark = spark
		}
		workers := c.workersOf(ctx)
		if workers.queues != nil && whole {
			out.Slots = &pb.WorkerSlots{Used: workers.used, All: workers.slots}
		}
		for i := range all {
			n.queue(c, &all[i], &workers)
		}
		n.partitions(c)
		if err := n.keys(ctx, c, sight); err != nil {
			return nil, nil, err
		}
		out.Queues = c.showQueues(ctx, n.worst(all))
	}
	if sight&SeesTokens != 0 {
		n.tokens()
	}
	if sight&SeesCluster != 0 {
		out.FsyncUs = n.cluster(ctx)
	}
	out.Attention, out.MoreAttention = n.list(noticeSpace{in, sight, whole})
	return out, at, nil
}

// worst returns the queues to look at first. It sorts all.
func (n *notices) worst(all []core.QueueStats) []core.QueueStats {
	harm := func(q *core.QueueStats) int {
		if h, ok := n.harm[q.Queue]; ok {
			return h
		}
		return len(queueHarms)
	}
	waits := func(q *core.QueueStats) uint64 { return uint64(q.OldestReady) - 1 } // those without ready tasks come last
	slices.SortFunc(all, func(a, b core.QueueStats) int {
		return cmp.Or(cmp.Compare(harm(&a), harm(&b)), cmp.Compare(waits(&a), waits(&b)), strings.Compare(a.Queue, b.Queue))
	})
	return all[:min(len(all), worstQueues)]
}

// The spans of a history.
var historySpans = []string{"15m", "1h", "24h"}

// quarterSteps is how many steps a quarter of an hour has.
const quarterSteps = int(15 * time.Minute / history.Step)

// History shows what a queue, or a node, did.
// A step of which this node knows nothing is in a gap. What another node did is asked there: NotLeader names it.
func (os *OverviewService) History(ctx context.Context, in *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	span, names := cmp.Or(in.GetSpan(), historySpans[0]), HistorySeries(in.GetNode() != 0)
	if !slices.Contains(historySpans, span) {
		return nil, edge.Invalid("span", strictjson.MustBe(historySpans))
	}
	chosen, fact := seriesOf(in.GetSeries(), names)
	if fact != nil {
		return nil, fact
	}
	key, err := os.historyOf(ctx, in)
	if err != nil {
		return nil, err
	}
	day := span == "24h"
	lines, ok := os.s.o.Backend.History(key, day)
	if !ok { // no queue is known, or has series: nothing is known of any step
		lines = unknownLines(os.s.Clock.Wall(), len(names), day)
	}
	steps := len(lines[0].Values)
	if span == "15m" {
		steps = quarterSteps
	}
	first := &lines[0]
	out := &pb.HistoryResponse{
		Step: durationpb.New(first.Step), From: timestamppb.New(first.Last.Add(-time.Duration(steps-1) * first.Step).Truncate(time.Millisecond)),
		Node: os.s.node.self.Status().Node,
	}
	for _, i := range chosen {
		values := lines[i].Values[len(lines[i].Values)-steps:]
		out.Gaps = addGaps(out.Gaps, values)
		for k, v := range values {
			if v == history.Missing {
				values[k] = 0
			}
		}
		out.Series = append(out.Series, &pb.HistorySeries{Name: names[i], Values: values})
	}
	return out, nil
}

// historyOf finds what a request asks for.
func (os *OverviewService) historyOf(ctx context.Context, in *pb.HistoryRequest) (k history.Key, err error) {
	who, _, fact := os.s.asks(ctx)
	if fact != nil {
		return k, fact
	}
	if in.GetNode() != 0 {
		if in.GetQueue() != "" {
			return k, edge.Invalid("node", "and queue are mutually exclusive")
		}
		if !who.Scopes.Has(auth.Cluster) {
			return k, core.Denied{Scope: auth.Cluster.String()}
		}
		address, here, known := os.s.o.Backend.NodeAt(in.GetNode())
		switch {
		case !known:
			return k, core.NotFound{Kind: "node", ID: strconv.FormatUint(in.GetNode(), 10)}
		case !here:
			return k, core.NotLeader{Leader: address}
		}
		return history.Key{Node: true}, nil
	}
	if in.GetQueue() != "" {
		if fact := QueueName("queue", in.GetQueue()); fact != nil {
			return k, fact
		}
	}
	if fact := os.s.reachesQueue(ctx, in.GetQueue()); fact != nil {
		return k, fact
	}
	c, err := os.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return k, nil // nothing has this key
	}
	if err != nil {
		return k, err
	}
	return history.Key{Tenant: c.t.part.Tenant, Namespace: c.t.part.Namespace, Queue: in.GetQueue()}, nil
}

// HistorySeries are the names of the series of queues, or of nodes.
func HistorySeries(node bool) []string { return history.SeriesNames(node) }

// seriesOf reads names of series, separated by commas, and returns their numbers; an empty text is all of them.
func seriesOf(text string, names []string) (chosen []int, fact core.Fact) {
	if text == "" {
		for i := range names {
			chosen = append(chosen, i)
		}
		return chosen, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, edge.Invalid("series", "must be names separated by commas, of "+strings.Join(names, ", "))
		}
		if slices.Contains(chosen, i) {
			return nil, edge.Invalid("series", "must name each series only once")
		}
		chosen = append(chosen, i)
	}
	return chosen, nil
}

// unknownLines are series of which nothing is known.
func unknownLines(now time.Time, n int, day bool) []history.Line {
	step := history.Step
	if day {
		step = history.CoarseStep
	}
	values := make([]uint32, history.Steps(day))
	for i := range values {
		values[i] = history.Missing
	}
	out := make([]history.Line, n)
	for i := range out {
		out[i] = history.Line{Step: step, Last: now.Truncate(step), Values: slices.Clone(values)}
	}
	return out
}

// addGaps adds the steps of a series that are missing to the gaps of those before it. What is missing in one of them is missing in all:
// nothing else is told of a step that the node has seen only in part.
func addGaps(gaps []*pb.HistoryGap, values []uint32) []*pb.HistoryGap {
	missing := make([]bool, len(values))
	for _, g := range gaps {
		for i := range g.GetSteps() {
			missing[g.GetFirst()+i] = true
		}
	}
	for i, v := range values {
		missing[i] = missing[i] || v == history.Missing
	}
	gaps = nil
	for i, is := range missing {
		switch {
		case !is:
		case i > 0 && missing[i-1]:
			gaps[len(gaps)-1].Steps++
		default:
			gaps = append(gaps, &pb.HistoryGap{First: uint32(i), Steps: 1})
		}
	}
	return gaps
}

// clusterFor is how long the status of the cluster is shown in overviews: asking all nodes costs each of them a moment.
const clusterFor = 5 * time.Second

// clusterSeen is the status of the cluster as it was a moment ago.
type clusterSeen struct {
	// mu guards the fields below, and is held while nodes are asked: all others wait for the same answer.
	mu     sync.Mutex
	at     time.Duration             // of the status, by the boot clock
	status *pb.ClusterStatusResponse // nil: it was not told yet
}

// seenCluster returns the status of the cluster as it was at most clusterFor ago; nil: it cannot be told.
func (s *Server) seenCluster(ctx context.Context) *pb.ClusterStatusResponse {
	if s.o.Operator == nil {
		return nil
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	now := s.o.Clock.Boot()
	if s.seen.status == nil || now-s.seen.at >= clusterFor {
		status, err := s.o.Operator.ClusterStatus(ctx)
		if err != nil {
			return nil
		}
		s.seen.at, s.seen.status = now, status
	}
	return s.seen.status
}
