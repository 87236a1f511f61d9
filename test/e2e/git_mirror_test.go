package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fastImport feeds git with a stream of commands.
func (w work) fastImport(stream *bytes.Buffer) {
	w.t.Helper()
	cmd := w.command(w.t.Context(), "fast-import", "--quiet", "--force")
	cmd.Stdin = stream
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("fast-import: %v\n%s", err, out)
	}
}

// manyRefs makes a repository with that many refs: branches and tags, each tenth tag of a tag.
func (w work) manyRefs(refs int) {
	w.t.Helper()
	var in bytes.Buffer
	commits := max(refs/20, 1)
	for i := range commits {
		fmt.Fprintf(&in, "commit refs/heads/main\nmark :%d\ncommitter c <c@c> %d +0000\ndata 6\ncommit\n", i+1, 1700000000+i)
		fmt.Fprintf(&in, "M 100644 inline d%d/f%d\ndata <<E\n%d\nE\n\n", i%16, i%256, i)
	}
	tag := 0
	for i := range refs - 1 {
		at := i%commits + 1
		switch i % 3 {
		case 0:
			fmt.Fprintf(&in, "reset refs/heads/b/%d/%d\nfrom :%d\n\n", i%100, i, at)
		case 1:
			tag++
			from := fmt.Sprintf(":%d", at)
			if tag%10 == 0 {
				from = fmt.Sprintf(":%d", 1_000_000+tag-1)
			}
			fmt.Fprintf(&in, "tag t%d\nmark :%d\nfrom %s\ntagger c <c@c> %d +0000\ndata 3\ntag\n", i, 1_000_000+tag, from, 1700000000+i)
		default:
			fmt.Fprintf(&in, "reset refs/tags/light/%d\nfrom :%d\n\n", i, at)
		}
	}
	w.fastImport(&in)
}

// longHistory makes a history of about size bytes, packed: files that do not get smaller, of which each commit changes one.
func (w work) longHistory(size int) {
	w.t.Helper()
	var in bytes.Buffer
	const file = 128 << 10
	for i := range max(size/file, 2) {
		fmt.Fprintf(&in, "commit refs/heads/main\nmark :%d\ncommitter c <c@c> %d +0000\ndata 6\ncommit\n", i+1, 1700000000+i)
		fmt.Fprintf(&in, "M 100644 inline d%d/f%d\ndata %d\n", i%16, i%64, file)
		noise := make([]byte, file)
		for j, x := 0, uint64(i)*0x9e3779b97f4a7c15+1; j < file; j += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			for k := range 8 {
				noise[j+k] = byte(x >> (8 * k))
			}
		}
		in.Write(noise)
		in.WriteString("\n")
	}
	w.fastImport(&in)
}

// TestMirrorsByEachClient has each client push a whole repository, clone it and fetch what is new: one with GIT_MIRROR_REFS refs, and
// one whose history has GIT_MIRROR_BYTES bytes; small ones without. What is left at both ends must be the same, and whole.
func TestMirrorsByEachClient(t *testing.T) {
	t.Parallel()
	onlyInCheck(t, "it plays the same with each client of git")
	refs, size := howMany(t, "GIT_MIRROR_REFS", 300), howMany(t, "GIT_MIRROR_BYTES", 2<<20)
	_, host := startGit(t)
	many, long := newWork(t, "2"), newWork(t, "2")
	many.manyRefs(refs)
	long.longHistory(size)
	for _, k := range knownClients {
		t.Run(k.name, func(t *testing.T) {
			h := host
			h.t = t
			client := k.start(t)
			for name, source := range map[string]work{"refs": many, "history": long} {
				m := mirror{t: t, gitClient: client, host: h, repo: name + "-" + k.name, from: source.in(".git"), to: filepath.Join(t.TempDir(), "clone")}
				m.from.t = t
				h.makeRepo(m.repo, nil)
				m.run()
			}
		})
	}
}

// mirror is one repository that a client mirrors.
type mirror struct {
	t *testing.T
	gitClient
	host gitHost
	repo string
	from work   // the source, which git itself made
	to   string // the client's clone
}

// timed does one step and says how long it took.
func (m *mirror) timed(what string, step func() error) {
	m.t.Helper()
	from := time.Now()
	if err := step(); err != nil {
		text := err.Error()
		m.t.Fatalf("%s: %s: %.2000s", m.repo, what, text)
	}
	m.t.Logf("%s: %s: %.1f s", m.repo, what, time.Since(from).Seconds())
}

func (m *mirror) run() {
	url := m.host.url(m.repo)
	want := refsIn(m.from)
	specs := make([]string, 0, len(want))
	for name := range want {
		specs = append(specs, name+":"+name)
	}
	m.timed("push", func() error { return m.push(url, m.from.dir, specs...) })
	m.timed("clone", func() error { return m.clone(url, m.to, 0) })
	m.timed("fetch of all refs", func() error { return m.fetch(url, m.to, 0, allRefspecs...) })
	at := work{m.t, m.to, "2"}
	m.alike("after the clone", want, at)

	// What is new comes by git, onto a branch of its own, so that the source stays as it is for other clients.
	id := m.from.git("commit-tree", "-p", "refs/heads/main", "-m", "new for "+m.repo, "refs/heads/main^{tree}")
	m.from.git("push", "-q", url, id+":refs/heads/new")
	want["refs/heads/new"] = id
	m.timed("fetch of what is new", func() error { return m.fetch(url, m.to, 0, allRefspecs...) })
	m.alike("after the fetch", want, at)
	at.whole()
}

var allRefspecs = []string{"+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"}

// refsIn lists the branches and tags of a repository.
func refsIn(w work) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(w.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[name] = id
	}
	return out
}

// alike wants the server and a clone to have refs.
func (m *mirror) alike(when string, want map[string]string, at work) {
	m.t.Helper()
	served := map[string]string{}
	for name, id := range m.from.refsOf(m.host.url(m.repo)) {
		if strings.HasPrefix(name, "refs/") && !strings.HasSuffix(name, "^{}") {
			served[name] = id
		}
	}
	if !maps.Equal(served, want) {
		m.t.Errorf("%s: %s the server has %d refs, not %d, or others", m.repo, when, len(served), len(want))
	}
	if got := refsIn(at); !maps.Equal(got, want) {
		m.t.Errorf("%s: %s the clone has %d refs, not %d, or others", m.repo, when, len(got), len(want))
	}
	_, err := os.Stat(filepath.Join(at.dir, "HEAD"))
	noErr(m.t, err)
}
