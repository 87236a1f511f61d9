package millrace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// written waits for a put that must succeed.
func written(ctx context.Context, t *testing.T, w millrace.Written, err error) uint64 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	rev, err := w.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestWhatAStreamPutsIsReadAlikeByEveryRead(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			ctx := bounded(t)
			ns := millrace.Namespace("put-" + millrace.NewID())
			c := dial(t, ns)
			if _, err := c.CreateNamespace(ctx, partitions); err != nil {
				t.Fatal(err)
			}
			s := c.KV("ks").Stream()
			const n = 2500
			var keys []string
			var last []millrace.Written
			for i := range n {
				key := fmt.Sprintf("key/%04d\x00\xff", i)
				w, err := s.Put(ctx, key, fmt.Appendf(nil, "value %d", i))
				if err != nil {
					t.Fatal(err)
				}
				keys, last = append(keys, key), append(last, w)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			revs := make([]uint64, n)
			for i, w := range last {
				revs[i] = written(ctx, t, w, nil)
			}
			for _, m := range []millrace.TransportMode{millrace.TransportStream, millrace.TransportREST} {
				r := dial(t, ns, millrace.Transport(m), millrace.RESTAddress(restAddress())).KV("ks")
				many, err := r.GetMany(ctx, append(slices.Clone(keys[:1200]), "absent"))
				if err != nil || len(many) != 1201 || many[1200].Rev != 0 {
					t.Fatalf("%s: %d values, %v", m, len(many), err)
				}
				i := 0
				for e, err := range r.Range(ctx, millrace.Prefix("key/"), millrace.Stale(0)) {
					if err != nil {
						t.Fatalf("%s: after %d keys: %v", m, i, err)
					}
					if e.Key != keys[i] || e.String() != fmt.Sprint("value ", i) || e.Rev != revs[i] {
						t.Fatalf("%s: place %d has %q = %q at %d, want %q at %d", m, i, e.Key, e.Value, e.Rev, keys[i], revs[i])
					}
					if i < 1200 && (many[i].String() != e.String() || many[i].Rev != e.Rev) {
						t.Fatalf("%s: %q is %q at %d alone", m, e.Key, many[i], many[i].Rev)
					}
					i++
				}
				if i != n {
					t.Errorf("%s: %d keys, want %d", m, i, n)
				}
				var some []string
				for e, err := range r.Keys(ctx, millrace.Between(keys[700], keys[703])) {
					if err != nil || e.Bytes != nil {
						t.Fatalf("%s: %q, %v", m, e.Value, err)
					}
					some = append(some, e.Key)
				}
				if !slices.Equal(some, keys[700:703]) {
					t.Errorf("%s: between: %q", m, some)
				}
				info, err := r.Info(ctx)
				if err != nil || info.Keys != n || info.MoreKeys {
					t.Errorf("%s: %+v, %v", m, info, err)
				}
			}
			if gone, err := c.KV("ks").DeleteRange(ctx, millrace.Prefix("key/00"), millrace.CountKeys()); err != nil || gone != 100 {
				t.Errorf("%d keys were removed, %v", gone, err)
			}
			if v, err := c.KV("ks").Get(ctx, keys[100]); err != nil || v.Rev != revs[100] {
				t.Errorf("a key beyond the range: %v, %v", v.Rev, err)
			}
		})
	}
}

