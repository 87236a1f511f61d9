package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// told is what clients were told is so.
type told struct {
	mu    sync.Mutex // guards the fields below
	tasks map[string]string
	keys  map[string]string
}

func newTold() *told { return &told{tasks: map[string]string{}, keys: map[string]string{}} }

func (w *told) copy() *told {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &told{tasks: maps.Clone(w.tasks), keys: maps.Clone(w.keys)}
}

// write adds tasks and keys, each under a name of its own, until ctx ends or a call fails because of that.
func (w *told) write(t *testing.T, ctx context.Context, c *millrace.Client, name string) {
	job := millrace.Job[string, string]("load")
	for i := 0; ctx.Err() == nil; i++ {
		text := fmt.Sprint(name, i)
		h, err := job.Add(ctx, c, text)
		if err == nil {
			w.mu.Lock()
			w.tasks[h.ID] = text
			w.mu.Unlock()
			if _, err = c.KV("load").Put(ctx, text, text); err == nil {
				w.mu.Lock()
				w.keys[text] = text
				w.mu.Unlock()
			}
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("load: %v", err)
			return
		}
	}
}

// isIn reads everything back.
func (w *told) isIn(t *testing.T, ctx context.Context, c *millrace.Client) {
	t.Helper()
	for id, text := range w.tasks {
		info, err := c.Task(ctx, id)
		if err != nil || string(info.Payload) != text {
			t.Errorf("task %s of %q: %+v, %v", id, text, info, err)
			return
		}
	}
	for key, value := range w.keys {
		if v, err := c.KV("load").Get(ctx, key); err != nil || v.String() != value {
			t.Errorf("key %s: %q, %v", key, v, err)
			return
		}
	}
}

// underLoad has writers write until some dozens of tasks and keys are acknowledged, and on until stop.
func underLoad(t *testing.T, ctx context.Context, c *millrace.Client) (w *told, stop func()) {
	load, cancel := context.WithCancel(ctx)
	w = newTold()
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() { w.write(t, load, c, fmt.Sprint("w", i, "-")) })
	}
	for so := w.copy(); ctx.Err() == nil && (len(so.tasks) < 50 || len(so.keys) < 50); so = w.copy() {
		time.Sleep(10 * time.Millisecond)
	}
	return w, func() {
		cancel()
		writers.Wait()
	}
}

// millraceAs runs the binary against a server, as the holder of a token.
func millraceAs(t *testing.T, address, token string, args ...string) ended {
	t.Helper()
	return run(t, append(args, "--server", address, "--token", token)...)
}

// serveAlone serves a data directory by itself, with the tokens of a cluster.
func (c *nodes) serveAlone(dir string, change func(o *server.Options)) *server.Running {
	c.t.Helper()
	o := server.Options{
		Dir: dir, Listen: "127.0.0.1:0", Admin: "off", TokensFile: filepath.Join(c.dir, "tokens.yaml"), Memory: 128 << 20, Shards: c.shards,
	}
	if change != nil {
		change(&o)
	}
	r, err := startAt(bounded(c.t, 30*time.Second), o)
	noErr(c.t, err)
	c.t.Cleanup(func() { _ = r.Close(0) })
	return r
}

func (c *nodes) clientOf(r *server.Running, opts ...millrace.Option) *millrace.Client {
	c.t.Helper()
	m, err := millrace.Dial(c.t.Context(), append(opts, millrace.Address(r.Address), millrace.Token(c.token))...)
	noErr(c.t, err)
	c.t.Cleanup(func() { m.Close() })
	return m
}

// whole wants a directory that no server has open to be whole.
func whole(t *testing.T, dir string) {
	t.Helper()
	x, err := server.Examine(dir)
	noErr(t, err)
	for _, f := range x.Findings {
		t.Errorf("finding: %s", f)
	}
}

