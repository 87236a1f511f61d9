package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/env/envtest"
)

// disk stamps files of the machine.
type disk struct{ env.FS }

func (disk) Stamp(name string) (env.Stamp, error) {
	info, err := os.Stat(name)
	if err != nil {
		return env.Stamp{}, err
	}
	return env.Stamp{Size: info.Size(), Modified: info.ModTime(), Inode: info.Sys().(*syscall.Stat_t).Ino}, nil
}

// watched is a source of one file, whose content is refused when it begins with "bad".
type watched struct {
	t     *testing.T
	clock *envtest.Clock
	log   *strings.Builder
	file  string

	mu      sync.Mutex // guards the fields below
	content string     // in force
	loads   int

	s *Source
	w *Watcher
}

func watch(t *testing.T, content string) *watched {
	x := &watched{t: t, clock: envtest.NewClock(time.Unix(1e9, 0)), log: new(strings.Builder), file: filepath.Join(t.TempDir(), "f")}
	x.write(content)
	x.s = &Source{Name: "words", Files: []string{x.file}, Load: x.load}
	if _, err := x.load(); err != nil {
		t.Fatal(err)
	}
	x.w = Watch(disk{}, x.clock, slog.New(slog.NewTextHandler(x.log, nil)))
	x.w.sources = []*Source{x.s} // looked at by the test alone
	x.looks(10)
	x.loads = 0
	x.log.Reset()
	return x
}

func (x *watched) load() ([]any, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loads++
	b, err := os.ReadFile(x.file)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(b), "bad") {
		return nil, errors.New("it is bad")
	}
	if string(b) == x.content {
		return nil, nil
	}
	x.content = string(b)
	return []any{"words", x.content}, nil
}

func (x *watched) write(content string) {
	x.t.Helper()
	if err := os.WriteFile(x.file, []byte(content), 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// replace puts another file in its place, as editors and tools of deployment do.
func (x *watched) replace(content string) {
	x.t.Helper()
	next := x.file + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o600), os.Rename(next, x.file)); err != nil {
		x.t.Fatal(err)
	}
}

// looks has the watcher look n times.
func (x *watched) looks(n int) {
	for range n {
		x.clock.Advance(watchEvery)
		x.w.look(x.s)
	}
}

func (x *watched) want(what, content string) {
	x.t.Helper()
	if x.content != content {
		x.t.Errorf("%s: %q is in force, want %q", what, x.content, content)
	}
}

func TestAChangedFileIsReadWithinTwoLooksAtRest(t *testing.T) {
	x := watch(t, "one")
	x.looks(50)
	if x.loads != 0 {
		t.Errorf("a file that stays as it is was read %d times", x.loads)
	}
	x.write("two")
	x.looks(1)
	x.want("after one look it may still be being written", "one")
	x.looks(1)
	x.want("written in place", "two")
	x.replace("three")
	x.looks(2)
	x.want("replaced by another file", "three")
	old, err := os.Stat(x.file)
	if err != nil {
		t.Fatal(err)
	}
	x.replace("THREE") // of the same length and time
	if err := os.Chtimes(x.file, old.ModTime(), old.ModTime()); err != nil {
		t.Fatal(err)
	}
	x.looks(2)
	x.want("replaced by one of the same length and time", "THREE")
	if got := strings.Count(x.log.String(), "in force"); got != 3 {
		t.Errorf("%d lines tell of 3 changes:\n%s", got, x.log)
	}
	if st := x.w.Stats()[0]; st.Reads != 3 || st.Failures != 0 || st.Refused || st.Age > 2*watchEvery {
		t.Errorf("%+v", st)
	}
}

