package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/env/envtest"
	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// growing starts a cluster of n nodes whose admin listeners change its membership.
func growing(t *testing.T, n, shards int) *nodes {
	return startClusterWith(t, n, shards, withAdmin)
}

// admin is the admin listener of some node that runs.
func (c *nodes) admin() string {
	c.t.Helper()
	for i := len(c.running) - 1; i >= 0; i-- {
		if r := c.running[i]; r != nil {
			return r.AdminAddress
		}
	}
	c.t.Fatal("no node runs")
	return ""
}

// door is how a command reaches the i-th node.
func (c *nodes) door(i int) []string { return []string{"--server", c.peers[i].API, "--token", c.token} }

// anyDoor is how a command reaches some node that runs.
func (c *nodes) anyDoor() []string {
	c.t.Helper()
	for i := len(c.running) - 1; i >= 0; i-- {
		if c.running[i] != nil {
			return c.door(i)
		}
	}
	c.t.Fatal("no node runs")
	return nil
}

// command runs a command of millrace cluster at some node that runs.
func (c *nodes) command(args ...string) ended {
	c.t.Helper()
	return run(c.t, append(append([]string{"cluster"}, args...), c.anyDoor()...)...)
}

// operate runs a command that changes the membership, and reads what it led to.
func (c *nodes) operate(code int, args ...string) (m server.Membership, said string) {
	c.t.Helper()
	e := c.command(append(args, "--json")...)
	if e.code != code {
		c.t.Fatalf("cluster %v: exit %d, want %d\n%s", args, e.code, code, e.out)
	}
	if code == 0 {
		line, _, _ := strings.Cut(e.out, "\n")
		noErr(c.t, json.Unmarshal([]byte(line), &m))
	}
	return m, e.out
}

// jobEnds waits until no change of membership is under way.
func (c *nodes) jobEnds(state string) {
	c.t.Helper()
	var s server.ClusterStatus
	eventually(c.t, "the change of membership ends", func() bool {
		code, body := fetch(c.t, "GET", c.admin(), "/cluster/status")
		return code == 200 && json.Unmarshal([]byte(body), &s) == nil && s.Job != nil && !s.Job.Runs()
	})
	if s.Job.State != state {
		c.t.Fatalf("the change of membership ended %+v, want %s", s.Job, state)
	}
}

// place makes room for one more node, and returns its place.
func (c *nodes) place() int {
	at := envtest.Ports(c.t, 3)
	c.peers = append(c.peers, config.Peer{ID: uint64(len(c.peers) + 1), Address: at[0], API: at[1], HTTP: at[2]})
	c.running = append(c.running, nil)
	i := len(c.running) - 1
	c.t.Cleanup(func() { c.stop(i) })
	return i
}

// joinOptions are those of a node that a member takes in.
func (c *nodes) joinOptions(i, member int, token string) server.Options {
	o := c.options(i)
	o.Cluster.Peers = nil
	if token != "" {
		o.Cluster.Join, o.Cluster.Token = c.peers[member].Address, token
	}
	return o
}

// grow adds a node and starts it.
func (c *nodes) grow(member int, flags ...string) { c.t.Helper(); c.grown(member, flags...) }

// grown is grow, and returns the token that the node joined with.
func (c *nodes) grown(member int, flags ...string) (token string) {
	c.t.Helper()
	i := c.place()
	m, _ := c.operate(0, append([]string{"add", fmt.Sprint("n", i+1)}, flags...)...)
	c.open(i, c.joinOptions(i, member, m.Token))
	c.jobEnds("done")
	return m.Token
}

// joinedAt is the version of the directory of members that a node was told when it joined, which its data directory keeps.
func (c *nodes) joinedAt(i int) uint64 {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.options(i).Dir, "MEMBER"))
	noErr(c.t, err)
	var file struct{ Member server.Member }
	noErr(c.t, json.Unmarshal(b, &file))
	return file.Member.Version
}

