package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	millrace "github.com/millrace/millrace/sdk/go"
)

// keySource is a server that an audit of keys reads. It must read what is committed: a stale value
// would look like a lost put.
type keySource interface {
	// Key reads a key as it is when the call begins, or later.
	Key(ctx context.Context, keyspace, key string) (value []byte, rev uint64, found bool, err error)
}

// keyReplica is one of the servers that hold the same keys.
type keyReplica struct {
	name string
	keySource
}

// keyReplicas are all servers of the run.
func (o *oneRun) keyReplicas() []keyReplica {
	var out []keyReplica
	for i, client := range o.clients {
		out = append(out, keyReplica{o.c.endpoints[i].Name, clientSource{client}})
	}
	return out
}

// Key reads through a client.
func (s clientSource) Key(ctx context.Context, keyspace, key string) (value []byte, rev uint64, found bool, err error) {
	v, err := s.c.KV(keyspace).Get(ctx, key)
	if errors.Is(err, millrace.ErrNotFound) {
		return nil, 0, false, nil
	}
	return v.Bytes, v.Rev, err == nil, err
}

// AuditKeys reads what a ledger holds back from one server that is not the harness's own, by read, and proves it.
func AuditKeys(ctx context.Context, l *KeyLedger, server string, read func(ctx context.Context, key string) (value []byte, rev uint64, found bool, err error)) (*Audit, error) {
	return (&keyAuditor{l, []keyReplica{{server, readFunc(read)}}}).run(ctx)
}

// readFunc reads the keys of the one keyspace that another system has.
type readFunc func(ctx context.Context, key string) (value []byte, rev uint64, found bool, err error)

// Key calls it.
func (f readFunc) Key(ctx context.Context, _, key string) (value []byte, rev uint64, found bool, err error) {
	return f(ctx, key)
}

// keyAuditor proves that every put that was acknowledged is there, once and whole, on every server.
// It reads a sample of keys back; the revisions of all puts were compared as they came, in
// KeyLedger.Acked.
type keyAuditor struct {
	ledger  *KeyLedger
	servers []keyReplica
}

// readKey is a key as one server has it.
type readKey struct {
	value []byte
	rev   uint64
	found bool
}

// run makes the audit. The first server is judged against the ledger, each further one against the first: then
// all of them hold what was acknowledged. An error means that a server could not be read.
func (a *keyAuditor) run(ctx context.Context) (*Audit, error) {
	l, sample := a.ledger, a.ledger.samples()
	out := &Audit{Created: l.acked, Unknown: l.unsure, Checked: "every revision", ReadBack: uint64(len(sample))}
	violate := func(format string, args ...any) {
		if len(out.Violations) < maxViolations {
			out.Violations = append(out.Violations, fmt.Sprintf(format, args...))
		}
	}
	if l.repeated > 0 {
		violate("doubled: %d puts were acknowledged with a revision that another put has", l.repeated)
	}
	if l.unsure > maxUnsure {
		violate("unknown: the end of %d puts is not known, of more than %d nothing can be proved", l.unsure, maxUnsure)
	}
	var first []readKey
	for i, server := range a.servers {
		found, err := a.readAll(ctx, server, sample)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", server.name, err)
		}
		if i == 0 {
			first = found
			for j := range sample {
				if found[j].found {
					out.Counted++
				}
				if why := a.judge(&sample[j], found[j]); why != "" {
					violate("%s", why)
				}
			}
			continue
		}
		for j := range sample {
			if f := found[j]; f.found != first[j].found || f.rev != first[j].rev || !bytes.Equal(f.value, first[j].value) {
				violate("replicas differ: %s has key %s at revision %d, the first server at %d", server.name, sample[j].key, f.rev, first[j].rev)
			}
		}
	}
	out.OK = len(out.Violations) == 0
	return out, nil
}

// judge says what is wrong with a key; empty: nothing. The key must hold its newest acknowledged
// put, at that revision. A put of unknown outcome may have come after it, so its value is right
// too, at any revision. The same value at another revision means that a put was applied twice.
func (a *keyAuditor) judge(s *keySample, f readKey) string {
	l, n := a.ledger, s.last.seq-1
	for _, may := range s.may {
		if f.found && may > n && bytes.Equal(f.value, l.Value(may)) {
			return ""
		}
	}
	same := f.found && bytes.Equal(f.value, l.Value(n))
	switch {
	case !f.found:
		return fmt.Sprintf("lost: key %s was acknowledged at revision %d and is not there", s.key, s.last.rev)
	case same && f.rev == s.last.rev:
		return ""
	case same:
		return fmt.Sprintf("doubled: key %s was acknowledged at revision %d and is at %d with the same value", s.key, s.last.rev, f.rev)
	case f.rev < s.last.rev:
		return fmt.Sprintf("lost: key %s was acknowledged at revision %d and is still at %d", s.key, s.last.rev, f.rev)
	}
	return fmt.Sprintf("different: key %s, acknowledged at revision %d, has another value at %d", s.key, s.last.rev, f.rev)
}

// readAll reads the sample from one server with several goroutines, each of which takes the next
// key. The first error ends them.
func (a *keyAuditor) readAll(ctx context.Context, from keyReplica, sample []keySample) ([]readKey, error) {
	found := make([]readKey, len(sample))
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(sample) {
					return
				}
				f := &found[i]
				var err error
				if f.value, f.rev, f.found, err = from.Key(ctx, a.ledger.Keyspace, sample[i].key); err != nil {
					err = fmt.Errorf("read key %s back: %w", sample[i].key, err)
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return found, nil
}
