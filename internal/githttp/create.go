package githttp

import (
	"context"
	"errors"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// create makes the repository of a first push, once its pack is durable and whole: a push that is refused makes none. What
// Apply would refuse in a repository that has no refs and no rules is refused before.
func (p *pushing) create(ctx context.Context) error {
	if p.pack == nil { // deletions of what is not there
		p.refuse(textOf(&core.RefFailure{Reason: core.RefNotFound}))
		return nil
	}
	for i := range p.list {
		c := &p.list[i]
		if !c.open() || c.deletes() || !core.IsBranch(c.name) {
			continue
		}
		if c.kind != core.ObjectCommit {
			c.refused = textOf(&core.RefFailure{Reason: core.RefObjectNotCommit, Name: c.name, Expected: c.new, Type: c.kind})
		}
	}
	if p.caps["atomic"] {
		p.conflicts()
	}
	if p.none() {
		return nil
	}
	made, err := p.s.o.Backend.Create(ctx, p.repo, p.who.Name)
	if f, ok := errors.AsType[core.Fact](err); ok {
		text := f.Error()
		if edge.Is[core.RefRefused](err) {
			text = "the repository was made by somebody else just now: push again"
		}
		p.say(text)
		p.refuse(text)
		return nil
	} else if err != nil {
		return err
	}
	p.repo = made
	return nil
}

// conflicts refuses commands whose ref lies below that of another. In a repository without refs
// nothing else can be in the way of a new ref.
func (p *pushing) conflicts() {
	names := make(map[string]bool, len(p.list))
	for i := range p.list {
		if c := &p.list[i]; c.open() && !c.deletes() {
			names[c.name] = true
		}
	}
	for i := range p.list {
		c := &p.list[i]
		for at := strings.LastIndexByte(c.name, '/'); c.open() && at > 0; at = strings.LastIndexByte(c.name[:at], '/') {
			if names[c.name[:at]] {
				c.refused = textOf(&core.RefFailure{Reason: core.RefTxnConflict, Name: c.name, Other: c.name[:at]})
			}
		}
	}
}