// A cluster is backed up while it works. What was acknowledged before is in the server that the backup is restored to, and
// what the cluster gives out afterwards is nothing to that server.
func TestABackupUnderLoadHoldsWhatWasAcknowledgedBefore(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 4)
	lead := c.leader()
	ctx := bounded(t, 2*time.Minute)
	k := c.client(lead, millrace.Namespace("wide"))
	_, err := k.CreateNamespace(ctx, 8)
	noErr(t, err)
	_, err = k.Queue("held").Set(ctx, millrace.QueueConfig{MaxAttempts: 7})
	noErr(t, err)
	addMany(t, ctx, k, "held", 40)
	held, err := k.Claim(ctx, millrace.ClaimQuery{Queues: []string{"held"}, Max: 8, Lease: time.Hour})
	noErr(t, err)

	written, stop := underLoad(t, ctx, k)
	before := written.copy()
	dir := t.TempDir()
	to, data := filepath.Join(dir, "backup"), filepath.Join(dir, "data")
	away := c.peers[(lead+1)%3] // any node will do
	if e := millraceAs(t, away.API, c.token, "backup", "--to", to); e.code != 0 {
		t.Fatalf("backup ended with %d\n%s", e.code, e.out)
	}
	time.Sleep(100 * time.Millisecond)
	stop()
	if len(before.tasks) < 20 {
		t.Errorf("only %d tasks were acknowledged before", len(before.tasks))
	}
	var later []millrace.Claimed // tokens that only the cluster knows of
	for len(later) < 16 {
		more, err := k.Claim(ctx, millrace.ClaimQuery{Queues: []string{"held", "load"}, Max: 8, Lease: time.Hour})
		noErr(t, err)
		later = append(later, more...)
	}
	if e := run(t, "backup", "verify", to); e.code != 0 || !strings.Contains(e.out, strings.Repeat("0a", 16)) {
		t.Errorf("verify ended with %d\n%s", e.code, e.out)
	}
	if e := run(t, "restore", "--from", to, "--data", data); e.code != 0 {
		t.Fatalf("restore ended with %d\n%s", e.code, e.out)
	}
	whole(t, data)

	r := c.serveAlone(data, nil)
	k2 := c.clientOf(r, millrace.Namespace("wide"))
	before.isIn(t, ctx, k2)
	if q, err := k2.Queue("held").Get(ctx); err != nil || q.MaxAttempts != 7 {
		t.Errorf("the queue's configuration is %+v, %v", q, err)
	}
	again := fenced(t, ctx, k2, held, later)
	if again == 0 {
		t.Error("nothing can be claimed")
	}
	noErr(t, r.Close(0))
	whole(t, data)

	if e := run(t, "serve", "--dev", "--data", data, "--listen", "127.0.0.1:0", "--shards", "1"); e.code != 23 || !strings.Contains(e.out, "shards") {
		t.Errorf("with another number of shards it ended with %d\n%s", e.code, e.out)
	}
}

// fenced wants a restored server to know what was handed out before its backup, and nothing that was handed out later. It
// returns how many tasks can be claimed.
func fenced(t *testing.T, ctx context.Context, k2 *millrace.Client, held, later []millrace.Claimed) int {
	t.Helper()
	known := map[string]bool{}
	for _, h := range held { // leases from before are held still
		known[h.ID] = true
		if _, err := k2.Complete(ctx, h.ID, h.Token, "done"); err != nil {
			t.Errorf("complete %s, which was handed out before: %v", h.ID, err)
		}
	}
	again, err := k2.Claim(ctx, millrace.ClaimQuery{Queues: []string{"held", "load"}, Max: 128, Lease: time.Hour})
	noErr(t, err)
	tokens := map[string]uint64{}
	for _, a := range again {
		tokens[a.ID] = a.Token
	}
	for _, h := range later {
		if known[h.ID] {
			continue
		}
		if _, err := k2.Complete(ctx, h.ID, h.Token, "stale"); !errors.Is(err, millrace.ErrLeaseLost) && !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("task %s under token %d, which the cluster gave out after the backup: %v", h.ID, h.Token, err)
		}
		if tokens[h.ID] != 0 && tokens[h.ID] <= h.Token {
			t.Errorf("task %s has token %d again, the cluster gave out %d", h.ID, tokens[h.ID], h.Token)
		}
	}
	return len(again)
}

