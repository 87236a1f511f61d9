package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// dial connects one client to each server, in the order of c.endpoints. A client knows only the address of its
// own server, so that a reading is of that server. On an error all clients made so far are closed.
func (c *cluster) dial(ctx context.Context) ([]*millrace.Client, error) {
	var out []*millrace.Client
	for _, e := range c.endpoints {
		client, err := millrace.Dial(ctx, append(c.plain(), millrace.Address(e.Address), millrace.Token(c.token), millrace.Namespace(c.namespace), millrace.Timeout(0))...)
		if err != nil {
			closeAll(out)
			return nil, fmt.Errorf("connect to %s: %w", e.Name, err)
		}
		out = append(out, client)
	}
	return out, nil
}

// plain are the options of a connection that may be in plain text where that is not loopback.
func (c *cluster) plain() []millrace.Option {
	if c.insecure {
		return []millrace.Option{millrace.Insecure()}
	}
	return nil
}

// closeAll closes clients that only read.
func closeAll(clients []*millrace.Client) {
	for _, c := range clients {
		_ = c.Close()
	}
}

// client is of the first server, which answers for the others too.
func (o *oneRun) client() *millrace.Client { return o.clients[0] }

// replicas are all servers except the first.
func (o *oneRun) replicas() []replica {
	var out []replica
	for i, client := range o.clients[1:] {
		out = append(out, replica{o.c.endpoints[i+1].Name, clientSource{client}})
	}
	return out
}

// checkServers refuses servers whose durability differs from what the figure would say. A figure
// labelled fsync must come from servers that sync.
func (o *oneRun) checkServers(ctx context.Context) error {
	all, err := o.answers(ctx)
	if err != nil {
		return err
	}
	for i, st := range all {
		if st.Durability != string(o.spec.durability) {
			return usage("durability", "%s says %s, the figure would say %s", o.c.endpoints[i].Name, st.Durability, o.spec.durability)
		}
	}
	return nil
}

// answerWithin is how long a server may take to say what it is. It bounds the retries of the
// client, which asks a missing server over and over.
const answerWithin = 10 * time.Second

// answers asks every server what it is. One that does not answer is an error.
func (o *oneRun) answers(ctx context.Context) ([]*millrace.ServerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	all, err := o.statuses(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the server what it is: %w", err)
	}
	return all, nil
}

// statuses asks every server for its counters, in the order of o.clients.
func (o *oneRun) statuses(ctx context.Context) ([]*millrace.ServerStatus, error) {
	out := make([]*millrace.ServerStatus, len(o.clients))
	for i, c := range o.clients {
		var err error
		if out[i], err = c.Status(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", o.c.endpoints[i].Name, err)
		}
	}
	return out, nil
}

// mark notes the servers' counters and the leaders at an edge of the window. While the servers are
// killed it asks none of them. o.edges hears of the edge in any case.
func (o *oneRun) mark(ctx context.Context, e edge) (err error) {
	if !o.down.Load() {
		if o.c.leaders != nil {
			o.led[e], err = o.c.leaders(ctx)
		}
		if err == nil {
			o.status[e], err = o.statuses(ctx)
		}
	}
	if o.edges != nil {
		o.edges(e)
	}
	return err
}

// wrote is what one server wrote within the window: fsyncs, log entries, bytes of its log, and
// mutations of its store.
type wrote struct{ fsyncs, entries, bytes, mutations float64 }

// written returns what each server wrote within the window, in the order of the endpoints. It is nil when an
// edge was not marked, or when the driver restarts servers, whose counters then begin again at 0.
func (o *oneRun) written() []wrote {
	a, b := o.status[windowBegins], o.status[windowEnds]
	if a == nil || b == nil || o.rig != nil && o.rig.loses {
		return nil
	}
	out := make([]wrote, len(a))
	for i := range out {
		out[i] = wrote{
			float64(b[i].Fsyncs - a[i].Fsyncs), float64(b[i].Entries - a[i].Entries), float64(b[i].LogBytes - a[i].LogBytes),
			float64(b[i].StoreMutations - a[i].StoreMutations),
		}
	}
	return out
}

// writes sets what n operations made the servers write: all together, and each server by itself where there
// are several. The replica_ metrics are the mean over the servers, so that rows of one and of three nodes
// compare. It also notes how many shards each server led at the window's beginning.
func (o *oneRun) writes(n float64, set func(name, unit string, v float64)) {
	each, all := o.written(), wrote{}
	if each == nil {
		return
	}
	for i, w := range each {
		all.fsyncs, all.entries, all.bytes, all.mutations = all.fsyncs+w.fsyncs, all.entries+w.entries, all.bytes+w.bytes, all.mutations+w.mutations
		if len(each) > 1 {
			name := metricName(o.c.endpoints[i].Name)
			set(name+"_fsyncs_per_op", "fsyncs", w.fsyncs/n)
			set(name+"_fsyncs_per_s", "fsyncs/s", w.fsyncs/o.run.Seconds)
			set(name+"_wal_bytes_per_op", "B", w.bytes/n)
		}
	}
	set("fsyncs_per_op", "fsyncs", all.fsyncs/n)
	set("fsyncs_per_s", "fsyncs/s", all.fsyncs/o.run.Seconds)
	set("entries_per_s", "entries/s", all.entries/o.run.Seconds)
	set("wal_bytes_per_op", "B", all.bytes/n)
	set("mutations_per_op", "mutations", all.mutations/n)
	replicas := float64(len(each))
	set("replica_fsyncs_per_op", "fsyncs", all.fsyncs/n/replicas)
	set("replica_wal_bytes_per_op", "B", all.bytes/n/replicas)
	if o.rig != nil && o.rig.Keys != nil {
		set("replica_wal_overhead_bytes", "B", all.bytes/n/replicas-float64(o.rig.Keys.Bytes()))
	}
	for i, e := range o.c.endpoints {
		if o.led[windowBegins] == nil {
			return
		}
		shards := 0
		for _, by := range o.led[windowBegins] {
			if by.node == uint64(i)+1 {
				shards++
			}
		}
		set(metricName(e.Name)+"_led", "shards", float64(shards))
	}
}

// metricName makes a process's name the beginning of a metric's.
func metricName(process string) string { return strings.ReplaceAll(process, "-", "_") }

// unsynced checks the claim of fsync: servers that acknowledged writes must have counted syncs. It
// returns what is wrong, or "" when nothing is, or when it cannot be known. Of several servers a
// majority must have synced, since a write is durable there.
func (o *oneRun) unsynced() string {
	each := o.written()
	if each == nil || o.spec.durability != Fsync || o.run.Ops == 0 || o.spec.suite.Reads {
		return ""
	}
	synced := 0
	for _, w := range each {
		if w.fsyncs > 0 {
			synced++
		}
	}
	switch most := len(each)/2 + 1; {
	case synced >= most:
		return ""
	case len(each) == 1:
		return fmt.Sprintf("durability: the server says fsync, and counted none while it acknowledged %d operations", o.run.Ops)
	default:
		return fmt.Sprintf("durability: %d of %d servers counted an fsync while %d operations were acknowledged; %d must have synced each",
			synced, len(each), o.run.Ops, most)
	}
}
