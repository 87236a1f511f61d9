package gitobj

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

const (
	// pullWait is how long a caller waits for packs that come from other nodes; they come in without it too.
	pullWait = 30 * time.Second
	// pullsAtOnce bounds the packs that come in at once.
	pullsAtOnce = 4
	// pullRate is how many bytes a second may, unless the options say otherwise.
	pullRate = 64 << 20
	// catchUpEvery is how often manifests are looked at for packs that this node lacks.
	catchUpEvery = 2 * time.Second
	// catchUpShare is which part of the time that may take.
	catchUpShare = 20
)

// pulls are the packs that come in because manifests name them. A pack that several callers want
// comes once: they wait for the same pull.
type pulls struct {
	// slots bounds the pulls that are under way.
	slots chan struct{}
	// rate is in bytes a second.
	rate int64

	mu sync.Mutex // guards the fields below
	// now are the pulls under way, by pack.
	now map[packRef]*pull
	// next is the boot time at which more bytes may come.
	next time.Duration
}

// pull is one of them. It runs under the area's life: a caller that gives up does not end it.
type pull struct {
	// done is closed when the pack is here, or could not be had.
	done chan struct{}
	// err is set before done is closed.
	err error
}

// newPulls bounds what comes in to rate bytes a second; 0 or less means pullRate.
func newPulls(rate int64) *pulls {
	if rate <= 0 {
		rate = pullRate
	}
	return &pulls{slots: make(chan struct{}, pullsAtOnce), rate: rate, now: make(map[packRef]*pull)}
}

// ahead notes n bytes more, and returns how long they are ahead of the rate.
func (p *pulls) ahead(now time.Duration, n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = max(p.next, now) + time.Duration(int64(n)*int64(time.Second)/p.rate)
	return p.next - now
}

// pace waits until n bytes more are within the rate, and reports whether ctx goes on. Small debts
// are let pass, so that not every chunk waits.
func (a *Area) pace(ctx context.Context, n int) bool {
	ahead := a.pulls.ahead(a.o.Clock.Boot(), n)
	if ahead < 50*time.Millisecond {
		return ctx.Err() == nil
	}
	return a.pause(ctx, ahead)
}

// pull gets a pack of the manifest from another node, and puts it where fetches look. It goes on when ctx ends.
func (a *Area) pull(ctx context.Context, at Place, p core.Pack) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ref := packRef{at: at, digest: p.Digest}
	a.pulls.mu.Lock()
	one := a.pulls.now[ref]
	if one == nil {
		one = &pull{done: make(chan struct{})}
		a.pulls.now[ref] = one
		a.wait.Go(func() {
			one.err = a.pullFromAny(at, p)
			a.pulls.mu.Lock()
			delete(a.pulls.now, ref)
			a.pulls.mu.Unlock()
			close(one.done)
		})
	}
	a.pulls.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pullAll gets packs of one repository, several at once.
