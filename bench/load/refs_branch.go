package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// branchRun is pushers that all push to one branch, each from a repository of its own.
type branchRun struct {
	*pushRun
	// own are the repositories of the pushers.
	own []gitDir

	// mu guards made and maybe.
	mu sync.Mutex
	// made are the commits whose push was acknowledged.
	made []string
	// maybe are the commits whose push has an unknown outcome.
	maybe []string
}

// oneBranch lets all pushers add commits to one branch. A pusher that comes second fetches, puts
// its commit on what is there now, and pushes again. Which commit is last is not known beforehand,
// so the audit proves the history instead: it has each acknowledged commit.
func (p *pushRun) oneBranch(ctx context.Context) error {
	b := &branchRun{pushRun: p}
	first := p.chains[0][0]
	if err := p.send(ctx, p.source, p.url, first, 0); err != nil {
		return err
	}
	b.made = append(b.made, first)
	for i := range p.chains {
		dir, err := initGit(ctx, p.source.home, fmt.Sprintf("pusher-%d.git", i))
		if err != nil {
			return err
		}
		if err := dir.borrow(p.source); err != nil {
			return err
		}
		b.own = append(b.own, dir)
	}
	if err := p.together(ctx, b.add); err != nil {
		return err
	}
	tip, err := b.fetch(ctx, 0)
	if err != nil {
		return err
	}
	p.ledger.Acked(0, tip) // which pusher was last is not known; the history is, and is proved
	p.rig.Proofs = append(p.rig.Proofs, b.history)
	return nil
}

// fetch fetches the branch into the caller's repository, and returns where it is.
func (b *branchRun) fetch(ctx context.Context, caller int) (string, error) {
	own := b.own[caller]
	if _, err := own.run(ctx, "", "fetch", "-q", "--no-write-fetch-head", b.url, "+"+b.ledger.Name(0)+":refs/remotes/tip"); err != nil {
		return "", err
	}
	return own.run(ctx, "", "rev-parse", "refs/remotes/tip")
}

// add lands one commit of a caller, in as many tries as that takes. Its latency counts from the first one. A
// push that failed for another reason than being second has an unknown outcome, and ends the run.
func (b *branchRun) add(ctx context.Context, caller, round int) (more bool, err error) {
	began := time.Now()
	for range pushTries {
		tip, err := b.fetch(ctx, caller)
		if err != nil {
			return false, err
		}
		// The commit has the tree of the tip: it changes no file, so that pushes cost the same each
		// time.
		id, err := b.own[caller].run(ctx, "", "commit-tree", "-p", tip, "-m", fmt.Sprintf("pusher %d, change %d", caller, round), tip+"^{tree}")
		if err != nil {
			return false, err
		}
		err = b.send(ctx, b.own[caller], b.url, id, 0)
		b.mu.Lock()
		switch {
		// A success is known, and a second place too. Any other failure leaves the commit in doubt.
		case err == nil:
			b.made = append(b.made, id)
		case !second(err):
			b.maybe = append(b.maybe, id)
		}
		b.mu.Unlock()
		if second(err) {
			b.refused.Add(1)
			continue
		}
		if err == nil {
			b.landed.Add(1)
		}
		b.push.Record(caller, began, 1, err)
		return err == nil, err
	}
	return false, fmt.Errorf("pusher %d came second %d times with one commit", caller, pushTries)
}

// second reports whether a push was refused because another one came first.
func second(err error) bool {
	e, ok := errors.AsType[*gitError](err)
	return ok && (strings.Contains(e.said, "[rejected]") || strings.Contains(e.said, "[remote rejected]"))
}

// history proves that the branch has each commit whose push was acknowledged, and only commits that
// were pushed.
func (b *branchRun) history(ctx context.Context) (wrong []string, err error) {
	if _, err := b.fetch(ctx, 0); err != nil {
		return nil, err
	}
	out, err := b.own[0].run(ctx, "", "rev-list", "refs/remotes/tip")
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	there := strings.Split(out, "\n")
	for _, id := range b.made {
		if !slices.Contains(there, id) {
			wrong = append(wrong, "lost: the push of "+id+" was acknowledged, and the branch does not have it")
		}
	}
	for _, id := range there {
		if !slices.Contains(b.made, id) && !slices.Contains(b.maybe, id) {
			wrong = append(wrong, "unexpected: the branch has "+id+", whose push was not acknowledged")
		}
	}
	// The first commit was pushed before the pushers began, so one alone means that none of theirs
	// landed.
	if len(b.made) < 2 {
		return wrong, errors.New("no push landed")
	}
	return wrong, nil
}
