package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// howMany is a count that the environment may raise.
func howMany(t *testing.T, variable string, small int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	noErr(t, err)
	return n
}

// seriesOf reads all metrics.
func seriesOf(t *testing.T, admin string) map[string]float64 {
	t.Helper()
	code, body := fetch(t, http.MethodGet, admin, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("metrics: %d %s", code, body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
			out[name+"}"], _ = strconv.ParseFloat(value, 64)
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			out[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return out
}

func TestWhatGitClientsDoIsCounted(t *testing.T) {
	t.Parallel()
	needGit(t)
	s, l := serveAdmin(t, "--memory", "256MiB")
	host := gitHost{t, l.HTTP, l.GRPC, s.Tokens[0].Secret}
	host.makeRepo("app", nil)
	url := host.url("app")
	for _, version := range gitVersions {
		w := newWork(t, version)
		w.history(25)
		w.git("push", "-q", "--mirror", url)
		for _, dir := range []string{"one", "two"} {
			w.git("clone", "-q", "--shallow-exclude=v19", url, dir)
		}
		w.commit("own", version)
		w.refuses("not found", "clone", "-q", host.url("none"), "none")
	}
	w := newWork(t, "2")
	id := w.commit("a", "1")
	for _, pack := range [][]byte{[]byte("PACK is none"), w.packOf(id)[:40]} {
		if status, answer := host.pushRaw("app", append(updateOf(noID, id, "refs/heads/x"), pack...)); status != 200 || !strings.Contains(answer, "unpack index-pack") {
			t.Errorf("%d %q", status, answer)
		}
	}
	// What only the log judges.
	host.setRepo("app", &pb.RepoConfig{Rules: []*pb.RefRule{{Refs: "refs/heads/main", Deny: []pb.RefRule_Deny{pb.RefRule_UPDATE}}}})
	w.refuses("protected", "push", "--force", url, "main")
	got := seriesOf(t, l.Admin)
	for _, series := range []string{
		`githttp_requests_total{request="advertise"}`, `githttp_requests_total{request="ls-refs"}`,
		`githttp_requests_total{request="fetch"}`, `githttp_requests_total{request="push"}`,
		`githttp_refused_total{why="missing"}`, `githttp_refused_total{why="denied"}`,
		`githttp_commits_total{outcome="landed"}`, `githttp_commits_total{outcome="rejected"}`,
		`githttp_push_phase_count_total{phase="receive"}`, `githttp_push_phase_count_total{phase="connect"}`,
		`githttp_push_phase_count_total{phase="keep"}`, `githttp_push_phase_count_total{phase="commit"}`,
		`githttp_push_phase_seconds_total{phase="receive"}`, `githttp_push_phase_seconds_total{phase="connect"}`,
		`githttp_push_phase_seconds_total{phase="keep"}`, `githttp_push_phase_seconds_total{phase="commit"}`,
		`gitobj_children_total`, `gitobj_children_failed_total`, `gitobj_packs_total`, `gitobj_pack_bytes_total`,
		`gitobj_gitdirs_total`, `gitobj_gitdir_hits_total`,
		`refs_repository_refs{namespace="default",repo="app",tenant="default"}`,
		`refs_repository_bytes{namespace="default",repo="app",tenant="default"}`,
		`refs_repository_packs{namespace="default",repo="app",tenant="default"}`,
	} {
		if got["millrace_"+series] <= 0 {
			t.Errorf("%s is %v", series, got["millrace_"+series])
		}
	}
}

// roots makes commits without parents, each with a file of its own, and returns their ids.
func (w work) roots(n int) []string {
	w.t.Helper()
	var in bytes.Buffer
	for i := range n {
		fmt.Fprintf(&in, "commit refs/roots/%d\ncommitter c <c@c> %d +0000\ndata 4\nroot\nM 100644 inline f\ndata <<E\n%d\nE\n\n", i, 1700000000+i, i)
	}
	cmd := w.command(w.t.Context(), "fast-import", "--quiet")
	cmd.Stdin = &in
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("fast-import: %v\n%s", err, out)
	}
	return strings.Fields(w.git("for-each-ref", "--sort=committerdate", "--format=%(objectname)", "refs/roots/"))
}

// TestOfManyPushesHalfOfThemRefusedOnlyTheOthersLeaveFiles sends as many pushes as GIT_PUSHES says, 40 without.
func TestOfManyPushesHalfOfThemRefusedOnlyTheOthersLeaveFiles(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", &pb.RepoConfig{Rules: []*pb.RefRule{{Refs: "refs/heads/closed/**", Deny: []pb.RefRule_Deny{pb.RefRule_CREATE}}}})
	w := newWork(t, "2")
	ids := w.roots(howMany(t, "GIT_PUSHES", 40))
	landed := 0
	for i, id := range ids {
		name, body, says := fmt.Sprintf("refs/heads/%d", i), w.packOf(id), "ok refs/heads/"
		switch i % 8 {
		case 1:
			name, says = fmt.Sprintf("refs/heads/closed/%d", i), "protected by rule 1"
		case 3:
			body, says = body[:len(body)-15], "unpack index-pack"
		case 5:
			body[len(body)/2] ^= 4
			says = "unpack index-pack"
		case 7:
			name, says = "refs/heads/0/below", "cannot create"
		default:
			landed++
		}
		if status, answer := host.pushRaw("app", append(updateOf(noID, id, name), body...)); status != 200 || !strings.Contains(answer, says) {
			t.Fatalf("push %d: %d %q, not %q", i, status, answer, says)
		}
	}
	info := new(pb.GetRepoResponse)
	host.call("RefService/GetRepo", &pb.GetRepoRequest{Name: "app"}, info)
	rolled := landed >= 32 // packs are written together, and the files of those that were stay for ten minutes
	if (info.Repo.Packs != int64(landed)) != rolled || 2*landed > len(ids) {
		t.Errorf("%d packs of %d pushes that landed", info.Repo.Packs, landed)
	}
	l.stop() // what is done later is done
	files, sum := l.packFiles(), int64(0)
	for _, f := range files {
		at, err := os.Stat(f)
		noErr(t, err)
		if sum += at.Size(); !strings.Contains(f, "/objects/pack/") {
			t.Errorf("left is %s", f)
		}
	}
	if (len(files) != 2*landed || sum != info.Repo.Bytes) && !rolled || len(files) < 2*int(info.Repo.Packs) || sum < info.Repo.Bytes {
		t.Errorf("%d files of %d bytes; the manifest has %d packs of %d", len(files), sum, info.Repo.Packs, info.Repo.Bytes)
	}
	l.start()
	w.git("clone", "-q", "--mirror", l.git().url("app"), "final")
	w.in("final").whole()
}

func TestGitdirsMayVanishAtAnyTime(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	w := newWork(t, "2")
	w.history(40)
	w.git("push", "-q", "--mirror", url)
	want := w.refsOf(url)
	ctx, stop := context.WithCancel(t.Context())
	gone := make(chan int)
	go func() {
		removed := 0
		for ctx.Err() == nil {
			dirs, _ := filepath.Glob(filepath.Join(l.dir, "data", "git", "*", "*", "gitdirs", "*"))
			for _, d := range dirs {
				_ = os.RemoveAll(d)
				removed++
			}
			time.Sleep(300 * time.Millisecond)
		}
		gone <- removed
	}()
	for i := range 6 {
		name := fmt.Sprintf("refs/heads/new/%d", i)
		w.git("push", "-q", url, fmt.Sprintf("main~%d:%s", i, name))
		want[name] = w.git("rev-parse", fmt.Sprintf("main~%d", i))
		w.git("clone", "-q", url, fmt.Sprintf("plain%d", i)) // which needs none
		for try := 1; ; try++ {                              // one that is in use may go, and its fetch with it; the next gets another
			out, err := w.try("clone", "-q", "--shallow-exclude=v19", url, fmt.Sprintf("clone%d", i))
			if err == nil {
				break
			} else if try == 20 {
				t.Fatalf("no clone goes well: %s", out)
			}
		}
	}
	stop()
	if removed := <-gone; removed == 0 {
		t.Error("no gitdir was there to be removed")
	}
	if got := w.refsOf(url); !maps.Equal(got, want) {
		t.Errorf("refs are %v, not %v", got, want)
	}
}

// stuckFetch asks for a repository and reads nothing of the answer.
func stuckFetch(t *testing.T, host gitHost, want string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", host.http)
	noErr(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, err = c.Write(fetchRequest(host, want))
	noErr(t, err)
	return c
}

func fetchRequest(host gitHost, want string) []byte {
	body := append(pkt("command=fetch"), "0001"...)
	body = append(body, pkt("want "+want+"\n", "done\n", "")...)
	return append(fmt.Appendf(nil, "POST /git/default/app.git/git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\nGit-Protocol: version=2\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/x-git-upload-pack-request\r\nContent-Length: %d\r\n\r\n", host.token, len(body)), body...)
}

// noise returns n bytes that do not get smaller when packed.
func noise(n int) []byte {
	out := make([]byte, n)
	for i, x := 0, uint32(1); i < n; i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		out[i] = byte(x)
	}
	return out
}

// residentPeak is the most memory that a process had, in bytes.
func residentPeak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	noErr(t, err)
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	noErr(t, err)
	return kb << 10
}

// TestSlowGitClientsHoldUpNobodyAndLeaveNoProcess has connections that say half a request, fetches whose
// answers are not read, and fetches that wait for those. GIT_SLOW and GIT_WAITING say how many; of one tenant 64 fetches may
// wait. Pushes go on.
func TestSlowGitClientsHoldUpNobodyAndLeaveNoProcess(t *testing.T) {
	t.Parallel()
	needGit(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are counted in /proc")
	}
	const memory = 512 << 20
	s, l := serveAdmin(t, "--memory", strconv.Itoa(memory), "--limit-connections-address", "10000") // they are all of one
	host := gitHost{t, l.HTTP, l.GRPC, s.Tokens[0].Secret}
	host.makeRepo("app", nil)
	w := newWork(t, "2")
	noErr(t, os.WriteFile(filepath.Join(w.dir, "noise"), noise(12<<20), 0o600)) // larger than what sockets hold
	w.git("add", "noise")
	big := w.commit("a", "1")
	w.git("push", "-q", host.url("app"), "main", big+":refs/heads/old")
	small := w.git("rev-parse", "main:a") // a blob: what all but the slow ask for

	half := fetchRequest(host, small)
	for range howMany(t, "GIT_SLOW", 100) {
		c, err := net.Dial("tcp", l.HTTP)
		noErr(t, err)
		defer c.Close()
		_, err = c.Write(half[:len(half)-10])
		noErr(t, err)
	}
	var stuck []net.Conn
	for range 4 { // more than one token may have at once with this memory
		stuck = append(stuck, stuckFetch(t, host, big))
	}
	until(t, "two fetches run", func() bool {
		got := seriesOf(t, l.Admin)
		return got["millrace_gitobj_running_calls"] == 2 && got["millrace_gitobj_waiting_calls"] == 2
	})
	waiting := howMany(t, "GIT_WAITING", 20)
	var all sync.WaitGroup
	answers := make(chan string, waiting)
	for range waiting {
		c, err := net.Dial("tcp", l.HTTP)
		noErr(t, err)
		defer c.Close()
		_, err = c.Write(fetchRequest(host, small))
		noErr(t, err)
		all.Go(func() {
			b, _ := io.ReadAll(c)
			answers <- string(b)
		})
	}
	until(t, "the others wait", func() bool {
		return seriesOf(t, l.Admin)["millrace_gitobj_waiting_calls"] == float64(waiting+2)
	})
	if waiting+2 == 64 {
		status, _, headers := host.say("POST", "app.git/git-upload-pack", "application/x-git-upload-pack-request",
			bytes.NewReader(append(append(pkt("command=fetch"), "0001"...), pkt("want "+small+"\n", "done\n", "")...)), "Git-Protocol", "version=2")
		if status != 503 || headers.Get("Retry-After") == "" {
			t.Errorf("one more gets %d", status)
		}
	}
	othersAreServed(host, w, big)
	for _, c := range stuck {
		_ = c.Close()
	}
	all.Wait()
	close(answers)
	for a := range answers {
		if !strings.HasPrefix(a, "HTTP/1.1 200 ") || !strings.Contains(a, "packfile") {
			t.Errorf("one that waited gets %q", a[:min(len(a), 200)])
		}
	}
	until(t, "all programs end", func() bool { return len(children(l.PID)) == 0 })
	if got := residentPeak(t, l.PID); got > memory {
		t.Errorf("the server took %d MiB of memory", got>>20)
	}
}

// othersAreServed wants that refs are listed, that they move where no program is needed, and that pushes of the same token land.
func othersAreServed(host gitHost, w work, id string) {
	t := host.t
	t.Helper()
	if refs := w.refsOf(host.url("app")); refs["refs/heads/main"] != id {
		t.Errorf("refs are %v", refs)
	}
	host.call("RefService/UpdateRefs", &pb.UpdateRefsRequest{Repo: "app", Changes: []*pb.RefChange{
		{Kind: pb.RefChange_CREATE, Name: "refs/heads/api", New: id},
	}}, new(pb.UpdateRefsResponse))
	if status, answer := host.pushRaw("app", pkt(id+" "+noID+" refs/heads/old\x00report-status delete-refs", "")); status != 200 || !strings.Contains(answer, "ok refs/heads/old") {
		t.Errorf("a deletion: %d %q", status, answer)
	}
	next := w.commit("b", "2")
	w.git("push", "-q", host.url("app"), "main")
	if refs := w.refsOf(host.url("app")); refs["refs/heads/main"] != next {
		t.Errorf("after a push refs are %v", refs)
	}
}

// until waits for what must come to be.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
