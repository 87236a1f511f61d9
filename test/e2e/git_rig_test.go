package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// gitHost is a server as git clients see it.
type gitHost struct {
	t     *testing.T
	http  string // host:port
	grpc  string
	token string
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git on this machine")
	}
}

// startGit starts a server in this process.
func startGit(t *testing.T, holders ...holder) (*local, gitHost) {
	t.Helper()
	needGit(t)
	if len(holders) == 0 {
		holders = []holder{{tenant: "acme", role: "admin"}}
	}
	l := startLocal(t, holders...)
	return l, l.git()
}

// git is the server as the first holder's git sees it.
func (l *local) git() gitHost {
	return gitHost{l.t, l.running.HTTPAddress, l.running.Address, l.tokens[0]}
}

// makeRepo makes a repository in the namespace default.
func (h gitHost) makeRepo(name string, config *pb.RepoConfig) *pb.Repo {
	h.t.Helper()
	out := new(pb.CreateRepoResponse)
	h.call("RefService/CreateRepo", &pb.CreateRepoRequest{Name: name, Config: config}, out)
	return out.Repo
}

// call makes one call of the API, which must succeed.
func (h gitHost) call(method string, in, out proto.Message) {
	h.t.Helper()
	b, err := proto.Marshal(in)
	noErr(h.t, err)
	a := newRaw(h.t, h.grpc, h.token).send(h.t, method, frame(b))
	if a.status != 0 {
		h.t.Fatalf("%s: status %d %s", method, a.status, a.message)
	}
	noErr(h.t, proto.Unmarshal(a.body, out))
}

// url is a repository's address, with the token as password.
func (h gitHost) url(repo string) string {
	return "http://any:" + h.token + "@" + h.http + "/git/default/" + repo + ".git"
}

// work is a directory in which git runs.
type work struct {
	t       *testing.T
	dir     string
	version string // of the protocol
}

func newWork(t *testing.T, version string) work {
	t.Helper()
	w := work{t, t.TempDir(), version}
	w.git("init", "-q", "-b", "main", ".")
	return w
}

// in returns the same git in a directory.
func (w work) in(dir string) work { return work{w.t, filepath.Join(w.dir, dir), w.version} }

// command makes a run of git that knows nothing of this machine's settings.
func (w work) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "protocol.version=" + w.version, "-c", "gc.auto=0", "-c", "maintenance.auto=false"}, args...)...)
	cmd.Dir = w.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@a", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@c", "LC_ALL=C",
	}
	return cmd
}

// try runs git and returns what it says on both streams.
func (w work) try(args ...string) (string, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 2*time.Minute)
	defer cancel()
	out, err := w.command(ctx, args...).CombinedOutput()
	return strings.TrimSuffix(string(out), "\n"), err
}

// git runs git, which must succeed.
func (w work) git(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refuses runs git, which must fail and say why.
func (w work) refuses(why string, args ...string) {
	w.t.Helper()
	if out, err := w.try(args...); err == nil || !strings.Contains(out, why) {
		w.t.Errorf("git %s: %v, not %q\n%s", strings.Join(args, " "), err, why, out)
	}
}

// commit makes a commit that changes one file.
func (w work) commit(file, content string) string {
	w.t.Helper()
	noErr(w.t, os.MkdirAll(filepath.Dir(filepath.Join(w.dir, file)), 0o700))
	noErr(w.t, os.WriteFile(filepath.Join(w.dir, file), []byte(content), 0o600))
	w.git("add", file)
	w.git("commit", "-q", "-m", "change "+file)
	return w.git("rev-parse", "HEAD")
}

// refsOf lists a remote's refs, as name and id.
func (w work) refsOf(url string) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(w.git("ls-remote", url)) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		out[name] = id
	}
	return out
}

// whole wants a repository to have all that it needs.
func (w work) whole() {
	w.t.Helper()
	if out, err := w.try("fsck", "--full", "--strict", "--no-dangling"); err != nil || strings.Contains(out, "missing") {
		w.t.Errorf("git fsck: %v\n%s", err, out)
	}
}

// history fills a repository with commits over branches, merges and tags.
func (w work) history(commits int) {
	w.t.Helper()
	var in bytes.Buffer
	for i := range commits {
		content := fmt.Sprintf("version %d\n%s", i, strings.Repeat(fmt.Sprintf("line %d\n", i%7), 50))
		fmt.Fprintf(&in, "commit refs/heads/main\nmark :%d\ncommitter c <c@c> %d +0000\ndata 7\ncommit\n", i+1, 1700000000+i)
		if i == 0 {
			fmt.Fprint(&in, "deleteall\n")
		}
		if i > 20 && i%10 == 0 {
			fmt.Fprintf(&in, "merge :%d\n", i-5)
		}
		fmt.Fprintf(&in, "M 100644 inline dir%d/file%d\ndata %d\n%s\n", i%5, i%11, len(content), content)
		if i%10 == 9 {
			fmt.Fprintf(&in, "reset refs/heads/topic/%d\nfrom :%d\n\n", i, i)
			fmt.Fprintf(&in, "tag v%d\nfrom :%d\ntagger c <c@c> %d +0000\ndata 3\ntag\n", i, i+1, 1700000000+i)
		}
	}
	cmd := w.command(w.t.Context(), "fast-import", "--quiet", "--force")
	cmd.Stdin = &in
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("fast-import: %v\n%s", err, out)
	}
	w.git("reset", "-q", "--hard", "main")
}