func (c *nodes) open(i int, o server.Options) {
	c.t.Helper()
	r, err := startAt(bounded(c.t, 30*time.Second), o)
	if err != nil {
		c.t.Fatalf("start node %d: %v", i+1, err)
	}
	c.running[i] = r
}

// leaves waits until a node that is removed ends, and that it does not start again.
func (c *nodes) leaves(i int, o server.Options) {
	c.t.Helper()
	select {
	case err := <-c.running[i].Fatal():
		if server.ExitCode(err) != 23 {
			c.t.Errorf("node %d ended with %v", i+1, err)
		}
	case <-time.After(30 * time.Second):
		c.t.Errorf("node %d serves on though it was removed", i+1)
	}
	c.stop(i)
	if r, err := startAt(bounded(c.t, 30*time.Second), o); server.ExitCode(err) != 23 {
		c.t.Errorf("a start of removed node %d: %v", i+1, err)
		if r != nil {
			noErr(c.t, r.Close(0))
		}
	}
}

// votersAre holds the cluster to its voters.
func (c *nodes) votersAre(want ...uint64) {
	c.t.Helper()
	var s server.ClusterStatus
	_, body := fetch(c.t, "GET", c.admin(), "/cluster/status")
	noErr(c.t, json.Unmarshal([]byte(body), &s))
	var got []uint64
	for _, n := range s.Nodes {
		if n.State == "voter" {
			got = append(got, n.ID)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("voters %v, want %v", got, want)
	}
}

// adding makes tasks all the time until it is stopped, which returns the ids of those that were acknowledged.
func (c *nodes) adding(ctx context.Context, k *millrace.Client) (stop func() []string) {
	quit, out := make(chan struct{}), make(chan []string, 1)
	go func() {
		var ids []string
		for i := 0; ; i++ {
			select {
			case <-quit:
				out <- ids
				return
			default:
			}
			if h, err := millrace.Job[int, int]("load").Add(ctx, k, i); err == nil {
				ids = append(ids, h.ID)
			}
		}
	}()
	var once sync.Once
	var ids []string
	return func() []string {
		once.Do(func() { close(quit); ids = <-out })
		return ids
	}
}

func TestAClusterGrowsFromOneNodeToFiveAndShrinksToThreeUnderLoad(t *testing.T) {
	onlyInCheck(t, "it loads five nodes")
	t.Parallel()
	if testing.Short() {
		t.Skip("whole servers")
	}
	c := growing(t, 1, 2)
	ctx := bounded(t, 2*time.Minute)
	k := c.client(0) // it is given the first node alone, which is removed
	stop := c.adding(ctx, k)
	c.grow(0)
	c.grow(0)
	c.votersAre(1, 2, 3)
	c.grow(2)
	c.grow(1)
	c.votersAre(1, 2, 3, 4, 5)
	if at, now := c.joinedAt(4), c.running[4].Node().Members().Version; at == 0 || at > now {
		t.Errorf("the last node keeps that it joined with version %d of the members, of %d", at, now)
	}
	k2 := c.client(4)
	stop2 := c.adding(ctx, k2)

	c.operate(0, "remove", "n1")
	c.leaves(0, c.options(0))
	c.jobEnds("done")
	c.operate(0, "remove", "2")
	c.leaves(1, c.joinOptions(1, 2, ""))
	c.jobEnds("done")
	c.votersAre(3, 4, 5)

	c.stop(3) // a node that was taken in starts again with what it has
	c.open(3, c.joinOptions(3, 2, ""))
	ids := append(stop(), stop2()...)
	if got := states(t, ctx, c.client(2), ids); got[millrace.Ready] != len(ids) || len(ids) == 0 {
		t.Errorf("%d tasks were acknowledged, and %v are there", len(ids), got)
	}
}

func TestALearnerTakesThePlaceOfANodeThatIsDown(t *testing.T) {
	t.Parallel()
	c := growing(t, 3, 1)
	ctx := bounded(t, time.Minute)
	ids := addMany(t, ctx, c.client(0), "q", 100)
	token := c.grown(0, "--learner")
	c.stop(3) // one that was taken in comes back without its disk as any other does
	noErr(t, os.RemoveAll(filepath.Join(c.dir, "n4")))
	c.open(3, c.joinOptions(3, 0, token))
	c.jobEnds("done")
	if got := c.running[3].Node().Replica(); got != 5 {
		t.Errorf("node 4 is replica %d after it lost its data, want 5", got)
	}
	c.stop(1)
	if _, said := c.operate(1, "remove", "n3"); !strings.Contains(said, "quorum_loss") {
		t.Errorf("removal of a node that is needed: %s", said)
	}
	c.votersAre(1, 2, 3)
	eventually(t, "the learner to be heard of by all leaders", func() bool { // until then it is refused as learner_behind
		e := c.command("replace", "n2", "n4", "--json")
		if e.code != 0 && !strings.Contains(e.out, "learner_behind") {
			t.Fatal(e.out)
		}
		return e.code == 0
	})
	c.jobEnds("done")
	c.votersAre(1, 3, 4)
	c.stop(2) // two of three are left, one of them new
	if got := states(t, ctx, c.client(3), ids); got[millrace.Ready] != len(ids) {
		t.Errorf("%v are there", got)
	}
	if r, err := startAt(bounded(t, 30*time.Second), c.options(1)); server.ExitCode(err) != 23 {
		t.Errorf("the node that was replaced while it was down starts: %v", err)
		if r != nil {
			noErr(t, r.Close(0))
		}
	}
}

func TestANodeThatLostItsDiskComesBackByItself(t *testing.T) {
	t.Parallel()
	c := growing(t, 3, 2)
	ctx := bounded(t, time.Minute)
	ids := addMany(t, ctx, c.client(0), "q", 100)
	eventually(t, "the data directories are known", func() bool {
		for _, m := range c.running[0].Node().Members().Members {
			if m.Store == [16]byte{} {
				return false
			}
		}
		return true
	})
	for range 2 {
		c.stop(2)
		noErr(t, os.RemoveAll(filepath.Join(c.dir, "n3")))
		c.open(2, c.options(2))
		c.jobEnds("done")
		c.votersAre(1, 2, 3)
	}
	if got := c.running[2].Node().Replica(); got != 5 {
		t.Errorf("node 3 is replica %d after it lost its data twice, want 5", got)
	}
	c.stop(2)
	c.open(2, c.options(2)) // starts with what it has
	c.stop(0)
	if got := states(t, ctx, c.client(2), ids); got[millrace.Ready] != len(ids) {
		t.Errorf("%v are there", got)
	}
}

func TestANodeThatWasAwayFindsTheClusterThoughAllOthersWereReplaced(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("whole servers")
	}
	c := growing(t, 3, 1)
	ctx := bounded(t, time.Minute)
	ids := addMany(t, ctx, c.client(0), "q", 20)
	eventually(t, "there is a directory", func() bool { return c.running[1].Node().Members().Version > 0 })
	c.stop(0)
	c.grow(1)
	c.grow(1)
	for i := 1; i <= 2; i++ {
		c.operate(0, "remove", fmt.Sprint("n", i+1))
		<-c.running[i].Fatal()
		c.stop(i)
		c.jobEnds("done")
	}
	away := c.options(0)
	away.Cluster.Peers = c.peers[:3] // it knows of nodes 2 and 3 alone
	c.open(0, away)
	c.votersAre(1, 4, 5)
	if got := states(t, ctx, c.client(0), ids); got[millrace.Ready] != len(ids) {
		t.Errorf("%v are there", got)
	}
}

