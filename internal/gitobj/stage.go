package gitobj

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/fault"
)

// stageTime bounds the copying of a pack to other nodes: 30 s, and 4 s for each 16 MiB.
func stageTime(least time.Duration, bytes int64) time.Duration {
	return least + time.Duration(bytes/(16<<20))*4*time.Second
}

// stageLeast is the least time for that.
const stageLeast = 30 * time.Second

// copyChunk is how much is copied between two looks at what is allowed; each exchange that takes a pack in holds so much.
const copyChunk = 256 << 10

// Spread copies what was kept to the other nodes that host the shard, and returns when more than half of those that vote
// have it durably, this one included; the others get theirs meanwhile. core.Unavailable: too few have it in time.
func (p *Push) Spread(ctx context.Context) error {
	h, several := p.a.hosts(p.spec.At.Shard)
	if p.as == "" || !several {
		return nil
	}
	var files [2]env.File
	for i, suffix := range suffixes {
		f, err := p.a.o.FS.Open(p.as + suffix)
		if err != nil {
			if i > 0 {
				_ = files[0].Close() // it was only read
			}
			return err
		}
		files[i] = f
	}
	q := ask(askStage, p.spec.At, p.kept)
	q.Stamp = int64(p.at)
	copy(q.Push[:], p.id)
	return p.a.spread(ctx, h, &q, files)
}

// spread sends a pack's files to nodes, which it closes in the end. Each node has a goroutine. The
// caller waits until enough nodes have the pack; the last goroutine closes the files.
func (a *Area) spread(ctx context.Context, h Hosts, q *question, files [2]env.File) error {
	within := stageTime(a.o.StageTime, q.Bytes+q.IdxBytes)
	// A send that has begun goes on when enough nodes have the pack: it ends after within, or with the area.
	background, cancel := context.WithTimeout(a.life, within)
	begin, enough := context.WithCancel(background)
	defer enough() // a node to which no send has begun by then gets the pack when it looks at the manifest
	arrived := make(chan uint64, len(h.Others))
	var all sync.WaitGroup
	for _, node := range h.Others {
		all.Add(1)
		a.wait.Go(func() {
			defer all.Done()
			if a.stageAt(begin, background, node, q, files) == nil {
				arrived <- node
			}
		})
	}
	a.wait.Go(func() {
		all.Wait()
		cancel()
		close(arrived)
		for _, f := range files {
			_ = f.Close() // it was only read
		}
	})
	have := map[uint64]bool{a.o.Peers.Self(): true}
	for {
		if h.enough(func(node uint64) bool { return have[node] }) {
			return nil
		}
		select {
		case node, more := <-arrived:
			if !more {
				a.stats.stageFailed.Add(1)
				return core.Unavailable{Reason: "pack_unavailable"}
			}
			have[node] = true
		case <-ctx.Done():
			cancel()
			return ctx.Err()
		}
	}
}

// stageAt sends a pack to one node, again and again while begin goes on; what has begun goes on
// while ctx does. Only a node that is busy, or cannot be reached, is asked again. Any other answer
// is final.
func (a *Area) stageAt(begin, ctx context.Context, node uint64, q *question, files [2]env.File) error {
	for {
		err := a.lines.begun(begin, ctx, node, func(c Conn) error { return stageOver(c, q, files) })
		said, ok := errors.AsType[errAnswer](err)
		if err == nil || ok && said.say != sayBusy {
			if err != nil {
				a.o.Logger.Warn("another node did not take a pack", "node", node, "err", err)
			}
			return err
		}
		if !a.pause(begin, callRetry) {
			return err
		}
	}
}

// stageOver sends a pack on a connection, from where the other side has it. If the other side has
// it already, nothing is sent.
func stageOver(c Conn, q *question, files [2]env.File) error {
	if err := say(c, q); err != nil {
		return err
	}
	var a answer
	if err := hear(c, &a); err != nil {
		return err
	}
	switch {
	case a.Say == sayHeld:
		return nil
	case a.Say != sayGo:
		return errAnswer{a.Say}
	case a.Pack < 0 || a.Pack > q.Bytes || a.Idx < 0 || a.Idx > q.IdxBytes:
		return errors.New("the other node has more of a pack than there is")
	}
	if err := sendRest(c, files, [2]int64{a.Pack, a.Idx}, q.pack()); err != nil {
		return err
	}
	if err := hear(c, &a); err != nil {
		return err
	}
	if a.Say != sayHeld {
		return errAnswer{a.Say}
	}
	return nil
}

