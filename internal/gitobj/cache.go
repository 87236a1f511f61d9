package gitobj

import (
	"cmp"
	"errors"
	"path/filepath"
	"sync"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// typeCache remembers types of objects. Objects never go while their repository exists, so nothing is ever taken back.
// It keeps two generations: the young one becomes the old one when it is full, and what was not used since is forgotten.
type typeCache struct {
	mu sync.Mutex // guards the maps
	// young takes what was used last, most entries; old are those of the generation before.
	young, old map[typeKey]typeValue
	// most is how many entries a generation takes.
	most int
}

// typeKey is an object of a repository. An object of two repositories has two entries: one of them
// may be deleted.
type typeKey struct {
	repo core.RepoID
	id   core.ObjectID
}

// typeValue is an object's type and, of a tag, what it points to directly.
type typeValue struct {
	t      core.ObjectType
	target core.ObjectID
}

// typeCost is about what one object takes in a map of both: 57 bytes of content at the load of Go's maps.
const typeCost = 128

// newTypeCache returns a cache for that many bytes, shared equally by both generations.
func newTypeCache(bytes int64) *typeCache {
	return &typeCache{most: int(max(bytes/2/typeCost, 1)), young: make(map[typeKey]typeValue)}
}

// get looks into both generations. What it finds in the old one moves to the young one.
func (c *typeCache) get(repo core.RepoID, id core.ObjectID) (core.ObjectType, core.ObjectID, bool) {
	k := typeKey{repo, id}
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.young[k]
	if !ok {
		if v, ok = c.old[k]; ok {
			c.store(k, v)
		}
	}
	return v.t, v.target, ok
}

// put remembers an object.
func (c *typeCache) put(repo core.RepoID, id core.ObjectID, t core.ObjectType, target core.ObjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(typeKey{repo, id}, typeValue{t, target})
}

// store puts an entry into the young generation, which becomes the old one first if it is full. The
// caller holds mu.
func (c *typeCache) store(k typeKey, v typeValue) {
	if len(c.young) >= c.most {
		c.old, c.young = c.young, make(map[typeKey]typeValue)
	}
	c.young[k] = v
}

// packRef names a pack of a repository.
type packRef struct {
	// at is the repository, and digest names the pack.
	at     Place
	digest core.Digest
}

// openPacks bounds the packs that are open at once, each with two files and at most 64 KiB of ids, unless Options say less.
const openPacks = 512

// packCache keeps packs open. One that is in use is never closed.
type packCache struct {
	fs env.FS
	// dir is the area's directory, and most is how many packs may be open.
	dir  string
	most int

	mu sync.Mutex // guards the fields below
	// packs are the packs that are open.
	packs map[packRef]*openPack
	// turn counts the calls of acquire, so that the pack that was used longest ago can be told.
	turn uint64
}

// openPack is a pack with its files.
type openPack struct {
	pack
	// ref is what the cache knows it by.
	ref packRef
	// files are the pack and its index, as in suffixes.
	files [2]env.File
	// users is how many have acquired it and not released it. Its files are open for as long.
	users int
	used  uint64 // the turn of its last use
	// gone says that it is not in the cache any more: its last user closes it.
	gone bool
}

// newPackCache returns a cache without packs. most of 0 means openPacks.
func newPackCache(fs env.FS, dir string, most int) *packCache {
	return &packCache{fs: fs, dir: dir, most: cmp.Or(most, openPacks), packs: make(map[packRef]*openPack)}
}

// acquire returns an open pack of objects/pack; release gives it back. It refuses while as many as there may be are in use.
func (c *packCache) acquire(ref packRef) (*openPack, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	p := c.packs[ref]
	if p == nil {
		if !c.evict() {
			return nil, errDescriptors
		}
		var err error
		if p, err = openFiles(c.fs, c.dir, filepath.Join(ref.at.path(), objectsDir, packDir, packName(ref.digest))); err != nil {
			return nil, err
		}
		p.ref = ref
		c.packs[ref] = p
	}
	p.users++
	p.used = c.turn
	return p, nil
}

// release ends what acquire began.
func (c *packCache) release(p *openPack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.users--; p.gone && p.users == 0 {
		_ = p.close() // it was only read
	}
}

// evict makes room for one more, and reports whether there is. The caller holds mu. It closes the
// one that was used longest ago of those that are not in use.
func (c *packCache) evict() bool {
	if len(c.packs) < c.most {
		return true
	}
	var oldest *openPack
	for _, p := range c.packs {
		if p.users == 0 && (oldest == nil || p.used < oldest.used) {
			oldest = p
		}
	}
	if oldest != nil {
		delete(c.packs, oldest.ref)
		_ = oldest.close() // it was only read
	}
	return oldest != nil
}

// drop forgets a pack that was replaced, so that it is opened again.
func (c *packCache) drop(ref packRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.packs[ref]; p != nil {
		delete(c.packs, ref)
		if p.users == 0 {
			_ = p.close() // it was only read
		} else {
			p.gone = true
		}
	}
}

// forget closes what is open of a repository that is gone.
func (c *packCache) forget(at Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref, p := range c.packs {
		if ref.at == at && p.users == 0 {
			delete(c.packs, ref)
			_ = p.close()
		}
	}
}

// close closes all packs. None is in use.
func (c *packCache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []error
	for ref, p := range c.packs {
		all = append(all, p.close())
		delete(c.packs, ref)
	}
	return errors.Join(all...)
}

// close closes the files, those that were opened.
func (p *openPack) close() error {
	var all []error
	for _, f := range p.files {
		if f != nil {
			all = append(all, f.Close())
		}
	}
	return errors.Join(all...)
}

// openFiles opens a pack and its index; name is below dir and ends before the dot.
func openFiles(fs env.FS, dir, name string) (p *openPack, err error) {
	p = &openPack{pack: pack{file: name + ".pack"}}
	defer func() {
		if err != nil {
			_ = p.close()
			p = nil
		}
	}()
	var sizes [2]int64
	for i, file := range []string{name + ".pack", name + ".idx"} {
		full := filepath.Join(dir, file)
		if sizes[i], err = fs.Size(full); err == nil {
			p.files[i], err = fs.Open(full)
		}
		if err != nil {
			return p, damagedf(file, "open: %v", err)
		}
	}
	p.r, p.size = p.files[0], sizes[0]
	p.index, err = openIndex(p.files[1], name+".idx", sizes[1])
	return p, err
}