// Half of a cluster's disks are lost. One survivor goes on with all that it has.
func TestASurvivorOfALostMajorityGoesOn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	lead := c.leader()
	ctx := bounded(t, 2*time.Minute)
	k := c.client(lead, millrace.Namespace("wide"))
	_, err := k.CreateNamespace(ctx, 4)
	noErr(t, err)
	written, stop := underLoad(t, ctx, k)
	stop()
	held, err := k.Claim(ctx, millrace.ClaimQuery{Queues: []string{"load"}, Max: 4, Lease: time.Hour})
	noErr(t, err)
	survivor := (lead + 1) % 3
	eventually(t, "the survivor has applied what was acknowledged", func() bool {
		for shard, st := range c.running[survivor].Node().Standings() {
			for _, r := range c.running {
				if r.Node().Standings()[shard].Last > st.Applied {
					return false
				}
			}
		}
		return true
	})
	data := c.options(survivor).Dir
	for i := range c.running {
		c.stop(i)
	}
	for i := range c.running {
		if i != survivor {
			noErr(t, os.RemoveAll(c.options(i).Dir))
		}
	}

	before := contents(t, data)
	if e := run(t, "cluster", "recover", "--data", data); e.code != 1 || !strings.Contains(e.out, "--force-new-cluster") || !strings.Contains(e.out, "lost") {
		t.Errorf("without the flag it ended with %d\n%s", e.code, e.out)
	}
	same := strings.Repeat("0a", 16)
	if e := run(t, "cluster", "recover", "--data", data, "--force-new-cluster", "--cluster-id", same); e.code != 1 || !strings.Contains(e.out, "cluster-id") {
		t.Errorf("under the old id it ended with %d\n%s", e.code, e.out)
	}
	if !maps.Equal(before, contents(t, data)) {
		t.Error("what was refused changed the directory")
	}
	id := strings.Repeat("0b", 16)
	if e := run(t, "cluster", "recover", "--data", data, "--force-new-cluster", "--cluster-id", id); e.code != 0 || !strings.Contains(e.out, id) {
		t.Fatalf("recover ended with %d\n%s", e.code, e.out)
	}
	whole(t, data)
	if _, err := startAt(ctx, c.options(survivor)); server.ExitCode(err) != 23 {
		t.Errorf("as a node of the old cluster: %v", err)
	}

	r := c.serveAlone(data, func(o *server.Options) {
		old := c.options(survivor)
		o.Listen, o.HTTP, o.Cluster = old.Listen, old.HTTP, old.Cluster
		o.Cluster.ID, o.Cluster.Peers = id, c.peers[survivor:survivor+1]
	})
	k2 := c.clientOf(r, millrace.Namespace("wide"))
	written.isIn(t, ctx, k2)
	for _, h := range held {
		if _, err := k2.Complete(ctx, h.ID, h.Token, "done"); err != nil {
			t.Errorf("complete %s: %v", h.ID, err)
		}
	}
	more, err := k2.Claim(ctx, millrace.ClaimQuery{Queues: []string{"load"}, Max: 4, Lease: time.Hour})
	noErr(t, err)
	for _, m := range more {
		for _, h := range held {
			if m.Token <= h.Token {
				t.Errorf("token %d is given out after %d", m.Token, h.Token)
			}
		}
	}
	noErr(t, r.Close(0))
	whole(t, data)
}

// A backup that is killed is recognised, and taken again.
func TestABackupThatIsKilledIsTakenAnew(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	addMany(t, ctx, c, "q", 2000)
	dir := t.TempDir()
	for _, to := range []string{filepath.Join(dir, "b"), filepath.Join(dir, "b.tar")} {
		mark := filepath.Join(to, "INCOMPLETE")
		if strings.HasSuffix(to, ".tar") {
			mark = to + ".incomplete"
		}
		cmd := exec.CommandContext(ctx, program, "backup", "--to", to, "--rate", "20KiB", "--server", s.Address(), "--token", s.Tokens[0].Secret)
		noErr(t, cmd.Start())
		eventually(t, "the backup has begun", func() bool { _, err := os.Stat(mark); return err == nil })
		noErr(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		if e := run(t, "backup", "verify", to); e.code != 1 || !strings.Contains(e.out, "not whole") {
			t.Errorf("%s: verify of what was killed ended with %d\n%s", to, e.code, e.out)
		}
		if e := run(t, "restore", "--from", to, "--data", filepath.Join(dir, "data")); e.code != 1 {
			t.Errorf("%s: restore of what was killed ended with %d\n%s", to, e.code, e.out)
		}
		eventually(t, "the server takes another one", func() bool {
			e := millraceAs(t, s.Address(), s.Tokens[0].Secret, "backup", "--to", to)
			return e.code == 0
		})
		if e := run(t, "backup", "verify", to); e.code != 0 {
			t.Errorf("%s: verify ended with %d\n%s", to, e.code, e.out)
		}
		info, err := os.Stat(to)
		noErr(t, err)
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s can be read by others: %v", to, mode)
		}
	}
	if err := os.Mkdir(filepath.Join(s.DataDir(), "x"), 0o700); err != nil { // the server holds nothing of the backups
		t.Error(err)
	}
}

