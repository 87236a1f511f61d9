package api

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Rates of keyspaces, and of all keyspaces of a namespace together. Each edge holds what passes through it to them, by buckets that hold one second's worth. A bucket
// that is not empty lets anything through, and is in debt then: so a frame may be larger than a second's worth.

// maxBuckets bounds the keyspaces whose rates are held; beyond it all begin anew.
const maxBuckets = 10_000

type bucketKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	keyspace  string // empty: all of the namespace
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

// takeRate takes puts and bytes from the buckets of a keyspace and of all keyspaces of its namespace. It returns how long to
// wait before it is asked again, and the limit that is the reason; zero: they are taken.
func (s *Server) takeRate(p core.Partition, keyspace string, puts, bytes int64) (wait time.Duration, limit string) {
	putRate, byteRate := s.o.Backend.KeyRates(p, keyspace)
	allPuts, allBytes := s.o.Backend.KeyRates(p, "")
	if putRate|byteRate|allPuts|allBytes == 0 {
		return 0, ""
	}
	r := &s.rates
	now := s.o.Clock.Boot()
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken [2]*bucket
	for i, of := range [2]struct {
		keyspace    string
		puts, bytes int64
	}{{keyspace, putRate, byteRate}, {"", allPuts, allBytes}} {
		if of.puts|of.bytes == 0 {
			continue
		}
		if taken[i], wait, limit = r.look(bucketKey{p.Tenant, p.Namespace, of.keyspace}, now, of.puts, of.bytes); wait > 0 {
			return wait, limit
		}
	}
	for _, b := range taken {
		if b != nil {
			b.puts -= puts
			b.bytes -= bytes
		}
	}
	return 0, ""
}

// look fills a bucket up to now, and says how long it is empty. r.mu is held.
func (r *keyRates) look(k bucketKey, now time.Duration, putRate, byteRate int64) (b *bucket, wait time.Duration, limit string) {
	if b = r.buckets[k]; b == nil {
		if r.buckets == nil || len(r.buckets) >= maxBuckets {
			r.buckets = make(map[bucketKey]*bucket)
		}
		b = &bucket{at: now, puts: putRate, bytes: byteRate}
		r.buckets[k] = b
	}
	gone := min(now-b.at, time.Second)
	b.at = now
	b.puts = refill(b.puts, putRate, gone)
	b.bytes = refill(b.bytes, byteRate, gone)
	if putRate > 0 && b.puts <= 0 {
		return b, untilFull(b.puts, putRate), "writes_per_second"
	}
	if byteRate > 0 && b.bytes <= 0 {
		return b, untilFull(b.bytes, byteRate), "bytes_per_second"
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
	for _, op := range c.Ops {
		var keyspace string
		var bytes int
		switch op := op.(type) {
		case *core.KVPut:
			keyspace, bytes = op.Keyspace, len(op.Key)+len(op.Value)
		case *core.KVAdd:
			keyspace, bytes = op.Keyspace, len(op.Key)
		default:
			continue
		}
		if wait, limit := s.takeRate(c.Partition, keyspace, 1, int64(bytes)); wait > 0 {
			return core.RateLimited{Limit: limit, RetryAfter: core.MillisOf(wait)}
		}
	}
	return nil
}

// awaitRate holds a stream's reader while its puts come too fast, and tells the client why.
func (st *stream) awaitRate(op *core.KVPuts, bytes int64) {
	told := false
	for {
		wait, limit := st.s.takeRate(st.part, op.Keyspace, int64(len(op.Items)), bytes)
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
