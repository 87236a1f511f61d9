package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
)

// What needs somebody's attention. Each is judged by what a node knows anyway: counters, what they were lately, who takes tasks, and,
// for operators of the cluster, what the nodes say of themselves.

const (
	// maxAttention bounds the list.
	maxAttention = 100
	// crashShare is which share of the attempts that ended in a minute may have crashed, and crashLeast how many crashes count for nothing.
	crashShare, crashLeast = 0.1, 2
	// overviewKeyspaces is how many keyspaces are looked at for those over their bounds.
	overviewKeyspaces = 1000
	// certSoon and tokenSoon are how long before its end a certificate, or a token, is told of.
	certSoon  = 30 * 24 * time.Hour
	tokenSoon = 7 * 24 * time.Hour
	// diskLow is below how many times its reserve the free space of a disk is low.
	diskLow = 3
	// maxNoticed bounds the namespaces of which is remembered when something was noticed first.
	maxNoticed = 1000
)

// queueHarms are the kinds of what is wrong with a queue, the worst first.
var queueHarms = []string{"no_workers", "stuck", "over_quota", "dead_rising", "crash_rate", "paused_backlog"}

// TokenEnds tells which tokens of a tenant end soon.
type TokenEnds interface {
	// Ending lists the holders of the tenant's tokens that end after now and up to until, by name.
	Ending(tenant string, now, until time.Time) []auth.Principal
}

// notices gathers what needs attention in one namespace.
type notices struct {
	s    *Server
	in   Space
	rows []*pb.Attention
	// over has the bounds that a queue has reached in one of its partitions, by name.
	over map[string]overBound
	// harm is how bad it is with a queue, as an index of queueHarms.
	harm map[string]int
}

// overBound is a bound that was reached.
type overBound struct {
	limit string
	used  uint64
	most  int64
}

// add notes something; since is zero where it is not known when it began.
func (n *notices) add(kind, object string, since time.Time, count uint64, text string) {
	row := &pb.Attention{Kind: kind, Object: object, Count: count, Text: text}
	if !since.IsZero() {
		row.Since = timestamppb.New(since.Truncate(time.Millisecond))
	}
	n.rows = append(n.rows, row)
}

// bounds notes which queues of a partition are at the bounds of their configuration, which hold for each partition.
func (n *notices) bounds(list []core.QueueStats) {
	for i := range list {
		q := &list[i]
		live := q.States[core.Blocked] + q.States[core.Scheduled] + q.States[core.Ready] + q.States[core.Running]
		for _, b := range [...]overBound{{"max_tasks", live, q.Config.Limits.MaxTasks}, {"max_bytes", q.Bytes, q.Config.Limits.MaxBytes}} {
			if b.most <= 0 || b.used < uint64(b.most) || n.over[q.Queue].used > b.used {
				continue
			}
			if n.over == nil {
				n.over = make(map[string]overBound)
			}
			n.over[q.Queue] = b
		}
	}
}

// queue notes what is wrong with a queue.
func (n *notices) queue(c *call, q *core.QueueStats, workers *workerCount) {
	note := func(kind string, since time.Time, count uint64, text string) {
		n.add(kind, q.Queue, since, count, text)
		if n.harm == nil {
			n.harm = make(map[string]int)
		}
		h := slices.Index(queueHarms, kind)
		if old, ok := n.harm[q.Queue]; !ok || h < old {
			n.harm[q.Queue] = h
		}
	}
	ready := q.States[core.Ready]
	switch choice := (queueChoice{only: "stuck", now: c.t.now}); {
	case q.Paused.Since != 0:
		if ready > 0 {
			note("paused_backlog", timeOf(q.Paused.Since), ready, fmt.Sprintf("Paused by %s: %s.", q.Paused.By, tasksWait(ready)))
		}
	case !choice.has(q):
	case workers.queues != nil && workers.queues[q.Queue] == 0:
		note("no_workers", timeOf(q.OldestReady), ready, fmt.Sprintf("No worker takes its tasks: %s.", tasksWait(ready)))
	default:
		note("stuck", timeOf(q.OldestReady), ready, fmt.Sprintf("No task runs: %s.", tasksWait(ready)))
	}
	if b, ok := n.over[q.Queue]; ok {
		note("over_quota", time.Time{}, b.used, fmt.Sprintf("A partition has reached %s: %d of %d. New tasks are refused.", b.limit, b.used, b.most))
	}
	recent, ok := c.s.o.Backend.Recent(c.t.part.Tenant, c.t.part.Namespace, q.Queue)
	if !ok {
		return
	}
	if recent.Rise > 0 && q.States[core.Dead] > 0 {
		note("dead_rising", recent.RiseSince, recent.Rise, fmt.Sprintf("Dead tasks in the last ten minutes: %d.", recent.Rise))
	}
	if recent.Crashed > crashLeast && float64(recent.Crashed) >= crashShare*float64(recent.Ended) {
		note("crash_rate", recent.CrashedSince, recent.Crashed, fmt.Sprintf("Of %d attempts that ended in the last minute %d crashed.", recent.Ended, recent.Crashed))
	}
}

// tasksWait says how many tasks wait.
func tasksWait(n uint64) string {
	if n == 1 {
		return "1 task waits"
	}
	return strconv.FormatUint(n, 10) + " tasks wait"
}

// timeOf is a time of tasks as a wall clock shows it; zero stays zero.
func timeOf(t core.ShardTime) time.Time {
	if shown := TimeOf(t); shown != nil {
		return shown.AsTime()
	}
	return time.Time{}
}