func TestMembershipIsRefusedByName(t *testing.T) {
	t.Parallel()
	c := growing(t, 1, 1)
	for _, x := range []struct {
		want string
		args []string
	}{
		{"quorum_loss", []string{"remove", "n1"}},
		{"NOT_FOUND", []string{"remove", "n7"}},
		{"ALREADY_EXISTS", []string{"add", "n1"}},
		{"not_learner", []string{"promote", "n1"}},
		{"no_job", []string{"cancel"}},
	} {
		if _, said := c.operate(1, x.args...); !strings.Contains(said, x.want) {
			t.Errorf("cluster %v: %s, want %s", x.args, said, x.want)
		}
	}
	c.operate(0, "add", "n2")
	if _, said := c.operate(1, "add", "n3"); !strings.Contains(said, "job_running") {
		t.Errorf("a second change: %s", said)
	}
	i := c.place()
	if _, err := startAt(bounded(t, 30*time.Second), c.joinOptions(i, 0, "mrj_wrong")); err == nil || !strings.Contains(err.Error(), "join_token") {
		t.Errorf("a node with another token: %v", err)
	}
	c.operate(0, "cancel")
	c.jobEnds("cancelled")
	c.votersAre(1)
}

func TestAMajorityThatIsNotReachedTakesNobodyIn(t *testing.T) {
	t.Parallel()
	c := growing(t, 3, 1)
	c.leader()
	c.stop(0)
	c.stop(1)
	if _, said := c.operate(3, "add", "n4"); !strings.Contains(said, "UNAVAILABLE") {
		t.Errorf("add without a majority: %s", said)
	}
	c.start(0)
	c.leader()
	c.votersAre(1, 2, 3)
}

