package githttp

import (
	"context"
	"io"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// textOf says why a ref did not move, in the words that git users know where there are any. Others
// are the reason's own name, with what it is about.
func textOf(f *core.RefFailure) string {
	switch f.Reason {
	case core.RefMismatch:
		return "stale info"
	case core.RefObjectMissing:
		return "missing necessary objects"
	case core.RefExists:
		return "reference already exists"
	case core.RefNotFound:
		return "reference does not exist"
	case core.RefBadName:
		return "funny refname"
	case core.RefConflict, core.RefTxnConflict:
		return line("'" + f.Other + "' exists; cannot create '" + f.Name + "'")
	case core.RefProtected:
		return line("protected by " + f.Other)
	case core.RefHidden:
		return "deny updating a hidden ref"
	case core.RefObjectNotCommit:
		return line("cannot update to non-commit object: " + f.Type.String())
	case core.RefRepoReadOnly:
		return "repository is read-only"
	}
	text := f.Reason.String()
	if f.Other != "" {
		text += ": " + f.Other
	}
	return line(text)
}

// nameConflicts names a ref that is in the way of one that could not be made, as git does, if the
// client may see any. Hidden refs are not told to a caller that may not see them: the query leaves
// them out.
func (p *pushing) nameConflicts(ctx context.Context, chunk []*command) {
	for _, c := range chunk {
		if c.below == "" {
			continue
		}
		c.refused = line("refs exist below '" + c.below + "'; cannot create '" + c.name + "'")
		q := p.query(c.below)
		q.Limit = 1
		// Without an answer the directory must do.
		_ = p.s.o.Backend.Refs(ctx, p.repo, q, func(core.RepoInfo) error { return nil }, func(r core.Ref) error {
			c.refused = textOf(&core.RefFailure{Reason: core.RefConflict, Name: c.name, Other: r.Name})
			return nil
		})
	}
}

// report answers a push: what became of the pack and of each command, if the client wants to know.
func (p *pushing) report() error {
	if p.gone(nil) {
		return nil
	}
	p.answer(receivePack + result)
	banded := p.caps["side-band-64k"]
	if banded { // reasons are told to those too who want it quiet: git shows what hooks say
		text := &bandWriter{w: p.request, band: bandText, most: 1000}
		for _, s := range p.said {
			if _, err := io.WriteString(text, s+"\n"); err != nil {
				return p.late(true, err)
			}
		}
	}
	if p.caps["report-status"] || p.caps["report-status-v2"] {
		var out io.Writer = p.request
		if banded {
			out = &bandWriter{w: p.request, band: bandData, most: maxPayload}
		}
		if err := p.status(out); err != nil {
			return p.late(true, err)
		}
	}
	if banded {
		_, err := p.Write([]byte(flushPkt))
		return p.late(true, err)
	}
	return nil
}

// status writes the report, in pieces of some size. So the report of a large push takes little
// memory.
func (p *pushing) status(w io.Writer) error {
	unpack := p.unpack
	if unpack == "" {
		unpack = "ok"
	}
	b := appendPkt(nil, "unpack ", clip(line(unpack)), "\n")
	for i := range p.list {
		c := &p.list[i]
		if c.refused == "" {
			b = appendPkt(b, "ok ", c.name, "\n")
		} else {
			b = appendPkt(b, "ng ", c.name, " ", clip(c.refused), "\n")
		}
		if len(b) > 32<<10 {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	_, err := w.Write(append(b, flushPkt...))
	return err
}

// textBytes bounds a text for people.
const textBytes = 500

// clip makes a text that may hold what a client sent UTF-8, and bounds it.
func clip(s string) string { return core.Cut(strings.ToValidUTF8(s, ""), textBytes) }
