package gitobj

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/fault"
)

// packName is the name of a pack's files in objects/pack, before the dot.
func packName(d core.Digest) string { return "pack-" + d.String() }

// parsePackName reads that name.
func parsePackName(name string) (d core.Digest, ok bool) {
	text, ok := strings.CutPrefix(name, "pack-")
	if !ok || len(text) != hex.EncodedLen(len(d)) {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(text))
	return d, err == nil
}

// suffixes are those of a pack's files. The index is last: git takes a pack for there when its index is.
var suffixes = [2]string{".pack", ".idx"}

// stagedName is the name of a staged pack's files before the dot: its digest, the shard time from
// which it is counted, and which push it is of, for two may send the same bytes. The push is last:
// names sort by digest.
func stagedName(d core.Digest, at core.ShardTime, push string) string {
	return fmt.Sprintf("%s-%016x-%s", d, uint64(at), push)
}

// parseStaged reads the name of a staged file.
func parseStaged(name string) (d string, at core.ShardTime, ok bool) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimSuffix(name, ".pack"), ".idx"), "-")
	if len(parts) != 3 || len(parts[0]) != 2*len(core.Digest{}) || len(parts[1]) != 16 {
		return "", 0, false
	}
	stamp, err := strconv.ParseUint(parts[1], 16, 64)
	return parts[0], core.ShardTime(stamp), err == nil && stamp < 1<<63
}

// make makes a repository's directories, durably. Those that are there are made durable too, once,
// because who made them may have been killed before that. The caller holds r.mu. The owner file is
// written after the directories, so that a crash leaves either no repository or one that the next
// caller completes.
func (a *Area) make(r *repo) error {
	if r.made {
		return nil
	}
	at := a.dir(r.at.path())
	for _, d := range []string{incomingDir, stagedDir, gitdirsDir, viewsDir, filepath.Join(objectsDir, packDir)} {
		if err := a.o.FS.MkdirAll(filepath.Join(at, d)); err != nil {
			return fmt.Errorf("make directory of a repository: %w", err)
		}
	}
	p, name := r.at.Partition, filepath.Join(at, ownerFile)
	owner := fmt.Appendf(nil, "%d %d %d\n", p.Tenant, p.Namespace, p.Index)
	if there, err := env.ReadFile(a.o.FS, name, 64); err != nil || !bytes.Equal(there, owner) {
		if err := a.write(name, owner); err != nil {
			return err
		}
	} else if err := a.syncFile(name); err != nil {
		return err
	}
	for _, d := range []string{filepath.Join(at, objectsDir), at, filepath.Dir(at), a.o.Dir, filepath.Dir(a.o.Dir)} {
		if err := a.syncDir(d); err != nil {
			return err
		}
	}
	r.made = true
	return nil
}

// ownerFile says which partition a repository is of, so that its state can be asked for when only its directory is known.
// It is written last: without it a directory is not made yet.
const ownerFile = "OWNER"

// owner reads that.
func (a *Area) owner(dir string) (p core.Partition, err error) {
	b, err := env.ReadFile(a.o.FS, filepath.Join(dir, ownerFile), 64)
	if err != nil {
		return p, err
	}
	if n, err := fmt.Sscanf(string(b), "%d %d %d\n", &p.Tenant, &p.Namespace, &p.Index); n != 3 || err != nil {
		return p, damagedf(filepath.Join(dir, ownerFile), "it names no partition")
	}
	return p, nil
}