// pageCommands returns the commands of the first block of a section of a page.
func pageCommands(t *testing.T, page, section string) []string {
	t.Helper()
	b, err := os.ReadFile(page)
	noErr(t, err)
	_, rest, found := strings.Cut(string(b), "\n## "+section+"\n")
	_, rest, open := strings.Cut(rest, "```sh\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !open || !closed {
		t.Fatalf("%s has no commands in section %s", page, section)
	}
	return strings.Split(strings.TrimSpace(block), "\n")
}

// freeBase returns the first of n ports in a row that this test has alone.
func freeBase(t *testing.T, n int) int {
	t.Helper()
	_, first, err := net.SplitHostPort(envtest.Ports(t, n)[0])
	noErr(t, err)
	port, err := strconv.Atoi(first)
	noErr(t, err)
	return port
}

func TestThePageOfGrowingAClusterIsTrue(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("whole servers")
	}
	base, dir, token := freeBase(t, 30), t.TempDir(), ""
	port := regexp.MustCompile(`\b74([0-2])([0-9])\b`)
	for _, line := range pageCommands(t, "../../docs/operate/cluster.md", "Grow it") {
		line = port.ReplaceAllStringFunc(line, func(s string) string {
			n, err := strconv.Atoi(s)
			noErr(t, err)
			return fmt.Sprint(base + n - 7400)
		})
		line = strings.ReplaceAll(strings.ReplaceAll(line, "./cluster", filepath.Join(dir, "c")), `"$TOKEN"`, token)
		args, background := strings.CutSuffix(strings.TrimPrefix(line, "millrace "), " &")
		if background {
			cmd := exec.CommandContext(t.Context(), program, strings.Fields(args)...)
			noErr(t, cmd.Start())
			t.Cleanup(func() {
				_ = cmd.Process.Kill() // it may have ended
				_ = cmd.Wait()
			})
			continue
		}
		var out ended
		eventually(t, line, func() bool { // what was started before may not serve yet, or have a job under way
			out = run(t, append(strings.Fields(args), "--json")...)
			return out.code == 0
		})
		var m server.Membership
		if json.Unmarshal([]byte(out.out), &m) == nil && m.Token != "" {
			token = m.Token
		}
	}
	eventually(t, "three nodes vote", func() bool {
		e := run(t, "cluster", "status", "--socket", filepath.Join(dir, "c", "n1", "data", "operator.sock"))
		return e.code == 0 && strings.Count(e.out, "voter") == 3 && !strings.Contains(e.out, "warning")
	})
}
