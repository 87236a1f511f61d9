package gitobj

import (
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// Ancestry tells whether to descends from from, of objects that may have been received just now. Either may be no commit.
func (p *Push) Ancestry(ctx context.Context, from, to core.ObjectID) (core.Ancestry, error) {
	env, done := p.environment()
	defer done()
	return p.a.ancestry(ctx, p.spec.Tenant, env, p.Lookup, from, to)
}

// Ancestry tells whether to descends from from, of objects of a repository. Without git that is not known.
func (a *Area) Ancestry(ctx context.Context, at Place, tenant core.TenantID, from, to core.ObjectID) (core.Ancestry, error) {
	held, done := a.view(a.repoAt(at))
	defer done()
	env := a.environment(a.dir(emptyGitdir), "GIT_OBJECT_DIRECTORY="+held)
	look := func(ctx context.Context, id core.ObjectID) (core.ObjectType, core.ObjectID, error) {
		return a.Lookup(ctx, at, id)
	}
	got, err := a.ancestry(ctx, tenant, env, look, from, to)
	if errors.Is(err, ErrNoGit) {
		return core.AncestryUnknown, nil
	}
	return got, err
}

func (a *Area) ancestry(ctx context.Context, tenant core.TenantID, env []string,
	look func(context.Context, core.ObjectID) (core.ObjectType, core.ObjectID, error), from, to core.ObjectID,
) (core.Ancestry, error) {
	if from == to {
		return core.FastForward, nil
	}
	for _, id := range []core.ObjectID{from, to} {
		t, _, err := look(ctx, id)
		if err != nil {
			return core.AncestryUnknown, err
		}
		if t != core.ObjectCommit {
			return core.Forced, nil // a tag, say, descends from nothing
		}
	}
	found := false
	err := a.run(ctx, call{
		tenant: tenant, most: PushTime, env: env, args: []string{"rev-list", "--max-count=1", from.String(), "^" + to.String()},
		drain: func(r io.Reader) error {
			b, err := io.ReadAll(io.LimitReader(r, 64))
			found = len(b) > 0
			return err
		},
	})
	switch {
	case err != nil:
		return core.AncestryUnknown, err
	case found:
		return core.Forced, nil
	}
	return core.FastForward, nil
}