// write makes a file with that content, durably but for its name.
func (a *Area) write(name string, content []byte) error {
	f, err := a.o.FS.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncFile makes a file durable that another program wrote. A failure ends the taking of packs: what is on the disk is
// not known any more.
func (a *Area) syncFile(name string) error {
	f, err := a.o.FS.OpenReadWrite(name)
	if err != nil {
		return err
	}
	if err = fault.Point("gitobj.sync"); err == nil {
		err = f.Sync()
	}
	return a.syncFailed(errors.Join(err, f.Close()))
}

// syncDir makes the names in a directory durable.
func (a *Area) syncDir(name string) error { return a.syncFailed(env.SyncDir(a.o.FS, name)) }

// syncFailed notes a sync that failed: the system may have dropped what was not written, and a
// second sync would not tell.
func (a *Area) syncFailed(err error) error {
	if err != nil {
		a.broken.Store(true)
		a.o.Logger.Error("a sync failed: no more packs are taken until a restart", "err", err)
	}
	return err
}

// digest reads a file to its end.
func (a *Area) digest(name string) (d core.Digest, size int64, err error) {
	if size, err = a.o.FS.Size(name); err != nil {
		return d, 0, err
	}
	f, err := a.o.FS.Open(name)
	if err != nil {
		return d, 0, err
	}
	h := sha256.New()
	_, err = io.CopyBuffer(h, struct{ io.Reader }{io.NewSectionReader(f, 0, size)}, make([]byte, min(256<<10, max(size, 1))))
	h.Sum(d[:0])
	return d, size, errors.Join(err, f.Close())
}

// settle makes sure that a pack of the manifest lies in objects/pack and is what the manifest says;
// it links it there from staged if it does not. It reads both files to their end, so a caller
// remembers that it was done.
func (a *Area) settle(at Place, p core.Pack) error {
	name := filepath.Join(at.path(), objectsDir, packDir, packName(p.Digest))
	for i, suffix := range suffixes {
		_, err := a.o.FS.Size(a.dir(name + suffix))
		switch {
		case err == nil:
			err = a.fits(name+suffix, p, i)
		case errors.Is(err, fs.ErrNotExist):
			err = a.linkStaged(at, p, i, name+suffix)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linkStaged links a file of a pack, of which suffixes[kind] says which, from staged to its name in objects/pack. A staged
// name may be of content that a power cut has lost, or that is not synced yet.
func (a *Area) linkStaged(at Place, p core.Pack, kind int, to string) error {
	dir := filepath.Join(at.path(), stagedDir)
	names, err := a.o.FS.List(a.dir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range names {
		if !strings.HasSuffix(n, suffixes[kind]) || !strings.HasPrefix(n, p.Digest.String()+"-") {
			continue
		}
		from := filepath.Join(dir, n)
		if err := a.fits(from, p, kind); err != nil {
			a.o.Logger.Warn("a staged pack is not what its name says; another may be", "err", err)
			continue
		}
		if err := a.syncFile(a.dir(from)); err != nil {
			return fmt.Errorf("sync pack: %w", err)
		}
		return a.link(a.dir(from), a.dir(to))
	}
	return damagedf(to, "it is missing")
}

// fits reads a file of a pack to its end, and compares it with what the manifest says. A file that
// cannot be read is damaged as well, except for want of descriptors.
func (a *Area) fits(file string, p core.Pack, kind int) error {
	size, want := [2]int64{p.Bytes, p.IdxBytes}[kind], [2]core.Digest{p.Digest, p.Idx}[kind]
	switch got, n, err := a.digest(a.dir(file)); {
	case err != nil:
		return damagedf(file, "read: %v", err)
	case n != size:
		return damagedf(file, "%d bytes, not %d", n, size)
	case got != want:
		return damagedf(file, "its content is not what the manifest says")
	}
	return nil
}

// removeAll removes a directory and what is in it; deep bounds how far down. One that is not there is removed already.
func (a *Area) removeAll(name string, deep int) error {
	names, err := a.o.FS.List(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && deep > 0 {
		for _, n := range names {
			if err := a.removeAll(filepath.Join(name, n), deep-1); err != nil {
				return err
			}
		}
	} // else it is not a directory, or is not empty and cannot be removed
	if err := a.o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// gone removes a file, if it is there.
func (a *Area) gone(name string) error {
	if err := a.o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// treeDepth is how deep a repository's directories are: a gitdir's refs go deepest, as deep as a name has components.
const treeDepth = 70
