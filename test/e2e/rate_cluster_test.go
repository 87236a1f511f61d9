package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A tenant whose keys are led by several nodes puts no more by way of all of them than its rate allows.
func TestTheRateOfATenantIsThatOfAllNodes(t *testing.T) {
	t.Parallel()
	const parts, rate = 3, 40
	c := startCluster(t, 3, parts)
	ctx := bounded(t, 2*time.Minute)
	admin := c.client(0, millrace.Namespace("rated"))
	if _, err := admin.CreateNamespace(ctx, parts); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.SetTenant(ctx, "default", millrace.TenantConfig{KeyWritesPerSecond: rate}); err != nil {
		t.Fatal(err)
	}
	for leaders := 0; leaders < 2; time.Sleep(20 * time.Millisecond) { // each shard goes to a node of its own when it can
		ns, err := admin.Namespace(ctx)
		noErr(t, err)
		at := map[string]bool{}
		for _, p := range ns.Partitions {
			if p.Led {
				at[p.Address] = true // empty for the node that answers
			}
		}
		leaders = len(at)
	}
	put := make([]func(ctx context.Context) error, parts)
	for i := range parts {
		kv, n := c.client(i, millrace.Namespace("rated")).KV("ks"), 0
		put[i] = func(ctx context.Context) error {
			n++
			_, err := kv.Put(ctx, fmt.Sprint("key", n), "value") // of any partition
			return err
		}
		for known := false; !known; { // until the nodes go by the rate
			noErr(t, put[i](ctx))
			info, err := c.client(i).Tenant(ctx, "")
			noErr(t, err)
			known = info.RecentKeyWritesPerSecond > 0
		}
	}
	var passed, refused atomic.Int64
	began := time.Now()
	until, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() {
			for until.Err() == nil {
				once, done := context.WithTimeout(until, 300*time.Millisecond)
				if put[i](once) == nil {
					passed.Add(1)
				} else {
					refused.Add(1)
				}
				done()
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	if most := rate * (took + 3); float64(passed.Load()) > most {
		t.Errorf("%d puts passed in %.1f s at %d in a second: more than %.0f", passed.Load(), took, rate, most)
	}
	if least := rate * 2; passed.Load() < int64(least) {
		t.Errorf("%d puts passed, want %d at least; %d did not", passed.Load(), least, refused.Load())
	}
	for i := range parts {
		info, err := c.client(i).Tenant(ctx, "")
		if err != nil || info.RecentKeyWritesPerSecond == 0 || info.OvershootKeyWrites > 2*rate {
			t.Errorf("node %d shows %+v, %v", i+1, info, err)
		}
	}
}