// sendRest sends what the other side of a connection lacks of a pack's files, of which it has so much.
func sendRest(c Conn, files [2]env.File, have [2]int64, p core.Pack) error {
	buf := make([]byte, 64<<10)
	for i, size := range [2]int64{p.Bytes, p.IdxBytes} {
		rest := size - have[i]
		r := io.NewSectionReader(files[i], have[i], rest)
		if n, err := io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{r}, buf); err != nil {
			return err
		} else if n != rest {
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

// transfer is a pack that comes from another node.
type transfer struct {
	a *Area
	// r is the repository that the pack is of, and p what the manifest says of it.
	r *repo
	p core.Pack
	// dir is the directory below which the files grow. It has a name of this process, so that the
	// next start removes it.
	dir string
	// files are the pack and its index, as in suffixes.
	files [2]string
}

// errTaking says that the same pack is on its way already.
var errTaking = errors.New("the pack is on its way already")

// take begins a transfer; done ends it. Of one that was cut off the files are still there. One
// transfer of a pack is under way at a time, since two would write to files of the same names, or
// fetch the same bytes twice.
func (a *Area) take(at Place, p core.Pack, name string) (t *transfer, done func(), err error) {
	ref := packRef{at: at, digest: p.Digest}
	a.mu.Lock()
	if a.taking[ref] {
		a.mu.Unlock()
		return nil, nil, errTaking
	}
	a.taking[ref] = true
	a.mu.Unlock()
	done = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.taking, ref)
	}
	r := a.repoAt(at)
	r.mu.Lock()
	err = a.make(r)
	r.mu.Unlock()
	t = &transfer{a: a, r: r, p: p, dir: a.dir(at.path(), incomingDir, a.boot+"-"+name)}
	t.files = [2]string{filepath.Join(t.dir, "pack"), filepath.Join(t.dir, "idx")}
	if err == nil {
		err = a.o.FS.MkdirAll(t.dir)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return t, done, nil
}

// isTaken reports whether a pack is on its way.
func (a *Area) isTaken(at Place, d core.Digest) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taking[packRef{at: at, digest: d}]
}