// partitions notes the partitions of the namespace that no node leads.
func (n *notices) partitions(c *call) {
	for _, p := range c.s.showPartitions(c.partitions) {
		if !p.GetLed() {
			n.add("partition_unled", strconv.FormatUint(uint64(p.GetPartition()), 10), time.Time{}, 0,
				fmt.Sprintf("No node leads partition %d: it takes no writes.", p.GetPartition()))
		}
	}
}

// keys notes the namespace, or keyspaces of it, that take more on disk than they may.
func (n *notices) keys(ctx context.Context, c *call, sight Sight) error {
	config, _, err := c.s.node.spaces.NamespaceConfig(ctx, c.t.part, asLive)
	if err != nil {
		return err
	}
	if config.KeyBytes > 0 {
		used, _, err := c.s.node.spaces.KeyBytes(ctx, c.t.part, asLive)
		if err != nil {
			return err
		}
		if used > uint64(config.KeyBytes) {
			n.add("over_quota", n.in.Name, time.Time{}, used, fmt.Sprintf("The keys of the namespace take %d of %d bytes. Puts are refused.", used, config.KeyBytes))
		}
	}
	if sight&SeesKeys == 0 {
		return nil
	}
	var mu sync.Mutex // guards over
	over := make(map[string]core.KeyspaceInfo)
	_, err = c.liveEach(func(p core.Partition) (core.At, error) {
		list, at, err := c.s.node.keys.Keyspaces(ctx, p, "", overviewKeyspaces, asLive)
		mu.Lock()
		defer mu.Unlock()
		for i := range list {
			if list[i].Over {
				over[list[i].Name] = list[i]
			}
		}
		return at, err
	})
	for _, name := range slices.Sorted(maps.Keys(over)) {
		k := over[name]
		n.add("over_quota", name, time.Time{}, k.Measured, fmt.Sprintf("The keyspace takes %d of %d bytes. Puts are refused.", k.Measured, k.Config.Bytes))
	}
	return err
}

// tokens notes the tokens of the tenant that end soon.
func (n *notices) tokens() {
	ends, ok := n.s.o.Auth.(TokenEnds)
	if !ok {
		return
	}
	now := n.s.Clock.Wall()
	for _, p := range ends.Ending(n.in.Tenant, now, now.Add(tokenSoon)) {
		n.add("token_ends", p.Name, p.Expires.Add(-tokenSoon), 0, fmt.Sprintf("The token ends at %s.", p.Expires.UTC().Format(time.RFC3339)))
	}
}

// cluster notes what is wrong with nodes, and returns how long the syncs of this one take.
func (n *notices) cluster(ctx context.Context) (syncs *pb.SyncTimes) {
	status := n.s.seenCluster(ctx)
	now := n.s.Clock.Wall()
	for _, node := range status.GetNodes() {
		name := cmp.Or(node.GetName(), "n"+strconv.FormatUint(node.GetId(), 10))
		if node.GetId() == status.GetAsked() {
			syncs = node.GetFsyncUs()
		}
		if !node.GetReachable() {
			n.add("node_down", name, time.Time{}, 0, fmt.Sprintf("It does not answer: %s.", node.GetError()))
			continue
		}
		switch disk := node.GetDisk(); {
		case disk.GetFull():
			n.add("disk_low", name, time.Time{}, disk.GetFree(), "The disk is full: new work is refused.")
		case disk.GetReserve() > 0 && disk.GetFree() < diskLow*disk.GetReserve():
			n.add("disk_low", name, time.Time{}, disk.GetFree(), fmt.Sprintf("The disk is nearly full: below %d bytes free, new work is refused.", disk.GetReserve()))
		}
		if end := node.GetCertEndsAt(); end != nil && end.AsTime().Sub(now) < certSoon {
			n.add("cert_ends", name, end.AsTime().Add(-certSoon), 0, fmt.Sprintf("A certificate of the node ends at %s.", end.AsTime().Format(time.RFC3339)))
		}
	}
	return syncs
}

// list returns what was noted, what began last first. Where it is not known when something began, it is when this node noticed it.
func (n *notices) list(of noticeSpace) (rows []*pb.Attention, more bool) {
	n.s.noticed.note(of, n.rows, n.s.Clock.Wall())
	slices.SortStableFunc(n.rows, func(a, b *pb.Attention) int {
		return cmp.Or(b.GetSince().AsTime().Compare(a.GetSince().AsTime()), strings.Compare(a.GetKind(), b.GetKind()), strings.Compare(a.GetObject(), b.GetObject()))
	})
	if len(n.rows) > maxAttention {
		return n.rows[:maxAttention], true
	}
	return n.rows, false
}

// noticeSpace is whose list it is: others see other rows.
type noticeSpace struct {
	in    Space
	sight Sight
	whole bool // it is of all queues
}

// noticeKey names a row.
type noticeKey struct{ kind, object string }

// noticed remembers when this node noticed first what it does not know the begin of.
type noticed struct {
	mu     sync.Mutex // guards spaces
	spaces map[noticeSpace]map[noticeKey]time.Time
}

// note fills in when rows began that do not say so. What is not among the rows is forgotten.
func (n *noticed) note(k noticeSpace, rows []*pb.Attention, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, seen := n.spaces[k], make(map[noticeKey]time.Time)
	for _, row := range rows {
		if row.GetSince() != nil {
			continue
		}
		key := noticeKey{row.GetKind(), row.GetObject()}
		at, ok := old[key]
		if !ok {
			at = now.Truncate(time.Millisecond)
		}
		seen[key], row.Since = at, timestamppb.New(at)
	}
	if len(seen) == 0 {
		delete(n.spaces, k)
		return
	}
	if n.spaces == nil || len(n.spaces) >= maxNoticed && old == nil {
		n.spaces = make(map[noticeSpace]map[noticeKey]time.Time)
	}
	n.spaces[k] = seen
}
