package gitobj

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// heldGitdirs bounds the gitdirs of one repository that are kept for the next use.
const heldGitdirs = 4

// Refs calls yield for each ref of a repository at one revision, in byte order of their names, HEAD first.
type Refs func(yield func(core.Ref) error) error

// Gitdir is a directory in which git finds the refs of a repository as they were at one revision. It is made for reading,
// not synced, and nothing reads it back: without it another is made.
type Gitdir struct{ *gitdir }

// gitdir is what all users of one revision share. The one that asked first makes it, the others
// wait for ready. It is removed when it is old and its last user is gone: when newer ones have
// taken its place among those that are kept, or it was found broken.
type gitdir struct {
	r *repo
	a *Area
	// path is the directory, which git reads as a repository.
	path string
	// rev is the revision of the refs in it.
	rev uint64
	// users is how many use it, and old says that it is removed after its last use. Both are
	// guarded by r.mu.
	users int
	old   bool // to be removed after its last use
	// ready has one value once the directory is made, or could not be; the taker puts it back for
	// the next.
	ready chan error
	// once has it removed once, by the last user.
	once sync.Once
}

// Gitdir returns a gitdir with the refs of revision rev, which refs gives. Release ends its use. If
// the refs name objects that are not here yet, their packs are brought first, because git would not
// find them.
func (a *Area) Gitdir(ctx context.Context, at Place, rev uint64, refs Refs) (*Gitdir, error) {
	r := a.repoAt(at)
	r.mu.Lock()
	if err := a.make(r); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	var g *gitdir
	kept := r.gitdirs[:0]
	for _, have := range r.gitdirs {
		switch {
		case have.rev != rev:
			kept = append(kept, have)
		case a.whole(have):
			g = have
			kept = append(kept, have)
		default: // somebody removed it
			have.old = true
		}
	}
	clear(r.gitdirs[len(kept):])
	r.gitdirs = kept
	made := g == nil
	var gone []*gitdir
	if made {
		g = &gitdir{r: r, a: a, rev: rev, ready: make(chan error, 1), path: a.dir(at.path(), gitdirsDir, fmt.Sprintf("%s%08x-%d", a.boot, a.serial.Add(1), rev))}
		for len(r.gitdirs) >= heldGitdirs {
			first := r.gitdirs[0]
			r.gitdirs = r.gitdirs[1:]
			first.old = true
			if first.users == 0 {
				gone = append(gone, first)
			}
		}
		r.gitdirs = append(r.gitdirs, g)
	}
	g.users++
	r.mu.Unlock()
	for _, old := range gone {
		old.remove()
	}
	if made {
		a.stats.gitdirs.Add(1)
		err := a.fill(g, refs)
		if errors.Is(err, fs.ErrNotExist) {
			err = a.fill(g, refs) // somebody removed it while it was made
		}
		if err == nil { // refs may have moved to what was not here before they were read
			_, err = a.sync(ctx, r)
		}
		if err != nil {
			r.mu.Lock()
			g.old = true
			for i, have := range r.gitdirs {
				if have == g {
					r.gitdirs = append(r.gitdirs[:i:i], r.gitdirs[i+1:]...)
					break
				}
			}
			r.mu.Unlock()
		}
		g.ready <- err
	} else {
		a.stats.gitdirHits.Add(1)
	}
	out := &Gitdir{g}
	select {
	case err := <-g.ready:
		g.ready <- err
		if err != nil {
			out.Release()
			return nil, err
		}
		return out, nil
	case <-ctx.Done():
		out.Release()
		return nil, ctx.Err()
	}
}

// whole reports whether a gitdir is there, or still being made.
func (a *Area) whole(g *gitdir) bool {
	select {
	case err := <-g.ready:
		g.ready <- err
		if err != nil {
			return false
		}
		_, err = a.o.FS.Size(filepath.Join(g.path, "packed-refs"))
		return err == nil
	default:
		return true
	}
}

// Release ends the use of a gitdir.
func (g *Gitdir) Release() {
	g.r.mu.Lock()
	g.users--
	gone := g.old && g.users == 0
	g.r.mu.Unlock()
	if gone {
		g.remove()
	}
}

// remove removes the directory. No one uses it.
func (g *gitdir) remove() {
	g.once.Do(func() {
		if err := g.a.removeAll(g.path, treeDepth); err != nil {
			g.a.o.Logger.Warn("gitdir not removed; a start will", "err", err)
		}
	})
}

