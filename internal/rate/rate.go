// Package rate holds writers of keys to rates: of keyspaces, and of all keyspaces of a namespace and of a tenant together, and
// tenants to rates of the tasks that they create. Each node
// holds what passes through it to them, by buckets that hold one second's worth. A bucket with at least one in it lets anything
// through, and may be in debt then: so a frame or a commit may be larger than a second's worth.
//
// A rate is that of all nodes together: account.go says how much of it is this node's. Messages are the node's to send; time is
// the caller's to tell.
package rate

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// load is puts and bytes: in a second, or in a bucket.
type load [2]float64

// limitsOf are the names of what bounds each part of a load.
var limitsOf = [len(load{})]string{"writes_per_second", "bytes_per_second"}

// loadOf returns a rate as a load.
func loadOf(r core.KeyRate) load { return load{float64(r.Puts), float64(r.Bytes)} }

// Rates holds what passes through this node to the rates that there are. The zero value has none.
type Rates struct {
	// table has the rates by key. It is replaced as a whole by Publish; nil: there never was a rate.
	table atomic.Pointer[map[Key]core.KeyRate]

	mu sync.Mutex // guards the fields below
	// nodes is the number of nodes of the cluster, with this one.
	nodes int
	// buckets are those of this node, by the rate.
	buckets map[Key]*bucket
	// accounts are those of the term in which this node leads shard 0.
	accounts map[Key]*account
	// term is that term.
	term uint64
	// since is the boot time from which this node hears what all nodes tell.
	since time.Duration
}

// Key names a keyspace. Without a name it stands for all of a namespace, and without a namespace, of which none has the number 0,
// for all of a tenant.
type Key struct {
	Tenant    core.TenantID
	Namespace core.NamespaceID
	Keyspace  string
}

// tasks is the name in the key of a rate of tasks. It has no namespace, so it does not name a keyspace.
const tasks = "tasks"

// TasksOf names the rate at which a tenant may create tasks, which counts as puts.
func TasksOf(tenant core.TenantID) Key { return Key{Tenant: tenant, Keyspace: tasks} }

// limit is what bounds a part of the load.
func (k Key) limit(part int) core.RateHeld {
	out := core.RateHeld{Limit: limitsOf[part], Bound: core.Bound{Tenant: k.Tenant, Namespace: k.Namespace}}
	switch {
	case k.Namespace == 0 && k.Keyspace == tasks:
		out.Limit = "task_creates_per_second"
		out.Bound.Name = out.Limit
	case k.Keyspace == "":
		out.Bound.Name = "key_" + out.Limit
	default:
		out.Bound.Name = "keyspace_" + out.Limit
	}
	return out
}

// bucket is what is left of a rate at this node.
type bucket struct {
	// at is the boot time of the last look.
	at time.Duration
	// have is what is left, up to a second's worth; negative: owed.
	have load
	// made is the boot time at which the bucket was made.
	made time.Duration
	// taken is what was taken since it was made.
	taken [len(load{})]uint64
	// refused is the boot time at which something was refused last, by part of the load; 0: never.
	refused [len(load{})]time.Duration
	// active is the boot time at which something was taken or refused last.
	active time.Duration
	// share is what the leader of shard 0 told of the rate.
	share share
}

// share is what this node was told of a rate.
type share struct {
	// known says that the node was told at all.
	known bool
	// at is the boot time at which the share was asked for.
	at time.Duration
	// rate is this node's, in a second.
	rate load
	// pace is what all nodes take.
	pace core.KeyPace
}

// Any reports whether there was ever a rate.
func (r *Rates) Any() bool { return r.table.Load() != nil }

