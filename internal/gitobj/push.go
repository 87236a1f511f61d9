package gitobj

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // it is what git's packs end with; what is trusted is SHA-256
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/fault"
)

// PushSpec says what a push is of.
type PushSpec struct {
	At        Place
	Tenant    core.TenantID // whose share of programs it takes
	Principal string        // and which of its principals'
	MaxBytes  int64         // of its pack
	Fresh     bool          // the repository is made by this push: no state has it yet, and it goes if nothing is published
}

// Push is one push on its way: Receive, Keep, then Publish when its commit was applied; Close in any case. It is
// for one goroutine.
type Push struct {
	a *Area
	// r is the repository; its mu is taken for what it guards.
	r    *repo
	spec PushSpec
	// id begins the names of what this push makes.
	id string
	// dir is the directory of what is received; empty: nothing was.
	dir string
	// pack is what was received, opened; nil: no objects came.
	pack *openPack
	// kept is the pack as the manifest will name it, once Keep has returned it.
	kept core.Pack
	// at is the shard time from which the pack is kept.
	at core.ShardTime
	// as is the staged name, before the dot; empty: not kept, or published.
	as string
	// left says that Close leaves what was kept.
	left bool
	// kind says what made the pack: a push, or a rollup.
	kind core.PackKind
}

// CheckRoom refuses when packs cannot be taken: there is no git, too little room on the disk, or a sync has failed.
func (a *Area) CheckRoom() error {
	switch {
	case a.git.path == "":
		return ErrNoGit
	case a.broken.Load():
		return core.Unavailable{Reason: "pack_unavailable"}
	}
	free, _, err := a.o.FS.Disk(a.o.Dir)
	if err != nil {
		return err
	}
	if free < a.o.Reserve+packReserve {
		return core.Exhausted{Limit: "disk", Max: int64(a.o.Reserve + packReserve)}
	}
	return nil
}

// packReserve is what must be free beyond the disk's reserve before a pack is taken: the reserve is the log's.
const packReserve = 32 << 20

// Begin begins a push. It makes the repository's directories if they are missing.
func (a *Area) Begin(ctx context.Context, spec PushSpec) (*Push, error) {
	if err := a.CheckRoom(); err != nil {
		return nil, err
	}
	r := a.repoAt(spec.At)
	if spec.Fresh {
		a.plan(spec.At)
	} else if _, err := a.sync(ctx, r); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := a.make(r); err != nil {
		if spec.Fresh {
			a.later(func() { a.dropPlanned(spec.At) })
		}
		return nil, err
	}
	return &Push{a: a, r: r, spec: spec, id: a.nextID(), kind: core.PackPush}, nil
}

// nextID names what this process receives or makes. Names of one process do not repeat, and no two
// processes have the same.
func (a *Area) nextID() string { return fmt.Sprintf("%s%08x", a.boot, a.serial.Add(1)) }

// Receive takes in a pack, to its end, which is that of body. A pack without objects is taken as none. One with an object
// that links to what is neither in it nor held already is refused; so what Lookup finds has all that it needs.
func (p *Push) Receive(ctx context.Context, body io.Reader) error {
	in := &trailed{r: body, sum: sha1.New()} //nolint:gosec // see the import
	var head [packHeader]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return cut(err)
	}
	switch {
	case string(head[:4]) != "PACK" || binary.BigEndian.Uint32(head[4:]) != 2:
		return &FailedError{Act: "index-pack", Line: "no pack of version 2"}
	case binary.BigEndian.Uint32(head[8:]) == 0:
		_, err := io.Copy(io.Discard, io.LimitReader(in, packTrailer+1))
		if err != nil {
			return cut(err)
		}
		return in.check()
	}
	if err := p.quarantine(); err != nil {
		return err
	}
	if err := p.index(ctx, io.MultiReader(bytes.NewReader(head[:]), in)); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	return p.openReceived()
}

