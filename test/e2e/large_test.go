package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A server that is killed with many keys is there again without reading them: what it reads is the end of its log.
// MILLRACE_PLAIN_MIB says how many MiB of keys there are; with 12,288 and more it must serve within five seconds.
func TestAServerWithManyKeysIsThereAgainAfterAKill(t *testing.T) {
	t.Parallel()
	mib, most := 24, 12<<10
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_PLAIN_MIB")); err == nil {
		mib = n
	}
	s, c := serve(t)
	ctx := bounded(t, time.Minute+time.Duration(mib)*time.Second)
	const size, each = 8 << 10, 64 // bytes of a value, and how many of them are remembered
	kv := c.KV("plain")
	n := mib << 20 / size
	var wait sync.WaitGroup
	const lanes = 4
	for lane := range lanes {
		wait.Go(func() {
			random := rand.NewChaCha8([32]byte{byte(lane)})
			stream := kv.Stream()
			defer stream.Close() //nolint:errcheck // every put's own answer is looked at
			var under []millrace.Written
			for i := lane; i < n; i += lanes {
				value := make([]byte, size)
				random.Read(value) //nolint:errcheck // it never fails
				copy(value, fmt.Sprint(i, " "))
				w, err := stream.Put(ctx, fmt.Sprintf("key%08d", i), value)
				if err != nil {
					t.Error(err)
					return
				}
				if under = append(under, w); len(under) == 1000 {
					if _, err := under[0].Wait(ctx); err != nil {
						t.Error(err)
						return
					}
					under = under[1:]
				}
			}
			for _, w := range under {
				if _, err := w.Wait(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	s.Kill()
	took, err := s.Start(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	t.Logf("%d MiB of keys: it serves %v after its start", mib, took)
	if mib >= most && took > 5*time.Second {
		t.Errorf("with %d MiB of keys it served %v after its start", mib, took)
	}
	for range each {
		i := rand.IntN(n)
		want := fmt.Sprint(i, " ")
		if v, err := kv.Get(ctx, fmt.Sprintf("key%08d", i)); err != nil || len(v.Bytes) != size || string(v.Bytes[:len(want)]) != want {
			t.Errorf("key %d of %d: %d bytes, %v", i, n, len(v.Bytes), err)
		}
	}
}
