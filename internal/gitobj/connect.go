package gitobj

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// manyObjects is how many objects a check of what is connected walks with few tips excluded, before it begins again with
// all of them.
const manyObjects = 100_000

var errMany = errors.New("many objects")

// Connect checks that everything that the new ids need is there. tips are ids whose objects are known to be whole: they
// only make the walk shorter. When it is long nevertheless, all gives a gitdir with all refs, at whose tips it stops.
func (p *Push) Connect(ctx context.Context, ids, tips []core.ObjectID, all func(context.Context) (*Gitdir, error)) error {
	if len(ids) == 0 {
		return nil
	}
	most := int64(manyObjects)
	if all == nil {
		most = 1<<63 - 1
	}
	err := p.walk(ctx, p.environment(), []string{"rev-list", "--objects", "--no-object-names", "--stdin"}, ids, tips, most)
	if !errors.Is(err, errMany) {
		return err
	}
	g, err := all(ctx)
	if err != nil {
		return err
	}
	defer g.Release()
	env := append(p.environment(), "GIT_DIR="+g.path)[1:]
	return p.walk(ctx, env, []string{"rev-list", "--objects", "--no-object-names", "--stdin", "--not", "--all"}, ids, nil, 1<<63-1)
}

// walk runs rev-list and counts what it finds.
func (p *Push) walk(ctx context.Context, env, args []string, ids, tips []core.ObjectID, most int64) error {
	return p.a.run(ctx, call{
		tenant: p.spec.Tenant, most: PushTime, args: args, env: env,
		feed: func(w io.Writer) error {
			b := bufio.NewWriter(w)
			line := make([]byte, 0, 64)
			for _, id := range ids {
				line = append(append(line[:0], id.String()...), '\n')
				if _, err := b.Write(line); err != nil {
					return err
				}
			}
			for _, id := range tips {
				line = append(append(append(line[:0], '^'), id.String()...), '\n')
				if _, err := b.Write(line); err != nil {
					return err
				}
			}
			return b.Flush()
		},
		drain: func(r io.Reader) error {
			buf, bytes := make([]byte, 32<<10), int64(0)
			for {
				n, err := r.Read(buf)
				if bytes += int64(n); bytes/41 >= most { // each line is 40 digits
					return errMany
				}
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
			}
		},
	})
}

// Ancestry tells whether to descends from from, of objects that may have been received just now. Either may be no commit.
func (p *Push) Ancestry(ctx context.Context, from, to core.ObjectID) (core.Ancestry, error) {
	return p.a.ancestry(ctx, p.spec.Tenant, p.environment(), p.Lookup, from, to)
}

// Ancestry tells whether to descends from from, of objects of a repository. Without git that is not known.
func (a *Area) Ancestry(ctx context.Context, at Place, tenant core.TenantID, from, to core.ObjectID) (core.Ancestry, error) {
	env := a.environment(a.dir(emptyGitdir), "GIT_OBJECT_DIRECTORY="+a.dir(at.path(), objectsDir))
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
