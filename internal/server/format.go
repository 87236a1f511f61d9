package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// The format that a cluster writes entries in rises when an operator says that no program will be taken back, and only if
// the programs of all members know it. A data directory remembers it before anything of that format is written.

// ownMember is what the data directory remembers, as it was last written.
type ownMember struct {
	// mu guards member and the file.
	mu     sync.Mutex
	member Member
}

// remember changes what the data directory remembers: first on the disk, then in memory. On an
// error both stay as they were, as far as the file system tells.
func (r *Running) remember(fsys env.FS, change func(*Member)) error {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	next := r.own.member
	change(&next)
	if err := writeMember(fsys, r.o.Dir, next); err != nil {
		return err
	}
	r.own.member = next
	return nil
}

// keepFormat records the format that the node writes from now on, and tells the peers. The node
// calls it before it writes an entry of that format, so an older program refuses the directory even
// if the process dies right after.
func (r *Running) keepFormat(fsys env.FS, format uint16) error {
	r.own.mu.Lock()
	kept := r.own.member.Entries >= format
	r.own.mu.Unlock()
	if !kept {
		if err := r.remember(fsys, func(m *Member) { m.Entries = format }); err != nil {
			return err
		}
	}
	if r.peers != nil {
		r.peers.SetFormat(uint32(format))
	}
	return nil
}

// Finalized is the result of a finalize.
type Finalized struct {
	Format uint16 `json:"format"` // that the cluster writes from now on
	Before uint16 `json:"before"` // the same: nothing had to be raised
}

// finalize raises the format of the cluster to the newest one that any member's program knows, and
// logs who asked. Errors: core.FormatHeld, which names the members that do not know the format or
// are not reached; core.Unavailable, core.DeadlineExceeded, core.WrongMembership.
func (c *coordinator) finalize(ctx context.Context) (Finalized, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	out, err := finalizeUntil(c.node.Format(), func() (Finalized, error) { return c.finalizeOnce(ctx) },
		func() bool { return c.server.pause(ctx, changeAgain) == nil })
	c.o.audit(ctx, "finalize", err, "format", out.Format, "before", out.Before)
	return out, err
}

// finalizeUntil repeats once until it is known whether the format was raised, while pause says that
// there is time. Two things make it try again: the members changed between the check and the entry,
// or the leader went away and took the answer along. Repeating is safe, because raising to the same
// format twice changes nothing. before is the format that the whole call began with.
func finalizeUntil(before uint16, once func() (Finalized, error), pause func() bool) (Finalized, error) {
	var lost error // the error of a try whose outcome is not known
	for try := 0; ; try++ {
		out, err := once()
		out.Before = before // what an earlier try has raised, this call has
		w, members := errors.AsType[core.WrongMembership](err)
		u, leader := errors.AsType[core.Unavailable](err)
		if leader && u.Unknown {
			lost = err
		}
		switch again := members && w.Reason == "changed" || lost != nil; {
		case err == nil:
			return out, nil
		// The next try begins from the members and the format of that moment.
		case again && try < changeTries && pause():
		case lost != nil: // the refusal of a later try does not tell what became of that one
			return out, lost
		default:
			return out, err
		}
	}
}

// finalizeOnce checks the programs of all members and raises the format. The entry carries the
// version of the member list that was checked: if a member was added meanwhile, the entry is
// refused.
func (c *coordinator) finalizeOnce(ctx context.Context) (Finalized, error) {
	// Read before the members are asked: a change after this makes the entry be refused.
	version := c.node.Members().Version
	out := Finalized{Before: c.node.Format()}
	s := c.status(ctx)
	for _, n := range s.Nodes {
		out.Format = max(out.Format, n.Knows)
	}
	held := core.FormatHeld{Format: out.Format}
	for _, n := range s.Nodes {
		switch {
		case n.State == core.MemberJoining.String(): // its program is looked at when it comes
		case !n.Reachable:
			held.Silent = append(held.Silent, n.ID)
		case n.Knows < out.Format:
			held.Older = append(held.Older, n.ID)
		}
	}
	if len(held.Silent)+len(held.Older) > 0 {
		return out, held
	}
	if out.Format == out.Before {
		return out, nil
	}
	if err := c.node.RaiseFormat(ctx, &core.FormatRaise{To: out.Format, Members: version}); err != nil {
		return out, err
	}
	return out, nil
}

// clusterFinalize serves a finalize over the operator's socket.
func (a *admin) clusterFinalize(w http.ResponseWriter, r *http.Request) {
	p := a.parts.Load()
	if p == nil {
		plain(w, http.StatusServiceUnavailable, a.unready())
		return
	}
	out, err := p.asks.finalize(r.Context())
	if err != nil {
		code, text := refusedChange(err)
		plain(w, code, text)
		return
	}
	asJSON(w, out)
}

// formats lists which format each node's program knows, if they differ; empty if all know the same.
func formats(s *ClusterStatus) string {
	var out []string
	known := make(map[uint16]bool)
	for _, n := range s.Nodes {
		if n.Knows > 0 {
			known[n.Knows] = true
			out = append(out, fmt.Sprintf("node %d knows format %d", n.ID, n.Knows))
		}
	}
	if len(known) < 2 {
		return ""
	}
	slices.Sort(out)
	return "the programs differ: " + strings.Join(out, ", ")
}
