package backup

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/refs"
	"github.com/millrace/millrace/internal/store"
)

// objects puts the files of all repositories where a server looks for them.
//
// It goes over the state twice: first it counts what the repositories need and whether the disk has
// room for it, then it copies. A file that several repositories name is in the backup once, and
// here in each of them.
func (r *restore) objects(st *store.Store, c *Content) error {
	need := int64(0)
	last := gitobj.Place{}
	err := r.eachPack(st, func(at gitobj.Place, p core.Pack) error {
		if at != last {
			last = at
			c.Repositories++
		}
		need += p.Bytes + p.IdxBytes
		return nil
	})
	if err != nil {
		return err
	}
	if !r.b.Manifest.Objects.Held {
		c.Bare = c.Repositories
		return nil
	}
	// What several repositories have is in the backup once, and each of them gets its own.
	if free, _, err := r.fs.Disk(r.dir); err == nil && uint64(need) > free {
		return &NoRoomError{Path: r.dir, Need: need, Free: free}
	}
	l := &listing{b: r.b}
	defer func() { _ = l.close() }() // it was only read
	if err := l.each(nil); err != nil {
		return err
	}
	to := gitobj.OfflineDir(r.fs, r.dir)
	err = r.eachPack(st, func(at gitobj.Place, p core.Pack) error {
		err := to.Put(at, p, func(f core.BackupFile) (io.ReadCloser, error) { return r.object(l, at, f) })
		if errors.As(err, new(*gitobj.DamagedError)) {
			return errs.Corruptf("%s: %v", r.damaged(p), err)
		}
		return err
	})
	if err == nil {
		err = to.Sync()
	}
	if err != nil {
		return fmt.Errorf("restore the objects of repositories: %w", err)
	}
	return nil
}

// eachPack calls fn for each pack that the state names, one repository after another.
func (r *restore) eachPack(st *store.Store, fn func(at gitobj.Place, p core.Pack) error) error {
	for i := range r.b.Manifest.Shards {
		id := r.b.Manifest.Shards[i].Shard
		sh, err := st.Shard(id)
		if err != nil {
			return fmt.Errorf("shard %d: %w", id, err)
		}
		err = sh.View(func(v core.View) error {
			m := commit.New(commit.Options{Shard: id})
			if err := m.Open(v); err != nil {
				return err
			}
			for _, p := range m.Partitions() {
				err := refs.EachPack(v, p, func(repo core.RepoID, line core.PackLine) error {
					return fn(gitobj.Place{Shard: id, Partition: p, Repo: repo}, line.Pack)
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("shard %d: %w", id, err)
		}
	}
	return nil
}

// object opens a file that a repository needs. A file that no list has is not opened, even if the
// backup has it: no sum vouches for it.
func (r *restore) object(l *listing, at gitobj.Place, want core.BackupFile) (io.ReadCloser, error) {
	if listed, err := l.has(want); err != nil {
		return nil, err
	} else if !listed {
		return nil, errs.Corruptf("%s, which repository %s needs, is not in the backup", r.b.name(objectName(want)), at.Repo)
	}
	f, err := r.b.object(want)
	if err != nil {
		return nil, err
	}
	return fileReader{io.NewSectionReader(f, 0, want.Size), f}, nil
}

// fileReader reads a file of a backup from its beginning.
type fileReader struct {
	io.Reader
	io.Closer
}

// damaged names the file of a pack that is not what it was, by reading both again.
func (r *restore) damaged(p core.Pack) string {
	for _, f := range gitobj.FilesOf(p) {
		if r.b.verifyObject(f) != nil {
			return r.b.name(objectName(f))
		}
	}
	return r.b.path // it is what it was, now
}