func TestARefusedPutOfAStreamLeavesTheOthers(t *testing.T) {
	ctx := bounded(t)
	s := dial(t, millrace.Namespace("refused-"+millrace.NewID())).KV("ks").Stream()
	first, err := s.Put(ctx, "a", []byte("1"))
	rev := written(ctx, t, first, err)
	taken, err := s.Put(ctx, "a", []byte("2"), millrace.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	late, _ := s.Put(ctx, "a", []byte("2"), millrace.IfRev(rev+5))
	empty, _ := s.Put(ctx, "", []byte("no key"))
	large, _ := s.Put(ctx, "large", bytes.Repeat([]byte("v"), 2<<20))
	good, err := s.Put(ctx, "a", []byte("3"), millrace.IfRev(rev))
	if got := written(ctx, t, good, err); got != rev+1 {
		t.Errorf("revision %d after %d", got, rev)
	}
	for _, c := range []struct {
		w    millrace.Written
		want error
	}{{taken, millrace.ErrPrecondition}, {late, millrace.ErrPrecondition}, {empty, millrace.ErrInvalid}, {large, millrace.ErrTooLarge}} {
		if _, err := c.w.Wait(ctx); !errors.Is(err, c.want) || millrace.OutcomeOf(err) != millrace.Refused {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Put(ctx, "a", nil); !errors.Is(err, millrace.ErrClosed) {
		t.Errorf("a put on a closed stream: %v", err)
	}
}

// A stream that is cut again and again resumes: each put is applied once, and those of one writer in their order, also
// where another writer has written the key meanwhile.
func TestPutsThatAreCutOffAreAppliedOnceAndInOrder(t *testing.T) {
	cuts := 8
	if more, err := strconv.Atoi(os.Getenv("MILLRACE_CUTS")); err == nil {
		cuts = more
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience*time.Duration(1+cuts/8))
	defer cancel()
	p := newProxy(t)
	p.passes.Store(true)
	ns := millrace.Namespace(namespaceOf(t))
	cutter := p.dial(millrace.Transport(millrace.TransportStream), ns).KV("ks").Stream()
	calm := dial(t, ns).KV("ks")
	const keys = 7
	n := 750 * cuts
	type put struct {
		w    millrace.Written
		key  int
		text string
	}
	var mine, theirs []put
	var wait sync.WaitGroup
	wait.Go(func() {
		s := calm.Stream()
		for i := range n / 10 {
			key, text := i%keys, fmt.Sprint("calm ", i)
			w, err := s.Put(ctx, fmt.Sprint("k", key), []byte(text))
			if err != nil {
				t.Error(err)
				return
			}
			theirs = append(theirs, put{w, key, text})
			if _, err := w.Wait(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range n {
		if i%750 == 375 {
			p.cut()
		}
		key, text := rand.IntN(keys), fmt.Sprint("cut ", i)
		w, err := cutter.Put(ctx, fmt.Sprint("k", key), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		mine = append(mine, put{w, key, text})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	seen := make(map[uint64]bool)
	newest, holder := make([]uint64, keys), make([]string, keys)
	for _, list := range [][]put{mine, theirs} {
		before := uint64(0)
		for _, one := range list {
			rev := written(ctx, t, one.w, nil)
			if rev <= before || seen[rev] {
				t.Fatalf("%q has revision %d, the put before it %d (twice: %v)", one.text, rev, before, seen[rev])
			}
			before, seen[rev] = rev, true
			if rev > newest[one.key] {
				newest[one.key], holder[one.key] = rev, one.text
			}
		}
	}
	if last, err := calm.Put(ctx, "end", "x"); err != nil || last != uint64(len(seen))+1 {
		t.Errorf("%d puts took revisions up to %d, %v", len(seen), last, err)
	}
	for key := range keys {
		if v, err := calm.Get(ctx, fmt.Sprint("k", key)); err != nil || v.String() != holder[key] || v.Rev != newest[key] {
			t.Errorf("k%d holds %q at %d, want %q at %d (%v)", key, v, v.Rev, holder[key], newest[key], err)
		}
	}
}

func TestAKeyspaceIsConfiguredAndRemovedInAllPartitions(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		ctx := bounded(t)
		c := dial()
		ks := c.KV("rules")
		want := millrace.KeyspaceConfig{Bytes: 1 << 30, WritesPerSecond: 1e6, BytesPerSecond: 1 << 30}
		version, err := ks.Configure(ctx, want)
		if err != nil || version != 1 {
			t.Fatalf("version %d, %v", version, err)
		}
		if again, err := ks.Configure(ctx, want); err != nil || again != 1 {
			t.Errorf("the same again: version %d, %v", again, err)
		}
		for i := range 20 {
			if _, err := ks.Put(ctx, fmt.Sprint("k", i), "v"); err != nil {
				t.Fatal(err)
			}
		}
		want.Version = 1
		info, err := ks.Info(ctx)
		if err != nil || info.Config != want || info.Keys != 20 || info.OverQuota {
			t.Errorf("%+v, %v", info, err)
		}
		list, err := c.Keyspaces(ctx)
		if err != nil || len(list) != 1 || list[0].Name != "rules" || list[0].Config != want {
			t.Errorf("%+v, %v", list, err)
		}
		if existed, err := ks.Drop(ctx); err != nil || !existed {
			t.Errorf("dropped: %v, %v", existed, err)
		}
		if _, err := ks.Info(ctx); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("a dropped keyspace: %v", err)
		}
		for e, err := range ks.Range(ctx, millrace.Prefix("")) {
			t.Errorf("a key of a dropped keyspace: %q, %v", e.Key, err)
		}
		if _, err := ks.Put(ctx, "k1", "new"); err != nil {
			t.Fatal(err)
		}
		if info, err := ks.Info(ctx); err != nil || info.Keys != 1 || info.Config.Version != 0 {
			t.Errorf("made again: %+v, %v", info, err)
		}
	})
}

func TestNumbersAreAddedExactly(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		ctx := bounded(t)
		c := dial()
		const writers, each = 8, 15
		var wait sync.WaitGroup
		for range writers {
			wait.Go(func() {
				for range each {
					if _, err := c.KV("n").Add(ctx, "sum", 2); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		if v, err := c.KV("n").Get(ctx, "sum"); err != nil || v.String() != fmt.Sprint(2*writers*each) {
			t.Errorf("the sum is %s, %v", v, err)
		}
		var e *millrace.Error
		if _, err := c.KV("n").Add(ctx, "sum", -1000, millrace.Floor(0)); !errors.As(err, &e) || !errors.Is(err, millrace.ErrPrecondition) || e.Reason != "bound" {
			t.Errorf("below the floor: %v", err)
		}
		out, err := c.CommitResult(ctx, func(tx *millrace.Tx) {
			tx.KV("n").Add("{t}a", 5)
			tx.KV("n").Put("{t}b", "x")
			tx.KV("n").DeleteRange(millrace.Prefix("{t}"), millrace.CountKeys())
		})
		if err != nil || out.Sums[0] != 5 || out.Counts[2] != 2 {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

func TestANamespaceAndATenantAreBoundedByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		ctx := bounded(t)
		c := dial(t, opts...)
		want := millrace.NamespaceConfig{AutoCreate: true, RetainBytes: 1 << 30, CreateOnPush: true, KeyBytes: 1 << 20, KeyWritesPerSecond: 1000, KeyBytesPerSecond: 1 << 20}
		version, err := c.SetNamespace(ctx, want)
		if err != nil || version != 1 {
			t.Fatalf("version %d, %v", version, err)
		}
		want.Version = 1
		ns, err := c.Namespace(ctx)
		if err != nil || ns.Config != want || ns.OverKeyBytes {
			t.Errorf("%+v, %v", ns, err)
		}
		want.Version, want.AutoCreate = 7, false
		if _, err := c.SetNamespace(ctx, want); !errors.Is(err, millrace.ErrPrecondition) {
			t.Errorf("another version: %v", err)
		}
		name := "tenant-" + millrace.NewID()
		if _, err := c.Tenant(ctx, name); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("an unknown tenant: %v", err)
		}
		bounds := millrace.TenantConfig{
			KeyBytes: 5, KeyWritesPerSecond: 6, KeyBytesPerSecond: 7,
			Weight: 8, TaskCreatesPerSecond: 9, Streams: 10, Tasks: 11, TaskBytes: 12, RunningTasks: 13,
		}
		if version, err = c.SetTenant(ctx, name, bounds); err != nil || version != 1 {
			t.Fatalf("version %d, %v", version, err)
		}
		bounds.Version = 1
		if got, err := c.Tenant(ctx, name); err != nil || got.Name != name || got.Config != bounds || got.Namespaces != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		bounds.Version = 9
		if _, err := c.SetTenant(ctx, name, bounds); !errors.Is(err, millrace.ErrPrecondition) {
			t.Errorf("another version: %v", err)
		}
		if own, err := c.Tenant(ctx, ""); err != nil || own.Name == "" || own.Namespaces == 0 {
			t.Errorf("its own: %+v, %v", own, err)
		}
	})
}

// A keyspace is removed and written again while another is under load: no reader sees a key of before, not even one that was reading
// it page by page.
func TestAKeyspaceThatIsRemovedUnderLoadShowsNoOldKey(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		ctx := bounded(t)
		c := dial(t, opts...)
		load, stop := context.WithCancel(ctx)
		var wait sync.WaitGroup
		wait.Go(func() {
			for i := 0; load.Err() == nil; i++ {
				if _, err := c.KV("load").Put(ctx, fmt.Sprint("k", i%50), fmt.Sprint(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		defer wait.Wait()
		defer stop()
		ks := c.KV("born-again")
		writer := dial(t, append(opts, millrace.Transport(millrace.TransportStream))...).KV("born-again").Stream()
		const keys = 1500 // more than a page
		for life := range 3 {
			var last millrace.Written
			for i := range keys {
				var err error
				if last, err = writer.Put(ctx, fmt.Sprintf("old%d-%04d", life, i), []byte("old")); err != nil {
					t.Fatal(err)
				}
			}
			written(ctx, t, last, nil)
			seen := 0
			var ended error
			for e, err := range ks.Range(ctx, millrace.Prefix("")) {
				if err != nil {
					ended = err
					break
				}
				if !strings.HasPrefix(e.Key, fmt.Sprint("old", life)) {
					t.Fatalf("life %d shows %q", life, e.Key)
				}
				if seen++; seen > 1 {
					continue
				}
				if existed, err := ks.Drop(ctx); err != nil || !existed {
					t.Fatalf("dropped: %v, %v", existed, err)
				}
				if _, err := ks.Put(ctx, "z", "new"); err != nil {
					t.Fatal(err)
				}
			}
			if ended != nil && !errors.Is(ended, millrace.ErrNotFound) || ended == nil && seen > keys {
				t.Errorf("who was reading saw %d keys, and then: %v", seen, ended)
			}
			for e, err := range ks.Range(ctx, millrace.Prefix("")) {
				if err != nil || e.Key != "z" || e.String() != "new" {
					t.Errorf("behind life %d: %q, %v", life, e.Key, err)
				}
			}
			if _, err := ks.Get(ctx, fmt.Sprintf("old%d-0000", life)); !errors.Is(err, millrace.ErrNotFound) {
				t.Errorf("an old key: %v", err)
			}
			if n, err := ks.DeleteRange(ctx, millrace.Prefix("z"), millrace.CountKeys()); err != nil || n != 1 {
				t.Errorf("%d keys of a prefix are removed, %v", n, err)
			}
		}
	})
}