// Take takes what ops put in keyspaces of a partition from the rates of these, of the namespace and of the tenant, and the tasks that
// they create from that of the tenant: all of it, or nothing. It returns how long to wait before it is asked again, and the limit that
// is the reason; zero: it is taken. Now is the node's boot time, here and below.
func (r *Rates) Take(p core.Partition, ops []core.Op, now time.Duration) (wait time.Duration, by core.RateHeld) {
	if !r.Any() {
		return 0, by
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := takings{r: r, table: *r.table.Load(), now: now}
	creates := uint64(0)
	for _, op := range ops {
		if op.Kind() == core.OpTaskCreate {
			creates++
			continue
		}
		puts, ok := core.KeysOf(op)
		if !ok || !op.Kind().Has(core.OpPutsKeys) || puts.Writes == 0 {
			continue
		}
		what := [...]uint64{puts.Writes, puts.Bytes}
		for _, k := range [...]Key{{p.Tenant, p.Namespace, puts.Keyspace}, {p.Tenant, p.Namespace, ""}, {p.Tenant, 0, ""}} {
			if wait, by = t.add(k, what); wait > 0 {
				return wait, by
			}
		}
	}
	if creates > 0 {
		if wait, by = t.add(TasksOf(p.Tenant), [...]uint64{creates, 0}); wait > 0 {
			return wait, by
		}
	}
	t.take()
	return 0, by
}

// TakeCreates is Take of that many tasks that a tenant creates.
func (r *Rates) TakeCreates(tenant core.TenantID, tasks int, now time.Duration) (wait time.Duration, by core.RateHeld) {
	if !r.Any() {
		return 0, by
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := takings{r: r, table: *r.table.Load(), now: now}
	if wait, by = t.add(TasksOf(tenant), [...]uint64{uint64(tasks), 0}); wait > 0 {
		return wait, by
	}
	t.take()
	return 0, by
}

// takings are what is to be taken together. The lock of the rates is held.
type takings struct {
	r     *Rates
	table map[Key]core.KeyRate
	now   time.Duration
	all   []taking
}

// taking is what is to be taken from one rate.
type taking struct {
	from *bucket
	rate load
	what [len(load{})]uint64
}

// add notes what is to be taken from a rate, if there is one. It returns how long to wait where nothing is left, and the limit.
func (t *takings) add(k Key, what [len(load{})]uint64) (wait time.Duration, by core.RateHeld) {
	rate, bounded := t.table[k]
	if !bounded {
		return 0, by
	}
	b := t.r.look(k, t.now, loadOf(rate))
	b.active = t.now
	if wait, part := b.empty(t.now, loadOf(rate), t.r.shareOf(b, t.now, loadOf(rate))); wait > 0 {
		return wait, k.limit(part)
	}
	t.all = append(t.all, taking{b, loadOf(rate), what})
	return 0, by
}

// take takes all that was noted.
func (t *takings) take() {
	for _, t := range t.all {
		for i := range t.what {
			t.from.taken[i] += t.what[i]
			if t.rate[i] > 0 { // where there is none, nothing is owed when one is set
				t.from.have[i] -= float64(t.what[i])
			}
		}
	}
}

// bucketOf returns the bucket of a rate, which is full at first. r.mu is held.
func (r *Rates) bucketOf(k Key, now time.Duration, rate load) *bucket {
	b := r.buckets[k]
	if b == nil {
		if r.buckets == nil {
			r.buckets = make(map[Key]*bucket)
		}
		b = &bucket{at: now, made: now, active: now - 2*activeFor}
		b.have = most(r.shareOf(b, now, rate))
		k.Keyspace = strings.Clone(k.Keyspace) // the caller's may lie in a frame
		r.buckets[k] = b
	}
	return b
}

// most is what a bucket holds: a second's worth, and one at least.
func most(rate load) load { return load{max(rate[0], 1), max(rate[1], 1)} }

// look fills a bucket up to now. r.mu is held.
func (r *Rates) look(k Key, now time.Duration, rate load) *bucket {
	b := r.bucketOf(k, now, rate)
	b.fill(now, r.shareOf(b, now, rate))
	return b
}

// fill adds what a rate has brought since the last look. No part of a put is lost however often it is looked.
func (b *bucket) fill(now time.Duration, rate load) {
	gone := min(now-b.at, time.Second).Seconds()
	b.at = now
	full := most(rate)
	for i := range b.have {
		b.have[i] = min(b.have[i]+rate[i]*gone, full[i])
	}
}

// almostOne is what counts as one, however the parts of it were rounded.
const almostOne = 1 - 1e-6

// lookAgain is the longest that anybody is told to wait: this node's share may be another by then.
const lookAgain = 500 * time.Millisecond

// empty says for how long the bucket lets nothing through, and for which part of the load: until there is one in it, lookAgain at the
// most.
func (b *bucket) empty(now time.Duration, rate, share load) (wait time.Duration, part int) {
	for i := range rate {
		if rate[i] <= 0 || b.have[i] >= almostOne {
			continue
		}
		b.refused[i] = now
		wait := lookAgain
		if seconds := (1 - b.have[i]) / share[i]; seconds < wait.Seconds() { // not where the share is nothing
			wait = max(time.Duration(math.Ceil(seconds*float64(time.Second))), time.Millisecond)
		}
		return wait, i
	}
	return 0, 0
}

// Publish takes over the rates that there are, and forgets what is of others or was not used for long.
func (r *Rates) Publish(table map[Key]core.KeyRate, nodes int, now time.Duration) {
	if len(table) == 0 && r.table.Load() == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = nodes
	r.table.Store(&table)
	for k, b := range r.buckets {
		if _, bounded := table[k]; !bounded || now-b.active > bucketFor && now-b.share.at > bucketFor {
			delete(r.buckets, k)
		}
	}
	for k, a := range r.accounts {
		if _, bounded := table[k]; !bounded || now-a.heard > accountFor {
			delete(r.accounts, k)
		}
	}
}

// Pace is what this node was told of a rate.
func (r *Rates) Pace(k Key, now time.Duration) core.KeyPace {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[k]
	if b == nil || !b.share.known || now-b.share.at > paceFor {
		return core.KeyPace{}
	}
	return b.share.pace
}

// compare orders keys of rates.
func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Keyspace, o.Keyspace))
}

// sortedRates returns the keys of a map, in order.
func sortedRates[V any](m map[Key]V) []Key {
	out := make([]Key, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, Key.compare)
	return out
}
