package load

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// The window is cut into rounds. In each, ours, git with synced refs and git's default work in turn on the same disk: what
// slows the host slows all.
const (
	refsRounds = 6
	refsCount  = 100 // refs of a deleting cell
)

// refsCell is what a row measures.
type refsCell struct {
	remove bool // else update
	packed bool
	size   int // refs of a transaction
}

func cellOf(kind string) (c refsCell, err error) {
	parts := strings.Split(kind, "-")
	c.remove, c.packed = parts[0] == "delete", parts[1] == "packed"
	c.size, err = strconv.Atoi(parts[len(parts)-1])
	return c, err
}

// refs returns how many refs there are: as many as a transaction updates, or 100 to delete.
func (c refsCell) refs() int {
	if c.remove {
		return refsCount
	}
	return c.size
}

// refsSide is one system that a cell is measured on.
type refsSide interface {
	// transact applies changes in one transaction.
	transact(ctx context.Context, changes []refsChange) error
	// restored is told that all refs are there again.
	restored(ctx context.Context, packed bool) error
	close() error
}

// refsChange is one change: of a ref from one commit to another, either of which may be empty.
type refsChange struct{ name, old, new string }

// refsTally is what one side did.
type refsTally struct {
	refs  uint64
	spent time.Duration
}

func (t refsTally) rate() float64 {
	if t.spent <= 0 {
		return 0
	}
	return float64(t.refs) / t.spent.Seconds()
}

// RefsGitaly is one client that changes refs, one transaction after the other, and git beside it.
func RefsGitaly(ctx context.Context, rig *bench.Rig) (err error) {
	if rig.Ceiling {
		return errors.New("no null server reads what this suite sends")
	}
	cell, err := cellOf(rig.Shape.Kind)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(rig.Dir, "refs")
	if err != nil {
		return err
	}
	commits, err := refsObjects(ctx, rig, dir)
	if err != nil {
		return err
	}
	sides := make([]refsSide, 3)
	defer func() {
		for _, s := range sides {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	if sides[0], err = newOurRefs(ctx, rig); err != nil {
		return err
	}
	for i, sync := range []string{"reference", "none"} {
		if sides[1+i], err = newGitRefs(ctx, dir, sync, i); err != nil {
			return err
		}
	}
	var tally [3]refsTally
	work := &refsWork{rig: rig, cell: cell, commits: commits}
	for _, s := range sides {
		if err := work.prepare(ctx, s); err != nil {
			return err
		}
	}
	var failed error
	err = rig.Work(ctx, func(over func() bool) { failed = work.rounds(ctx, sides, &tally, over) })
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return work.report(&tally)
}