func TestALinkThatIsChangedIsFollowed(t *testing.T) {
	x := watch(t, "one")
	dir := filepath.Dir(x.file)
	link := func(name, to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, filepath.Join(dir, "tmp")), os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"v1", "v2"} { // as secrets are mounted: the file is a link through a link to a directory
		if err := errors.Join(os.Mkdir(filepath.Join(dir, v), 0o700), os.WriteFile(filepath.Join(dir, v, "f"), []byte("of "+v), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link("current", "v1")
	link("f", "current/f")
	x.looks(2)
	x.want("a link in the file's place", "of v1")
	link("current", "v2")
	x.looks(2)
	x.want("a link on the way to it", "of v2")
}

func TestAFileThatIsStillWrittenIsNotRead(t *testing.T) {
	x := watch(t, "all of it")
	for _, part := range []string{"", "al", "all o", "all of t"} {
		x.write(part)
		x.looks(1)
		x.want("half-written", "all of it")
	}
	if x.loads != 0 {
		t.Errorf("it was read %d times meanwhile", x.loads)
	}
	x.write("all of that")
	x.looks(2)
	x.want("written to its end", "all of that")
}

func TestARefusedFileLeavesWhatWasInForceAndIsToldOnce(t *testing.T) {
	x := watch(t, "one")
	refuse := func(what string) {
		t.Helper()
		x.log.Reset()
		before := x.w.Stats()[0].Failures
		x.looks(100)
		x.want(what, "one")
		st := x.w.Stats()[0]
		if !st.Refused || st.Failures == before {
			t.Errorf("%s: %+v", what, st)
		}
		if n := strings.Count(x.log.String(), "refused"); n != 1 {
			t.Errorf("%s: %d lines say that it is refused:\n%s", what, n, x.log)
		}
	}
	x.write("bad")
	refuse("a bad file")
	if err := os.Remove(x.file); err != nil {
		t.Fatal(err)
	}
	refuse("a missing file")
	if err := os.Mkdir(x.file, 0o700); err != nil {
		t.Fatal(err)
	}
	refuse("a directory in its place")
	if err := os.Remove(x.file); err != nil {
		t.Fatal(err)
	}
	x.write("two")
	x.looks(2)
	x.want("a good one again", "two")
	if st := x.w.Stats()[0]; st.Refused {
		t.Errorf("%+v", st)
	}
}

func TestWhatWasWrongOutsideTheFileIsTriedAgain(t *testing.T) {
	x := watch(t, "one")
	busy := true
	x.s.Load = func() ([]any, error) {
		if busy {
			return nil, syscall.EMFILE
		}
		return x.load()
	}
	x.write("two")
	x.looks(2)
	x.want("too many open files", "one")
	busy = false
	x.looks(int(retryAfter/watchEvery) + 1)
	x.want("some time later", "two")
}

func TestReloadReadsAtOnce(t *testing.T) {
	x := watch(t, "one")
	x.write("two")
	if err := x.w.Reload(); err != nil {
		t.Error(err)
	}
	x.want("asked to", "two")
	if err := x.w.Reload(); err != nil || !strings.Contains(x.log.String(), "nothing has changed") {
		t.Errorf("asked to where nothing has changed: %v\n%s", err, x.log)
	}
	x.write("bad")
	for range 2 {
		x.log.Reset()
		if err := x.w.Reload(); err == nil || !strings.Contains(x.log.String(), "refused") {
			t.Errorf("a bad file: %v\n%s", err, x.log)
		}
	}
	x.want("asked to with a bad file", "two")
}

func TestTheWatchLooksUntilItIsClosed(t *testing.T) {
	x := watch(t, "one")
	w := Watch(disk{}, x.clock, slog.New(slog.DiscardHandler), &Source{Name: "words", Files: []string{x.file}, Load: x.load})
	x.write("two")
	for deadline := time.After(30 * time.Second); ; {
		x.clock.Advance(watchEvery)
		x.mu.Lock()
		content := x.content
		x.mu.Unlock()
		if content == "two" {
			break
		}
		select {
		case <-deadline:
			t.Fatal("it was never read")
		case <-time.After(time.Millisecond):
		}
	}
	w.Close()
	w.Close()
}