// A restored server is a cluster of one, which grows as any other does; and the survivor of a cluster that was grown names the
// members that it had, not those that it began with.
func TestARestoredServerGrowsToThree(t *testing.T) {
	t.Parallel()
	c := growing(t, 1, 2)
	ctx := bounded(t, time.Minute)
	ids := addMany(t, ctx, c.client(0), "q", 50)
	to, id := filepath.Join(c.dir, "backup"), strings.Repeat("0c", 16)
	if e := millraceAs(t, c.peers[0].API, c.token, "backup", "--to", to); e.code != 0 {
		t.Fatalf("backup ended with %d\n%s", e.code, e.out)
	}
	c.stop(0)
	was := c.change
	c.change = func(o *server.Options) {
		was(o)
		o.Cluster.ID, o.Dir = id, filepath.Join(c.dir, "restored", o.Name)
	}
	data := c.options(0).Dir
	if e := run(t, "restore", "--from", to, "--data", data, "--cluster-id", id, "--node-id", "1"); e.code != 0 {
		t.Fatalf("restore ended with %d\n%s", e.code, e.out)
	}
	c.start(0)
	c.grow(0)
	c.grow(1)
	c.votersAre(1, 2, 3)
	if got := states(t, ctx, c.client(2), ids); got[millrace.Ready] != len(ids) {
		t.Errorf("%v are there", got)
	}
	for i := range 3 {
		c.stop(i)
	}
	e := run(t, "cluster", "recover", "--data", data)
	if e.code != 1 || !strings.Contains(e.out, "nodes 1 2 3\n") || !strings.Contains(e.out, "node 3    voter at "+c.peers[2].Address) {
		t.Errorf("recover ended with %d\n%s", e.code, e.out)
	}
}

// Without room on its disk a node takes no backup, the command leaves nothing, and restore changes nothing.
func TestAFullDiskTakesNoBackupAndNoRestore(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64<<20)
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: filepath.Join(disk.At, "s")}, "default")
	noErr(t, err)
	ctx := bounded(t, time.Minute)
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	defer s.Kill()
	c, err := millrace.Dial(ctx, millrace.Address(s.Address()), millrace.Token(s.Tokens[0].Secret))
	noErr(t, err)
	defer c.Close()
	ids := addMany(t, ctx, c, "q", 500)
	elsewhere := filepath.Join(t.TempDir(), "b")
	if e := millraceAs(t, s.Address(), s.Tokens[0].Secret, "backup", "--to", elsewhere); e.code != 0 {
		t.Fatalf("with room it ended with %d\n%s", e.code, e.out)
	}
	noErr(t, disk.Fill())
	if e := millraceAs(t, s.Address(), s.Tokens[0].Secret, "backup", "--to", elsewhere+"2"); e.code != 1 || !strings.Contains(e.out, "disk") {
		t.Errorf("of a server on a full disk it ended with %d\n%s", e.code, e.out)
	}
	if _, err := os.Stat(elsewhere + "2"); err == nil {
		t.Error("something is left of the backup that was refused")
	}
	if e := run(t, "restore", "--from", elsewhere, "--data", filepath.Join(disk.At, "restored")); e.code != 22 {
		t.Errorf("onto a full disk restore ended with %d\n%s", e.code, e.out)
	}
	noErr(t, disk.Free())
	if e := run(t, "restore", "--from", elsewhere, "--data", filepath.Join(disk.At, "restored")); e.code != 0 {
		t.Errorf("with room restore ended with %d\n%s", e.code, e.out)
	}
	whole(t, filepath.Join(disk.At, "restored"))
	if got := states(t, ctx, c, ids); got[millrace.Ready] != len(ids) {
		t.Errorf("tasks are %v", got)
	}
	noErr(t, s.Stop())
}

// What the page for operators says is what the commands do: its blocks of shell run, one after another.
func TestTheCommandsOfThePageAboutBackupsWork(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	addMany(t, ctx, c, "q", 100)
	page, err := os.ReadFile("../../docs/operate/backup.md")
	noErr(t, err)
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	noErr(t, os.MkdirAll(bin, 0o700))
	noErr(t, os.MkdirAll(filepath.Join(dir, "backups"), 0o700))
	noErr(t, os.Symlink(program, filepath.Join(bin, "millrace")))
	blocks := 0
	for _, part := range strings.Split(string(page), "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		cmd := exec.CommandContext(ctx, "bash", "-euc", block)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MILLRACE_URL="+s.Address(), "MILLRACE_TOKEN="+s.Tokens[0].Secret)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s%v\n%s", block, err, out)
		}
		blocks++
	}
	if blocks < 4 {
		t.Errorf("the page has %d blocks of commands", blocks)
	}
}
