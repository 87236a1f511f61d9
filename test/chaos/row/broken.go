package row

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// exitStorage is the status of a server that ended because its disk failed.
const exitStorage = 20

// BreakDisk makes n calls of a server's disk fail under a mixed load: a sync, or a write. Of what a failed
// sync was to write nothing is on the disk, though it looks as if it were, and the next sync succeeds. The server ends by
// itself with the status for that, the power goes, it starts again, and nothing is lost.
func BreakDisk(ctx context.Context, e Env, n int) (*Outcome, error) {
	// The archive lies elsewhere: a copy that cannot be written is tried again, while the log keeps what it is of.
	p, err := newPowered(ctx, e, "server", e.archiveFlags())
	if err != nil {
		return nil, err
	}
	o, _, err := faultsUnderLoad(ctx, e, p.s, e.archive(), kinds, func(ctx context.Context, o *Outcome) error {
		p.o = o
		for i := range n {
			pause(ctx, time.Duration(50+p.r.IntN(700))*time.Millisecond)
			if err := p.fail(ctx); err != nil {
				return fmt.Errorf("fault %d: %w", i+1, err)
			}
			o.Done++
		}
		return ctx.Err()
	})
	return o, errors.Join(err, p.close())
}

// fail makes one call of the disk fail, waits for the end of the server, cuts the power and starts
// the server again. The call is one of the next hundred of its kind.
func (p *powered) fail(ctx context.Context) error {
	kind := []string{"sync", "sync", "write"}[p.r.IntN(3)]
	rule := proc.DiskRule{Kinds: []string{kind}, Error: "EIO", Skip: p.r.IntN(100), Times: 1}
	if kind == "write" {
		// Of a write that takes two requests the second one's failure is told as a short write, and
		// the rest is tried again. So the next request fails too.
		rule.Times = 2
	}
	if err := p.disk().Rules(rule); err != nil {
		return err
	}
	switch code := p.s.ExitCode(hangs); code {
	case exitStorage:
		p.o.Faults["failed_"+kind]++
	case -1:
		// Perhaps no such call was made: the counts tell.
		calls, err := p.disk().Calls()
		return errors.Join(fmt.Errorf("the server goes on %s after a %s that was to fail; calls %+v", hangs, kind, calls), err)
	default:
		return fmt.Errorf("after a failed %s the server ended with status %d, see %s", kind, code, p.s.LogFile())
	}
	// It has ended as it should.
	p.s.Forget()
	if err := p.o.lose(p.disk(), p.r.Uint64(), drawShare(p.r)); err != nil {
		return err
	}
	if _, err := p.s.Start(ctx); err != nil {
		return fmt.Errorf("restart: %w, see %s", err, p.s.LogFile())
	}
	return nil
}