// quarantine gives the push an empty directory for what it receives: one of an earlier push's,
// because a file system may take a millisecond to make one. A directory that was used before is
// empty: leave has looked.
func (p *Push) quarantine() error {
	p.r.mu.Lock()
	if n := len(p.r.spare); n > 0 {
		p.dir, p.r.spare = p.r.spare[n-1], p.r.spare[:n-1]
	}
	p.r.mu.Unlock()
	if p.dir != "" {
		if _, err := p.a.o.FS.Size(filepath.Join(p.dir, packDir)); err == nil {
			return nil
		}
	}
	p.dir = p.a.dir(p.spec.At.path(), incomingDir, p.id)
	return p.a.o.FS.MkdirAll(filepath.Join(p.dir, packDir))
}

// leave gives the directory, whose files have gone where they belong, to the next push.
func (p *Push) leave() {
	dir := p.dir
	left, err := p.a.o.FS.List(filepath.Join(dir, packDir))
	p.r.mu.Lock()
	keep := err == nil && len(left) == 0 && len(p.r.spare) < spareDirs
	if keep {
		p.r.spare = append(p.r.spare, dir)
	}
	p.r.mu.Unlock()
	if !keep { // the client need not wait for it
		p.a.later(func() { p.a.discard(dir) })
	}
}

// index has git write the pack and its index into the push's directory. The pack passes through a
// scan on its way, which refuses what would cost git too much and reserves memory before git needs
// it. --fix-thin completes a pack with the objects that its deltas are made from.
func (p *Push) index(ctx context.Context, body io.Reader) error {
	env, done, err := p.environment()
	if err != nil {
		return err
	}
	defer done()
	var broken error
	var need func(bytes int64) error
	err = p.a.run(ctx, call{
		tenant: p.spec.Tenant, principal: p.spec.Principal, most: PushTime, files: 2*uint64(p.spec.MaxBytes) + 64<<20,
		args: []string{
			"index-pack", "--stdin", "--fix-thin", strictly, "--threads=1", fmt.Sprintf("--max-input-size=%d", p.spec.MaxBytes),
		},
		env: env, cpu: min(pushCPU+time.Duration(p.spec.MaxBytes>>20)*time.Second, PushTime),
		grow: func(more func(int64) error) { need = more },
		feed: func(w io.Writer) error {
			s := scan{need: need, limits: scanLimits{object: p.a.o.MaxObject, usual: p.a.children.usual(), streamed: cacheBytes(p.a.children.usual())}}
			through, end := s.start(body)
			defer end()
			from := &noted{r: through}
			_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{from}, make([]byte, 64<<10))
			broken = from.err
			return err
		},
	})
	switch {
	case broken != nil:
		return cut(broken)
	case err != nil && p.a.CheckRoom() != nil:
		return p.a.CheckRoom() // most likely it is why
	}
	if f, ok := errors.AsType[*FailedError](err); ok && strings.Contains(f.Line, "pack exceeds maximum allowed size") {
		return core.TooLarge{Field: "pack", Limit: "max_push", Max: p.spec.MaxBytes}
	}
	return err
}

// environment has git write what it makes into the push's directory, once there is one, and find there what was received, at
// whatever stage the push is until it is abandoned. Git finds what is held already too. done ends the use of that.
func (p *Push) environment() (env []string, done func(), err error) {
	if p.as != "" {
		if err := p.relink(); err != nil {
			return nil, nil, err
		}
	}
	held, done := p.a.view(p.r)
	if p.dir == "" {
		return p.a.environment(p.a.dir(emptyGitdir), "GIT_OBJECT_DIRECTORY="+held), done, nil
	}
	return p.a.environment(p.a.dir(emptyGitdir), "GIT_OBJECT_DIRECTORY="+p.dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+alternates(held)), done, nil
}

// relink gives the files that Keep has moved a second name in the push's directory, where git looks for them: pack first,
// because git takes a pack for there when its index is.
func (p *Push) relink() error {
	to := filepath.Join(p.dir, packDir, packName(p.kept.Digest))
	for _, suffix := range suffixes {
		if err := p.a.link(p.as+suffix, to+suffix); err != nil {
			return fmt.Errorf("show git what was kept: %w", err)
		}
	}
	return nil
}