func (a *Area) pullAll(ctx context.Context, at Place, packs []core.Pack) error {
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	failed := make(chan error, len(packs))
	begin := make(chan struct{}, 2*pullsAtOnce)
	for _, p := range packs {
		begin <- struct{}{}
		go func() { // ends with ctx at the latest
			failed <- a.pull(ctx, at, p)
			<-begin
		}()
	}
	var first error
	for range packs {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	if errors.Is(first, context.DeadlineExceeded) {
		return core.Unavailable{Reason: "pack_unavailable"}
	}
	return first
}

// pullFromAny asks all other nodes, for a while: a node that has the pack may be starting. The
// order is: wait for a slot, take the transfer (or wait while the same pack comes by another way),
// then ask one node after another, each for what is still missing. What came from one node counts
// for the next.
func (a *Area) pullFromAny(at Place, p core.Pack) error {
	select {
	case a.pulls.slots <- struct{}{}:
		defer func() { <-a.pulls.slots }()
	case <-a.life.Done():
		return a.life.Err()
	}
	ctx, cancel := context.WithTimeout(a.life, stageTime(pullWait, p.Bytes+p.IdxBytes))
	defer cancel()
	if err := a.room(p.Bytes + p.IdxBytes); err != nil {
		return err
	}
	var t *transfer
	for t == nil {
		got, done, err := a.take(at, p, "p-"+p.Digest.String())
		switch {
		case errors.Is(err, errTaking): // the node that got the push is sending it
			if !a.pause(ctx, callRetry/5) {
				return ctx.Err()
			}
			if a.linkIfStaged(at, p) == nil {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		defer done()
		t = got
	}
	defer t.drop()
	for {
		h, several := a.hosts(at.Shard)
		if !several {
			return core.Unavailable{Reason: "pack_unavailable"}
		}
		for _, node := range h.Others {
			err := a.pullFrom(ctx, node, t)
			if err == nil {
				return t.settle()
			}
			a.o.Logger.Debug("pack not had from a node", "node", node, "pack", p.Digest.String(), "err", err)
		}
		if a.linkIfStaged(at, p) == nil { // it came another way
			return nil
		}
		if !a.pause(ctx, callRetry) {
			return core.Unavailable{Reason: "pack_unavailable"}
		}
	}
}

// pullFrom gets what is missing of a pack from one node. A pack that came whole and is not what was
// announced is thrown away, since it is not known which part is wrong.
func (a *Area) pullFrom(ctx context.Context, node uint64, t *transfer) error {
	err := a.lines.call(ctx, node, func(c Conn) error {
		have, err := t.have()
		if err != nil {
			return err
		}
		q := ask(askFetch, t.r.at, t.p)
		q.From, q.FromIdx = have[0], have[1]
		if err := say(c, &q); err != nil {
			return err
		}
		var got answer
		if err := hear(c, &got); err != nil {
			return err
		}
		if got.Say != sayGo {
			return errAnswer{got.Say}
		}
		return t.read(ctx, c, have, true)
	})
	if err != nil {
		return err
	}
	if err := t.verify(); err != nil {
		t.drop() // a part of it was wrong, here or there: from the beginning
		return errors.Join(err, a.o.FS.MkdirAll(t.dir))
	}
	return nil
}

// settle puts a pack that came whole where fetches look, in place of one that is damaged. The files
// are durable already; after the renames and the sync of the directory a crash finds the pack. A
// crash between the renames is found by the next sync, which reads both files.
func (t *transfer) settle() error {
	dir := t.a.dir(t.r.at.path(), objectsDir, packDir)
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	for i, suffix := range suffixes {
		if err := t.a.o.FS.Rename(t.files[i], filepath.Join(dir, packName(t.p.Digest)+suffix)); err != nil {
			return err
		}
	}
	if err := t.a.syncDir(dir); err != nil {
		return err
	}
	t.a.open.drop(packRef{at: t.r.at, digest: t.p.Digest})
	t.r.retire() // it may have a link to the damaged one
	t.r.add(t.p.Digest, true)
	t.a.stats.pulled.Add(1)
	t.a.stats.pulledBytes.Add(uint64(t.p.Bytes + t.p.IdxBytes))
	return nil
}

// linkIfStaged makes sure that a pack of the manifest lies where fetches look, if it lies anywhere here.
func (a *Area) linkIfStaged(at Place, p core.Pack) error {
	r := a.repoAt(at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := a.settle(at, p); err != nil {
		return err
	}
	r.add(p.Digest, true)
	return nil
}

// serveFetch gives a pack to a node that lacks it, from where it lies: a commit may name it that is
// not applied here. It reads from the open files, so it is not disturbed when a rollup takes their
// names away.
func (a *Area) serveFetch(c Conn, q *question) error {
	at, p := q.place(), q.pack()
	files, err := a.openAny(at, p)
	if errors.Is(err, fs.ErrNotExist) {
		return say(c, &answer{Say: sayMissing})
	} else if err != nil {
		return errors.Join(err, say(c, &answer{Say: sayMissing}))
	}
	defer func() {
		for _, f := range files {
			_ = f.Close() // it was only read
		}
	}()
	if err := say(c, &answer{Say: sayGo, Pack: p.Bytes, Idx: p.IdxBytes}); err != nil {
		return err
	}
	if err := sendRest(c, files, [2]int64{q.From, q.FromIdx}, p); err != nil {
		return err
	}
	a.stats.given.Add(1)
	return nil
}

// stagedAs lists what the files of a pack that is staged whole are called, without their suffixes: once for each push.
func (a *Area) stagedAs(at Place, d core.Digest) (list []string, err error) {
	dir := a.dir(at.path(), stagedDir)
	names, err := a.o.FS.List(dir)
	for _, n := range names {
		if base, ok := strings.CutSuffix(n, ".idx"); ok && strings.HasPrefix(n, d.String()+"-") {
			list = append(list, filepath.Join(dir, base))
		}
	}
	return list, err
}

// openAny opens both files of a pack, of the announced sizes, by any of their names.
func (a *Area) openAny(at Place, p core.Pack) (files [2]env.File, err error) {
	dir := a.dir(at.path())
	staged, err := a.stagedAs(at, p.Digest)
	if err != nil {
		return files, err
	}
	err = fs.ErrNotExist
	for _, base := range append([]string{filepath.Join(dir, objectsDir, packDir, packName(p.Digest))}, staged...) {
		if files, err = a.openSized(base, p); err == nil {
			return files, nil
		}
	}
	return files, err
}

// openSized opens both files of a pack under one name, if they have the sizes that the manifest
// says.
func (a *Area) openSized(base string, p core.Pack) (files [2]env.File, err error) {
	for i, suffix := range suffixes {
		size, err := a.o.FS.Size(base + suffix)
		if err == nil && size != [2]int64{p.Bytes, p.IdxBytes}[i] {
			err = damagedf(base[len(a.o.Dir):]+suffix, "%d bytes", size)
		}
		if err == nil {
			files[i], err = a.o.FS.Open(base + suffix)
		}
		if err != nil {
			if i > 0 {
				_ = files[0].Close() // it was only read
			}
			return files, err
		}
	}
	return files, nil
}

// catchUp looks, again and again, at what manifests name that this node has not: it was away, or
// the pack was staged at others. What is staged here is linked. seen has the version up to which
// each repository is complete, so that a repository is looked at again only when its list has
// changed or something was missing. It rests for a multiple of the time that a round took.
func (a *Area) catchUp() {
	seen := make(map[Place]uint64)
	for wait := catchUpEvery; a.pause(a.life, wait); {
		began := a.o.Clock.Boot()
		next := make(map[Place]uint64, len(seen))
		err := a.o.Manifests.Each(a.life, func(at Place, version uint64, packs int64) error {
			if seen[at] == version {
				next[at] = version
				return nil
			}
			if packs >= int64(a.o.RollFrom) {
				a.crowded(at)
			}
			whole, err := a.complete(at)
			if whole {
				next[at] = version
			}
			return err
		})
		if err != nil {
			if a.life.Err() == nil {
				a.o.Logger.Warn("look for packs that other nodes have", "err", err)
			}
			continue
		}
		seen = next
		wait = max(catchUpEvery, catchUpShare*(a.o.Clock.Boot()-began))
	}
}

// complete gets the packs of one repository that are not here. whole is false when one did not
// come. A pack that is on its way is looked at again in the next round.
func (a *Area) complete(at Place) (whole bool, err error) {
	packs, found, err := a.o.Manifests.Packs(a.life, at)
	if err != nil || !found {
		return err == nil, err
	}
	whole = true
	var lacking []core.Pack
	for i := range packs {
		p := packs[i].Pack
		switch {
		case a.lies(at, p):
		case a.unpublished(at, p):
		case a.isTaken(at, p.Digest):
			whole = false // it is on its way
		default:
			lacking = append(lacking, p)
		}
	}
	if len(lacking) > 0 && a.pullAll(a.life, at, lacking) != nil {
		whole = false
	}
	return whole, a.life.Err()
}

// lies reports whether files of a pack's sizes are where fetches look. Their content is read when they are first used.
func (a *Area) lies(at Place, p core.Pack) bool {
	base := a.dir(at.path(), objectsDir, packDir, packName(p.Digest))
	for i, suffix := range suffixes {
		if size, err := a.o.FS.Size(base + suffix); err != nil || size != [2]int64{p.Bytes, p.IdxBytes}[i] {
			return false
		}
	}
	return true
}

// unpublished links a pack that is only staged, durably, and removes the staged names. It was
// staged for a push of this or another node, and the manifest names it now.
func (a *Area) unpublished(at Place, p core.Pack) bool {
	staged, err := a.stagedAs(at, p.Digest)
	if err != nil || a.linkIfStaged(at, p) != nil {
		return false
	}
	for _, as := range staged {
		a.unstage(at, as)
	}
	return true
}