// makeGitdir makes what git takes for a repository without refs and objects.
func (a *Area) makeGitdir(dir string) error {
	if err := a.o.FS.MkdirAll(filepath.Join(dir, "refs")); err != nil {
		return err
	}
	return errors.Join(
		a.plain(filepath.Join(dir, "config"), func(w io.Writer) error { _, err := io.WriteString(w, config(a.children.usual())); return err }),
		a.plain(filepath.Join(dir, "HEAD"), func(w io.Writer) error { _, err := io.WriteString(w, "ref: refs/heads/none\n"); return err }),
	)
}

// plain writes a file that need not be durable.
func (a *Area) plain(name string, content func(w io.Writer) error) error {
	f, err := a.o.FS.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	err = content(w)
	if err == nil {
		err = w.Flush()
	}
	return errors.Join(err, f.Close())
}

// fill writes the refs into a gitdir: ids into packed-refs, symbolic refs, which that cannot hold,
// into files. HEAD is a file too, whatever it holds.
func (a *Area) fill(g *gitdir, refs Refs) error {
	if err := a.makeGitdir(g.path); err != nil {
		return err
	}
	return a.plain(filepath.Join(g.path, "packed-refs"), func(w io.Writer) error {
		if _, err := io.WriteString(w, "# pack-refs with: peeled fully-peeled sorted \n"); err != nil {
			return err
		}
		return refs(func(r core.Ref) error {
			switch {
			case r.Name == "HEAD" || r.Target != "":
				return a.loose(g.path, r)
			case r.Peeled.IsZero():
				_, err := fmt.Fprintf(w, "%s %s\n", r.ID, r.Name)
				return err
			}
			_, err := fmt.Fprintf(w, "%s %s\n^%s\n", r.ID, r.Name, r.Peeled)
			return err
		})
	})
}

// loose writes one ref into a file of its own. Names lead nowhere else, since the machine has
// checked them.
func (a *Area) loose(dir string, r core.Ref) error {
	name := filepath.Join(dir, r.Name) // the machine accepts only names that stay within dir
	if err := a.o.FS.MkdirAll(filepath.Dir(name)); err != nil {
		return err
	}
	return a.plain(name, func(w io.Writer) error {
		if r.Target != "" {
			_, err := fmt.Fprintf(w, "ref: %s\n", r.Target)
			return err
		}
		_, err := fmt.Fprintf(w, "%s\n", r.ID)
		return err
	})
}

// FetchSpec says what is fetched.
type FetchSpec struct {
	At        Place
	Tenant    core.TenantID // whose share of programs it takes
	Principal string        // and which of its principals'
	Protocol  string        // 0, 1 or 2
	Gitdir    *Gitdir       // where names of refs are found; nil: a request that names none
}

// Prepare makes sure that every pack of the manifest is there for a fetch.
func (a *Area) Prepare(ctx context.Context, at Place) error {
	if a.git.path == "" {
		return ErrNoGit
	}
	r := a.repoAt(at)
	if _, err := a.sync(ctx, r); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.make(r)
}

// Fetch answers one request of git's fetch: in gives the request, out takes the answer. Where git
// only says that something was cut off, the error is the reason that told has found.
func (a *Area) Fetch(ctx context.Context, s FetchSpec, in func(io.Writer) error, out func(io.Reader) error) error {
	dir := a.dir(emptyGitdir)
	if s.Gitdir != nil {
		dir = s.Gitdir.path
	}
	r, err := a.repoKnown(ctx, s.At)
	if err != nil {
		return err
	}
	objects, done := a.view(r)
	defer done()
	var got *told
	err = a.run(ctx, call{
		class: forFetch, tenant: s.Tenant, principal: s.Principal, bytes: a.fetchBytes(s.At),
		most: FetchTime, feed: in, args: []string{"upload-pack", "--strict", "--stateless-rpc", dir},
		drain: func(r io.Reader) error {
			got = newTold(r, a.children.shares[forFetch].most)
			return out(got)
		},
		env: a.environment(dir, "GIT_OBJECT_DIRECTORY="+objects, "GIT_PROTOCOL=version="+s.Protocol),
	})
	if errors.As(err, new(*FailedError)) && got != nil && got.why != nil {
		return got.why
	}
	return err
}

// fetchBytes is what a fetch is thought to need: git lists the objects of the repository.
func (a *Area) fetchBytes(at Place) int64 {
	r := a.repoAt(at)
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.children.usual() + objectCost*r.objects
}