// cut is the error of a body that ended too early, or could not be read.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &FailedError{Act: "index-pack", Line: "the pack ends too early"}
	}
	return &BodyError{err}
}

// BodyError says that what a client sent could not be read.
type BodyError struct{ Err error }

// Error says why.
func (e *BodyError) Error() string { return "read pack: " + e.Err.Error() }

// Unwrap returns why.
func (e *BodyError) Unwrap() error { return e.Err }

// noted remembers a reader's error.
type noted struct {
	r   io.Reader
	err error
}

// Read notes what the reader fails with, but not its end.
func (n *noted) Read(b []byte) (int, error) {
	k, err := n.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return k, err
}

// trailed sums what is read through it but for the last 20 bytes, which should be that sum.
type trailed struct {
	r    io.Reader
	sum  hash.Hash
	last []byte // at most 20 bytes
}

// Read holds back the last 20 bytes, which may be the sum, and sums what is before them.
func (t *trailed) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	if n >= packTrailer {
		t.sum.Write(t.last)
		t.sum.Write(b[:n-packTrailer])
		t.last = append(t.last[:0], b[n-packTrailer:n]...)
		return n, err
	}
	t.last = append(t.last, b[:n]...)
	if more := len(t.last) - packTrailer; more > 0 {
		t.sum.Write(t.last[:more])
		t.last = append(t.last[:0], t.last[more:]...)
	}
	return n, err
}

// check says whether the pack ended where the body did, with the right sum.
func (t *trailed) check() error {
	if _, err := io.Copy(io.Discard, t); err != nil { // what git did not read follows the pack
		return cut(err)
	}
	if !bytes.Equal(t.sum.Sum(nil), t.last) {
		return &FailedError{Act: "index-pack", Line: "the pack's checksum does not fit what was sent"}
	}
	return nil
}

// openReceived opens what git has made of the pack. Without an index there is nothing that could be
// looked up, so that is an error.
func (p *Push) openReceived() (err error) {
	names, err := p.a.o.FS.List(filepath.Join(p.dir, packDir))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, ".idx") })
	if i < 0 {
		return &FailedError{Act: "index-pack", Line: "git made no index"}
	}
	at := filepath.Join(p.spec.At.path(), incomingDir, filepath.Base(p.dir), packDir, strings.TrimSuffix(names[i], ".idx"))
	p.pack, err = openFiles(p.a.o.FS, p.a.o.Dir, at)
	return err
}

// Lookup is Area.Lookup that finds what was received too.
func (p *Push) Lookup(ctx context.Context, id core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	switch {
	case p.spec.Fresh: // what tags point to is in the pack too, or is missing
		return p.a.lookupFresh(p.pack, id)
	case p.pack == nil:
		return p.a.lookup(ctx, p.spec.At, id, nil)
	}
	return p.a.lookup(ctx, p.spec.At, id, &p.pack.pack)
}

// Objects returns how many objects were received, with those that complete a thin pack.
func (p *Push) Objects() int64 {
	if p.pack == nil {
		return 0
	}
	return p.pack.count()
}

