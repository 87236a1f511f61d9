package gitobj

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// disk is the machine's file system, which git uses too.
type disk struct {
	mu   sync.Mutex
	free uint64 // if not 0, what Disk says

	failing atomic.Bool           // syncs fail
	starved atomic.Pointer[error] // what opens fail with
}

func (d *disk) opens() error {
	if err := d.starved.Load(); err != nil {
		return *err
	}
	return nil
}

func (*disk) Create(name string) (env.File, error) { return file(os.Create(name)) }
func (d *disk) Open(name string) (env.File, error) {
	if err := d.opens(); err != nil {
		return nil, err
	}
	return file(os.Open(name))
}

func (d *disk) OpenReadWrite(name string) (env.File, error) {
	f, err := file(os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600))
	return failingFile{f, d}, err
}

func (d *disk) OpenDir(name string) (env.File, error) {
	f, err := file(os.Open(name))
	return failingFile{f, d}, err
}
func (*disk) Remove(name string) error       { return os.Remove(name) }
func (*disk) Rename(from, to string) error   { return os.Rename(from, to) }
func (*disk) Link(from, to string) error     { return os.Link(from, to) }
func (*disk) MkdirAll(dir string) error      { return os.MkdirAll(dir, 0o700) }
func (*disk) Lock(string) (io.Closer, error) { return nil, os.ErrInvalid }
func (*disk) Size(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (*disk) Stamp(string) (env.Stamp, error) { return env.Stamp{}, os.ErrInvalid }

func (d *disk) List(dir string) (names []string, err error) {
	if err := d.opens(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (d *disk) Disk(string) (free, total uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free != 0 {
		return d.free, 1 << 40, nil
	}
	return 1 << 40, 1 << 40, nil
}

type diskFile struct{ *os.File }

func (diskFile) Preallocate(int64, int64) error { return nil }
func (f diskFile) SyncData() error              { return f.Sync() }

func file(f *os.File, err error) (env.File, error) {
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

// manifests are lists that a test holds.
type manifests struct {
	mu    sync.Mutex
	packs map[Place][]core.PackLine
	gone  map[Place]bool
	now   core.ShardTime

	versions  map[Place]uint64
	swapFails error
	swapLost  bool   // swaps that fail were done nevertheless
	behind    bool   // no entry is applied here
	confirmed func() // is called after a confirmed list was read, if it is set
}

func (m *manifests) Packs(_ context.Context, at Place) ([]core.PackLine, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.behind {
		return nil, true, nil
	}
	return append([]core.PackLine(nil), m.packs[at]...), !m.gone[at], nil
}

func (m *manifests) Now(core.ShardID) core.ShardTime {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *manifests) Applied(s core.ShardID) core.ShardTime { return m.Now(s) }

func (m *manifests) Each(_ context.Context, fn func(Place, uint64, int64) error) error {
	m.mu.Lock()
	counts := make(map[Place]int64, len(m.packs))
	for at, packs := range m.packs {
		counts[at] = int64(len(packs))
	}
	versions := maps.Clone(m.versions)
	m.mu.Unlock()
	for at, n := range counts {
		if err := fn(at, versions[at], n); err != nil {
			return err
		}
	}
	return nil
}

func (m *manifests) add(at Place, p core.Pack) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.versions == nil {
		m.versions = make(map[Place]uint64)
	}
	m.versions[at]++
	if !slices.ContainsFunc(m.packs[at], func(l core.PackLine) bool { return l.Digest == p.Digest }) {
		m.packs[at] = append(m.packs[at], core.PackLine{Pack: p})
	}
}

func (m *manifests) Confirmed(_ context.Context, at Place) ([]core.PackLine, bool, error) {
	m.mu.Lock()
	lines, found, then := append([]core.PackLine(nil), m.packs[at]...), !m.gone[at], m.confirmed
	m.mu.Unlock()
	if then != nil {
		then()
	}
	return lines, found, nil
}

var errStale = errors.New("a pack is not in the list any more")

func (m *manifests) Swap(_ context.Context, at Place, old []core.Digest, next core.Pack, _ core.ShardTime) error {
	m.mu.Lock()
	err := m.swapFails
	left := slices.DeleteFunc(slices.Clone(m.packs[at]), func(l core.PackLine) bool { return slices.Contains(old, l.Digest) })
	if err == nil && len(left) != len(m.packs[at])-len(old) {
		err = errStale
	}
	if err == nil || m.swapLost {
		m.packs[at] = left
	}
	m.mu.Unlock()
	if err == nil || m.swapLost {
		m.add(at, next)
	}
	return err
}

func (m *manifests) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

type rig struct {
	*Area
	t    *testing.T
	dir  string
	disk *disk
	m    *manifests
	tune []func(*Options)
}

// rollsUp has packs rolled up once there are from of them, and their files go with the next sweep.
func rollsUp(from int) func(*Options) {
	return func(o *Options) { o.RollFrom, o.KeepSwapped = from, 1 }
}

func needGit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
}

func newRig(t *testing.T, tune ...func(*Options)) *rig {
	t.Helper()
	needGit(t)
	r := &rig{
		t: t, dir: filepath.Join(t.TempDir(), `re"po\s: and so on`), disk: &disk{},
		m:    &manifests{packs: map[Place][]core.PackLine{}, gone: map[Place]bool{}, now: 1_000_000},
		tune: tune,
	}
	r.start()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) start() {
	r.t.Helper()
	r.Area = openArea(r.t, r.disk, r.dir, r.m, r.tune...)
}

// restart closes the area and opens another on its directory.
func (r *rig) restart() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.start()
}

var place = Place{Shard: 3, Partition: core.Partition{Tenant: 1, Namespace: 2, Index: 0}, Repo: core.RepoID{7, 7}}

// source is a repository of git's own, from which packs come.
type source struct {
	t   testing.TB
	dir string
}

func newSource(t testing.TB) source {
	t.Helper()
	needGit(t)
	s := source{t, t.TempDir()}
	s.git("init", "-q", "-b", "main", ".")
	return s
}

// git runs git there and returns what it prints, without the last line's end.
func (s source) git(args ...string) string { s.t.Helper(); return s.feed("", args...) }

func (s source) feed(in string, args ...string) string {
	s.t.Helper()
	out, err := s.try(in, args...)
	if err != nil {
		s.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

func (s source) try(in string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = s.dir, strings.NewReader(in)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@c", "GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

// commit makes a commit on main that has a file of this content.
func (s source) commit(name, content string) core.ObjectID {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.git("add", name)
	s.git("commit", "-q", "-m", "change "+name)
	return s.id("HEAD")
}

func (s source) id(rev string) core.ObjectID {
	s.t.Helper()
	id, err := core.ParseObjectID(s.git("rev-parse", rev))
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// pack returns a pack of what revs name and its ^not have, thin, as a push sends it; --all is of everything.
func (s source) pack(revs ...string) []byte {
	s.t.Helper()
	args := []string{"pack-objects", "--revs", "--stdout", "--thin", "-q"}
	if revs[0] == "--all" {
		args, revs = append(args, "--all"), revs[1:]
	}
	out, err := s.try(strings.Join(append(revs, ""), "\n"), args...)
	if err != nil {
		s.t.Fatalf("pack-objects: %v\n%s", err, out)
	}
	return []byte(out)
}

// push takes a pack all the way.
func (r *rig) push(pack []byte, ids []core.ObjectID) error {
	r.t.Helper()
	return r.pushed(pack, ids, func() {})
}

// pushed is push that says when the commit stands.
func (r *rig) pushed(pack []byte, ids []core.ObjectID, committed func()) error {
	r.t.Helper()
	p, err := r.Begin(r.t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 64 << 20})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Receive(r.t.Context(), bytes.NewReader(pack)); err != nil {
		return err
	}
	if err := p.hasAll(r.t.Context(), ids...); err != nil {
		return err
	}
	kept, _, ok, err := p.Keep(r.t.Context())
	if err != nil {
		return err
	}
	if ok {
		r.m.add(place, kept)
	}
	committed()
	return p.Publish()
}

var errMissing = errors.New("an object is not there")

// hasAll wants every id to be there.
func (p *Push) hasAll(ctx context.Context, ids ...core.ObjectID) error {
	for _, id := range ids {
		if kind, _, err := p.Lookup(ctx, id); err != nil {
			return err
		} else if kind == core.ObjectMissing {
			return errMissing
		}
	}
	return nil
}

// files lists what lies below the repository, by name.
func (r *rig) files() []string {
	r.t.Helper()
	var out []string
	root := filepath.Join(r.dir, place.path())
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name() == viewsDir {
			return filepath.SkipDir // second names only
		}
		if err == nil && !e.IsDir() && e.Name() != ownerFile {
			out = append(out, path[len(root)+1:])
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return out
}

// failingFile fails to sync while its disk does.
type failingFile struct {
	env.File
	d *disk
}

func (f failingFile) Sync() error {
	if f.d.failing.Load() {
		return syscall.EIO
	}
	return f.File.Sync()
}