// have says how much of each file is there. A file that is longer than it should be is not of this
// pack, and is removed.
func (t *transfer) have() (n [2]int64, err error) {
	for i, name := range t.files {
		size, err := t.a.o.FS.Size(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		if size > [2]int64{t.p.Bytes, t.p.IdxBytes}[i] { // not what this was
			if err := t.a.o.FS.Remove(name); err != nil {
				return n, err
			}
			size = 0
		}
		n[i] = size
	}
	return n, nil
}

// read takes the rest of both files from a connection. paced transfers stay within the rate of
// pulls; those of pushes do not, since a client waits.
func (t *transfer) read(ctx context.Context, c io.Reader, have [2]int64, paced bool) error {
	for i, name := range t.files {
		if err := t.readFile(ctx, c, name, have[i], [2]int64{t.p.Bytes, t.p.IdxBytes}[i], paced); err != nil {
			return err
		}
	}
	return nil
}

// readFile takes the bytes of one file from one offset to another. What came before an error stays.
func (t *transfer) readFile(ctx context.Context, c io.Reader, name string, from, to int64, paced bool) (err error) {
	f, err := t.a.o.FS.OpenReadWrite(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, min(copyChunk, max(to-from, 1)))
	for from < to {
		n, err := io.ReadFull(c, buf[:min(int64(len(buf)), to-from)])
		if n > 0 {
			if _, err := f.WriteAt(buf[:n], from); err != nil {
				return err
			}
			from += int64(n)
		}
		if err != nil {
			return err
		}
		if paced && !t.a.pace(ctx, n) {
			return ctx.Err()
		}
	}
	return nil
}

// verify compares what came with the digests, and makes it durable.
func (t *transfer) verify() error {
	for i, want := range [2]core.Digest{t.p.Digest, t.p.Idx} {
		got, size, err := t.a.digest(t.files[i])
		switch {
		case err != nil:
			return err
		case got != want || size != [2]int64{t.p.Bytes, t.p.IdxBytes}[i]:
			return damagedf(t.files[i][len(t.a.o.Dir):], "what came is not what was announced")
		}
	}
	for _, name := range t.files {
		if err := t.a.syncFile(name); err != nil {
			return fmt.Errorf("sync pack: %w", err)
		}
	}
	return nil
}

// drop removes what came.
func (t *transfer) drop() {
	if err := t.a.removeAll(t.dir, 2); err != nil {
		t.a.o.Logger.Warn("part of a pack could not be removed; a start will", "err", err)
	}
}

// room refuses packs of other nodes when there is none for them. The reserve is kept free, as for
// pushes of this node.
func (a *Area) room(bytes int64) error {
	if a.broken.Load() {
		return core.Unavailable{Reason: "pack_unavailable"}
	}
	free, _, err := a.o.FS.Disk(a.o.Dir)
	if err != nil {
		return err
	}
	if free < a.o.Reserve+packReserve+uint64(bytes) {
		return core.Exhausted{Limit: "disk", Max: int64(a.o.Reserve + packReserve)}
	}
	return nil
}

// serveStage takes a pack from a node that got a push. It is durable here, outside of what anybody sees, when this says so.
//
// The other node asks from where on it is to send. When the bytes are whole they are compared with
// the digests, synced, and get their staged name; only then is the answer that the pack is held,
// which counts towards the majority that the commit needs. A transfer that is cut off keeps what
// came, for a while.
func (a *Area) serveStage(c Conn, q *question) error {
	at, p := q.place(), q.pack()
	push, ok := q.push()
	if !ok || q.Stamp < 0 {
		return say(c, &answer{Say: sayWrong})
	}
	as := a.dir(at.path(), stagedDir, stagedName(p.Digest, core.ShardTime(q.Stamp), push))
	switch held, err := a.stageHeld(at, p, as); {
	case err != nil:
		return errors.Join(err, say(c, &answer{Say: sayRefused}))
	case held:
		return say(c, &answer{Say: sayHeld})
	}
	if err := a.room(p.Bytes + p.IdxBytes); err != nil {
		return say(c, &answer{Say: sayRefused})
	}
	t, done, err := a.take(at, p, "s"+push+"-"+p.Digest.String())
	if errors.Is(err, errTaking) {
		return say(c, &answer{Say: sayBusy})
	} else if err != nil {
		return errors.Join(err, say(c, &answer{Say: sayRefused}))
	}
	defer done()
	if a.isStaged(as) {
		return say(c, &answer{Say: sayHeld})
	}
	have, err := t.have()
	if err != nil {
		return errors.Join(err, say(c, &answer{Say: sayRefused}))
	}
	if err := say(c, &answer{Say: sayGo, Pack: have[0], Idx: have[1]}); err != nil {
		return err
	}
	if err := t.read(a.life, c, have, false); err != nil {
		a.leave(t) // the rest may come yet
		return err
	}
	switch err := t.stage(as); {
	case err == nil:
		return say(c, &answer{Say: sayHeld})
	case errors.As(err, new(*DamagedError)):
		return say(c, &answer{Say: sayWrong})
	default:
		return errors.Join(err, say(c, &answer{Say: sayRefused}))
	}
}

// stageHeld stages a pack that is in objects/pack already. The manifest may name it no more, and its files be about to go:
// what is promised is the staged one.
func (a *Area) stageHeld(at Place, p core.Pack, as string) (held bool, err error) {
	r := a.repoAt(at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.has(p.Digest) {
		return false, nil
	}
	a.mark(at)
	from := a.dir(at.path(), objectsDir, packDir, packName(p.Digest))
	for _, suffix := range suffixes {
		if err := a.link(from+suffix, as+suffix); err != nil {
			return false, err
		}
	}
	return true, a.syncDir(filepath.Dir(as))
}

// isStaged reports whether both files of a staged pack have their names, durably: that of the index came last, and the
// directory was synced before anybody was told.
func (a *Area) isStaged(as string) bool {
	for _, suffix := range suffixes {
		if _, err := a.o.FS.Size(as + suffix); err != nil {
			return false
		}
	}
	return a.syncDir(filepath.Dir(as)) == nil
}

// stage gives a pack that came whole its staged name. After a crash before the sync of the
// directory the pack may be gone: the other node was not told that it is held.
func (t *transfer) stage(as string) error {
	defer t.drop()
	if err := t.verify(); err != nil {
		return err
	}
	if err := fault.Point("gitobj.copied"); err != nil {
		return err
	}
	t.a.mark(t.r.at)
	for i, suffix := range suffixes {
		if err := t.a.o.FS.Rename(t.files[i], as+suffix); err != nil {
			return fmt.Errorf("stage pack: %w", err)
		}
	}
	if err := t.a.syncDir(filepath.Dir(as)); err != nil {
		return fmt.Errorf("sync staged packs: %w", err)
	}
	t.a.stats.taken.Add(1)
	return nil
}

// leave keeps what came of a pack for a while: its sender may go on.
func (a *Area) leave(t *transfer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.partial) >= maxPartial {
		a.later(t.drop)
		return
	}
	a.partial[t.dir] = a.o.Clock.Boot()
}

const (
	// maxPartial bounds the packs that are kept in part, and partialFor for how long one is.
	maxPartial = 256
	partialFor = 15 * time.Minute
)

// dropPartial removes packs of which nothing came for long.
func (a *Area) dropPartial() {
	now := a.o.Clock.Boot()
	var old []string
	a.mu.Lock()
	for dir, since := range a.partial {
		if now-since >= partialFor {
			old = append(old, dir)
			delete(a.partial, dir)
		}
	}
	a.mu.Unlock()
	for _, dir := range old {
		if err := a.removeAll(dir, 2); err != nil {
			a.o.Logger.Warn("part of a pack could not be removed; a start will", "err", err)
		}
	}
}
