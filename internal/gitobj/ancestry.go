package gitobj

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// Ancestry tells whether to descends from from, of objects that may have been received just now, kept or not. Either may be no
// commit.
func (p *Push) Ancestry(ctx context.Context, from, to core.ObjectID) (core.Ancestry, error) {
	return p.a.ancestry(ctx, p.spec.Tenant, p.environment, p.Lookup, from, to)
}

// Ancestry tells whether to descends from from, of objects of a repository. Without git that is not known.
func (a *Area) Ancestry(ctx context.Context, at Place, tenant core.TenantID, from, to core.ObjectID) (core.Ancestry, error) {
	where := func() ([]string, func(), error) {
		r, err := a.repoKnown(ctx, at)
		if err != nil {
			return nil, nil, err
		}
		held, done := a.view(r)
		return a.environment(a.dir(emptyGitdir), "GIT_OBJECT_DIRECTORY="+held), done, nil
	}
	look := func(ctx context.Context, id core.ObjectID) (core.ObjectType, core.ObjectID, error) {
		return a.Lookup(ctx, at, id)
	}
	got, err := a.ancestry(ctx, tenant, where, look, from, to)
	if errors.Is(err, ErrNoGit) {
		return core.AncestryUnknown, nil
	}
	return got, err
}

// ancestry asks git. where says in which directories it finds the objects, and how to end the use of those; it is called after
// both objects were looked up, because looking up is what brings packs that are not here yet.
func (a *Area) ancestry(ctx context.Context, tenant core.TenantID, where func() ([]string, func(), error),
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
	env, done, err := where()
	if err != nil {
		return core.AncestryUnknown, err
	}
	defer done()
	found := false
	err = a.run(ctx, call{
		tenant: tenant, most: PushTime, env: env, args: []string{"rev-list", "--max-count=1", from.String(), "^" + to.String()},
		drain: func(r io.Reader) error {
			b, err := io.ReadAll(io.LimitReader(r, 64))
			found = len(b) > 0
			return err
		},
	})
	if f, ok := errors.AsType[*FailedError](err); ok { // both are there: it is no fault of what a client sent
		err = fmt.Errorf("ancestry of %s and %s: %s", from, to, f.Line)
	}
	switch {
	case err != nil:
		return core.AncestryUnknown, err
	case found:
		return core.Forced, nil
	}
	return core.FastForward, nil
}
