package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestManyPushesLeaveFewPacks pushes commits one by one, as many as MILLRACE_PUSHES says, to each node in turn. Their packs
// are rolled up meanwhile, and a clone from any node is whole at any time.
func TestManyPushesLeaveFewPacks(t *testing.T) {
	onlyInCheck(t, "it makes hundreds of pushes by git")
	t.Parallel()
	needGit(t)
	c := startCluster(t, 3, 1)
	c.makeRepo("app")
	pushes := howMany(t, "MILLRACE_PUSHES", 40)
	w, reader := newWork(t, "2"), newWork(t, "2")
	w.commit("f", "first")
	w.git("push", "-q", c.git(0).url("app"), "main")
	done := make(chan struct{})
	var clones sync.WaitGroup
	clones.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			dir := fmt.Sprint("during", i)
			if out, err := reader.try("clone", "-q", "--mirror", c.git(i%3).url("app"), dir); err != nil {
				t.Errorf("clone %d: %s", i, out)
				return
			}
			reader.in(dir).whole()
		}
	})
	for i := range pushes {
		w.commit(fmt.Sprint("f", i%7), fmt.Sprint(i))
		w.git("push", "-q", c.git(i%3).url("app"), "main")
	}
	close(done)
	clones.Wait()
	const most = 32 + 12 // those that came since the last rollup, and what is left of sizes that are geometric
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		info, err := c.client(0).Repo("app").Info(bounded(t, 20*time.Second))
		noErr(t, err)
		if info.Packs <= most && info.Packs < int64(pushes) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d packs after %d pushes", info.Packs, pushes)
		}
	}
	want := w.refsOf(c.git(0).url("app"))
	for i := range 3 {
		w.clonesAlike(c.git(i).url("app"), fmt.Sprint("after", i), want)
	}
}
