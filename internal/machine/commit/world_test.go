package commit_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/queue"
)

// epoch is the stamp at which a world begins; scripts count time from it.
const epoch core.ShardTime = 1_700_000_000_000

var home = core.Partition{Tenant: 1, Namespace: 1}

// world is a shard of two replicas, driven by the lines of a script.
type world struct {
	pair *machinetest.Pair
	o    commit.Options
	part core.Partition
}

func newWorld(o commit.Options) (*world, error) {
	w := &world{o: o, part: home}
	pair, err := machinetest.NewPair(func() machinetest.Machine { return commit.New(w.o) })
	if err != nil {
		return nil, err
	}
	w.pair = pair
	pair.Stamp = epoch
	return w, nil
}

func (w *world) machine() *commit.Machine { return w.pair.A.(*commit.Machine) }

// run executes one directive of a script and returns what it prints.
func (w *world) run(d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "entry":
		return w.entry(w.parseCommits(d.Input))
	case "advance":
		w.pair.Stamp += core.ShardTime(millis(d.CmdArgs[0].Key))
		return "", nil
	case "tick":
		return w.entry([]core.Commit{{Ops: []core.Op{&core.Tick{Max: 1000}}}})
	case "restart":
		return "", w.pair.Restart()
	case "reopen":
		return "", w.pair.Reopen()
	case "partition":
		w.part = core.Partition{
			Tenant:    core.TenantID(number(d.CmdArgs[0].Key)),
			Namespace: core.NamespaceID(number(d.CmdArgs[1].Key)), Index: uint16(number(d.CmdArgs[2].Key)),
		}
		return "", nil
	case "limits":
		return "", w.limits(d)
	case "fill":
		return w.fill(d)
	case "state":
		return w.state()
	case "directory":
		return w.directory()
	}
	return "", fmt.Errorf("unknown command %q", d.Cmd)
}

// limits opens the machines again under other limits.
func (w *world) limits(d *datadriven.TestData) error {
	for _, a := range d.CmdArgs {
		n := number(a.Vals[0])
		switch a.Key {
		case "requests":
			w.o.MaxRequests = int64(n)
		case "sessions":
			w.o.MaxSessions = int64(n)
		case "ops":
			w.o.MaxOps = n
		}
	}
	return w.pair.Restart()
}

// fill applies n commits, each under a request id or session of its own, and prints how many were refused.
func (w *world) fill(d *datadriven.TestData) (string, error) {
	n, refused := number(d.CmdArgs[1].Key), 0
	for i := range n {
		c := core.Commit{Partition: w.part, Ops: []core.Op{&core.KVPut{Keyspace: "filled", Key: fmt.Appendf(nil, "%d", i)}}}
		if d.CmdArgs[0].Key == "requests" {
			c.RequestID = requestID(fmt.Sprintf("fill%d", i))
		} else {
			c.Session, c.Seq = sessionID(fmt.Sprintf("fill%d", i)), 1
		}
		a, err := w.pair.Apply(c)
		if err != nil {
			return "", err
		}
		if a.Results[0].Refusal != nil {
			refused++
		}
	}
	return fmt.Sprintf("%d applied, %d refused", n-refused, refused), nil
}

// entry applies commits as one entry and prints a line or more for each.
func (w *world) entry(commits []core.Commit) (string, error) {
	before := w.pair.TxA.Dump()
	a, err := w.pair.Apply(commits...)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	allRefused := len(commits) > 0
	for i, r := range a.Results {
		allRefused = allRefused && r.Refusal != nil && !r.FailedInstead && commits[i].Seq == 0
		b.WriteString(w.printResult(&r))
	}
	if allRefused && withoutClock(before) != withoutClock(w.pair.TxA.Dump()) {
		return "", errors.New("a refused commit changed bytes")
	}
	b.WriteString(printEvents(a.Events))
	return b.String(), nil
}

// printEvents prints what scripts look at: the tasks that ended, then what was removed, then the leases that were lost.
func printEvents(events []core.Event) string {
	var ended, removed, lost strings.Builder
	for _, e := range events {
		switch e := e.(type) {
		case *core.Ended:
			fmt.Fprintf(&ended, "  ended %s\n", taskName(e.Task))
		case *core.NamespaceGone:
			fmt.Fprintf(&removed, "  gone %s/%s\n", e.TenantName, e.Name)
		case *core.PartitionCleared:
			fmt.Fprintf(&removed, "  cleared %s\n", e.Partition)
		case *core.Lost:
			fmt.Fprintf(&lost, "  lost %s token=%d %s\n", taskName(e.Task), e.Token, e.Reason)
		}
	}
	return ended.String() + removed.String() + lost.String()
}

// state prints every task and key of the partition.
func (w *world) state() (string, error) {
	var b strings.Builder
	tx := w.pair.TxA
	queues, err := queue.Queues(tx, w.part, "", 100)
	if err != nil {
		return "", err
	}
	for _, q := range queues {
		for _, s := range core.States() {
			page, err := queue.List(tx, w.part, core.ListQuery{Queue: q.Queue, State: s, Limit: 100}, 0)
			if err != nil {
				return "", err
			}
			for _, t := range page.Tasks {
				fmt.Fprintf(&b, "%s %s: %s", q.Queue, taskName(t.ID), t.State)
				if t.Error.Code != "" {
					fmt.Fprintf(&b, " error=%s %q", t.Error.Code, t.Error.Message)
				}
				b.WriteString("\n")
			}
		}
	}
	spaces, err := kv.Keyspaces(tx, w.part)
	if err != nil {
		return "", err
	}
	for _, ks := range spaces {
		pairs, err := kv.Scan(tx, w.part, ks.Name, nil, 100)
		if err != nil {
			return "", err
		}
		for _, p := range pairs {
			fmt.Fprintf(&b, "%s/%s = %q rev=%d\n", ks.Name, p.Key, p.Value, p.Rev)
		}
	}
	if b.Len() == 0 {
		return "nothing", nil
	}
	return b.String(), nil
}

func (w *world) directory() (string, error) {
	var b strings.Builder
	tenants, err := commit.Tenants(w.pair.TxA, "", 100)
	if err != nil {
		return "", err
	}
	for _, t := range tenants {
		fmt.Fprintf(&b, "%d %s: %d namespaces\n", t.ID, t.Name, t.Namespaces)
		list, err := commit.Namespaces(w.pair.TxA, t.Name, "", 100)
		if err != nil {
			return "", err
		}
		for _, ns := range list {
			fmt.Fprintf(&b, "  %d %s:", ns.Namespace, ns.Name)
			for _, p := range ns.Partitions {
				fmt.Fprintf(&b, " partition %s on shard %d", p.Partition, p.Shard)
			}
			b.WriteByte('\n')
		}
	}
	under, err := commit.Removals(w.pair.TxA)
	if err != nil {
		return "", err
	}
	for _, r := range under {
		fmt.Fprintf(&b, "removal %d of %s/%s (%d): finished %v\n", r.ID, r.Space.TenantName, r.Space.Name, r.Space.Namespace, r.Finished)
	}
	return b.String(), nil
}
