package node

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

// Rates of keyspaces, and of all keyspaces of a namespace and of a tenant together. Each node holds what passes through it to
// them, by buckets that hold one second's worth. A bucket with at least one in it lets anything through, and may be in debt then:
// so a frame or a commit may be larger than a second's worth.
//
// A rate is that of all nodes together: rate_share.go says how much of it is this node's.

// load is puts and bytes: in a second, or in a bucket.
type load [2]float64

// limitsOf are the names of what bounds each part of a load.
var limitsOf = [len(load{})]string{"writes_per_second", "bytes_per_second"}

func loadOf(r core.KeyRate) load { return load{float64(r.Puts), float64(r.Bytes)} }

// rates holds what passes through this node to the rates that there are.
type rates struct {
	table atomic.Pointer[map[rateKey]core.KeyRate] // nil: there never was any

	mu       sync.Mutex // guards the fields below
	nodes    int        // of the cluster, this one too
	buckets  map[rateKey]*bucket
	accounts map[rateKey]*account // of the term in which this node leads shard 0
	term     uint64               // that one
	since    time.Duration        // boot time from which it hears what all nodes tell
}

// bucket is what is left of a rate at this node.
type bucket struct {
	at      time.Duration // boot time of the last look
	have    load
	made    time.Duration
	taken   [len(load{})]uint64        // since it was made
	refused [len(load{})]time.Duration // when something was refused last; 0: never
	active  time.Duration              // when something was taken or refused last
	share   share
}

// share is what this node was told of a rate.
type share struct {
	known bool
	at    time.Duration // boot time at which it was asked for
	rate  load          // of this node
	pace  core.KeyPace  // of all
}

// KeyPace tells what is put in a second in all keyspaces of a partition's namespace, or of its tenant, where that has a rate.
func (n *Node) KeyPace(p core.Partition, ofTenant bool) core.KeyPace {
	k := rateKey{p.Tenant, p.Namespace, ""}
	if ofTenant {
		k.namespace = 0
	}
	return n.rates.pace(k, n.o.Clock.Boot())
}

// TakeRate takes what ops put in keyspaces of a partition from the rates of these, of the namespace and of the tenant: all of it,
// or nothing. It returns how long to wait before it is asked again, and the limit that is the reason; zero: it is taken. Where
// another node leads the partition nothing is taken, as the client is sent there, unless the ops are carried there.
func (n *Node) TakeRate(p core.Partition, ops []core.Op, carried bool) (wait time.Duration, limit string) {
	if n.rates.table.Load() == nil {
		return 0, ""
	}
	if s, err := n.shardOf(p); err != nil || !carried && !s.view.ready.Load() {
		return 0, ""
	}
	return n.rates.take(p, ops, n.o.Clock.Boot())
}

func (r *rates) take(p core.Partition, ops []core.Op, now time.Duration) (wait time.Duration, limit string) {
	table := *r.table.Load()
	if len(table) == 0 {
		return 0, ""
	}
	type taking struct {
		from *bucket
		rate load
		what [len(load{})]uint64
	}
	var takes []taking
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range ops {
		puts, ok := core.KeysOf(op)
		if !ok || !op.Kind().Has(core.OpPutsKeys) || puts.Writes == 0 {
			continue
		}
		what := [...]uint64{puts.Writes, puts.Bytes}
		for _, k := range [...]rateKey{{p.Tenant, p.Namespace, puts.Keyspace}, {p.Tenant, p.Namespace, ""}, {p.Tenant, 0, ""}} {
			rate, bounded := table[k]
			if !bounded {
				continue
			}
			b := r.look(k, now, loadOf(rate))
			b.active = now
			if wait, limit := b.empty(now, loadOf(rate), r.shareOf(b, now, loadOf(rate))); wait > 0 {
				return wait, limit
			}
			takes = append(takes, taking{b, loadOf(rate), what})
		}
	}
	for _, t := range takes {
		for i := range t.what {
			t.from.taken[i] += t.what[i]
			if t.rate[i] > 0 { // where there is none, nothing is owed when one is set
				t.from.have[i] -= float64(t.what[i])
			}
		}
	}
	return 0, ""
}

// bucketOf returns the bucket of a rate, which is full at first. r.mu is held.
func (r *rates) bucketOf(k rateKey, now time.Duration, rate load) *bucket {
	b := r.buckets[k]
	if b == nil {
		if r.buckets == nil {
			r.buckets = make(map[rateKey]*bucket)
		}
		b = &bucket{at: now, made: now, active: now - 2*activeFor}
		b.have = most(r.shareOf(b, now, rate))
		k.keyspace = strings.Clone(k.keyspace) // the caller's may lie in a frame
		r.buckets[k] = b
	}
	return b
}

// most is what a bucket holds: a second's worth, and one at least.
func most(rate load) load { return load{max(rate[0], 1), max(rate[1], 1)} }

// look fills a bucket up to now. r.mu is held.
func (r *rates) look(k rateKey, now time.Duration, rate load) *bucket {
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

// empty says for how long the bucket lets nothing through: until there is one in it, lookAgain at the most.
func (b *bucket) empty(now time.Duration, rate, share load) (wait time.Duration, limit string) {
	for i := range rate {
		if rate[i] <= 0 || b.have[i] >= almostOne {
			continue
		}
		b.refused[i] = now
		wait := lookAgain
		if seconds := (1 - b.have[i]) / share[i]; seconds < wait.Seconds() { // not where the share is nothing
			wait = max(time.Duration(math.Ceil(seconds*float64(time.Second))), time.Millisecond)
		}
		return wait, limitsOf[i]
	}
	return 0, ""
}

// publish takes over the rates that there are, and forgets what is of others or was not used for long.
func (r *rates) publish(table map[rateKey]core.KeyRate, nodes int, now time.Duration) {
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

// pace is what this node was told of a rate.
func (r *rates) pace(k rateKey, now time.Duration) core.KeyPace {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[k]
	if b == nil || !b.share.known || now-b.share.at > paceFor {
		return core.KeyPace{}
	}
	return b.share.pace
}

// compare orders keys of rates.
func (k rateKey) compare(o rateKey) int {
	return cmp.Or(cmp.Compare(k.tenant, o.tenant), cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.keyspace, o.keyspace))
}

// sortedRates returns the keys of a map, in order.
func sortedRates[V any](m map[rateKey]V) []rateKey {
	out := make([]rateKey, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, rateKey.compare)
	return out
}
