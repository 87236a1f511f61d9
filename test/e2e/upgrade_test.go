package e2e

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/campaign"
	"github.com/millrace/millrace/test/chaos/proc"
)

// newerProgram links the program again so that it knows one format more than the one that all other tests run.
func newerProgram(t *testing.T) string {
	t.Helper()
	root, err := campaign.Root(".")
	noErr(t, err)
	path := filepath.Join(t.TempDir(), "millrace-newer")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "invariants",
		"-ldflags", "-X github.com/millrace/millrace/internal/core.linkedFormat=1", "-o", path, "./cmd/millrace")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the newer program: %v\n%s", err, out)
	}
	return path
}

// restartWith stops a node and starts it with a program.
func restartWith(t *testing.T, n *proc.Node, binary string) {
	t.Helper()
	noErr(t, n.Stop())
	n.Plan(proc.Plan{Binary: binary})
	if _, err := n.Start(t.Context()); err != nil {
		t.Fatalf("node %d: %v\n%s", n.ID, err, logOf(n.Server))
	}
}

// finalize runs the commands of the page about upgrades at a node, and returns how the last one ended.
func finalize(t *testing.T, n *proc.Node) (e ended) {
	t.Helper()
	for _, line := range pageCommands(t, "../../docs/operate/upgrade.md", "Upgrade a cluster") {
		e = run(t, append(strings.Fields(strings.TrimPrefix(line, "millrace ")), "--socket", filepath.Join(n.DataDir(), "operator.sock"))...)
	}
	return e
}

// putting puts keys until it is stopped, which returns how many were acknowledged. No put may fail.
func putting(t *testing.T, ctx context.Context, k *millrace.Client, space string) (stop func() int) {
	var over atomic.Bool
	var all sync.WaitGroup
	done := 0
	all.Go(func() {
		for ; !over.Load(); done++ {
			if _, err := k.KV(space).Put(ctx, fmt.Sprint(done), done); err != nil {
				t.Errorf("put %d of %s: %v", done, space, err)
				return
			}
		}
	})
	return func() int { over.Store(true); all.Wait(); return done }
}

// refusesOlderProgram sees that a node whose data is of the newer format does not start with the older program, and that its
// directory stays as it was; nor does it with an empty directory. The node is stopped then.
func refusesOlderProgram(t *testing.T, old *proc.Node) {
	t.Helper()
	noErr(t, old.Stop())
	data := contents(t, old.DataDir())
	old.Plan(proc.Plan{Binary: program})
	ready, err := old.Launch()
	noErr(t, err)
	if err := <-ready; err == nil || old.ExitCode(10*time.Second) != 23 || !strings.Contains(logOf(old.Server), "has format 5, and this program knows formats up to 4") {
		t.Errorf("an older program started: %v, exit %d\n%s", err, old.ExitCode(time.Second), logOf(old.Server))
	}
	old.Forget()
	if !maps.Equal(data, contents(t, old.DataDir())) {
		t.Error("an older program changed the directory")
	}
	if e := run(t, "doctor", "--data", old.DataDir()); e.code != 23 || !strings.Contains(e.out, "format 5") {
		t.Errorf("an older doctor: exit %d\n%s", e.code, e.out)
	}
	noErr(t, old.Clear()) // and it is not taken in with another directory either
	old.Plan(proc.Plan{Binary: program})
	ready, err = old.Launch()
	noErr(t, err)
	if err := <-ready; err == nil || !strings.Contains(logOf(old.Server), "older_format") {
		t.Errorf("an older program joined: %v\n%s", err, logOf(old.Server))
	}
	old.Forget()
}

func TestAClusterIsUpgradedNodeByNodeAndThenNoOlderProgramStarts(t *testing.T) {
	onlyInCheck(t, "it loads a cluster that is upgraded node by node")
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	newer := newerProgram(t)
	ctx := bounded(t, 90*time.Second)
	c, err := proc.NewCluster(ctx, proc.ClusterOptions{Binary: program, Dir: t.TempDir(), Nodes: 3}, "default")
	noErr(t, err)
	t.Cleanup(func() { noErr(t, c.Close()) })
	noErr(t, c.Start(ctx))
	k, err := millrace.Dial(ctx, millrace.Address(c.Addresses(0)), millrace.Insecure(), millrace.Token(c.Tokens[0].Secret))
	noErr(t, err)
	t.Cleanup(func() { k.Close() })
	stop := putting(t, ctx, k, "upgrade")

	restartWith(t, c.Nodes[0], newer)
	restartWith(t, c.Nodes[1], newer)
	for _, n := range c.Nodes { // the old node says so too
		if e := finalize(t, n); e.code != 1 || !strings.Contains(e.out, "format_held: format 5: the program of node 3 does not know it") {
			t.Fatalf("at node %d with an old node: exit %d\n%s", n.ID, e.code, e.out)
		}
	}
	restartWith(t, c.Nodes[0], program) // back again, while that is allowed
	restartWith(t, c.Nodes[0], newer)
	noErr(t, c.Nodes[2].Stop())
	if e := finalize(t, c.Nodes[1]); e.code != 1 || !strings.Contains(e.out, "node 3 is not reached") {
		t.Fatalf("without a node: exit %d\n%s", e.code, e.out)
	}
	c.Nodes[2].Plan(proc.Plan{Binary: newer})
	_, err = c.Nodes[2].Start(ctx)
	noErr(t, err)
	var done ended
	var said []string // in order; one that was refused has not raised it
	eventually(t, "all are reached", func() bool {
		done = finalize(t, c.Nodes[2])
		said = append(said, done.out)
		return done.code == 0
	})
	raised := strings.Contains(done.out, "the cluster writes format 5; before it was 4")
	for _, s := range said { // what a try whose answer was lost did is not known, and the next one may find it done
		raised = raised || strings.Contains(s, "whether the change was made is not known") && strings.Contains(done.out, "format 5 already")
	}
	if !raised {
		t.Errorf("finalize says %q", said)
	}
	if e := finalize(t, c.Nodes[0]); e.code != 0 || !strings.Contains(e.out, "format 5 already") {
		t.Errorf("a second time: exit %d\n%s", e.code, e.out)
	}
	before, err := c.Nodes[0].Metrics(ctx)
	noErr(t, err)
	eventually(t, "entries of the new format", func() bool {
		m, err := c.Nodes[0].Metrics(ctx)
		return err == nil && m["millrace_node_applied_index"] > before["millrace_node_applied_index"]+50
	})

	refusesOlderProgram(t, c.Nodes[0])

	n := stop()
	got, err := k.KV("upgrade").Get(ctx, fmt.Sprint(n-1))
	if err != nil || got.String() != fmt.Sprint(n-1) {
		t.Errorf("key %d reads as %s, %v", n-1, got, err)
	}
	t.Logf("%d puts, none failed", n)
}