// Keep makes what was received durable, outside of what fetches and other pushes see. ok is false when there is nothing to
// keep. at is the shard time from which the pack is kept.
//
// The order of steps. If the process dies between them, the next start finds:
//  1. The time is asked for first, so that the pack counts from before its name: nothing is left
//     of it.
//  2. The files get their staged names, which hold digest, time and push: names whose content may
//     be missing, so they are compared before use.
//  3. Content and names are synced: the pack is durable, and stays until an entry names it or no
//     entry can.
func (p *Push) Keep(ctx context.Context) (pack core.Pack, at core.ShardTime, ok bool, err error) {
	if p.pack == nil {
		return pack, 0, false, nil
	}
	if at, err = p.a.stamp(ctx, p.spec.At); err != nil {
		return pack, 0, false, err
	}
	p.at = at
	names := [2]string{p.a.dir(p.pack.file), p.a.dir(p.pack.index.file)}
	pack = core.Pack{Objects: p.pack.count(), Kind: p.kind}
	if pack.Digest, pack.Bytes, err = p.a.digest(names[0]); err != nil {
		return pack, 0, false, err
	}
	if pack.Idx, pack.IdxBytes, err = p.a.digest(names[1]); err != nil {
		return pack, 0, false, err
	}
	staged := p.a.dir(p.spec.At.path(), stagedDir)
	p.as = filepath.Join(staged, stagedName(pack.Digest, at, p.id))
	p.a.mark(p.spec.At)
	for i, suffix := range suffixes {
		if err := p.a.o.FS.Rename(names[i], p.as+suffix); err != nil {
			return pack, 0, false, fmt.Errorf("stage pack: %w", err)
		}
	}
	if err := fault.Point("gitobj.named"); err != nil {
		return pack, 0, false, err
	}
	if err := p.syncStaged(staged); err != nil {
		return pack, 0, false, fmt.Errorf("sync pack: %w", err)
	}
	p.kept = pack
	p.a.stats.kept.Add(1)
	p.a.stats.keptBytes.Add(uint64(pack.Bytes + pack.IdxBytes))
	return pack, at, true, fault.Point("gitobj.staged")
}

// syncStaged makes a staged pack durable. The names come before the syncs, and the syncs all at once, so that one commit of
// the file system's journal holds all of it. A power cut before its end may leave a name without its content, so what is
// linked from staged after a start is compared with its digest first.
func (p *Push) syncStaged(dir string) error {
	var failed [3]error
	var all sync.WaitGroup
	for i, suffix := range suffixes {
		all.Go(func() {
			failed[i] = p.a.syncFile(p.as + suffix)
		})
	}
	all.Go(func() {
		failed[2] = p.a.syncDir(dir)
	})
	all.Wait()
	return errors.Join(failed[:]...)
}

// Publish shows the pack that was kept to fetches and other pushes. The entry that names it was
// applied. A crash before the staged names go leaves them, and perhaps the new ones too; the sweep
// links what is missing and removes them.
func (p *Push) Publish() error {
	if p.as == "" {
		return nil
	}
	if err := fault.Point("gitobj.applied"); err != nil {
		return err
	}
	to := p.a.dir(p.spec.At.path(), objectsDir, packDir, packName(p.kept.Digest))
	p.r.mu.Lock()
	for _, suffix := range suffixes {
		if err := p.a.link(p.as+suffix, to+suffix); err != nil && !p.r.has(p.kept.Digest) { // else it is linked, and not staged any more
			p.r.mu.Unlock()
			return err
		}
	}
	p.r.add(p.kept.Digest, false)
	crowded := len(p.r.packs) >= p.a.o.RollFrom
	p.r.mu.Unlock()
	if crowded {
		p.a.crowded(p.spec.At)
	}
	as := p.as
	p.as, p.left = "", true
	// Until the new names are durable the staged ones stay: a crash finds one of them.
	p.a.later(func() { p.a.unstage(p.spec.At, as) })
	return nil
}

// Abandon leaves what was kept where it is: whether its commit was applied is not known, and the sweep will find out.
func (p *Push) Abandon() { p.as, p.left = "", true }

// Close removes what was received and, unless it was published or abandoned, what was kept.
func (p *Push) Close() {
	if p.pack != nil {
		_ = p.pack.close() // it was only read
		p.pack = nil
	}
	var all []error
	if p.as != "" {
		for _, suffix := range suffixes {
			all = append(all, p.a.o.FS.Remove(p.as+suffix))
		}
		p.as = ""
	}
	switch dir := p.dir; {
	case dir == "":
	case p.left:
		p.leave()
	default:
		all = append(all, p.a.removeAll(dir, 2))
	}
	if p.spec.Fresh {
		p.a.endPlanned(p.spec.At, p.left)
	}
	if err := errors.Join(all...); err != nil {
		p.a.o.Logger.Warn("what a push left could not be removed; a start will", "err", err)
	}
}
