package api

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Rates of keyspaces, and of all keyspaces of a namespace and of a tenant together. Each edge holds what passes through it to
// them, by buckets that hold one second's worth. A bucket that is not empty lets anything through, and is in debt then: so a
// frame or a commit may be larger than a second's worth.

// maxBuckets bounds the keyspaces whose rates are held; beyond it all begin anew.
const maxBuckets = 10_000

type bucketKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID // 0: all of the tenant
	keyspace  string           // empty: all of the namespace
}

// bucket is what is left of the rates of one keyspace.
type bucket struct {
	at          time.Duration // boot time of the last look
	puts, bytes int64
}

type keyRates struct {
	mu      sync.Mutex // guards the field below
	buckets map[bucketKey]*bucket
}

// takeRate takes what ops put in keyspaces of a partition from the buckets of these, of the namespace and of the tenant: all of
// it, or nothing. It returns how long to wait before it is asked again, and the limit that is the reason; zero: it is taken.
func (s *Server) takeRate(p core.Partition, ops []core.Op) (wait time.Duration, limit string) {
	var now time.Duration
	locked := false
	var takes []taken
	r := &s.rates
	for _, op := range ops {
		keyspace, puts := putsIn(op)
		if !puts {
			continue
		}
		of := s.o.Backend.KeyRates(p, keyspace)
		if of == ([len(of)]core.KeyRate{}) {
			continue
		}
		if !locked {
			locked, now = true, s.o.Clock.Boot()
			r.mu.Lock()
			defer r.mu.Unlock()
		}
		what := writeOf(op)
		for i, k := range [len(of)]bucketKey{{p.Tenant, p.Namespace, keyspace}, {p.Tenant, p.Namespace, ""}, {p.Tenant, 0, ""}} {
			if of[i] == (core.KeyRate{}) {
				continue
			}
			b, wait, limit := r.look(k, now, of[i])
			if wait > 0 {
				return wait, limit
			}
			takes = append(takes, taken{b, int64(what.writes), int64(what.bytes)})
		}
	}
	for _, t := range takes {
		t.from.puts -= t.puts
		t.from.bytes -= t.bytes
	}
	return 0, ""
}

// taken is what one op takes from one bucket.
type taken struct {
	from        *bucket
	puts, bytes int64
}

// putsIn names the keyspace that an op puts something in.
func putsIn(op core.Op) (keyspace string, puts bool) {
	switch op := op.(type) {
	case *core.KVPut:
		return op.Keyspace, true
	case *core.KVAdd:
		return op.Keyspace, true
	case *core.KVPuts:
		return op.Keyspace, true
	}
	return "", false
}

// look fills a bucket up to now, and says how long it is empty. r.mu is held.
func (r *keyRates) look(k bucketKey, now time.Duration, rate core.KeyRate) (b *bucket, wait time.Duration, limit string) {
	if b = r.buckets[k]; b == nil {
		if r.buckets == nil || len(r.buckets) >= maxBuckets {
			r.buckets = make(map[bucketKey]*bucket)
		}
		b = &bucket{at: now, puts: rate.Puts, bytes: rate.Bytes}
		r.buckets[k] = b
	}
	gone := min(now-b.at, time.Second)
	b.at = now
	b.puts = refill(b.puts, rate.Puts, gone)
	b.bytes = refill(b.bytes, rate.Bytes, gone)
	if rate.Puts > 0 && b.puts <= 0 {
		return b, untilFull(b.puts, rate.Puts), "writes_per_second"
	}
	if rate.Bytes > 0 && b.bytes <= 0 {
		return b, untilFull(b.bytes, rate.Bytes), "bytes_per_second"
	}
	return b, 0, ""
}

// refill adds what a rate brings in a time, up to a second's worth.
func refill(have, rate int64, gone time.Duration) int64 {
	return min(have+int64(float64(rate)*gone.Seconds()), max(rate, 1))
}

// untilFull is how long a rate takes to bring at least one, at most a second at a time.
func untilFull(have, rate int64) time.Duration {
	d := time.Duration(float64(1-have) / float64(rate) * float64(time.Second))
	return min(max(d, time.Millisecond), time.Second)
}

// rated refuses a commit whose puts come too fast.
func (s *Server) rated(c *core.Commit) core.Fact {
	if wait, limit := s.takeRate(c.Partition, c.Ops); wait > 0 {
		return core.RateLimited{Limit: limit, RetryAfter: core.MillisOf(wait)}
	}
	return nil
}

// awaitRate holds a stream's reader while puts come too fast, and tells the client why. So frames with a number stay in order.
func (st *stream) awaitRate(ops []core.Op) {
	told := false
	for {
		wait, limit := st.s.takeRate(st.part, ops)
		if wait == 0 {
			return
		}
		if !told {
			told = true
			st.push(outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Throttle{Throttle: &pb.Throttle{
				Limit: limit, RetryAfter: durationpb.New(wait),
			}}}, bytes: frameBytes})
		}
		timer := st.s.o.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-st.ended:
			timer.Stop()
			return
		}
	}
}
